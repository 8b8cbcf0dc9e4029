//! The dead letter: what a queue's `dlq` topic carries.
//!
//! A letter keeps the original key, value and headers and adds text headers that start with
//! `dueline-letter-`: why, where from, how many attempts. The database row decides that a task is dead
//! and the letter only tells of it; the one exception is a message that no row can be told from, whose
//! letter is its only trace (`task` is then `None`).

use crate::envelope::Headers;
use crate::key::KeyHash;
use crate::time::Micros;

/// The most characters of an error text that a letter carries.
pub const MAX_ERROR_CHARS: usize = 2_000;

/// Names of the headers that a letter adds.
pub mod header {
    /// [`super::Reason`] as text.
    pub const REASON: &str = "dueline-letter-reason";
    /// The last error, shortened to [`super::MAX_ERROR_CHARS`].
    pub const ERROR: &str = "dueline-letter-error";
    /// The queue.
    pub const QUEUE: &str = "dueline-letter-queue";
    /// When the task died or the message was refused, RFC 3339.
    pub const AT: &str = "dueline-letter-at";
    /// Failed attempts.
    pub const ATTEMPTS: &str = "dueline-letter-attempts";
    /// The topic that the refused message was read from.
    pub const TOPIC: &str = "dueline-letter-topic";
    /// The partition that the refused message was read from.
    pub const PARTITION: &str = "dueline-letter-partition";
    /// The offset that the refused message was read from.
    pub const OFFSET: &str = "dueline-letter-offset";
    /// Source of the dead task's instance.
    pub const SOURCE: &str = "dueline-letter-source";
    /// Id of the dead task.
    pub const TASK_ID: &str = "dueline-letter-taskid";
    /// Generation of the dead row (one more than that of the message that died).
    pub const GENERATION: &str = "dueline-letter-generation";
    /// Kind of the dead task.
    pub const KIND: &str = "dueline-letter-kind";
    /// Key of the dead task.
    pub const KEY: &str = "dueline-letter-key";
    /// Key hash of the dead task.
    pub const KEY_HASH: &str = "dueline-letter-keyhash";
    /// All names, so that a copy of a letter's headers can leave them out.
    pub const PREFIX: &str = "dueline-letter-";
}

/// Why something is in the dead-letter topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The last allowed attempt failed.
    Exhausted,
    /// The handler or the database said that trying again cannot help.
    Permanent,
    /// Its handler kills the consumer.
    Crashes,
    /// Unfinished for longer than the age limit.
    TooOld,
    /// Published and consumed again and again without an answer.
    Unanswered,
    /// A call ended without a known outcome, and must not be repeated.
    OutcomeUnknown,
    /// The message cannot be decoded.
    Undecodable,
    /// No handler is configured for the kind.
    UnknownKind,
    /// The payload is larger than the limit.
    Oversized,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::Exhausted,
        Self::Permanent,
        Self::Crashes,
        Self::TooOld,
        Self::Unanswered,
        Self::OutcomeUnknown,
        Self::Undecodable,
        Self::UnknownKind,
        Self::Oversized,
    ];

    /// The text in headers, in `stranded.reason` and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Permanent => "permanent",
            Self::Crashes => "crashes",
            Self::TooOld => "too_old",
            Self::Unanswered => "unanswered",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Undecodable => "undecodable",
            Self::UnknownKind => "unknown_kind",
            Self::Oversized => "oversized",
        }
    }

    /// Reads [`Reason::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == text)
    }
}

/// The dead task that a letter tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadTask {
    /// The instance.
    pub source: String,
    /// The task's id there.
    pub task_id: i64,
    /// The dead row's generation; a replay acts only on exactly this one.
    pub generation: i32,
    /// The kind.
    pub kind: String,
    /// The business key.
    pub key: String,
    /// Hash of queue, kind and key.
    pub key_hash: KeyHash,
    /// Failed attempts.
    pub attempts: i32,
}

/// Where a refused message was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Topic name.
    pub topic: String,
    /// Partition number.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
}

/// What a letter's own headers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Why it is here.
    pub reason: Reason,
    /// The last error as text.
    pub error: String,
    /// The queue.
    pub queue: String,
    /// When it died or was refused.
    pub at: Micros,
    /// The dead row, unless no row can be told from the message.
    pub task: Option<DeadTask>,
    /// Where the message was read, unless the letter comes from the row alone.
    pub origin: Option<Origin>,
}

impl DeadLetter {
    /// The letter's headers, in a fixed order. The original message's headers go before them.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            (header::REASON, self.reason.as_str().to_owned()),
            (header::ERROR, self.error.chars().take(MAX_ERROR_CHARS).collect()),
            (header::QUEUE, self.queue.clone()),
            (header::AT, self.at.to_string()),
        ];
        if let Some(task) = &self.task {
            all.extend([
                (header::ATTEMPTS, task.attempts.to_string()),
                (header::SOURCE, task.source.clone()),
                (header::TASK_ID, task.task_id.to_string()),
                (header::GENERATION, task.generation.to_string()),
                (header::KIND, task.kind.clone()),
                (header::KEY, task.key.clone()),
                (header::KEY_HASH, task.key_hash.to_string()),
            ]);
        }
        if let Some(origin) = &self.origin {
            all.extend([
                (header::TOPIC, origin.topic.clone()),
                (header::PARTITION, origin.partition.to_string()),
                (header::OFFSET, origin.offset.to_string()),
            ]);
        }
        all
    }

    /// Reads a letter's headers; `None` when it is no letter of ours.
    #[must_use]
    pub fn read(headers: &(impl Headers + ?Sized)) -> Option<Self> {
        let text = |name: &str| headers.last_value(name).and_then(|v| std::str::from_utf8(v).ok());
        let task = || {
            Some(DeadTask {
                source: text(header::SOURCE)?.to_owned(),
                task_id: text(header::TASK_ID)?.parse().ok()?,
                generation: text(header::GENERATION)?.parse().ok()?,
                kind: text(header::KIND)?.to_owned(),
                key: text(header::KEY)?.to_owned(),
                key_hash: KeyHash::from_hex(text(header::KEY_HASH)?)?,
                attempts: text(header::ATTEMPTS)?.parse().ok()?,
            })
        };
        let origin = || {
            Some(Origin {
                topic: text(header::TOPIC)?.to_owned(),
                partition: text(header::PARTITION)?.parse().ok()?,
                offset: text(header::OFFSET)?.parse().ok()?,
            })
        };
        Some(Self {
            reason: Reason::parse(text(header::REASON)?)?,
            error: text(header::ERROR).unwrap_or_default().to_owned(),
            queue: text(header::QUEUE)?.to_owned(),
            at: Micros::parse_rfc3339(text(header::AT)?).ok()?,
            task: task(),
            origin: origin(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d04_a_letter_says_why_where_from_and_how_often() {
        let letter = DeadLetter {
            reason: Reason::Exhausted,
            error: "gateway timeout".into(),
            queue: "orders".into(),
            at: Micros(1_796_083_199_000_001),
            task: Some(DeadTask {
                source: "dueline://shop/0/1".into(),
                task_id: 7,
                generation: 3,
                kind: "close_order".into(),
                key: "1001".into(),
                key_hash: KeyHash::new("orders", "close_order", "1001"),
                attempts: 4,
            }),
            origin: Some(Origin { topic: "dueline.orders.10s".into(), partition: 2, offset: 99 }),
        };
        let headers: Vec<(String, Vec<u8>)> = letter
            .headers()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into_bytes()))
            .collect();
        assert_eq!(DeadLetter::read(&headers), Some(letter));
    }
}
