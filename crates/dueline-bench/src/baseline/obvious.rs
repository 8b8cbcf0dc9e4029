//! One table with a state, as a sensible author would write it first: what is claimed is leased by one
//! transaction; dedupe, effect and finish are another.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_store::Pool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::load::{BATCH, Feed};

/// Connections that claim and handle at once.
pub(crate) const WORKERS: usize = 2;
/// The pause after a claim that found nothing.
const EMPTY: Duration = Duration::from_millis(2);

/// Makes the tables.
pub(crate) async fn create(pool: &Pool) -> Result<()> {
    sqlx::raw_sql(include_str!("../../sql/obvious/tables.sql")).execute(pool).await?;
    Ok(())
}

/// Schedules a job for each of these orders, due now.
pub(crate) async fn schedule(pool: &Pool, orders: RangeInclusive<i64>) -> Result<()> {
    let keys: Vec<String> = orders.map(|id| id.to_string()).collect();
    sqlx::query(include_str!("../../sql/obvious/schedule.sql")).bind(keys).execute(pool).await?;
    Ok(())
}

/// Fills the table with so many due jobs.
pub(crate) async fn fill(pool: &Pool, n: i64) -> Result<()> {
    sqlx::query(include_str!("../../sql/obvious/fill.sql")).bind(n).execute(pool).await?;
    Ok(())
}

/// Starts workers that claim and handle until `stop`; each tells the feed how many are
/// done.
pub(crate) fn work(pool: &Pool, feed: &Arc<Feed>, stop: &CancellationToken) -> JoinSet<Result<()>> {
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (pool, feed, stop) = (pool.clone(), Arc::clone(feed), stop.clone());
        workers.spawn(async move {
            while !stop.is_cancelled() {
                let claimed = claim(&pool).await?;
                if claimed.is_empty() {
                    tokio::time::sleep(EMPTY).await;
                    continue;
                }
                feed.done(handle(&pool, claimed).await?);
            }
            Ok(())
        });
    }
    workers
}

/// Claims everything that is due, and does nothing with it: the ceiling of a drain. Answers how many.
pub(crate) async fn claim_all(pool: &Pool) -> Result<i64> {
    let sum = Arc::new(AtomicI64::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (pool, sum) = (pool.clone(), Arc::clone(&sum));
        workers.spawn(async move {
            loop {
                let claimed = claim(&pool).await?;
                if claimed.is_empty() {
                    return anyhow::Ok(());
                }
                sum.fetch_add(i64::try_from(claimed.len())?, Ordering::Relaxed);
            }
        });
    }
    crate::load::finish(workers).await?;
    Ok(sum.load(Ordering::Relaxed))
}

async fn claim(pool: &Pool) -> Result<Vec<(i64, String)>> {
    let statement = include_str!("../../sql/obvious/claim.sql");
    let limit = i32::try_from(BATCH)?;
    Ok(sqlx::query_as(statement).bind(limit).fetch_all(pool).await?)
}

async fn handle(pool: &Pool, claimed: Vec<(i64, String)>) -> Result<i64> {
    let (ids, keys): (Vec<i64>, Vec<String>) = claimed.into_iter().unzip();
    let mut tx = pool.begin().await?;
    let fresh: Vec<String> = sqlx::query_scalar(include_str!("../../sql/obvious/dedupe.sql"))
        .bind(keys)
        .fetch_all(&mut *tx)
        .await?;
    let effect = sqlx::query(include_str!("../../sql/obvious/effect.sql")).bind(fresh);
    effect.execute(&mut *tx).await?;
    let finish = sqlx::query(include_str!("../../sql/obvious/finish.sql")).bind(&ids);
    let finished = finish.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    ensure!(finished == ids.len() as u64, "a job was finished by somebody else");
    Ok(i64::try_from(finished)?)
}
