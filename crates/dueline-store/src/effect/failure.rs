//! Failures and deaths. A row decides that a task is dead; letters only tell of it.

use std::time::Duration;

use dueline_core::letter::Reason;
use dueline_core::{KeyHash, Micros};
use sqlx::PgConnection;

use super::again::freely;
use super::handler::{Failure, Task};
use super::steps::Guards;
use crate::{Pool, StoreError, Timestamptz};

/// One failure to be recorded.
#[derive(Clone, Debug)]
pub struct FailureRecord<'a> {
    /// The task, whose guard must still hold.
    pub task: &'a Task,
    /// Why it failed.
    pub failure: Failure,
    /// How long until the next try; `None` buries the task.
    pub pause: Option<Duration>,
    /// Why it is buried.
    pub reason: Reason,
    /// Whether a try of its own failed: a crash and a broken message cost no attempt.
    pub charge: bool,
}

/// A failure that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedTask {
    /// The task's id.
    pub id: i64,
    /// When it died, by the database's clock; `None` when it will be tried again.
    pub died_at: Option<Micros>,
    /// The row's generation now.
    pub generation: i32,
    /// The row's failed attempts now.
    pub attempt: i32,
}

/// Records failures in one transaction: a pause puts a task back to waiting, none buries it. Tasks that are
/// missing from the answer had moved.
///
/// # Errors
/// When the database fails; then nothing was written.
pub async fn fail(
    pool: &Pool,
    queue: &str,
    failures: &[FailureRecord<'_>],
) -> Result<Vec<FailedTask>, StoreError> {
    freely(|| fail_once(pool, queue, failures)).await
}

async fn fail_once(
    pool: &Pool,
    queue: &str,
    failures: &[FailureRecord<'_>],
) -> Result<Vec<FailedTask>, StoreError> {
    let mut tx = pool.begin().await?;
    let rows = record(&mut tx, failures).await?;
    dueline_failpoints::reached("consumer.failure.recorded");
    let mut failed = Vec::with_capacity(rows.len());
    let mut dead: Vec<(i64, Reason)> = Vec::new();
    for (ord, complete, generation, attempt) in rows {
        let index = usize::try_from(ord - 1).ok().filter(|i| *i < failures.len());
        let (Some(index), true) = (index, complete) else {
            return Err(StoreError::Count { step: "fail", expected: 1, actual: 0 });
        };
        let (id, reason) = (failures[index].task.id, failures[index].reason);
        if failures[index].pause.is_none() {
            dead.push((id, reason));
        }
        failed.push(FailedTask { id, died_at: None, generation, attempt });
    }
    if !dead.is_empty() {
        let died = strand(&mut tx, queue, &dead).await?;
        for (id, at) in died {
            if let Some(task) = failed.iter_mut().find(|task| task.id == id) {
                task.died_at = Some(at.0);
            }
        }
    }
    tx.commit().await?;
    dueline_failpoints::reached("consumer.failure.written");
    Ok(failed)
}

type Recorded = (i64, bool, i32, i32);

async fn record(
    tx: &mut PgConnection,
    failures: &[FailureRecord<'_>],
) -> Result<Vec<Recorded>, StoreError> {
    let guards = Guards::of(failures.iter().map(|f| f.task));
    let pauses: Vec<Option<i64>> = failures
        .iter()
        .map(|f| f.pause.map(|p| i64::try_from(p.as_millis()).unwrap_or(i64::MAX)))
        .collect();
    let charges: Vec<i32> = failures.iter().map(|f| i32::from(f.charge)).collect();
    let errors: Vec<&str> = failures.iter().map(|f| f.failure.error.as_str()).collect();
    let reasons: Vec<Option<&str>> =
        failures.iter().map(|f| f.pause.is_none().then(|| f.reason.as_str())).collect();
    Ok(sqlx::query_as(include_str!("../../sql/effect/fail.sql"))
        .bind(&guards.ids)
        .bind(&guards.hashes)
        .bind(&guards.generations)
        .bind(&guards.attempts)
        .bind(&guards.published)
        .bind(pauses)
        .bind(charges)
        .bind(errors)
        .bind(reasons)
        .fetch_all(tx)
        .await?)
}

async fn strand(
    tx: &mut PgConnection,
    queue: &str,
    dead: &[(i64, Reason)],
) -> Result<Vec<(i64, Timestamptz)>, StoreError> {
    let ids: Vec<i64> = dead.iter().map(|(id, _)| *id).collect();
    let reasons: Vec<&str> = dead.iter().map(|(_, reason)| reason.as_str()).collect();
    let died: Vec<(i64, Timestamptz)> = sqlx::query_as(include_str!("../../sql/effect/strand.sql"))
        .bind(queue)
        .bind(ids)
        .bind(reasons)
        .fetch_all(tx)
        .await?;
    if died.len() != dead.len() {
        let (expected, actual) = (dead.len(), died.len());
        return Err(StoreError::Count { step: "strand", expected, actual });
    }
    Ok(died)
}

/// Notes that the letter of a dead task is written. `false` when somebody else did, or the task is no longer
/// dead in this generation.
///
/// # Errors
/// When the database fails.
pub async fn lettered(pool: &Pool, id: i64, generation: i32) -> Result<bool, StoreError> {
    let result = sqlx::query(include_str!("../../sql/effect/lettered.sql"))
        .bind(id)
        .bind(generation)
        .execute(pool)
        .await?;
    Ok(result.rows_affected() == 1)
}

/// What the row says of a message that is broken but names its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifiedTask {
    /// Hash of queue, kind and key.
    pub key_hash: KeyHash,
    /// The row's generation.
    pub generation: i32,
    /// The row's failed attempts.
    pub attempt: i32,
    /// The kind.
    pub kind: String,
    /// The key.
    pub key: String,
    /// Live, with an alarm that is leased: there is a published message to be broken.
    pub published: bool,
}

type Identified = (uuid::Uuid, i32, i32, String, String, String, bool);

/// Looks up the row of a broken message.
///
/// # Errors
/// When the database fails.
pub async fn identify(pool: &Pool, id: i64) -> Result<Option<IdentifiedTask>, StoreError> {
    let row: Option<Identified> = sqlx::query_as(include_str!("../../sql/effect/identify.sql"))
        .bind(id)
        .fetch_optional(pool)
        .await?;
    Ok(row.map(|(hash, generation, attempt, state, kind, key, leased)| IdentifiedTask {
        key_hash: KeyHash(hash.into_bytes()),
        generation,
        attempt,
        kind,
        key,
        published: state == "live" && leased,
    }))
}
