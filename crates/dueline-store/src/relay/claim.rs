//! The claim, the bodies of what was claimed, and the release of what was certainly not written.

use std::time::Duration;

use dueline_core::{KeyHash, Micros};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::{instants, interval};
use crate::{Pool, StoreError, Timestamptz};

/// From where a lane is read on: everything after this pair of `next_at` and `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The lane.
    pub lane: i32,
    /// `next_at` of the last alarm passed.
    pub at: Micros,
    /// Its id.
    pub id: i64,
}

/// A claimed alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The task.
    pub id: i64,
    /// The alarm's lane.
    pub lane: i32,
    /// When it was to ring.
    pub next_at: Micros,
    /// The generation to publish.
    pub generation: i32,
    /// The attempt to publish.
    pub attempt: i32,
    /// The fence after the claim.
    pub fence: i32,
    /// The how-manieth claim this is, from 1.
    pub claim_no: i32,
    /// When it was claimed.
    pub claimed_at: Micros,
}

/// What one claim brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// `statement_timestamp()` of the claim: what was due by then was looked at.
    pub now: Micros,
    /// How many lanes had due work.
    pub ready_lanes: u32,
    /// The most alarms that the claim took from each of them.
    pub share: usize,
    /// Whether there were more lanes with work than the budget allowed to serve.
    pub lanes_left_out: bool,
    /// The alarms, oldest first.
    pub claimed: Vec<Claimed>,
}

/// The body of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The task.
    pub id: i64,
    /// The generation that this body belongs to.
    pub generation: i32,
    /// The kind.
    pub kind: String,
    /// The business key.
    pub key: String,
    /// Hash of queue, kind and key.
    pub key_hash: KeyHash,
    /// The deadline as asked for.
    pub due_at: Micros,
    /// The payload as JSON text.
    pub payload: Option<String>,
    /// The task's own headers as JSON text.
    pub headers: Option<String>,
}

/// Takes up to `budget` due alarms of these lanes, behind their cursors, for `lease`. Lanes that
/// `epoch` does not own are left out, and nothing due later than `not_after` is taken. Committed
/// when it returns.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn claim(
    pool: &Pool,
    epoch: i64,
    cursors: &[Cursor],
    budget: usize,
    lease: Duration,
    not_after: Micros,
) -> Result<Round, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/claim.sql"))
        .bind(cursors.iter().map(|c| c.lane).collect::<Vec<_>>())
        .bind(instants(cursors.iter().map(|c| c.at)))
        .bind(cursors.iter().map(|c| c.id).collect::<Vec<_>>())
        .bind(epoch)
        .bind(i32::try_from(budget).unwrap_or(i32::MAX))
        .bind(interval(lease))
        .bind(Timestamptz(not_after))
        .fetch_all(pool)
        .await?;
    let first =
        rows.first().ok_or_else(|| StoreError::Unexpected("a claim without a row".into()))?;
    let now = first.try_get::<Timestamptz, _>("now")?.into();
    let ready_lanes = u32::try_from(first.try_get::<i64, _>("ready_lanes")?).unwrap_or(0);
    let mut claimed = Vec::with_capacity(rows.len());
    for row in &rows {
        claimed.extend(read_claimed(row)?);
    }
    claimed.sort_unstable_by_key(|c| (c.next_at, c.id));
    let lanes = usize::try_from(ready_lanes).unwrap_or(usize::MAX);
    Ok(Round {
        now,
        ready_lanes,
        share: (budget / lanes.max(1)).max(1),
        lanes_left_out: lanes > budget,
        claimed,
    })
}

/// `None` for the row that only carries the clock.
pub(super) fn read_claimed(row: &PgRow) -> Result<Option<Claimed>, StoreError> {
    let Some(id) = row.try_get::<Option<i64>, _>("id")? else { return Ok(None) };
    Ok(Some(Claimed {
        id,
        lane: row.try_get("lane")?,
        next_at: row.try_get::<Timestamptz, _>("next_at")?.into(),
        generation: row.try_get("generation")?,
        attempt: row.try_get("attempt")?,
        fence: row.try_get("fence")?,
        claim_no: row.try_get("claim_no")?,
        claimed_at: row.try_get::<Timestamptz, _>("claimed_at")?.into(),
    }))
}

/// The bodies of these tasks, of those that live. Always read after the claim has committed.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn bodies(pool: &Pool, ids: &[i64]) -> Result<Vec<Body>, StoreError> {
    let rows =
        sqlx::query(include_str!("../../sql/relay/bodies.sql")).bind(ids).fetch_all(pool).await?;
    rows.iter()
        .map(|row| {
            Ok(Body {
                id: row.try_get("id")?,
                generation: row.try_get("generation")?,
                kind: row.try_get("kind")?,
                key: row.try_get("key")?,
                key_hash: KeyHash(row.try_get::<uuid::Uuid, _>("key_hash")?.into_bytes()),
                due_at: row.try_get::<Timestamptz, _>("due_at")?.into(),
                payload: row.try_get("payload")?,
                headers: row.try_get("headers")?,
            })
        })
        .collect()
}

/// When the next waiting alarm behind these cursors rings (`None`: there is none), and the clock.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn next_due(
    pool: &Pool,
    cursors: &[Cursor],
) -> Result<(Option<Micros>, Micros), StoreError> {
    let row = sqlx::query(include_str!("../../sql/relay/next_due.sql"))
        .bind(cursors.iter().map(|c| c.lane).collect::<Vec<_>>())
        .bind(instants(cursors.iter().map(|c| c.at)))
        .bind(cursors.iter().map(|c| c.id).collect::<Vec<_>>())
        .fetch_one(pool)
        .await?;
    let next: Option<Timestamptz> = row.try_get("next_at")?;
    Ok((next.map(Micros::from), row.try_get::<Timestamptz, _>("now")?.into()))
}

/// Makes claimed alarms wait again, each only while its fence is the one given; returns the ids.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn release(pool: &Pool, claims: &[(i64, i32)]) -> Result<Vec<i64>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/release.sql"))
        .bind(claims.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(claims.iter().map(|(_, fence)| *fence).collect::<Vec<_>>())
        .fetch_all(pool)
        .await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}
