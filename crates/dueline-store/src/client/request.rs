//! What a caller asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use dueline_core::Micros;
use serde_json::Value;
use sqlx::postgres::types::PgInterval;

/// When a task is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// At an instant. One in the past is due at once.
    At {
        /// The instant.
        due_at: Micros,
        /// When the business event was: the time from then to `due_at` chooses the tier. `None`: now.
        event_at: Option<Micros>,
    },
    /// Some time after the business event (T3).
    After {
        /// The delay; rounded up to a microsecond.
        delay: Duration,
        /// When the business event was. `None`: now, by the database's clock.
        event_at: Option<Micros>,
    },
}

impl Deadline {
    /// At an instant.
    #[must_use]
    pub fn at(due_at: Micros) -> Self {
        Self::At { due_at, event_at: None }
    }

    /// So long after now, by the database's clock.
    #[must_use]
    pub fn after(delay: Duration) -> Self {
        Self::After { delay, event_at: None }
    }

    /// So long after a business event.
    #[must_use]
    pub fn after_event(event_at: Micros, delay: Duration) -> Self {
        Self::After { delay, event_at: Some(event_at) }
    }

    /// The three arguments of the SQL functions.
    pub(super) fn parts(&self) -> (Option<Micros>, Option<PgInterval>, Option<Micros>) {
        match self {
            Self::At { due_at, event_at } => (Some(*due_at), None, *event_at),
            Self::After { delay, event_at } => (None, Some(interval_ceil(*delay)), *event_at),
        }
    }
}

/// An interval that is never shorter than `duration`: a task must not be early by a rounding (H3).
pub(super) fn interval_ceil(duration: Duration) -> PgInterval {
    let micros = duration.as_nanos().div_ceil(1_000);
    PgInterval { months: 0, days: 0, microseconds: i64::try_from(micros).unwrap_or(i64::MAX) }
}

/// What `schedule` does with a key that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Leaves a live task as it is; opens a cancelled or skipped one again. A done or dead one answers
    /// [`Finished`](super::ReceiptKind::Finished).
    #[default]
    Keep,
    /// Gives the task the new deadline, payload and headers, from any state short of done.
    Reschedule,
    /// Refuses, with SQLSTATE 23505.
    Error,
}

impl OnConflict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Reschedule => "reschedule",
            Self::Error => "error",
        }
    }
}

/// One task to schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRequest {
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) deadline: Deadline,
    pub(super) payload: Option<Value>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) on_conflict: OnConflict,
    pub(super) jitter: Option<Duration>,
}

impl ScheduleRequest {
    /// A task without payload and headers, that is kept when it is there already.
    pub fn new(kind: impl Into<String>, key: impl Into<String>, deadline: Deadline) -> Self {
        Self {
            kind: kind.into(),
            key: key.into(),
            deadline,
            payload: None,
            headers: BTreeMap::new(),
            on_conflict: OnConflict::Keep,
            jitter: None,
        }
    }

    /// A small JSON value (by default at most 8 KiB) that travels with the message.
    #[must_use]
    pub fn payload(mut self, payload: Value) -> Self {
        self.payload = Some(payload);
        self
    }

    /// A header of the message, such as `traceparent`; at most 32.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// What to do when the key is taken.
    #[must_use]
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Moves the deadline later by a random part of this window (T5).
    #[must_use]
    pub fn jitter(mut self, window: Duration) -> Self {
        self.jitter = Some(window);
        self
    }
}

/// A new deadline for a task.
#[derive(Clone, Debug, PartialEq)]
pub struct RescheduleRequest {
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) deadline: Deadline,
    pub(super) payload: Option<Value>,
    pub(super) reason: Option<String>,
}

impl RescheduleRequest {
    /// A new deadline; the payload stays.
    pub fn new(kind: impl Into<String>, key: impl Into<String>, deadline: Deadline) -> Self {
        Self { kind: kind.into(), key: key.into(), deadline, payload: None, reason: None }
    }

    /// A new payload.
    #[must_use]
    pub fn payload(mut self, payload: Value) -> Self {
        self.payload = Some(payload);
        self
    }

    /// Why, for the audit table.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

/// Many tasks of one kind; 1,000 to 10,000 at once are the most economical.
///
/// `due_at`, `delays`, `payloads` and `headers` have one element per key, or one for all, or none. Exactly one of
/// `due_at` and `delays` is given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleMany {
    /// The kind.
    pub kind: String,
    /// The business keys.
    pub keys: Vec<String>,
    /// Instants.
    pub due_at: Vec<Micros>,
    /// Delays from `event_at`; rounded up to a microsecond.
    pub delays: Vec<Duration>,
    /// When the business event was. `None`: now, by the database's clock.
    pub event_at: Option<Micros>,
    /// Payloads.
    pub payloads: Vec<Option<Value>>,
    /// Headers: objects of strings.
    pub headers: Vec<Option<BTreeMap<String, String>>>,
    /// What to do with keys that are taken.
    pub on_conflict: OnConflict,
    /// Moves each deadline later by a random part of this window (T5).
    pub jitter: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h03_a_delay_is_rounded_up_to_a_microsecond() {
        assert_eq!(interval_ceil(Duration::from_nanos(1)).microseconds, 1);
        assert_eq!(interval_ceil(Duration::from_nanos(1_000)).microseconds, 1);
        assert_eq!(interval_ceil(Duration::from_nanos(1_001)).microseconds, 2);
    }
}
