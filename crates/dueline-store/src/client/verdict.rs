//! A person's verdicts on dead tasks.

use std::time::Duration;

use dueline_core::KeyHash;
use sqlx::PgExecutor;

use super::Receipt;
use super::request::interval_ceil;
use crate::StoreError;

/// A dead task to send again. It acts only on the very row that the letter or the list told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay<'a> {
    /// The task.
    pub id: i64,
    /// Generation of the dead row.
    pub generation: i32,
    /// Hash of queue, kind and key: ids are handed out again after a failover that lost commits.
    pub key_hash: KeyHash,
    /// Who wants it, for the audit table.
    pub who: &'a str,
    /// Act on a dead row of another generation, and on one that is too old.
    pub force: bool,
    /// How long finished keys are remembered: what died before that is refused.
    pub dedupe_retention: Duration,
}

/// Sends a dead task again: `replayed`, `stale`, `gone` or `refused`.
///
/// # Errors
/// SQLSTATE 55000 when `dueline apply` has not made its lane.
pub async fn replay(db: impl PgExecutor<'_>, request: &Replay<'_>) -> Result<Receipt, StoreError> {
    let row = sqlx::query(include_str!("../../sql/client/replay.sql"))
        .bind(request.id)
        .bind(request.generation)
        .bind(request.key_hash.as_uuid())
        .bind(request.who)
        .bind(request.force)
        .bind(interval_ceil(request.dedupe_retention))
        .fetch_one(db)
        .await?;
    Receipt::read(&row)
}

/// A dead task's effect did happen: `resolved`, `stale` or `gone`.
///
/// # Errors
/// When the database refuses; SQLSTATE 40001 when somebody else changed the task at the same moment.
pub async fn resolve(
    db: impl PgExecutor<'_>,
    id: i64,
    generation: i32,
    who: &str,
    reason: &str,
) -> Result<Receipt, StoreError> {
    let statement = include_str!("../../sql/client/resolve.sql");
    verdict(db, statement, id, generation, who, reason).await
}

/// A dead task is not wanted: `discarded`, `stale` or `gone`.
///
/// # Errors
/// When the database refuses.
pub async fn discard(
    db: impl PgExecutor<'_>,
    id: i64,
    generation: i32,
    who: &str,
    reason: &str,
) -> Result<Receipt, StoreError> {
    let statement = include_str!("../../sql/client/discard.sql");
    verdict(db, statement, id, generation, who, reason).await
}

async fn verdict(
    db: impl PgExecutor<'_>,
    statement: &'static str,
    id: i64,
    generation: i32,
    who: &str,
    reason: &str,
) -> Result<Receipt, StoreError> {
    let query = sqlx::query(statement).bind(id).bind(generation).bind(who).bind(reason);
    Receipt::read(&query.fetch_one(db).await?)
}
