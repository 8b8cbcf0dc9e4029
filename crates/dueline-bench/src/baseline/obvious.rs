//! One table with a state, as a sensible author would write it first.

use std::ops::RangeInclusive;

use anyhow::Result;
use dueline_store::Pool;

/// Schedules a job for each of these orders, due now.
pub(crate) async fn schedule(pool: &Pool, orders: RangeInclusive<i64>) -> Result<()> {
    let keys: Vec<String> = orders.map(|id| id.to_string()).collect();
    sqlx::query(include_str!("../../sql/obvious/schedule.sql")).bind(keys).execute(pool).await?;
    Ok(())
}
