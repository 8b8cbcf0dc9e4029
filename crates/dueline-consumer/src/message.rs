//! From a record to a task: what can be told from a message, and what to do when something cannot.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use dueline_core::KeyHash;
use dueline_core::envelope::{Envelope, Headers as _, header};
use dueline_core::letter::Reason;
use dueline_kafka::OwnedRecord;
use dueline_store::effect::Task;
use dueline_store::operate::instance::{Instance, SourceOrigin};
use serde_json::value::RawValue;

/// The most characters of a stranger's text in a reason.
const MAX_QUOTED_CHARS: usize = 80;

/// A task message in hand.
#[derive(Debug)]
pub struct Message {
    /// Its task.
    pub task: Task,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a message comes from, and how it has fared.
#[derive(Debug)]
pub struct Origin {
    /// The record, whole: a dead letter carries it on.
    pub record: OwnedRecord,
    /// The assignment of its partition during which it was read.
    pub assignment: u64,
    /// Not to be tried before this.
    pub not_before: Option<Instant>,
    /// How often its row was found locked or changed.
    pub moved: u32,
}

/// A record that is no task message which can be handled, but names what is wrong.
#[derive(Debug)]
pub struct Broken {
    /// The record, whole.
    pub record: OwnedRecord,
    /// The id, if the message can be told to be of our instance.
    pub task_id: Option<i64>,
    /// Why.
    pub reason: Reason,
    /// The error, for people.
    pub error: String,
}

impl Broken {
    /// What can still be read of the guard: key hash, generation, attempt.
    pub fn guard(&self) -> (Option<KeyHash>, Option<i32>, Option<i32>) {
        let text = |name| self.record.last_value(name).and_then(|v| std::str::from_utf8(v).ok());
        (
            text(header::KEY_HASH).and_then(KeyHash::from_hex),
            text(header::GENERATION).and_then(|t| t.parse().ok()),
            text(header::ATTEMPT).and_then(|t| t.parse().ok()),
        )
    }
}

/// What a record is.
#[derive(Debug)]
pub enum Sorted {
    /// A task to be handled.
    Task(Box<Message>),
    /// Of this instance before a failover: its row, if still live, is published again.
    Stale(OwnedRecord),
    /// To be buried or lettered.
    Broken(Box<Broken>),
    /// To be left where it is until somebody does something: the reason.
    Held(OwnedRecord, String),
}

/// What a message must agree with.
pub struct Sorter {
    /// The queue.
    pub queue: String,
    /// Whose messages are handled.
    pub instance: Instance,
    /// The kinds that have a handler here, with their largest payload in bytes.
    pub kinds: HashMap<Arc<str>, usize>,
}

impl Sorter {
    /// Sorts one record.
    pub fn sort(&self, record: OwnedRecord, assignment: u64) -> Sorted {
        match Envelope::read(&record) {
            Ok(envelope) => self.known_envelope(record, envelope, assignment),
            Err(error) if error.is_newer() => Sorted::Held(record, error.to_string()),
            Err(error) => self.unreadable(record, error.to_string()),
        }
    }

    fn unreadable(&self, record: OwnedRecord, error: String) -> Sorted {
        let identity = Envelope::read_identity(&record).map(|(id, source)| (id, source.to_owned()));
        let task_id = match identity {
            None => None,
            Some((id, source)) => match self.instance.origin_of(&source) {
                SourceOrigin::Ours => Some(id),
                SourceOrigin::BeforeFailover => return Sorted::Stale(record),
                SourceOrigin::Foreign => return self.foreign(record, &source),
            },
        };
        Sorted::Broken(Box::new(Broken { record, task_id, reason: Reason::Undecodable, error }))
    }

    fn foreign(&self, record: OwnedRecord, source: &str) -> Sorted {
        let own = self.instance.source();
        let reason = format!(
            "a message of another instance, {}, in the topic of {own}: give each instance topics of its \
             own, or `dueline instance adopt` if this database took the other's place",
            quoted(source)
        );
        Sorted::Held(record, reason)
    }

    fn known_envelope(&self, record: OwnedRecord, envelope: Envelope, assignment: u64) -> Sorted {
        match self.instance.origin_of(&envelope.source) {
            SourceOrigin::Ours => {}
            SourceOrigin::BeforeFailover => return Sorted::Stale(record),
            SourceOrigin::Foreign => return self.foreign(record, &envelope.source),
        }
        let task_id = Some(envelope.task_id);
        let broken = |record, reason, error: String| {
            Sorted::Broken(Box::new(Broken { record, task_id, reason, error }))
        };
        let Some((kind, max_payload)) = self.kinds.get_key_value(envelope.kind.as_str()) else {
            let error = format!("no handler for kind {}", quoted(&envelope.kind));
            return broken(record, Reason::UnknownKind, error);
        };
        if KeyHash::new(&self.queue, kind, &envelope.key) != envelope.key_hash {
            let error = "its key hash is not that of its queue, kind and key".to_owned();
            return broken(record, Reason::Undecodable, error);
        }
        let size = record.value.as_ref().map_or(0, Vec::len);
        if size > *max_payload {
            let error = format!("its payload has {size} bytes; kind `{kind}` allows {max_payload}");
            return broken(record, Reason::Oversized, error);
        }
        let payload = match payload(record.value.as_deref()) {
            Ok(payload) => payload,
            Err(error) => return broken(record, Reason::Undecodable, error),
        };
        let task = Task {
            id: envelope.task_id,
            kind: Arc::clone(kind),
            key: envelope.key,
            key_hash: envelope.key_hash,
            generation: envelope.generation,
            attempt: envelope.attempt,
            due_at: envelope.due_at,
            published_at: envelope.claimed_at,
            payload,
            traceparent: envelope.traceparent,
        };
        let origin = Origin { record, assignment, not_before: None, moved: 0 };
        Sorted::Task(Box::new(Message { task, origin }))
    }
}

/// What a stranger wrote, short and on one line.
fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(MAX_QUOTED_CHARS).collect::<String>())
}

/// The payload as JSON text; an empty value is none.
fn payload(value: Option<&[u8]>) -> Result<Option<Box<RawValue>>, String> {
    let Some(bytes) = value.filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
    let text = std::str::from_utf8(bytes).map_err(|e| format!("its payload is no UTF-8: {e}"))?;
    RawValue::from_string(text.to_owned())
        .map(Some)
        .map_err(|e| format!("its payload is no JSON: {e}"))
}

#[cfg(test)]
#[path = "tests/message.rs"]
mod tests;
