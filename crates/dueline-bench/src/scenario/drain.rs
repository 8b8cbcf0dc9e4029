//! Scenario `drain`: everything is due already when relay and consumer start.

use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_core::Micros;
use dueline_store::Timestamptz;

use crate::baseline::obvious;
use crate::bench::Bench;
use crate::bulk::{self, Place};
use crate::cpu::Reading;
use crate::judge;
use crate::report::{Bound, Outcome};
use crate::stage::{Setup, Stage};
use crate::window;

/// A drain slower than this many tasks per second has failed.
const SLOWEST_PER_SECOND: i64 = 1_000;
/// Tasks of all repeats but the first: to see the spread, which a million more would not show better.
const FURTHER: u32 = 400_000;
/// What starting relay and consumer may add to that.
const START: Duration = Duration::from_secs(60);

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("drain");
    let repeats = bench.options.repeats();
    for repeat in 1..=repeats {
        let n = if repeat == 1 {
            bench.options.count(1_000_000, 200_000)
        } else {
            bench.options.count(FURTHER, FURTHER)
        };
        #[allow(clippy::cast_precision_loss)]
        outcome.measure("tasks", "", n as f64);
        bench.progress.say(&format!("drain {repeat} of {repeats}: loading {n} due tasks"));
        let mut stage = loaded(bench, n).await?;
        bench.progress.say(&format!("drain {repeat} of {repeats}: dueline"));
        let before = Reading::take(&[], &[])?;
        let seconds = drain(&mut stage, n).await?;
        outcome.measure("tasks_per_s", "/s", per_second(n, seconds));
        for (process, cost) in window::read(&stage)?.per_task(&before, n) {
            outcome.measure(format!("cost_{process}"), "core-µs", cost);
        }
        outcome.judged(judge::judge(&stage, n).await?);
        stage.close(bench).await?;
        bench.progress.say(&format!("drain {repeat} of {repeats}: raw claims of one table"));
        outcome.measure("raw_claim_tasks_per_s", "/s", raw_claim(bench, n).await?);
    }
    let ratio = outcome.ratio("tasks_per_s", "raw_claim_tasks_per_s");
    outcome.goal("drain_vs_raw_claim", ratio, Bound::AtLeast(0.5));
    Ok(outcome)
}

/// A stage with so many due tasks, at rest.
pub(crate) async fn loaded(bench: &Bench, n: i64) -> Result<Stage> {
    let stage = Stage::set(bench, Setup::default()).await?;
    stage.orders(1, n).await?;
    let now = stage.now().await?;
    // One after another, as if each was scheduled to be due at once.
    let due = move |id: i64| now.minus(Duration::from_micros((n - id).unsigned_abs()));
    bulk::load(&stage.pool, 1..=n, move |id, _| Place { due_at: due(id), tier: 0 }).await?;
    stage.settle_down().await?;
    Ok(stage)
}

/// Starts relay and consumer, and answers the seconds until the last of `n` tasks is settled.
pub(crate) async fn drain(stage: &mut Stage, n: i64) -> Result<f64> {
    let began = stage.now().await?;
    stage.start_both().await?;
    let timeout = START + Duration::from_secs((n / SLOWEST_PER_SECOND).unsigned_abs());
    stage.await_settled(n, timeout).await?;
    let last: Option<Timestamptz> = sqlx::query_scalar(include_str!("../../sql/last_finished.sql"))
        .fetch_one(&stage.pool)
        .await?;
    let last: Micros = last.context("nothing was settled")?.into();
    Ok(last.since(began).as_secs_f64())
}

#[allow(clippy::cast_precision_loss)]
fn per_second(n: i64, seconds: f64) -> f64 {
    n as f64 / seconds
}

async fn raw_claim(bench: &Bench, n: i64) -> Result<f64> {
    let stage = Stage::set(bench, Setup::default()).await?;
    obvious::create(&stage.pool).await?;
    obvious::fill(&stage.pool, n).await?;
    stage.settle_down().await?;
    let began = stage.now().await?;
    let claimed = obvious::claim_all(&stage.pool).await?;
    let seconds = stage.now().await?.since(began).as_secs_f64();
    stage.close(bench).await?;
    Ok(per_second(claimed, seconds))
}
