//! The walk without a watermark, and what it does with what it finds.

use std::time::Duration;

use dueline_core::Micros;
use sqlx::Row as _;

use super::claim::{Claimed, Cursor, read_claimed};
use super::{instants, interval, whole_micros};
use crate::{Pool, StoreError, Timestamptz};

/// The part of a lane that a sweep still has to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From where on.
    pub cursor: Cursor,
    /// Up to this `next_at`: what lies beyond is the scan's.
    pub upto: Micros,
}

/// Why the sweep looks at an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It waits although the scan has passed it: it was committed late, or released.
    Missed,
    /// Its claim was not confirmed by the relay that made it, and that relay has ended.
    Orphan,
    /// Its lease is over, or longer than a lease can be (the clock went back).
    LeaseOver,
    /// Nothing: it only ends the page.
    Fine,
}

/// An alarm that the sweep looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Why.
    pub found: Found,
    /// Its lane.
    pub lane: i32,
    /// The task.
    pub id: i64,
    /// When it was to ring.
    pub next_at: Micros,
    /// Copy of the task's generation.
    pub generation: i32,
    /// The fence that every further write has to name.
    pub fence: i32,
    /// When it was claimed, if it is.
    pub claimed_at: Option<Micros>,
    /// How often the present attempt was published, about: claims less failed attempts.
    pub tries: i32,
    /// How often its message was consumed without an answer.
    pub unanswered: i16,
    /// How often the present claim was extended.
    pub extensions: i16,
    /// Whether the lane's page ends here and has to be followed by another.
    pub page_end: bool,
    /// `statement_timestamp()` of the page.
    pub now: Micros,
}

/// What the sweep knows of a task before it decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The task.
    pub id: i64,
    /// Its generation.
    pub generation: i32,
    /// Its kind.
    pub kind: String,
    /// Its key, which tells the partition.
    pub key: String,
    /// Failed attempts.
    pub attempt: i32,
    /// Whether it is older than its kind's age limit.
    pub too_old: bool,
}

/// An alarm to be published again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The task.
    pub id: i64,
    /// The fence that was seen.
    pub fence: i32,
    /// The lease of the new claim.
    pub lease: Duration,
    /// Whether the message of the last claim was consumed without an answer.
    pub consumed: bool,
}

/// A task to be parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    /// The task.
    pub id: i64,
    /// The fence that was seen.
    pub fence: i32,
    /// `too_old`, `unanswered` or `oversized`.
    pub reason: dueline_core::letter::Reason,
    /// In words.
    pub error: String,
}

/// A task that was parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The task.
    pub id: i64,
    /// Its kind.
    pub kind: String,
    /// Its key.
    pub key: String,
    /// The generation of the dead row.
    pub generation: i32,
    /// Failed attempts.
    pub attempt: i32,
    /// Why.
    pub reason: String,
}

/// One page: up to `per_lane` alarms of each lane. `longest_lease` is the longest that a lease can
/// be.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn sweep_page(
    pool: &Pool,
    spans: &[Span],
    per_lane: usize,
    longest_lease: Duration,
) -> Result<Vec<Alarm>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/sweep_page.sql"))
        .bind(spans.iter().map(|s| s.cursor.lane).collect::<Vec<_>>())
        .bind(instants(spans.iter().map(|s| s.cursor.at)))
        .bind(spans.iter().map(|s| s.cursor.id).collect::<Vec<_>>())
        .bind(instants(spans.iter().map(|s| s.upto)))
        .bind(i32::try_from(per_lane).unwrap_or(i32::MAX))
        .bind(interval(longest_lease))
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            let found = match row.try_get::<&str, _>("verdict")? {
                "missed" => Found::Missed,
                "orphan" => Found::Orphan,
                "lease_over" => Found::LeaseOver,
                "fine" => Found::Fine,
                other => return Err(StoreError::Unexpected(format!("sweep verdict {other}"))),
            };
            Ok(Alarm {
                found,
                lane: row.try_get("lane")?,
                id: row.try_get("id")?,
                next_at: row.try_get::<Timestamptz, _>("next_at")?.into(),
                generation: row.try_get("generation")?,
                fence: row.try_get("fence")?,
                claimed_at: row.try_get::<Option<Timestamptz>, _>("claimed_at")?.map(Micros::from),
                tries: row.try_get("tries")?,
                unanswered: row.try_get("unanswered")?,
                extensions: row.try_get("extensions")?,
                page_end: row.try_get("page_end")?,
                now: row.try_get::<Timestamptz, _>("now")?.into(),
            })
        })
        .collect()
}

/// What must be known of these tasks, of those that live.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn subjects(pool: &Pool, ids: &[i64]) -> Result<Vec<Subject>, StoreError> {
    let rows =
        sqlx::query(include_str!("../../sql/relay/subjects.sql")).bind(ids).fetch_all(pool).await?;
    rows.iter()
        .map(|row| {
            Ok(Subject {
                id: row.try_get("id")?,
                generation: row.try_get("generation")?,
                kind: row.try_get("kind")?,
                key: row.try_get("key")?,
                attempt: row.try_get("attempt")?,
                too_old: row.try_get("too_old")?,
            })
        })
        .collect()
}

/// Claims exactly these alarms anew, each only under the fence that was seen and only if it is due.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn republish(
    pool: &Pool,
    epoch: i64,
    again: &[Again],
) -> Result<Vec<Claimed>, StoreError> {
    let row = sqlx::query(include_str!("../../sql/relay/republish.sql"))
        .bind(again.iter().map(|a| a.id).collect::<Vec<_>>())
        .bind(again.iter().map(|a| a.fence).collect::<Vec<_>>())
        .bind(again.iter().map(|a| whole_micros(a.lease)).collect::<Vec<_>>())
        .bind(again.iter().map(|a| a.consumed).collect::<Vec<_>>())
        .bind(epoch)
        .fetch_one(pool)
        .await?;
    read_claimed(&row)
}

/// Lets leases go on: (id, fence seen, new lease). Returns the ids extended.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn extend(pool: &Pool, leases: &[(i64, i32, Duration)]) -> Result<Vec<i64>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/extend.sql"))
        .bind(leases.iter().map(|(id, _, _)| *id).collect::<Vec<_>>())
        .bind(leases.iter().map(|(_, fence, _)| *fence).collect::<Vec<_>>())
        .bind(leases.iter().map(|(_, _, lease)| whole_micros(*lease)).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Parks tasks; returns those that were still as they had been judged.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn park(pool: &Pool, tasks: &[Parking]) -> Result<Vec<Parked>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/park.sql"))
        .bind(tasks.iter().map(|t| t.id).collect::<Vec<_>>())
        .bind(tasks.iter().map(|t| t.fence).collect::<Vec<_>>())
        .bind(tasks.iter().map(|t| t.reason.as_str().to_owned()).collect::<Vec<_>>())
        .bind(tasks.iter().map(|t| t.error.clone()).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Parked {
                id: row.try_get("id")?,
                kind: row.try_get("kind")?,
                key: row.try_get("key")?,
                generation: row.try_get("generation")?,
                attempt: row.try_get("attempt")?,
                reason: row.try_get("reason")?,
            })
        })
        .collect()
}

/// Counts duplicates that the scan stopped, per queue.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn stopped(pool: &Pool, counts: &[(String, i64)]) -> Result<(), StoreError> {
    sqlx::query(include_str!("../../sql/relay/stopped.sql"))
        .bind(counts.iter().map(|(queue, _)| queue.clone()).collect::<Vec<_>>())
        .bind(counts.iter().map(|(_, n)| *n).collect::<Vec<_>>())
        .execute(pool)
        .await?;
    Ok(())
}
