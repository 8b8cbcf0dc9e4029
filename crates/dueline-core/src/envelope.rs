//! The message that a relay publishes: CloudEvents 1.0, Kafka protocol binding, binary mode.
//!
//! The record's key is the task's key, its value the payload (JSON, possibly empty), its timestamp the
//! claim time in milliseconds, and everything else stands in headers whose names start with `ce_`.

use std::fmt::Write as _;

use crate::key::KeyHash;
use crate::time::Micros;

/// The version of this envelope. A message with a *newer* one is not understood, and must be left
/// where it is: the consumer pauses the partition instead of dead-lettering it.
pub const ENVELOPE_VERSION: u32 = 1;
/// `ce_type` of every task message.
pub const EVENT_TYPE: &str = "dueline.task.due";
/// `content-type` of every payload.
pub const CONTENT_TYPE: &str = "application/json";
/// The most bytes that a header value may have before the message counts as broken.
pub const MAX_HEADER_BYTES: usize = 4_096;
/// The most characters of a reason why a header cannot be read.
const MAX_REASON_CHARS: usize = 160;
/// The most headers that a task's own `headers` may add to a message.
pub const MAX_TASK_HEADERS: usize = 32;

/// Header names, in the order in which they are written.
pub mod header {
    /// CloudEvents version, always `1.0`.
    pub const SPEC_VERSION: &str = "ce_specversion";
    /// `<task id>-<generation>-<attempt>`: the same for every delivery of one try.
    pub const ID: &str = "ce_id";
    /// The instance that published: `dueline://<name>/<uuid>/<timeline>`.
    pub const SOURCE: &str = "ce_source";
    /// Always [`super::EVENT_TYPE`].
    pub const TYPE: &str = "ce_type";
    /// The task's key, again, for readers that see only headers.
    pub const SUBJECT: &str = "ce_subject";
    /// The deadline as asked for, RFC 3339 with microseconds.
    pub const TIME: &str = "ce_time";
    /// [`super::ENVELOPE_VERSION`].
    pub const VERSION: &str = "ce_duelineversion";
    /// The task's id, a decimal number.
    pub const TASK_ID: &str = "ce_taskid";
    /// The kind of the task: which action on the business object.
    pub const KIND: &str = "ce_kind";
    /// [`crate::KeyHash`] in hexadecimal.
    pub const KEY_HASH: &str = "ce_keyhash";
    /// How often the task was rescheduled, cancelled, re-opened, buried or replayed.
    pub const GENERATION: &str = "ce_generation";
    /// Failed attempts so far.
    pub const ATTEMPT: &str = "ce_attempt";
    /// The how-manieth claim of the alarm this message comes from, from 1.
    pub const DELIVERY: &str = "ce_delivery";
    /// When the relay claimed the alarm, RFC 3339 with microseconds.
    pub const CLAIMED_AT: &str = "ce_claimedat";
    /// W3C trace context, if the task was given one.
    pub const TRACEPARENT: &str = "traceparent";
    /// Media type of the value.
    pub const CONTENT_TYPE: &str = "content-type";
}

/// Access to the headers of a record, whatever client library holds them.
pub trait Headers {
    /// The value of the *last* header of this name, as Kafka's own clients resolve duplicates.
    fn last_value(&self, name: &str) -> Option<&[u8]>;
}

impl Headers for [(String, Vec<u8>)] {
    fn last_value(&self, name: &str) -> Option<&[u8]> {
        self.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
    }
}

impl Headers for Vec<(String, Vec<u8>)> {
    fn last_value(&self, name: &str) -> Option<&[u8]> {
        self.as_slice().last_value(name)
    }
}

/// What the headers of a task message say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The task's id in the deadline table of `source`.
    pub task_id: i64,
    /// The publishing instance, [`source_uri`].
    pub source: String,
    /// The kind of the task.
    pub kind: String,
    /// The business key.
    pub key: String,
    /// The hash of queue, kind and key.
    pub key_hash: KeyHash,
    /// The generation this message belongs to.
    pub generation: i32,
    /// Failed attempts before this one.
    pub attempt: i32,
    /// The how-manieth claim of the alarm, from 1.
    pub delivery: i32,
    /// The deadline as asked for.
    pub due_at: Micros,
    /// When the alarm was claimed.
    pub claimed_at: Micros,
    /// W3C trace context, if any.
    pub traceparent: Option<String>,
}

/// Why a record is no task message of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// A header is missing.
    #[error("header {0} is missing")]
    Missing(&'static str),
    /// A header cannot be read.
    #[error("header {name} cannot be read: {reason}")]
    Malformed {
        /// The header's name.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The value cannot be read.
    #[error("the body cannot be read: {reason}")]
    Body {
        /// What is wrong with it.
        reason: String,
    },
    /// The message is of a version that this binary does not know yet: not broken, just newer.
    #[error(
        "envelope version {0} is newer than {ENVELOPE_VERSION}, which this binary understands: \
         upgrade the consumer"
    )]
    Newer(u32),
}

impl EnvelopeError {
    /// Whether the message must be left in place (a newer version) rather than dead-lettered.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Newer(_))
    }
}

/// The source of every message of one instance on one timeline.
#[must_use]
pub fn source_uri(name: &str, uuid: &uuid::Uuid, timeline: u32) -> String {
    format!("dueline://{name}/{uuid}/{timeline}")
}

impl Envelope {
    /// The fixed headers and the optional `traceparent`, in the documented order.
    ///
    /// Calls `push` once per header, so that a producer can write into its own header list without an
    /// intermediate allocation per name.
    pub fn write_headers(&self, mut push: impl FnMut(&str, &[u8])) {
        let mut text = String::with_capacity(64);
        push(header::SPEC_VERSION, b"1.0");
        let _ = write!(text, "{}-{}-{}", self.task_id, self.generation, self.attempt);
        push(header::ID, text.as_bytes());
        push(header::SOURCE, self.source.as_bytes());
        push(header::TYPE, EVENT_TYPE.as_bytes());
        push(header::SUBJECT, self.key.as_bytes());
        let mut number = |name: &str, value: &dyn std::fmt::Display| {
            text.clear();
            let _ = write!(text, "{value}");
            push(name, text.as_bytes());
        };
        number(header::TIME, &self.due_at);
        number(header::VERSION, &ENVELOPE_VERSION);
        number(header::TASK_ID, &self.task_id);
        number(header::KIND, &self.kind);
        number(header::KEY_HASH, &self.key_hash);
        number(header::GENERATION, &self.generation);
        number(header::ATTEMPT, &self.attempt);
        number(header::DELIVERY, &self.delivery);
        number(header::CLAIMED_AT, &self.claimed_at);
        if let Some(traceparent) = &self.traceparent {
            push(header::TRACEPARENT, traceparent.as_bytes());
        }
        push(header::CONTENT_TYPE, CONTENT_TYPE.as_bytes());
    }

    /// Reads the headers of a record.
    ///
    /// # Errors
    /// [`EnvelopeError::Newer`] when the message must be left in place; anything else means that it is
    /// broken.
    pub fn read(headers: &(impl Headers + ?Sized)) -> Result<Self, EnvelopeError> {
        let version: u32 = number(headers, header::VERSION)?;
        if version > ENVELOPE_VERSION {
            return Err(EnvelopeError::Newer(version));
        }
        let event_type = text(headers, header::TYPE)?;
        if event_type != EVENT_TYPE {
            return Err(malformed(header::TYPE, format!("it is not `{EVENT_TYPE}`")));
        }
        Ok(Self {
            task_id: number(headers, header::TASK_ID)?,
            source: text(headers, header::SOURCE)?.to_owned(),
            kind: text(headers, header::KIND)?.to_owned(),
            key: text(headers, header::SUBJECT)?.to_owned(),
            key_hash: KeyHash::from_hex(text(headers, header::KEY_HASH)?)
                .ok_or_else(|| malformed(header::KEY_HASH, "32 hexadecimal digits expected"))?,
            generation: number(headers, header::GENERATION)?,
            attempt: number(headers, header::ATTEMPT)?,
            delivery: number(headers, header::DELIVERY)?,
            due_at: instant(headers, header::TIME)?,
            claimed_at: instant(headers, header::CLAIMED_AT)?,
            traceparent: match headers.last_value(header::TRACEPARENT) {
                Some(_) => Some(text(headers, header::TRACEPARENT)?.to_owned()),
                None => None,
            },
        })
    }

    /// What can be told of a broken message's task: the id and source, if those two can be read.
    #[must_use]
    pub fn read_identity(headers: &(impl Headers + ?Sized)) -> Option<(i64, &str)> {
        Some((number(headers, header::TASK_ID).ok()?, text(headers, header::SOURCE).ok()?))
    }
}

/// Parsers repeat what they were given, and whoever wrote the message chose that.
pub(crate) fn clean(reason: &str) -> String {
    let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    reason.chars().take(MAX_REASON_CHARS).map(clean).collect()
}

pub(crate) fn malformed(name: &'static str, reason: impl Into<String>) -> EnvelopeError {
    EnvelopeError::Malformed { name, reason: clean(&reason.into()) }
}

pub(crate) fn text<'a>(
    headers: &'a (impl Headers + ?Sized),
    name: &'static str,
) -> Result<&'a str, EnvelopeError> {
    let bytes = headers.last_value(name).ok_or(EnvelopeError::Missing(name))?;
    if bytes.len() > MAX_HEADER_BYTES {
        return Err(malformed(name, format!("longer than {MAX_HEADER_BYTES} bytes")));
    }
    std::str::from_utf8(bytes).map_err(|e| malformed(name, e.to_string()))
}

pub(crate) fn number<T>(
    headers: &(impl Headers + ?Sized),
    name: &'static str,
) -> Result<T, EnvelopeError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text(headers, name)?.parse().map_err(|e: T::Err| malformed(name, e.to_string()))
}

fn instant(headers: &(impl Headers + ?Sized), name: &'static str) -> Result<Micros, EnvelopeError> {
    Micros::parse_rfc3339(text(headers, name)?).map_err(|e| malformed(name, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Envelope {
        Envelope {
            task_id: 42,
            source: source_uri("shop", &uuid::Uuid::nil(), 1),
            kind: "close_order".into(),
            key: "1001".into(),
            key_hash: KeyHash::new("orders", "close_order", "1001"),
            generation: 1,
            attempt: 2,
            delivery: 3,
            due_at: Micros(1_796_083_199_000_001),
            claimed_at: Micros(1_796_083_199_004_000),
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        }
    }

    fn headers_of(envelope: &Envelope) -> Vec<(String, Vec<u8>)> {
        let mut headers = Vec::new();
        envelope.write_headers(|name, value| headers.push((name.to_owned(), value.to_vec())));
        headers
    }

    #[test]
    fn what_is_written_is_read_back() {
        let envelope = sample();
        assert_eq!(Envelope::read(&headers_of(&envelope)).expect("reads"), envelope);
    }

    #[test]
    fn h14_every_missing_header_is_named() {
        let optional =
            [header::SPEC_VERSION, header::ID, header::TRACEPARENT, header::CONTENT_TYPE];
        for (name, _) in headers_of(&sample()) {
            let mut headers = headers_of(&sample());
            headers.retain(|(n, _)| *n != name);
            match Envelope::read(&headers) {
                Ok(_) => assert!(optional.contains(&name.as_str()), "{name} is not optional"),
                Err(error) => assert!(error.to_string().contains(&name), "{error}"),
            }
        }
    }

    #[test]
    fn h14_h25_the_reason_is_one_short_line_whatever_the_header_says() {
        for text in ["0000-01-01T00:00:00Z".repeat(200), "2026-\u{1b}[2J\n".repeat(9)] {
            let mut headers = headers_of(&sample());
            headers.push((header::TIME.to_owned(), text.into_bytes()));
            let reason = Envelope::read(&headers).expect_err("no instant").to_string();
            assert!(reason.len() < 600 && !reason.chars().any(char::is_control), "{reason:?}");
        }
    }

    #[test]
    fn a_newer_version_is_not_broken() {
        let mut headers = headers_of(&sample());
        headers.push((header::VERSION.to_owned(), b"2".to_vec()));
        assert!(Envelope::read(&headers).expect_err("newer").is_newer());
    }

    #[test]
    fn h14_the_identity_of_a_broken_message_can_be_read() {
        let mut headers = headers_of(&sample());
        headers.push((header::GENERATION.to_owned(), b"many".to_vec()));
        assert!(Envelope::read(&headers).is_err());
        assert_eq!(Envelope::read_identity(&headers).map(|(id, _)| id), Some(42));
    }
}
