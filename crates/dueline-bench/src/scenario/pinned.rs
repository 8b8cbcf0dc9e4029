//! Scenario `pinned`: `steady` while a transaction elsewhere holds an old snapshot, so that nothing that died
//! since can be cleaned away.

use std::time::Duration;

use anyhow::Result;
use dueline_store::Pool;

use super::steady::{feed_product, orders_at, orders_for, running};
use crate::bench::Bench;
use crate::report::{Bound, Outcome};
use crate::window::Times;

/// Orders are made for so many times the rate without a pin.
const ROOM: f64 = 1.2;

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("pinned");
    let free = Times { warm_up: Duration::from_secs(2), measure: bench.options.seconds(8, 4) };
    // The last third of the pin.
    let pin = bench.options.seconds(60, 10);
    let pinned = Times { warm_up: pin * 2 / 3, measure: pin / 3 };
    let repeats = bench.options.repeats();
    for repeat in 1..=repeats {
        bench.progress.say(&format!("pinned {repeat} of {repeats}: without a pin"));
        let orders = orders_for(bench, free);
        let mut stage = running(bench, orders).await?;
        let measured = feed_product(&mut stage, free, orders).await?;
        stage.close(bench).await?;
        outcome.measure("unpinned_tasks_per_s", "/s", measured.rate);
        outcome.judged(measured.judgement);

        let seconds = pin.as_secs();
        bench.progress.say(&format!("pinned {repeat} of {repeats}: pinned for {seconds} s"));
        let orders = orders_at(measured.rate * ROOM, pinned);
        let mut stage = running(bench, orders).await?;
        let pin = Pin::set(&stage.pool).await?;
        let measured = feed_product(&mut stage, pinned, orders).await?;
        pin.end().await?;
        stage.close(bench).await?;
        outcome.measure("pinned_tasks_per_s", "/s", measured.rate);
        outcome.judged(measured.judgement);
    }
    let ratio = outcome.ratio("pinned_tasks_per_s", "unpinned_tasks_per_s");
    outcome.goal("pinned_vs_unpinned", ratio, Bound::AtLeast(0.8));
    Ok(outcome)
}

/// A transaction with a snapshot.
struct Pin(sqlx::Transaction<'static, sqlx::Postgres>);

impl Pin {
    async fn set(pool: &Pool) -> Result<Self> {
        let mut tx = pool.begin_with("begin isolation level repeatable read").await?;
        // The first statement takes the snapshot.
        sqlx::query("select 1").execute(&mut *tx).await?;
        Ok(Self(tx))
    }

    async fn end(self) -> Result<()> {
        Ok(self.0.rollback().await?)
    }
}
