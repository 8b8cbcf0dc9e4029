//! What a caller is told.

use std::fmt;

use dueline_core::{Micros, TaskState};
use serde_json::Value;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::{StoreError, Timestamptz};

/// What became of a request. Honest or not given: each says only what is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptKind {
    /// A new task.
    Scheduled,
    /// The task was there already and is live; nothing was changed.
    Kept,
    /// It was cancelled or skipped and is live again, as asked for now.
    Reopened,
    /// It has the new deadline; nothing of the old one can still run.
    Rescheduled,
    /// It will not run.
    Cancelled,
    /// As asked; a message is under way and will be dropped.
    PublishedWillBeDropped,
    /// As asked, but an earlier try elsewhere may have had its effect.
    MayHaveRun,
    /// Its call elsewhere has begun: nothing was changed. A wish to cancel is remembered.
    Running,
    /// Nothing was changed: the effect happened, there was nothing to do, or (schedule) the task is dead.
    Finished,
    /// There is no such task.
    NotFound,
    /// A dead task is live again.
    Replayed,
    /// A dead task counts as done.
    Resolved,
    /// A dead task counts as cancelled.
    Discarded,
    /// The dead row has moved on since; nothing was changed.
    Stale,
    /// There is no such row any more; nothing was changed.
    Gone,
    /// It died longer ago than finished keys are remembered; nothing was changed.
    Refused,
}

impl ReceiptKind {
    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::Scheduled,
        Self::Kept,
        Self::Reopened,
        Self::Rescheduled,
        Self::Cancelled,
        Self::PublishedWillBeDropped,
        Self::MayHaveRun,
        Self::Running,
        Self::Finished,
        Self::NotFound,
        Self::Replayed,
        Self::Resolved,
        Self::Discarded,
        Self::Stale,
        Self::Gone,
        Self::Refused,
    ];

    /// The text that the SQL functions answer with.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Kept => "kept",
            Self::Reopened => "reopened",
            Self::Rescheduled => "rescheduled",
            Self::Cancelled => "cancelled",
            Self::PublishedWillBeDropped => "published_will_be_dropped",
            Self::MayHaveRun => "may_have_run",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::NotFound => "not_found",
            Self::Replayed => "replayed",
            Self::Resolved => "resolved",
            Self::Discarded => "discarded",
            Self::Stale => "stale",
            Self::Gone => "gone",
            Self::Refused => "refused",
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| StoreError::Unexpected(format!("receipt `{text}`")))
    }
}

impl fmt::Display for ReceiptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The answer of a call that changes one task. All but the first three are `None` when there is no task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What became of the request.
    pub receipt: ReceiptKind,
    /// The kind; `None` when a verdict found no task.
    pub kind: Option<String>,
    /// The business key; `None` when a verdict found no task.
    pub key: Option<String>,
    /// The task's id.
    pub id: Option<i64>,
    /// Its state after the call.
    pub state: Option<TaskState>,
    /// Its generation after the call.
    pub generation: Option<i32>,
    /// Its deadline after the call.
    pub due_at: Option<Micros>,
    /// Its tier after the call.
    pub tier: Option<String>,
}

impl Receipt {
    pub(super) fn read(row: &PgRow) -> Result<Self, StoreError> {
        Ok(Self {
            receipt: ReceiptKind::parse(row.try_get("receipt")?)?,
            kind: row.try_get("kind")?,
            key: row.try_get("key")?,
            id: row.try_get("id")?,
            state: row.try_get::<Option<&str>, _>("state")?.map(state).transpose()?,
            generation: row.try_get("generation")?,
            due_at: instant(row, "due_at")?,
            tier: row.try_get("tier")?,
        })
    }
}

/// Where a task is, as people see it: its state, with live told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Live, and its alarm waits.
    Scheduled,
    /// Live, and its message was published (or is about to be) and is not answered yet.
    Published,
    /// The effect happened.
    Done,
    /// There was nothing left to do.
    Skipped,
    /// Cancelled.
    Cancelled,
    /// Dead; a row in `stranded` says why.
    Dead,
}

impl Phase {
    /// The text of the SQL function `get`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Published => "published",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
        }
    }

    fn of(state: TaskState, leased: bool) -> Self {
        match state {
            TaskState::Live if leased => Self::Published,
            TaskState::Live => Self::Scheduled,
            TaskState::Done => Self::Done,
            TaskState::Skipped => Self::Skipped,
            TaskState::Cancelled => Self::Cancelled,
            TaskState::Dead => Self::Dead,
        }
    }
}

/// A task as `get` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// Its id.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// Its business key.
    pub key: String,
    /// Its state.
    pub state: TaskState,
    /// The state as people see it.
    pub phase: Phase,
    /// Its generation.
    pub generation: i32,
    /// Failed attempts so far.
    pub attempt: i32,
    /// The deadline as asked for.
    pub due_at: Micros,
    /// When its alarm rings, while it is live.
    pub next_at: Option<Micros>,
    /// Until when nobody publishes it again, while it is published.
    pub lease_until: Option<Micros>,
    /// Its tier.
    pub tier: String,
    /// Its payload.
    pub payload: Option<Value>,
    /// Its headers.
    pub headers: Option<Value>,
    /// When it was first scheduled.
    pub created_at: Micros,
    /// When its last message was claimed.
    pub published_at: Option<Micros>,
    /// When it came to its end.
    pub finished_at: Option<Micros>,
    /// The last error.
    pub last_error: Option<String>,
}

impl TaskView {
    pub(super) fn read(row: &PgRow) -> Result<Self, StoreError> {
        let state = state(row.try_get("state")?)?;
        let lease_until = instant(row, "lease_until")?;
        Ok(Self {
            id: row.try_get("id")?,
            queue: row.try_get("queue")?,
            kind: row.try_get("kind")?,
            key: row.try_get("key")?,
            state,
            phase: Phase::of(state, lease_until.is_some()),
            generation: row.try_get("generation")?,
            attempt: row.try_get("attempt")?,
            due_at: row.try_get::<Timestamptz, _>("due_at")?.0,
            next_at: instant(row, "next_at")?,
            lease_until,
            tier: row.try_get("tier")?,
            payload: row.try_get("payload")?,
            headers: row.try_get("headers")?,
            created_at: row.try_get::<Timestamptz, _>("created_at")?.0,
            published_at: instant(row, "published_at")?,
            finished_at: instant(row, "finished_at")?,
            last_error: row.try_get("last_error")?,
        })
    }
}

fn state(text: &str) -> Result<TaskState, StoreError> {
    text.parse().map_err(|error| StoreError::Unexpected(format!("{error}")))
}

fn instant(row: &PgRow, column: &str) -> Result<Option<Micros>, StoreError> {
    Ok(row.try_get::<Option<Timestamptz>, _>(column)?.map(Micros::from))
}
