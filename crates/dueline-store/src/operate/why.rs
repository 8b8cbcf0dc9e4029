//! Everything about one key: what `dueline why` explains.

use crate::{Pool, StoreError, Timestamptz};

/// The most events of one task that are read.
const MAX_EVENTS: i64 = 50;
/// The most tasks whose keys are looked at for a suggestion.
const MAX_RECENT: i64 = 5_000;

/// A task with its alarm, lane, owner, dedupe row and grave; what it does not have is `None`.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct Facts {
    /// The database's clock.
    pub now: Timestamptz,
    /// The task's id.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// Its business key.
    pub key: String,
    /// Hash of queue, kind and key.
    pub key_hash: uuid::Uuid,
    /// The tier that was chosen when it was scheduled.
    pub tier: String,
    /// One of the five states.
    pub state: String,
    /// How often it began anew.
    pub generation: i32,
    /// Failed attempts.
    pub attempt: i32,
    /// The deadline as asked for.
    pub due_at: Timestamptz,
    /// When it was scheduled first.
    pub created_at: Timestamptz,
    /// When the message was claimed that settled it.
    pub published_at: Option<Timestamptz>,
    /// When it ended.
    pub finished_at: Option<Timestamptz>,
    /// The last error.
    pub last_error: Option<String>,
    /// JSON.
    pub payload: Option<String>,
    /// A JSON object.
    pub headers: Option<String>,
    /// How many tries its kind allows in all.
    pub max_attempts: i32,
    /// The group that handles its queue.
    pub consumer_group: String,
    /// Alarm: when it rings next.
    pub next_at: Option<Timestamptz>,
    /// Alarm: until when nobody publishes it again; `None` while it waits.
    pub lease_until: Option<Timestamptz>,
    /// Alarm: when it was claimed.
    pub claimed_at: Option<Timestamptz>,
    /// Alarm: by which incarnation of a relay.
    pub claim_epoch: Option<i64>,
    /// Alarm: as its how manieth claim.
    pub claim_no: Option<i32>,
    /// Alarm: how often its message was consumed without an answer.
    pub unanswered: Option<i16>,
    /// Alarm: how often the present lease was extended.
    pub extensions: Option<i16>,
    /// The lane's number; `None` while there is an alarm means that no such lane exists.
    pub lane: Option<i32>,
    /// The lane's tier: the one whose topic it is published to.
    pub lane_tier: Option<String>,
    /// The lane's slot.
    pub slot: Option<i32>,
    /// The incarnation that owns the lane.
    pub lane_epoch: Option<i64>,
    /// The owner's name.
    pub owner_name: Option<String>,
    /// When the owner last showed that it lives.
    pub owner_heartbeat_at: Option<Timestamptz>,
    /// When it ended.
    pub owner_ended_at: Option<Timestamptz>,
    /// Why it ended.
    pub owner_ended_why: Option<String>,
    /// Why it cannot produce.
    pub owner_cannot_produce: Option<String>,
    /// Relays that have not ended, whether they still live or not.
    pub open_relays: i64,
    /// What the dedupe row says.
    pub dedupe_outcome: Option<String>,
    /// When the effect happened.
    pub dedupe_finished_at: Option<Timestamptz>,
    /// Until when somebody runs the key.
    pub dedupe_until: Option<Timestamptz>,
    /// Why it is dead.
    pub dead_reason: Option<String>,
    /// The error that it died of.
    pub dead_error: Option<String>,
    /// A JSON array of its attempts.
    pub dead_history: Option<String>,
    /// Attempts at its death.
    pub dead_attempts: Option<i32>,
    /// When it died.
    pub died_at: Option<Timestamptz>,
    /// When its letter was written.
    pub lettered_at: Option<Timestamptz>,
}

/// One row of the audit table.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Event {
    /// When.
    pub at: Timestamptz,
    /// Which step.
    pub step: String,
    /// From which state.
    pub from_state: Option<String>,
    /// To which state.
    pub to_state: Option<String>,
    /// The generation after the step.
    pub generation: i32,
    /// Failed attempts after the step.
    pub attempt: i32,
    /// The login that did it.
    pub actor: String,
    /// JSON: reason, who, receipt, …
    pub detail: Option<String>,
}

/// The tasks of a key, one for each kind that has one, or of one kind only.
///
/// # Errors
/// When the database does not answer.
pub async fn find(pool: &Pool, key: &str, kind: Option<&str>) -> Result<Vec<Facts>, StoreError> {
    Ok(sqlx::query_as(include_str!("../../sql/operate/why.sql"))
        .bind(key)
        .bind(kind)
        .fetch_all(pool)
        .await?)
}

/// The latest events of a task, oldest first, fifty at most.
///
/// # Errors
/// When the database does not answer.
pub async fn events(pool: &Pool, id: i64) -> Result<Vec<Event>, StoreError> {
    Ok(sqlx::query_as(include_str!("../../sql/operate/why_events.sql"))
        .bind(id)
        .bind(MAX_EVENTS)
        .fetch_all(pool)
        .await?)
}

/// The key, among those of the latest tasks, that was perhaps meant.
///
/// # Errors
/// When the database does not answer.
pub async fn nearest_key(pool: &Pool, key: &str) -> Result<Option<String>, StoreError> {
    let keys: Vec<String> = sqlx::query_scalar(include_str!("../../sql/operate/recent_keys.sql"))
        .bind(MAX_RECENT)
        .fetch_all(pool)
        .await?;
    Ok(dueline_core::name::nearest(key, keys.iter().map(String::as_str)).map(str::to_owned))
}

/// The names of all kinds.
///
/// # Errors
/// When the database does not answer.
pub async fn kind_names(pool: &Pool) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar(include_str!("../../sql/operate/kind_names.sql")).fetch_all(pool).await?)
}
