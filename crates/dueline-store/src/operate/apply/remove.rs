//! What is no longer configured goes, last of all the lane rows, when no alarm is in them (H38).

use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};

use super::{Diff, Drain};
use crate::StoreError;

/// Alarms that one statement moves.
const BATCH: i64 = 5_000;
/// Alarms that may be left for the moment in which nobody can schedule: more are moved before it.
const LAST_BATCHES: usize = 4;
/// How long to try in all.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);
/// A transaction that is open for longer is not one that merely schedules: it is not worth making
/// everybody else wait for.
const LONG_READER: Duration = Duration::from_millis(200);

#[derive(sqlx::FromRow)]
struct Reader {
    pid: i32,
    application_name: String,
    age_us: i64,
}

/// Removes kinds, then empties and removes lanes, then tiers and queues.
pub(super) async fn remove(c: &mut PgConnection, diff: &Diff) -> Result<(), StoreError> {
    for kind in &diff.leaving_kinds {
        sqlx::query(include_str!("../../../sql/operate/remove_kind.sql"))
            .bind(kind)
            .execute(&mut *c)
            .await?;
    }
    if diff.drains.is_empty() && diff.leaving_queues.is_empty() {
        return Ok(());
    }
    let end = Instant::now() + PATIENCE;
    loop {
        for drain in &diff.drains {
            empty(c, drain, end).await?;
        }
        let blocker = match blocking_reader(c).await? {
            Some(reader) => reader,
            None => match close(c, diff).await {
                Ok(true) => return Ok(()),
                Ok(false) => "alarms that somebody has locked".to_owned(),
                Err(error) if error.sqlstate().as_deref() == Some("55P03") => {
                    "a transaction that has scheduled and not ended".to_owned()
                }
                Err(error) => return Err(error),
            },
        };
        if Instant::now() >= end {
            return Err(StoreError::Refused(format!(
                "everything else is applied, but lanes that are no longer configured could not be removed: \
                 {blocker} is in the way. They are served as before; run `dueline apply` again later"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Moves what can be moved while others go on scheduling.
async fn empty(c: &mut PgConnection, drain: &Drain, end: Instant) -> Result<(), StoreError> {
    while Instant::now() < end {
        if move_batch(c, drain).await? < BATCH.unsigned_abs() {
            break;
        }
    }
    Ok(())
}

async fn move_batch(c: &mut PgConnection, drain: &Drain) -> Result<u64, StoreError> {
    let Some(to) = &drain.to else { return Ok(0) };
    let done = sqlx::query(include_str!("../../../sql/operate/move_alarms.sql"))
        .bind(&drain.lanes)
        .bind(&drain.queue)
        .bind(to)
        .bind(BATCH)
        .bind(*to != drain.from)
        .execute(c)
        .await?;
    Ok(done.rows_affected())
}

/// The transaction that is in the way for longer than a moment, as people should read it.
async fn blocking_reader(c: &mut PgConnection) -> Result<Option<String>, StoreError> {
    let oldest: Option<Reader> =
        sqlx::query_as(include_str!("../../../sql/operate/lane_readers.sql"))
            .fetch_optional(c)
            .await?;
    Ok(oldest.and_then(|reader| {
        let age = Duration::from_micros(u64::try_from(reader.age_us).unwrap_or(0));
        (age > LONG_READER).then(|| {
            format!(
                "a transaction open for {} s (process {}, application {:?})",
                age.as_secs(),
                reader.pid,
                reader.application_name
            )
        })
    }))
}

/// One short transaction in which nobody can schedule: moves the last alarms and removes the rows.
/// Returns `false`, with nothing removed, when alarms are left.
async fn close(c: &mut PgConnection, diff: &Diff) -> Result<bool, StoreError> {
    let mut tx = c.begin().await?;
    sqlx::query(include_str!("../../../sql/operate/lock_timeout_short.sql"))
        .execute(&mut *tx)
        .await?;
    sqlx::query(include_str!("../../../sql/operate/lock_lanes.sql")).execute(&mut *tx).await?;
    for drain in &diff.drains {
        for _ in 0..LAST_BATCHES {
            if move_batch(&mut tx, drain).await? < BATCH.unsigned_abs() {
                break;
            }
        }
        let removed = sqlx::query(include_str!("../../../sql/operate/remove_lanes.sql"))
            .bind(&drain.lanes)
            .execute(&mut *tx)
            .await?
            .rows_affected();
        if removed != drain.lanes.len() as u64 {
            tx.rollback().await?;
            return Ok(false);
        }
    }
    for (queue, tier) in &diff.leaving_tiers {
        sqlx::query(include_str!("../../../sql/operate/remove_tier.sql"))
            .bind(queue)
            .bind(tier)
            .execute(&mut *tx)
            .await?;
    }
    for queue in &diff.leaving_queues {
        sqlx::query(include_str!("../../../sql/operate/remove_queue.sql"))
            .bind(queue)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(true)
}
