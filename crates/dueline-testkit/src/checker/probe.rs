//! V7 while work goes on: after everything has come to rest there is nothing left to break it.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use dueline_core::Micros;
use sqlx::PgPool;

use super::evidence::{Offset, Published};
use super::gather::{self, Places};

/// The record timestamp is the claim's in whole milliseconds, rounded down.
const ROUNDING: i64 = 1_000;

/// A claim that nobody has answered: id, generation, attempt, number.
type Claim = (i64, i32, i32, i32);

/// What one look found.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// How many messages of unanswered claims were looked at.
    pub checked: usize,
    /// Those that a committed offset has passed.
    pub passed: Vec<Passed>,
}

impl Probe {
    /// Adds what another look found.
    pub fn add(&mut self, other: Self) {
        self.checked += other.checked;
        self.passed.extend(other.passed);
    }
}

/// A message that was passed without an answer.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The message.
    pub record: Published,
    /// The group's committed offset at the look.
    pub committed: i64,
}

/// The group's offsets of topics that are no more, by topic and partition. Offsets outlive a topic that is made
/// anew, until somebody of the group notices; they say nothing of the new topic's records.
#[derive(Clone, Debug, Default)]
pub struct FormerOffsets {
    /// A topic was made anew a moment ago: an offset that stands now may be a former topic's, too, though the new
    /// one is longer already.
    pub remade: bool,
    known: HashMap<(String, i32), i64>,
}

impl FormerOffsets {
    /// The committed offsets that are receipts. One that lies behind the partition's end is of a former topic,
    /// and stays so, however long the new topic becomes, until another one is committed.
    fn receipts(&mut self, offsets: Vec<Offset>) -> HashMap<(String, i32), i64> {
        let mut receipts = HashMap::new();
        for Offset { topic, partition, committed, end, .. } in offsets {
            let Some(at) = committed else { continue };
            let place = (topic, partition);
            if at > end || self.remade {
                self.known.insert(place, at);
            } else if self.known.get(&place) != Some(&at) {
                self.known.remove(&place);
                receipts.insert(place, at);
            }
        }
        receipts
    }
}

/// Looks once: first at the committed offsets, then at the claims that are open, then for their messages.
/// What is still open after an offset was committed, and lies below that offset, was passed unanswered.
///
/// Offsets that somebody moved by hand, and topics that were made again meanwhile, are for the caller to
/// leave out. `former` is what earlier looks found.
///
/// # Errors
/// When the database or the broker does not answer.
pub async fn probe(pool: &PgPool, places: &Places, former: &mut FormerOffsets) -> Result<Probe> {
    let mut offsets = Vec::new();
    for queue in &places.queues {
        for topic in &queue.topics {
            offsets.extend(gather::offsets(&places.kafka, &queue.group, topic).await?);
        }
    }
    let committed = former.receipts(offsets);
    let open: Vec<(i64, i32, i32, i32, i64)> =
        sqlx::query_as(include_str!("../../sql/checker/open_claims.sql")).fetch_all(pool).await?;
    let Some(since) = open.iter().map(|(.., claimed_at)| *claimed_at).min() else {
        return Ok(Probe::default());
    };
    let open: HashSet<Claim> = open
        .into_iter()
        .map(|(id, generation, attempt, no, _)| (id, generation, attempt, no))
        .collect();
    let since_ms = Micros(since - ROUNDING).floor_ms();
    let mut found = Probe::default();
    for topic in places.queues.iter().flat_map(|queue| &queue.topics) {
        for record in gather::read(&places.kafka, topic, Some(since_ms), gather::published).await? {
            let Some(e) = &record.envelope else { continue };
            if !open.contains(&(e.task_id, e.generation, e.attempt, e.delivery)) {
                continue;
            }
            found.checked += 1;
            let at = committed.get(&(record.topic.clone(), record.partition)).copied();
            if let Some(committed) = at.filter(|committed| record.offset < *committed) {
                found.passed.push(Passed { record, committed });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_behind_the_end_is_of_a_former_topic_until_another_one_is_committed() {
        let look = |former: &mut FormerOffsets, committed, end| {
            let (group, topic) = ("g".to_owned(), "t".to_owned());
            let offset =
                Offset { group, topic, partition: 1, committed: Some(committed), low: 0, end };
            former.receipts(vec![offset]).get(&("t".to_owned(), 1)).copied()
        };
        let mut former = FormerOffsets::default();
        assert_eq!(look(&mut former, 12_566, 13_000), Some(12_566));
        assert_eq!(look(&mut former, 12_566, 200), None);
        assert_eq!(look(&mut former, 12_566, 20_000), None, "the new topic is longer by now");
        assert_eq!(look(&mut former, 70, 20_000), Some(70));
        assert_eq!(look(&mut former, 12_566, 20_000), Some(12_566));
        former.remade = true;
        assert_eq!(look(&mut former, 19, 40), None, "nobody knows of which topic it is");
        former.remade = false;
        assert_eq!(look(&mut former, 19, 60), None);
        assert_eq!(look(&mut former, 50, 60), Some(50));
    }
}
