//! What is due when (C2).

use dueline_core::Micros;

use crate::{Pool, StoreError, Timestamptz};

/// Unfinished tasks of one tier.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct TierCount {
    /// The queue.
    pub queue: String,
    /// The tier.
    pub tier: String,
    /// Not due yet.
    pub waiting: i64,
    /// Due, and not published yet.
    pub due: i64,
    /// Published, and not answered yet.
    pub published: i64,
    /// The earliest alarm.
    pub earliest: Option<Timestamptz>,
    /// The database's clock.
    pub now: Timestamptz,
}

/// Dead tasks of one queue.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct DeadCount {
    /// The queue.
    pub queue: String,
    /// How many.
    pub dead: i64,
    /// When the first of them died.
    pub oldest: Timestamptz,
}

/// One unfinished task.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct PendingTask {
    /// The database's clock.
    pub now: Timestamptz,
    /// The queue.
    pub queue: String,
    /// The tier whose topic it is published to.
    pub tier: String,
    /// The task's id.
    pub id: i64,
    /// The kind.
    pub kind: String,
    /// The business key.
    pub key: String,
    /// The deadline as asked for.
    pub due_at: Timestamptz,
    /// When its alarm rings next.
    pub next_at: Timestamptz,
    /// Until when it is leased; `None` while it waits.
    pub lease_until: Option<Timestamptz>,
    /// Failed attempts.
    pub attempt: i32,
    /// The last error.
    pub last_error: Option<String>,
}

/// Which unfinished tasks to list.
#[derive(Clone, Debug, Default)]
pub struct PendingFilter {
    /// Of this queue only.
    pub queue: Option<String>,
    /// Of this kind only.
    pub kind: Option<String>,
    /// With an alarm at or before this instant.
    pub until: Option<Micros>,
    /// After the task with this alarm and id.
    pub after: Option<(Micros, i64)>,
    /// At most so many, 1 to 10,000.
    pub limit: u32,
}

/// Counts by queue and tier. Reads every alarm once: a second or so for each few millions.
///
/// # Errors
/// When the database does not answer.
pub async fn counts(pool: &Pool, queue: Option<&str>) -> Result<Vec<TierCount>, StoreError> {
    Ok(sqlx::query_as(include_str!("../../sql/operate/pending_counts.sql"))
        .bind(queue)
        .fetch_all(pool)
        .await?)
}

/// Dead tasks by queue.
///
/// # Errors
/// When the database does not answer.
pub async fn dead_counts(pool: &Pool, queue: Option<&str>) -> Result<Vec<DeadCount>, StoreError> {
    Ok(sqlx::query_as(include_str!("../../sql/operate/stranded_counts.sql"))
        .bind(queue)
        .fetch_all(pool)
        .await?)
}

/// A page of unfinished tasks, earliest alarm first.
///
/// # Errors
/// When the database does not answer.
pub async fn list(pool: &Pool, filter: &PendingFilter) -> Result<Vec<PendingTask>, StoreError> {
    let (after_at, after_id) = filter.after.unwrap_or((Micros(i64::MIN), i64::MIN));
    Ok(sqlx::query_as(include_str!("../../sql/operate/pending_list.sql"))
        .bind(&filter.queue)
        .bind(&filter.kind)
        .bind(Timestamptz(after_at))
        .bind(after_id)
        .bind(Timestamptz(filter.until.unwrap_or(Micros(i64::MAX))))
        .bind(i64::from(filter.limit.clamp(1, 10_000)))
        .fetch_all(pool)
        .await?)
}
