//! The dead from the dead-letter topics.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use dueline_core::DeadLetter;
use dueline_kafka::{KafkaError, OwnedRecord, read_all};
use dueline_store::operate::dead::DeadFilter;

use super::source::{Dead, Found, Letter};
use crate::args::Selection;
use crate::context::Context;
use crate::exit;
use crate::output::fail;

/// The longest that one topic may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The next offset of each partition, by topic: `topic[partition]@offset`, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Positions(BTreeMap<(String, i32), i64>);

impl Positions {
    fn parse(text: &str) -> Option<Self> {
        let mut positions = BTreeMap::new();
        for part in text.split(',') {
            let (place, offset) = part.split_once('@')?;
            let (topic, partition) = place.strip_suffix(']')?.split_once('[')?;
            positions.insert((topic.to_owned(), partition.parse().ok()?), offset.parse().ok()?);
        }
        Some(Self(positions))
    }

    fn text(&self) -> String {
        let parts: Vec<String> =
            self.0.iter().map(|((topic, p), offset)| format!("{topic}[{p}]@{offset}")).collect();
        parts.join(",")
    }

    /// Whether the record was passed before.
    fn has_passed(&self, record: &OwnedRecord) -> bool {
        let key = (record.topic.to_string(), record.partition);
        self.0.get(&key).is_some_and(|next| record.offset < *next)
    }

    fn pass(&mut self, record: &OwnedRecord) {
        self.0.insert((record.topic.to_string(), record.partition), record.offset + 1);
    }
}

/// Reads the dead-letter topics of the configured queues, one after another.
pub async fn find(
    context: &Context,
    select: &Selection,
    filter: &DeadFilter,
) -> anyhow::Result<Found> {
    let mut positions = match &select.after {
        None => Positions::default(),
        Some(text) => Positions::parse(text).ok_or_else(|| {
            fail(
                exit::REFUSED,
                "--after: write the cursor as it was printed: TOPIC[PARTITION]@OFFSET,…",
            )
        })?,
    };
    let queues = context.config.queues.values();
    let topics: Vec<String> = queues
        .filter(|queue| filter.queue.as_ref().is_none_or(|name| *name == queue.name))
        .map(dueline_config::Queue::dead_letter_topic)
        .collect();
    if topics.is_empty() {
        return Err(fail(exit::NOT_FOUND, "the configuration has no such queue"));
    }
    let (settings, filter, ids) = (context.kafka(), filter.clone(), select.ids.clone());
    let limit = select.limit as usize;
    let read = tokio::task::spawn_blocking(move || {
        let mut found = Found::default();
        for topic in &topics {
            let take = |record| {
                take(record, &filter, &ids, &mut positions, &mut found);
                if found.dead.len() >= limit {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            read_all(&settings, topic, TIMEOUT, take)?;
            if found.dead.len() >= limit {
                found.more = Some(positions.text());
                break;
            }
        }
        Ok::<_, KafkaError>(found)
    });
    Ok(read.await??)
}

fn take(
    record: OwnedRecord,
    filter: &DeadFilter,
    ids: &[i64],
    positions: &mut Positions,
    found: &mut Found,
) {
    if positions.has_passed(&record) {
        return;
    }
    positions.pass(&record);
    let Some(letter) = DeadLetter::read(&record) else {
        found.unreadable += 1;
        return;
    };
    if matches(&letter, filter, ids) {
        let cursor = positions.text();
        found.dead.push(Dead::Letter(Box::new(Letter { letter, record, cursor })));
    }
}

fn matches(letter: &DeadLetter, filter: &DeadFilter, ids: &[i64]) -> bool {
    let task = letter.task.as_ref();
    let is = |wanted: &Option<String>, actual: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| Some(wanted) == actual)
    };
    is(&filter.queue, Some(&letter.queue))
        && is(&filter.kind, task.map(|t| t.kind.as_str()))
        && is(&filter.reason, Some(letter.reason.as_str()))
        && filter.since.is_none_or(|since| letter.at >= since)
        && filter.until.is_none_or(|until| letter.at < until)
        && filter.key.as_ref().is_none_or(|p| task.is_some_and(|t| p.matches(&t.key)))
        && (ids.is_empty() || task.is_some_and(|t| ids.contains(&t.task_id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dueline_core::KeyHash;
    use dueline_core::Micros;
    use dueline_core::letter::{DeadTask, Reason};
    use dueline_store::operate::dead::KeyPattern;

    fn record(partition: i32, offset: i64, letter: Option<&DeadLetter>) -> OwnedRecord {
        let headers = letter.map(DeadLetter::headers).unwrap_or_default();
        OwnedRecord {
            topic: "d.orders.dlq".into(),
            partition,
            offset,
            timestamp_ms: 0,
            key: None,
            value: None,
            headers: headers.into_iter().map(|(n, v)| (n.to_owned(), v.into_bytes())).collect(),
        }
    }

    fn letter(id: i64, key: &str) -> DeadLetter {
        DeadLetter {
            reason: Reason::Exhausted,
            error: "x".into(),
            queue: "orders".into(),
            at: Micros(1_000_000),
            task: Some(DeadTask {
                source: "s".into(),
                task_id: id,
                generation: 1,
                kind: "close_order".into(),
                key: key.into(),
                key_hash: KeyHash::new("orders", "close_order", key),
                attempts: 4,
            }),
            origin: None,
        }
    }

    #[test]
    fn d06_reading_goes_on_where_a_cursor_says() {
        let letters = [letter(1, "a"), letter(2, "b"), letter(3, "c")];
        let (mut positions, mut found) = (Positions::default(), Found::default());
        let none = DeadFilter::default();
        take(record(0, 5, Some(&letters[0])), &none, &[], &mut positions, &mut found);
        take(record(1, 9, Some(&letters[1])), &none, &[], &mut positions, &mut found);
        let cursor = found.dead[1].cursor();
        assert_eq!(cursor, "d.orders.dlq[0]@6,d.orders.dlq[1]@10");
        let mut again = Positions::parse(&cursor).expect("reads");
        assert_eq!(again, positions);
        let mut rest = Found::default();
        for (partition, offset, letter) in
            [(0, 5, &letters[0]), (1, 9, &letters[1]), (1, 10, &letters[2])]
        {
            take(record(partition, offset, Some(letter)), &none, &[], &mut again, &mut rest);
        }
        assert_eq!(rest.dead.len(), 1, "only the letter that was not passed");
        assert!(Positions::parse("nonsense").is_none());
    }

    #[test]
    fn letters_are_filtered_as_rows_are() {
        let one = letter(7, "order-1001");
        let with = |change: fn(&mut DeadFilter)| {
            let mut filter = DeadFilter::default();
            change(&mut filter);
            matches(&one, &filter, &[])
        };
        assert!(with(|_| {}));
        assert!(with(|f| f.key = Some(KeyPattern::new("order-*"))));
        assert!(!with(|f| f.key = Some(KeyPattern::new("x*"))));
        assert!(!with(|f| f.kind = Some("refund".into())));
        assert!(!with(|f| f.reason = Some("permanent".into())));
        assert!(!with(|f| f.since = Some(Micros(1_000_001))));
        assert!(!with(|f| f.until = Some(Micros(1_000_000))));
        assert!(matches(&one, &DeadFilter::default(), &[7]));
        assert!(!matches(&one, &DeadFilter::default(), &[8]));
    }

    #[test]
    fn what_is_no_letter_is_counted_and_passed() {
        let (mut positions, mut found) = (Positions::default(), Found::default());
        let none = DeadFilter::default();
        take(record(0, 1, None), &none, &[], &mut positions, &mut found);
        assert_eq!((found.unreadable, found.dead.len()), (1, 0));
    }
}
