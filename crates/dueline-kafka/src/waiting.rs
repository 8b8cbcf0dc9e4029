//! Whether a published task still waits in its topic (protocol: "Still waiting in the topic").
//!
//! The sweep asks this before it publishes a task again: as long as the message is there and the
//! handling group has not passed it, another copy would only make the backlog longer (hazard H12).
//! The answer may be wrong in one direction only: *gone* for a message that waits costs a
//! duplicate, which the guards stop.

use std::collections::BTreeMap;

use dueline_core::Micros;
use dueline_core::partition::partition_for;
use rdkafka::Offset;

use crate::admin::{Admin, Inner};
use crate::error::KafkaError;

/// The most lookups of one call; two binary searches over a full batch take some twenty.
const MAX_ROUNDS: usize = 64;

/// Published tasks of one topic.
#[derive(Clone, Debug)]
pub struct WaitingQuery {
    /// The topic.
    pub topic: String,
    /// The topic's id at the claim.
    pub topic_id: String,
    /// The topic's partitions at the claim.
    pub partitions: u32,
    /// The queue's handling group.
    pub group: String,
    /// The tasks.
    pub claims: Vec<Claim>,
}

/// One published task.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The record's key.
    pub key: Vec<u8>,
    /// When it was claimed; in whole milliseconds, rounded down, the record's timestamp.
    pub claimed_at: Micros,
}

/// Whether a published task still waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its message is in the topic and the group has not passed it.
    Waiting {
        /// Whether the group has a committed offset in the partition. If not, its living members
        /// are all that speaks for it, and that is to be believed for three leases at most.
        committed: bool,
    },
    /// The group has passed it, or it was deleted unread: publish again, and count that nobody answered.
    Consumed,
    /// It never was in this topic, or nothing speaks for it any more, with the reason: publish again.
    Gone(&'static str),
    /// Kafka could not be asked.
    Unknown(KafkaError),
}

impl Admin {
    /// Judges each claim, in the order given. Takes about two requests, and a few lookups more the
    /// more different claim times there are.
    pub async fn still_waiting(&self, query: WaitingQuery) -> Vec<Verdict> {
        let count = query.claims.len();
        match self.run(move |inner| judge_all(inner, &query)).await {
            Ok(verdicts) => verdicts,
            Err(error) => vec![Verdict::Unknown(error); count],
        }
    }
}

fn judge_all(inner: &Inner, query: &WaitingQuery) -> Result<Vec<Verdict>, KafkaError> {
    let count = query.claims.len();
    let everything = |reason| Ok(vec![Verdict::Gone(reason); count]);
    match inner.identify(std::slice::from_ref(&query.topic))?.pop().flatten() {
        None => return everything("the topic does not exist any more"),
        Some(topic) if topic.topic_id != query.topic_id => {
            return everything("the topic was deleted and made again");
        }
        Some(topic) if topic.partitions != query.partitions => {
            return everything("the topic was widened");
        }
        Some(_) => {}
    }
    let mut searches = searches(query);
    add_facts(inner, query, &mut searches)?;
    for _ in 0..MAX_ROUNDS {
        let asked: Vec<(u32, i64)> =
            searches.iter().filter_map(|(p, s)| Some((*p, s.next_probe()?))).collect();
        if asked.is_empty() {
            break;
        }
        let offsets = inner.list_offsets(&query.topic, &asked)?;
        for ((partition, ms), first) in asked.iter().zip(offsets) {
            if let Some(search) = searches.get_mut(partition) {
                search.answer(*ms, first);
            }
        }
    }
    let verdict = |claim: &Claim| {
        let search = searches.get(&partition_for(&claim.key, query.partitions));
        search.map_or(Verdict::Gone("it has no partition"), |s| {
            s.verdict(claim.claimed_at.floor_ms())
        })
    };
    Ok(query.claims.iter().map(verdict).collect())
}

/// One search for each partition that has a claim.
fn searches(query: &WaitingQuery) -> BTreeMap<u32, Search> {
    let mut searches: BTreeMap<u32, Search> = BTreeMap::new();
    for claim in &query.claims {
        let partition = partition_for(&claim.key, query.partitions);
        searches.entry(partition).or_default().times.push(claim.claimed_at.floor_ms());
    }
    for search in searches.values_mut() {
        search.times.sort_unstable();
        search.times.dedup();
        search.known = vec![None; search.times.len()];
    }
    searches
}

/// Log start and committed offset. Members are counted only where nothing is committed.
fn add_facts(
    inner: &Inner,
    query: &WaitingQuery,
    searches: &mut BTreeMap<u32, Search>,
) -> Result<(), KafkaError> {
    let lows = inner.ends(&query.topic, query.partitions, Offset::Beginning)?;
    let committed = inner.committed(&query.group, &query.topic, query.partitions)?;
    let mut members = None;
    for (partition, search) in searches {
        let index = *partition as usize;
        search.low = lows.get(index).copied().unwrap_or_default();
        search.group = match committed.get(index).copied().flatten() {
            Some(offset) => Group::Committed(offset),
            None => {
                let members = match members {
                    Some(known) => known,
                    None => *members.insert(inner.members(&query.group)?),
                };
                if members > 0 { Group::Starting } else { Group::Absent }
            }
        };
    }
    Ok(())
}

/// How far the handling group is in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Group {
    /// It has passed everything below.
    Committed(i64),
    /// Nothing is committed, and it has members: they start at log start.
    Starting,
    /// Nothing is committed, and nobody is there.
    #[default]
    Absent,
}

/// What is known of one claim time in a partition. The order matters: with rising time a claim can
/// only go from consumed over waiting to lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Consumed,
    Waiting,
    Lost,
}

/// What the first record at or after a claim time says of the claim.
///
/// `first` may be a later record of the same millisecond, or of another task when this one's
/// produce was lost: then the claim is believed to wait until that record is consumed, and is
/// published again after.
fn classify(first: Option<i64>, low: i64, group: Group) -> Class {
    let Some(first) = first else { return Class::Lost };
    let passed = match group {
        Group::Committed(offset) => offset,
        Group::Starting => low,
        Group::Absent => return Class::Consumed,
    };
    // Records that the group had not read were deleted, and this is the first one left: the claim's
    // own record may be among the deleted.
    let maybe_deleted = passed < low && first <= low;
    if first < passed || maybe_deleted { Class::Consumed } else { Class::Waiting }
}

/// Two binary searches over the claim times of a partition in one: where consumed ends, and where
/// lost begins. Thousands of claim times cost some twenty lookups instead of thousands.
#[derive(Debug, Default)]
struct Search {
    /// Distinct claim times in milliseconds, ascending.
    times: Vec<i64>,
    /// What was looked up of each.
    known: Vec<Option<Class>>,
    low: i64,
    group: Group,
}

impl Search {
    /// What was looked up, or follows from equal neighbours on both sides.
    fn class(&self, index: usize) -> Option<Class> {
        let below = self.known[..=index].iter().rev().find_map(|class| *class)?;
        let above = self.known[index..].iter().find_map(|class| *class)?;
        (below == above).then_some(below)
    }

    /// The next time to look up; `None` when every class is known.
    fn next_probe(&self) -> Option<i64> {
        let last = self.times.len().checked_sub(1)?;
        // The ends first: mostly they agree, and nothing more is to be asked.
        for end in [0, last] {
            if self.known[end].is_none() {
                return Some(self.times[end]);
            }
        }
        let mut left = 0;
        for right in 1..=last {
            let Some(class) = self.known[right] else { continue };
            if right - left > 1 && self.known[left] != Some(class) {
                return Some(self.times[left + (right - left) / 2]);
            }
            left = right;
        }
        None
    }

    fn answer(&mut self, ms: i64, first: Option<i64>) {
        if let Ok(index) = self.times.binary_search(&ms) {
            self.known[index] = Some(classify(first, self.low, self.group));
        }
    }

    fn verdict(&self, ms: i64) -> Verdict {
        let class = self.times.binary_search(&ms).ok().and_then(|index| self.class(index));
        match class {
            Some(Class::Waiting) => {
                Verdict::Waiting { committed: matches!(self.group, Group::Committed(_)) }
            }
            Some(Class::Lost) => Verdict::Gone("no record at or after the claim: it was lost"),
            Some(Class::Consumed) if self.group == Group::Absent => {
                Verdict::Gone("the group has neither an offset nor members")
            }
            Some(Class::Consumed) => Verdict::Consumed,
            None => Verdict::Gone("its claim time could not be placed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn h12_a_record_at_or_after_the_committed_offset_waits() {
        assert_eq!(classify(Some(7), 0, Group::Committed(7)), Class::Waiting);
        assert_eq!(classify(Some(8), 0, Group::Committed(7)), Class::Waiting);
        assert_eq!(classify(Some(6), 0, Group::Committed(7)), Class::Consumed);
    }

    #[test]
    fn h07_no_record_since_the_claim_means_that_the_produce_was_lost() {
        assert_eq!(classify(None, 0, Group::Committed(0)), Class::Lost);
        assert_eq!(classify(None, 0, Group::Starting), Class::Lost);
    }

    #[test]
    fn h11_unread_records_that_were_deleted_are_not_waiting() {
        // The group stood at 3, the log now starts at 10: the claim's record may have been below.
        assert_eq!(classify(Some(10), 10, Group::Committed(3)), Class::Consumed);
        // Records between log start and this one are older than the claim, so it was not deleted.
        assert_eq!(classify(Some(11), 10, Group::Committed(3)), Class::Waiting);
        // Deleted up to where the group stood: nothing unread is missing.
        assert_eq!(classify(Some(10), 10, Group::Committed(10)), Class::Waiting);
    }

    #[test]
    fn h11_a_group_without_offsets_is_believed_while_it_has_members() {
        assert_eq!(classify(Some(0), 0, Group::Starting), Class::Waiting);
        assert_eq!(classify(Some(0), 0, Group::Absent), Class::Consumed);
    }

    /// Drives a search against a log whose record `i` has timestamp `log[i]`.
    fn run(mut search: Search, log: &[i64]) -> (Search, usize) {
        let mut rounds = 0;
        while let Some(ms) = search.next_probe() {
            rounds += 1;
            assert!(rounds <= MAX_ROUNDS, "the search does not end");
            let first = log.iter().position(|at| *at >= ms).map(|i| i as i64);
            search.answer(ms, first.filter(|first| *first >= search.low));
        }
        (search, rounds)
    }

    fn search(times: impl IntoIterator<Item = i64>, committed: i64) -> Search {
        let times: Vec<i64> = times.into_iter().collect();
        let known = vec![None; times.len()];
        Search { times, known, low: 0, group: Group::Committed(committed) }
    }

    #[test]
    fn many_claim_times_need_few_lookups() {
        let log: Vec<i64> = (0..10_000).collect();
        let (_, rounds) = run(search(0..5_000, 0), &log);
        assert_eq!(rounds, 2, "all wait: both ends say so");
        let (found, rounds) = run(search(0..12_000, 4_321), &log);
        assert!(rounds < 40, "{rounds}");
        assert_eq!(found.verdict(4_320), Verdict::Consumed);
        assert_eq!(found.verdict(4_321), Verdict::Waiting { committed: true });
        assert_eq!(found.verdict(9_999), Verdict::Waiting { committed: true });
        assert!(matches!(found.verdict(10_000), Verdict::Gone(_)));
    }

    proptest! {
        /// The search agrees with looking up every time by itself.
        #[test]
        fn h12_the_search_agrees_with_one_lookup_per_claim(
            mut log in prop::collection::vec(0_i64..200, 0..60),
            times in prop::collection::btree_set(0_i64..220, 1..60),
            committed in 0_i64..70,
        ) {
            log.sort_unstable();
            let (found, _) = run(search(times.iter().copied(), committed), &log);
            for ms in times {
                let first = log.iter().position(|at| *at >= ms).map(|i| i as i64);
                let expected = classify(first, 0, Group::Committed(committed));
                let waits = found.verdict(ms) == Verdict::Waiting { committed: true };
                prop_assert_eq!(waits, expected == Class::Waiting);
            }
        }
    }
}
