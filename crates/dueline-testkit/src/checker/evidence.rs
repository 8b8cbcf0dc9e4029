//! What is known after a run.

use dueline_core::{Envelope, Micros, TaskState};

use super::probe::Probe;

/// Everything that the judge looks at.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The table of tasks, each with what stands beside it.
    pub tasks: Vec<Task>,
    /// Alarms and stranded rows without a task.
    pub orphans: Vec<String>,
    /// Recorded transitions, each task's in its order.
    pub events: Vec<Event>,
    /// The tier topics, whole.
    pub published: Vec<Published>,
    /// The dead-letter topics, whole.
    pub letters: Vec<Letter>,
    /// Where the handling groups stand.
    pub offsets: Vec<Offset>,
    /// The business's own ledger of effects.
    pub effects: Vec<Effect>,
    /// What clients were told.
    pub heard: Vec<Heard>,
    /// The same of clients whose calls failed, or ended without an answer, with times.
    pub calls: Vec<Call>,
    /// Records of topics that were deleted since, or deleted from them.
    pub lost: Vec<Published>,
    /// What looks at V7 found while work went on.
    pub probes: Probe,
    /// Partitions whose committed offset somebody else moved, and where to: what lies below was
    /// passed by nobody of ours.
    pub moved_offsets: Vec<(String, i32, i64)>,
    /// Business objects that are both paid and closed, or that lost a payment (V5).
    pub contradictions: Vec<String>,
    /// Business objects that were judged for that.
    pub business_objects: usize,
    /// What tasks fail with by themselves: a failure whose reason contains none of these was an outage. Not
    /// judged when there are none.
    pub own_failures: Vec<&'static str>,
}

/// A row of `dueline.task`.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its id.
    pub id: i64,
    /// Its kind.
    pub kind: String,
    /// Its business key.
    pub key: String,
    /// The queue of its kind.
    pub queue: String,
    /// Its tier.
    pub tier: String,
    /// Its state.
    pub state: TaskState,
    /// Its generation.
    pub generation: i32,
    /// Failed attempts.
    pub attempt: i32,
    /// The deadline as last asked for.
    pub due_at: Micros,
    /// When it was finished.
    pub finished_at: Option<Micros>,
    /// Its alarm.
    pub alarm: Option<Alarm>,
    /// Whether the dedupe table has its key as done.
    pub deduped: bool,
    /// Its stranded row.
    pub stranded: Option<Stranded>,
}

/// A row of `dueline.due`.
#[derive(Clone, Debug)]
pub struct Alarm {
    /// Copy of the task's generation.
    pub generation: i32,
    /// Copy of the task's attempts.
    pub attempt: i32,
    /// How often it was claimed.
    pub claim_no: i32,
    /// Whether it is published.
    pub leased: bool,
}

/// A row of `dueline.stranded`.
#[derive(Clone, Debug)]
pub struct Stranded {
    /// The generation that died.
    pub generation: i32,
    /// Its failed attempts.
    pub attempts: i32,
    /// Whether its letter is known to be written.
    pub lettered: bool,
}

/// A row of `dueline.task_event`.
#[derive(Clone, Debug)]
pub struct Event {
    /// The task.
    pub task_id: i64,
    /// The step's name.
    pub step: String,
    /// The state before.
    pub from: Option<TaskState>,
    /// The state after.
    pub to: Option<TaskState>,
    /// The generation after.
    pub generation: i32,
    /// Failed attempts after.
    pub attempt: i32,
    /// Why, if it failed.
    pub error: Option<String>,
}

/// A record of a tier topic.
#[derive(Clone, Debug)]
pub struct Published {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// What its headers say; `None` when they cannot be read.
    pub envelope: Option<Envelope>,
}

/// A record of a dead-letter topic.
#[derive(Clone, Debug)]
pub struct Letter {
    /// The dead row: its id and generation.
    pub task: Option<(i64, i32)>,
    /// The message that it was read from: topic, partition, offset.
    pub origin: Option<(String, i32, i64)>,
}

/// Where a group stands in one partition.
#[derive(Clone, Debug)]
pub struct Offset {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The committed offset, if there is one.
    pub committed: Option<i64>,
    /// The partition's first offset.
    pub low: i64,
    /// The offset after its last record.
    pub end: i64,
}

/// One effect, as the business itself wrote it down.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The kind.
    pub kind: String,
    /// The business key.
    pub key: String,
    /// When, by the database's clock.
    pub at: Micros,
}

/// What a client was told of one key.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The kind.
    pub kind: String,
    /// The business key.
    pub key: String,
    /// The answer.
    pub answer: Answer,
}

/// An answer of one of the SQL functions, after its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `scheduled`, for this instant.
    Scheduled(Micros),
    /// `cancelled` or `published_will_be_dropped`: it will not run.
    Cancelled,
    /// `rescheduled` or `published_will_be_dropped`: it will not run before this instant.
    Rescheduled(Micros),
    /// The outcome is not known: the connection broke.
    Unknown,
}

/// One call of a client.
#[derive(Clone, Debug)]
pub struct Call {
    /// The kind.
    pub kind: String,
    /// The business key.
    pub key: String,
    /// Who called.
    pub who: String,
    /// What was wanted: `schedule`, `cancel`, `reschedule`, `pay`, `replay`, `resolve`, `discard`.
    pub wish: &'static str,
    /// When it was asked, by the database's clock.
    pub asked_at: Micros,
    /// When the answer, or the end of the connection, was there.
    pub told_at: Micros,
    /// What was told.
    pub told: Told,
}

/// What a client was told after its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A receipt, and the deadline that it names.
    Receipt(String, Option<Micros>),
    /// The business statement did something: paid.
    Did,
    /// The business statement found nothing to do: too late.
    TooLate,
    /// Certainly rolled back: the server said so, or the connection broke before the commit.
    Failed(String),
    /// The connection broke at the commit: done, or not done.
    Unknown(String),
}

impl Call {
    /// Whether it changed the task, or may have.
    #[must_use]
    pub fn may_have_changed(&self) -> bool {
        match &self.told {
            Told::Receipt(receipt, _) => {
                !["kept", "finished", "not_found", "stale", "gone", "refused"].contains(&&**receipt)
            }
            Told::Unknown(_) => self.wish != "pay",
            Told::Did | Told::TooLate | Told::Failed(_) => false,
        }
    }
}
