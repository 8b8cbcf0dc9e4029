//! The calls that business programs make.

use sqlx::PgExecutor;
use sqlx::types::Json;

use super::request::interval_ceil;
use super::{Receipt, RescheduleRequest, ScheduleMany, ScheduleRequest, TaskView};
use crate::{StoreError, Timestamptz};

/// Schedules one task.
///
/// # Errors
/// SQLSTATE 22023 when the request is refused, 23505 when the key is taken and the request says so, 55000 when
/// `dueline apply` has not run.
pub async fn schedule(
    db: impl PgExecutor<'_>,
    request: &ScheduleRequest,
) -> Result<Receipt, StoreError> {
    let (due_at, delay, event_at) = request.deadline.parts();
    let headers = (!request.headers.is_empty()).then_some(Json(&request.headers));
    let row = sqlx::query(include_str!("../../sql/client/schedule.sql"))
        .bind(&request.kind)
        .bind(&request.key)
        .bind(due_at.map(Timestamptz))
        .bind(delay)
        .bind(event_at.map(Timestamptz))
        .bind(&request.payload)
        .bind(headers)
        .bind(request.on_conflict.as_str())
        .bind(request.jitter.map(interval_ceil))
        .fetch_one(db)
        .await?;
    Receipt::read(&row)
}

/// Schedules many tasks of one kind. The receipts come in the order of the keys.
///
/// # Errors
/// As [`schedule`]; one refused element refuses all, and the message names it.
pub async fn schedule_many(
    db: impl PgExecutor<'_>,
    request: &ScheduleMany,
) -> Result<Vec<Receipt>, StoreError> {
    let due_at: Vec<_> = request.due_at.iter().copied().map(Timestamptz).collect();
    let delays: Vec<_> = request.delays.iter().copied().map(interval_ceil).collect();
    let payloads: Vec<_> = request.payloads.iter().map(|p| p.as_ref().map(Json)).collect();
    let headers: Vec<_> = request.headers.iter().map(|h| h.as_ref().map(Json)).collect();
    let rows = sqlx::query(include_str!("../../sql/client/schedule_many.sql"))
        .bind(&request.kind)
        .bind(&request.keys)
        .bind(some(due_at))
        .bind(some(delays))
        .bind(request.event_at.map(Timestamptz))
        .bind(some(payloads))
        .bind(some(headers))
        .bind(request.on_conflict.as_str())
        .bind(request.jitter.map(interval_ceil))
        .fetch_all(db)
        .await?;
    rows.iter().map(Receipt::read).collect()
}

/// An empty list is the SQL functions' null.
fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}

/// Gives a task a new deadline; it runs as if scheduled anew, and messages of the old one are dropped.
///
/// # Errors
/// SQLSTATE 22023 when the request is refused.
pub async fn reschedule(
    db: impl PgExecutor<'_>,
    request: &RescheduleRequest,
) -> Result<Receipt, StoreError> {
    let (due_at, delay, event_at) = request.deadline.parts();
    let row = sqlx::query(include_str!("../../sql/client/reschedule.sql"))
        .bind(&request.kind)
        .bind(&request.key)
        .bind(due_at.map(Timestamptz))
        .bind(delay)
        .bind(event_at.map(Timestamptz))
        .bind(&request.payload)
        .bind(&request.reason)
        .fetch_one(db)
        .await?;
    Receipt::read(&row)
}

/// Cancels a task.
///
/// # Errors
/// SQLSTATE 22023 for an unknown kind.
pub async fn cancel(
    db: impl PgExecutor<'_>,
    kind: &str,
    key: &str,
    reason: Option<&str>,
) -> Result<Receipt, StoreError> {
    let statement = include_str!("../../sql/client/cancel.sql");
    let row = sqlx::query(statement).bind(kind).bind(key).bind(reason).fetch_one(db).await?;
    Receipt::read(&row)
}

/// Cancels a task, or fails: for callers who must not go on unless it is out of the way.
///
/// # Errors
/// SQLSTATE P0001 when the task is not certain not to run: it has run, is running, may have run, or there is none.
pub async fn cancel_or_raise(
    db: impl PgExecutor<'_>,
    kind: &str,
    key: &str,
    reason: Option<&str>,
) -> Result<Receipt, StoreError> {
    let statement = include_str!("../../sql/client/cancel_or_raise.sql");
    let row = sqlx::query(statement).bind(kind).bind(key).bind(reason).fetch_one(db).await?;
    Receipt::read(&row)
}

/// Cancels many tasks of one kind. The receipts come in the order of the keys.
///
/// # Errors
/// SQLSTATE 22023 for an unknown kind.
pub async fn cancel_many(
    db: impl PgExecutor<'_>,
    kind: &str,
    keys: &[String],
    reason: Option<&str>,
) -> Result<Vec<Receipt>, StoreError> {
    let statement = include_str!("../../sql/client/cancel_many.sql");
    let rows = sqlx::query(statement).bind(kind).bind(keys).bind(reason).fetch_all(db).await?;
    rows.iter().map(Receipt::read).collect()
}

/// Looks at a task.
///
/// # Errors
/// SQLSTATE 22023 for an unknown kind.
pub async fn get(
    db: impl PgExecutor<'_>,
    kind: &str,
    key: &str,
) -> Result<Option<TaskView>, StoreError> {
    let statement = include_str!("../../sql/client/get.sql");
    let row = sqlx::query(statement).bind(kind).bind(key).fetch_optional(db).await?;
    row.as_ref().map(TaskView::read).transpose()
}
