//! The dead letter of an outcome that nobody can read: its bytes, and why.

use dueline_core::Micros;
use dueline_core::letter::{DeadLetter, Origin, Reason, header};
use dueline_kafka::{HeaderList, OwnedRecord, Record};

/// What the letter says.
pub(super) fn of(record: &OwnedRecord, error: &str, queue: &str, at: Option<Micros>) -> DeadLetter {
    DeadLetter {
        reason: Reason::Undecodable,
        error: error.to_owned(),
        queue: queue.to_owned(),
        at: at.unwrap_or_default(),
        task: None,
        origin: Some(Origin {
            topic: record.topic.to_string(),
            partition: record.partition,
            offset: record.offset,
        }),
    }
}

/// The record as it was, with the letter's headers.
pub(super) fn with_bytes<'a>(
    topic: &'a str,
    record: &'a OwnedRecord,
    letter: &DeadLetter,
) -> Record<'a> {
    let mut headers = HeaderList::with_capacity(record.headers.len() + 16);
    for (name, value) in &record.headers {
        if !name.starts_with(header::PREFIX) {
            headers.push(name, value);
        }
    }
    for (name, value) in letter.headers() {
        headers.push(name, value.as_bytes());
    }
    let (key, value) = (record.key.as_deref(), record.value.as_deref());
    Record { topic, key, value, headers, timestamp_ms: Some(letter.at.floor_ms()) }
}
