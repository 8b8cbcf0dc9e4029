//! Which relay lives, and which lanes it walks.

use std::time::Duration;

use dueline_core::Micros;
use sqlx::Row as _;

use super::interval;
use crate::{Pool, StoreError, Timestamptz};

/// What a heartbeat says beside "I live".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Everything due before this was found by the scan, in each of the relay's lanes.
    pub watermark: Micros,
    /// Every claim up to this instant is known to be delivered, without the exceptions.
    pub confirmed_upto: Micros,
    /// Ids of claims up to `confirmed_upto` whose delivery is not known; at most 1,000.
    pub exceptions: Vec<i64>,
    /// Why the relay cannot produce, if it cannot.
    pub cannot_produce: Option<String>,
}

/// A lane and its living owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The lane's number.
    pub lane: i32,
    /// Its queue.
    pub queue: String,
    /// Its tier.
    pub tier: String,
    /// The owning incarnation, if it has not ended.
    pub owner: Option<i64>,
}

/// A relay that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Its incarnation.
    pub epoch: i64,
    /// Its name.
    pub name: String,
    /// How many heartbeats it wrote.
    pub heartbeat_no: i64,
    /// Whether the last one is too old by the database's clock.
    pub overdue: bool,
    /// Whether it says that it cannot produce.
    pub cannot_produce: bool,
}

/// What was taken from a dead relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// How far it had scanned.
    pub watermark: Micros,
    /// The lanes it had.
    pub lanes: Vec<i32>,
}

/// Registers a new incarnation and returns its epoch.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn register(pool: &Pool, name: &str, version: &str) -> Result<i64, StoreError> {
    let row = sqlx::query(include_str!("../../sql/relay/register.sql"))
        .bind(name)
        .bind(version)
        .fetch_one(pool)
        .await?;
    Ok(row.try_get(0)?)
}

/// Writes a heartbeat; returns the database's clock, or `None` when this incarnation was declared
/// dead.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn heartbeat(
    pool: &Pool,
    epoch: i64,
    beat: &Heartbeat,
) -> Result<Option<Micros>, StoreError> {
    let row = sqlx::query(include_str!("../../sql/relay/heartbeat.sql"))
        .bind(epoch)
        .bind(Timestamptz(beat.watermark))
        .bind(Timestamptz(beat.confirmed_upto))
        .bind(&beat.exceptions)
        .bind(&beat.cannot_produce)
        .fetch_optional(pool)
        .await?;
    Ok(row.map(|r| r.try_get::<Timestamptz, _>(0)).transpose()?.map(Micros::from))
}

/// Every relay that has not ended; `overdue` are those silent for longer than `takeover_after`.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn observe(pool: &Pool, takeover_after: Duration) -> Result<Vec<Observed>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/observe.sql"))
        .bind(interval(takeover_after))
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Observed {
                epoch: row.try_get("epoch")?,
                name: row.try_get("name")?,
                heartbeat_no: row.try_get("heartbeat_no")?,
                overdue: row.try_get("overdue")?,
                cannot_produce: row.try_get("cannot_produce")?,
            })
        })
        .collect()
}

/// Every lane with its living owner.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn lanes(pool: &Pool) -> Result<Vec<Lane>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/lanes.sql")).fetch_all(pool).await?;
    rows.iter()
        .map(|row| {
            Ok(Lane {
                lane: row.try_get("lane")?,
                queue: row.try_get("queue")?,
                tier: row.try_get("tier")?,
                owner: row.try_get("owner")?,
            })
        })
        .collect()
}

/// Takes up to `limit` of these lanes, where nobody owns them; returns the ones taken.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn take_free(
    pool: &Pool,
    epoch: i64,
    lanes: &[i32],
    limit: usize,
) -> Result<Vec<i32>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/take_free.sql"))
        .bind(epoch)
        .bind(lanes)
        .bind(i32::try_from(limit).unwrap_or(i32::MAX))
        .fetch_all(pool)
        .await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Declares `dead` dead, if it gave no sign of life since its heartbeat number `heartbeat_no`, and
/// takes its lanes. `None`: it lives, or somebody else was quicker.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn take_over(
    pool: &Pool,
    epoch: i64,
    dead: i64,
    heartbeat_no: i64,
    takeover_after: Duration,
) -> Result<Option<TakenOver>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/take_over.sql"))
        .bind(epoch)
        .bind(dead)
        .bind(heartbeat_no)
        .bind(interval(takeover_after))
        .fetch_all(pool)
        .await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let watermark = first.try_get::<Timestamptz, _>("watermark")?.into();
    let mut lanes = Vec::with_capacity(rows.len());
    for row in &rows {
        lanes.extend(row.try_get::<Option<i32>, _>("lane")?);
    }
    Ok(Some(TakenOver { watermark, lanes }))
}

/// Gives lanes back; returns those that were ours to give.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn give(pool: &Pool, epoch: i64, lanes: &[i32]) -> Result<Vec<i32>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/give.sql"))
        .bind(epoch)
        .bind(lanes)
        .fetch_all(pool)
        .await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Ends this incarnation cleanly and frees its lanes; returns how many. Nothing happens when it had
/// been declared dead before.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn end(pool: &Pool, epoch: i64, why: &str, last: &Heartbeat) -> Result<i64, StoreError> {
    let row = sqlx::query(include_str!("../../sql/relay/end.sql"))
        .bind(epoch)
        .bind(why)
        .bind(Timestamptz(last.watermark))
        .bind(Timestamptz(last.confirmed_upto))
        .bind(&last.exceptions)
        .fetch_one(pool)
        .await?;
    Ok(row.try_get("freed")?)
}
