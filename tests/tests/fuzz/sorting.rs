//! Whole records, up to the decision what they are: a task, stale, broken, or to be left where they are.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use dueline_consumer::sorting::{Sorted, Sorter};
use dueline_core::envelope::{header, source_uri};
use dueline_core::{Envelope, Headers as _, KeyHash};
use dueline_kafka::OwnedRecord;
use dueline_store::operate::instance::Instance;

use super::dice::Dice;
use super::envelope::{KIND, QUEUE, good, headers_of, readable, spoil};
use super::harness;

/// Bytes of a payload at most.
const MAX_PAYLOAD: usize = 8_192;

fn sorter() -> Sorter {
    let instance = Instance {
        name: "shop".into(),
        uuid: uuid::Uuid::nil(),
        system_identifier: "1".into(),
        timeline: 2,
        schema_version: 1,
        oldest_binary: "0.1.0".into(),
    };
    Sorter { queue: QUEUE.into(), instance, kinds: HashMap::from([(KIND.into(), MAX_PAYLOAD)]) }
}

fn record(dice: &mut Dice) -> OwnedRecord {
    let mut envelope = good(dice);
    if dice.one_in(8) {
        let (name, timeline) = (*dice.pick(&["shop", "clone"]), dice.below(4) as u32);
        envelope.source = source_uri(name, &uuid::Uuid::nil(), timeline);
    }
    let mut headers = headers_of(&envelope);
    spoil(dice, &mut headers);
    let value = match dice.below(4) {
        0 => None,
        1 => Some(dice.bytes(200)),
        2 => Some(dice.json(2 * MAX_PAYLOAD).into_bytes()),
        _ => {
            let mut bytes = br#"{"reason": "late", "n": [1, 2.5e3, null]}"#.to_vec();
            dice.bend(&mut bytes);
            Some(bytes)
        }
    };
    OwnedRecord {
        topic: Arc::from("t.orders.10s"),
        partition: 0,
        offset: dice.bits() as i64,
        timestamp_ms: dice.bits() as i64,
        key: (!dice.one_in(4)).then(|| dice.bytes(600)),
        value,
        headers,
    }
}

/// A task that is not what its message says must never come to a handler.
fn is_what_it_says(task: &dueline_store::effect::Task, record: &OwnedRecord) -> Result<()> {
    ensure!(&*task.kind == KIND && task.key_hash == KeyHash::new(QUEUE, KIND, &task.key));
    let size = record.value.as_ref().map_or(0, Vec::len);
    ensure!(size <= MAX_PAYLOAD, "{size} bytes of payload");
    let value = record.value.as_deref().filter(|value| !value.is_empty());
    let payload = task.payload.as_deref().map(|payload| payload.get().as_bytes());
    match (value, payload) {
        (Some(value), Some(payload)) => ensure!(value.trim_ascii() == payload.trim_ascii()),
        (None, None) => {}
        other => bail!("value and payload are {other:?}"),
    }
    Ok(())
}

fn says_why(text: &str) -> Result<()> {
    ensure!((10..1_200).contains(&text.len()), "the reason has {} bytes: {text}", text.len());
    ensure!(!text.chars().any(char::is_control), "the reason is not one line: {text:?}");
    Ok(())
}

#[test]
fn h14_any_record_is_sorted_and_kept_whole() -> Result<()> {
    let sorter = sorter();
    let own = sorter.instance.source();
    harness::run(harness::SORTING, &["task", "stale", "broken", "held"], |dice| {
        let record = record(dice);
        dice.show(|| {
            let value = record.value.as_deref().map(|value| value.escape_ascii().to_string());
            format!("headers {}, value {value:?}", readable(&record.headers))
        });
        let whole = |kept: &OwnedRecord| -> Result<()> {
            ensure!(*kept == record, "the record was changed: {kept:?}");
            Ok(())
        };
        let source = record.last_value(header::SOURCE);
        Ok(match sorter.sort(record.clone(), 1) {
            Sorted::Task(message) => {
                whole(&message.origin.record)?;
                ensure!(source == Some(own.as_bytes()), "of another source");
                is_what_it_says(&message.task, &record)?;
                "task"
            }
            Sorted::Stale(kept) => {
                whole(&kept)?;
                ensure!(source != Some(own.as_bytes()), "of our own source");
                "stale"
            }
            Sorted::Broken(broken) => {
                whole(&broken.record)?;
                says_why(&broken.error)?;
                broken.guard();
                let of_us = source == Some(own.as_bytes());
                ensure!(broken.task_id.is_none() || of_us, "an id counts only with our source");
                "broken"
            }
            Sorted::Held(kept, why) => {
                whole(&kept)?;
                says_why(&why)?;
                let newer = Envelope::read(&record).is_err_and(|error| error.is_newer());
                ensure!(newer || source != Some(own.as_bytes()), "held without a cause: {why}");
                "held"
            }
        })
    })
}
