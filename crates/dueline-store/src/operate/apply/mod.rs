//! From the configuration to the rows of `queue`, `tier`, `lane` and `kind`.
//!
//! [`plan`] says what [`apply`] would do. Making and widening is one transaction. What is to go (slots,
//! tiers, queues, kinds) goes afterwards, last of all the lane rows, when no alarm is in them (H38).

mod diff;
mod remove;

use dueline_config::Config;
use sqlx::{Connection as _, PgConnection};

use super::plan::Plan;
use crate::{Pool, StoreError};
use diff::{Diff, Drain};

/// Counts in a plan stop here: a plan must not count ten million alarms.
pub(super) const COUNT_LIMIT: i64 = 100_001;

/// What the database has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Actual {
    pub queues: Vec<QueueRow>,
    pub tiers: Vec<TierRow>,
    pub lanes: Vec<LaneRow>,
    pub kinds: Vec<KindRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct QueueRow {
    pub name: String,
    pub slots: i32,
    pub consumer_group: String,
}

#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct TierRow {
    pub queue: String,
    pub name: String,
    pub rank: i32,
    pub max_delay_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct LaneRow {
    pub lane: i32,
    pub queue: String,
    pub tier: String,
    pub slot: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct KindRow {
    pub name: String,
    pub queue: String,
    pub effect: String,
    pub backoff_ms: Vec<i64>,
    pub max_payload_bytes: i32,
    pub age_limit_us: i64,
}

/// Live and dead tasks of a kind, each counted up to [`COUNT_LIMIT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct InUse {
    pub live: i64,
    pub dead: i64,
}

/// What [`apply`] would do now. Changes nothing.
///
/// # Errors
/// When the database does not answer or has no schema.
pub async fn plan(pool: &Pool, config: &Config) -> Result<Plan, StoreError> {
    let mut connection = pool.acquire().await?;
    Ok(make_plan(&mut connection, config).await?.0)
}

/// Makes the database as the configuration says, and returns what was done. With a refusal in the plan,
/// nothing is done at all.
///
/// # Errors
/// [`StoreError::Refused`] when another apply is running, or when lanes could not be emptied in time:
/// then everything still works, the lanes are walked as before, and the next apply goes on.
pub async fn apply(pool: &Pool, config: &Config) -> Result<Plan, StoreError> {
    // A session of its own: its end gives the lock back, however we leave.
    let mut connection = pool.acquire().await?.detach();
    let free: bool = sqlx::query_scalar(include_str!("../../../sql/operate/apply_lock.sql"))
        .fetch_one(&mut connection)
        .await?;
    if !free {
        return Err(StoreError::Refused(
            "another `dueline apply` is running on this database: wait for it".to_owned(),
        ));
    }
    let (plan, diff) = make_plan(&mut connection, config).await?;
    if plan.refusals().next().is_none() {
        widen(&mut connection, config, &diff).await?;
        remove::remove(&mut connection, &diff).await?;
    }
    // Given back before the session ends: its end reaches the server a moment after us.
    sqlx::query(include_str!("../../../sql/operate/apply_unlock.sql"))
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    Ok(plan)
}

async fn make_plan(
    connection: &mut PgConnection,
    config: &Config,
) -> Result<(Plan, Diff), StoreError> {
    let actual = read(connection).await?;
    let mut diff = diff::diff(config, &actual);
    for index in 0..diff.doubtful_kinds.len() {
        let kind = diff.doubtful_kinds[index].clone();
        let in_use: InUse = sqlx::query_as(include_str!("../../../sql/operate/kind_in_use.sql"))
            .bind(&kind.name)
            .bind(&kind.queue)
            .bind(COUNT_LIMIT)
            .fetch_one(&mut *connection)
            .await?;
        diff.judge_kind(&kind, in_use, config);
    }
    for index in 0..diff.drains.len() {
        let alarms = alarms_in(connection, &diff.drains[index].lanes).await?;
        diff.note_alarms(index, alarms);
    }
    diff.refuse_occupied_queues();
    Ok((Plan { items: diff.items.clone() }, diff))
}

async fn alarms_in(connection: &mut PgConnection, lanes: &[i32]) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar(include_str!("../../../sql/operate/alarms_in_lanes.sql"))
        .bind(lanes)
        .bind(COUNT_LIMIT)
        .fetch_one(connection)
        .await?)
}

async fn read(connection: &mut PgConnection) -> Result<Actual, StoreError> {
    let c = connection;
    Ok(Actual {
        queues: sqlx::query_as(include_str!("../../../sql/operate/apply_queues.sql"))
            .fetch_all(&mut *c)
            .await
            .map_err(super::explain_missing_schema)?,
        tiers: sqlx::query_as(include_str!("../../../sql/operate/apply_tiers.sql"))
            .fetch_all(&mut *c)
            .await?,
        lanes: sqlx::query_as(include_str!("../../../sql/operate/apply_lanes.sql"))
            .fetch_all(&mut *c)
            .await?,
        kinds: sqlx::query_as(include_str!("../../../sql/operate/apply_kinds.sql"))
            .fetch_all(&mut *c)
            .await?,
    })
}

/// One transaction: whoever schedules sees the old shape or the new one.
async fn widen(
    connection: &mut PgConnection,
    config: &Config,
    diff: &Diff,
) -> Result<(), StoreError> {
    let mut tx = connection.begin().await?;
    for queue in config.queues.values() {
        sqlx::query(include_str!("../../../sql/operate/put_queue.sql"))
            .bind(&queue.name)
            .bind(i32::from(queue.slots))
            .bind(&queue.group)
            .execute(&mut *tx)
            .await?;
        let names: Vec<&str> = queue.tiers.iter().map(|t| t.name.as_str()).collect();
        if diff.leaving_tiers.iter().any(|(q, _)| *q == queue.name) {
            sqlx::query(include_str!("../../../sql/operate/put_aside_tiers.sql"))
                .bind(&queue.name)
                .bind(&names)
                .execute(&mut *tx)
                .await?;
        }
        for (rank, tier) in (0_i32..).zip(&queue.tiers) {
            sqlx::query(include_str!("../../../sql/operate/put_tier.sql"))
                .bind(&queue.name)
                .bind(&tier.name)
                .bind(rank)
                .bind(interval(tier.max_delay))
                .execute(&mut *tx)
                .await?;
            sqlx::query(include_str!("../../../sql/operate/put_lanes.sql"))
                .bind(&queue.name)
                .bind(&tier.name)
                .bind(i32::from(queue.slots))
                .execute(&mut *tx)
                .await?;
        }
    }
    for kind in config.kinds.values() {
        let wanted = diff::kind_row(kind);
        sqlx::query(include_str!("../../../sql/operate/put_kind.sql"))
            .bind(&wanted.name)
            .bind(&wanted.queue)
            .bind(&wanted.effect)
            .bind(&wanted.backoff_ms)
            .bind(wanted.max_payload_bytes)
            .bind(interval(kind.age_limit))
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(())
}

fn interval(duration: std::time::Duration) -> sqlx::postgres::types::PgInterval {
    crate::PgInterval(duration).into()
}

#[cfg(test)]
mod tests;
