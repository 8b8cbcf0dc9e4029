//! The claim, the bodies of what was claimed, and the release of what was certainly not written.

use std::time::Duration;

use dueline_core::{KeyHash, Micros};
use sqlx::postgres::PgRow;
use sqlx::{Decode, PgExecutor, Postgres, Row as _, Type};

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
    /// The bodies of those that live, in no particular order.
    pub bodies: Vec<Body>,
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
    db: impl PgExecutor<'_>,
    epoch: i64,
    cursors: &[Cursor],
    budget: usize,
    lease: Duration,
    not_after: Micros,
) -> Result<Round, StoreError> {
    let row = sqlx::query(include_str!("../../sql/relay/claim.sql"))
        .bind(cursors.iter().map(|c| c.lane).collect::<Vec<_>>())
        .bind(instants(cursors.iter().map(|c| c.at)))
        .bind(cursors.iter().map(|c| c.id).collect::<Vec<_>>())
        .bind(epoch)
        .bind(i32::try_from(budget).unwrap_or(i32::MAX))
        .bind(interval(lease))
        .bind(Timestamptz(not_after))
        .fetch_one(db)
        .await?;
    let ready_lanes = u32::try_from(row.try_get::<i64, _>("ready_lanes")?).unwrap_or(0);
    let lanes = usize::try_from(ready_lanes).unwrap_or(usize::MAX);
    Ok(Round {
        now: row.try_get::<Timestamptz, _>("now")?.into(),
        ready_lanes,
        share: (budget / lanes.max(1)).max(1),
        lanes_left_out: lanes > budget,
        claimed: read_claimed(&row)?,
        bodies: read_bodies(&row)?,
    })
}

/// The claims of a row of arrays, oldest first. One row of arrays and not one row per claim: reading
/// a row costs more than the claim that stands in it.
pub(super) fn read_claimed(row: &PgRow) -> Result<Vec<Claimed>, StoreError> {
    let ids: Vec<i64> = column(row, "id")?;
    let lanes: Vec<i32> = column(row, "lane")?;
    let next: Vec<Timestamptz> = column(row, "next_at")?;
    let generations: Vec<i32> = column(row, "generation")?;
    let attempts: Vec<i32> = column(row, "attempt")?;
    let fences: Vec<i32> = column(row, "fence")?;
    let claims: Vec<i32> = column(row, "claim_no")?;
    let claimed: Vec<Timestamptz> = column(row, "claimed_at")?;
    let lengths = [
        lanes.len(),
        next.len(),
        generations.len(),
        attempts.len(),
        fences.len(),
        claims.len(),
        claimed.len(),
    ];
    same_length("claim", ids.len(), &lengths)?;
    Ok((0..ids.len())
        .map(|i| Claimed {
            id: ids[i],
            lane: lanes[i],
            next_at: next[i].into(),
            generation: generations[i],
            attempt: attempts[i],
            fence: fences[i],
            claim_no: claims[i],
            claimed_at: claimed[i].into(),
        })
        .collect())
}

/// An array column; null is the empty one.
fn column<'r, T>(row: &'r PgRow, name: &str) -> Result<Vec<T>, StoreError>
where
    Vec<T>: Decode<'r, Postgres> + Type<Postgres>,
{
    Ok(row.try_get::<Option<Vec<T>>, _>(name)?.unwrap_or_default())
}

fn same_length(step: &'static str, expected: usize, lengths: &[usize]) -> Result<(), StoreError> {
    match lengths.iter().find(|length| **length != expected) {
        None => Ok(()),
        Some(actual) => Err(StoreError::Count { step, expected, actual: *actual }),
    }
}

/// The bodies of these tasks, of those that live. Read after the alarms were claimed: a body of
/// another generation than its claim belongs to a newer alarm.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn bodies(db: impl PgExecutor<'_>, ids: &[i64]) -> Result<Vec<Body>, StoreError> {
    let row =
        sqlx::query(include_str!("../../sql/relay/bodies.sql")).bind(ids).fetch_one(db).await?;
    read_bodies(&row)
}

/// The bodies of a row of arrays, in no particular order.
fn read_bodies(row: &PgRow) -> Result<Vec<Body>, StoreError> {
    let ids: Vec<i64> = column(row, "body_id")?;
    let generations: Vec<i32> = column(row, "body_generation")?;
    let kinds: Vec<String> = column(row, "kind")?;
    let keys: Vec<String> = column(row, "key")?;
    let hashes: Vec<uuid::Uuid> = column(row, "key_hash")?;
    let due: Vec<Timestamptz> = column(row, "due_at")?;
    let payloads: Vec<Option<String>> = column(row, "payload")?;
    let headers: Vec<Option<String>> = column(row, "headers")?;
    let lengths = [
        generations.len(),
        kinds.len(),
        keys.len(),
        hashes.len(),
        due.len(),
        payloads.len(),
        headers.len(),
    ];
    same_length("bodies", ids.len(), &lengths)?;
    let numbers = ids.into_iter().zip(generations).zip(hashes).zip(due);
    let texts = kinds.into_iter().zip(keys).zip(payloads).zip(headers);
    Ok(numbers
        .zip(texts)
        .map(|((((id, generation), hash), due_at), (((kind, key), payload), headers))| Body {
            id,
            generation,
            kind,
            key,
            key_hash: KeyHash(hash.into_bytes()),
            due_at: due_at.into(),
            payload,
            headers,
        })
        .collect())
}

/// When the next waiting alarm behind these cursors rings (`None`: there is none), and the clock.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn next_due(
    db: impl PgExecutor<'_>,
    cursors: &[Cursor],
) -> Result<(Option<Micros>, Micros), StoreError> {
    let row = sqlx::query(include_str!("../../sql/relay/next_due.sql"))
        .bind(cursors.iter().map(|c| c.lane).collect::<Vec<_>>())
        .bind(instants(cursors.iter().map(|c| c.at)))
        .bind(cursors.iter().map(|c| c.id).collect::<Vec<_>>())
        .fetch_one(db)
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
