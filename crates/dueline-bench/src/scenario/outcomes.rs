//! Scenario `outcomes`: another team handles the tasks in a transaction of its own, and answers in a topic that the
//! relay settles. Beside `steady`: what a second way through Kafka and a second transaction cost.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::lateness::FIXED_RATE;
use super::steady;
use crate::bench::Bench;
use crate::judge;
use crate::late;
use crate::load::{self, Feed, Target};
use crate::report::Outcome;
use crate::stage::{Setup, Stage};
use crate::team::Team;
use crate::window::{self, Times};

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("outcomes");
    let times = Times { warm_up: Duration::from_secs(2), measure: bench.options.seconds(8, 4) };
    let repeats = bench.options.at_most(2);
    for repeat in 1..=repeats {
        bench.progress.say(&format!("outcomes {repeat} of {repeats}"));
        closed_loop(bench, times, &mut outcome).await?;
        bench.progress.say(&format!("lateness of outcomes at {FIXED_RATE:.0} tasks/s, {repeat}"));
        open_loop(bench, &mut outcome).await?;
    }
    if let (Some(rate), Some(steady)) = (outcome.median("tasks_per_s"), bench.steady_rate()) {
        outcome.measure("vs_steady", "×", rate / steady);
    }
    Ok(outcome)
}

/// A stage with a relay and the team; `work` ends before the team does.
async fn with_team<T>(
    bench: &Bench,
    orders: i64,
    work: impl AsyncFnOnce(&mut Stage, &mut JoinSet<Result<()>>) -> Result<T>,
) -> Result<T> {
    let mut stage = Stage::set(bench, Setup { team: true, ..Setup::default() }).await?;
    stage.orders(1, orders).await?;
    stage.settle_down().await?;
    stage.start_relay().await?;
    let stop = CancellationToken::new();
    let mut team = JoinSet::new();
    team.spawn(Team::of(&stage)?.run(stop.clone()));
    let result = work(&mut stage, &mut team).await;
    stop.cancel();
    load::finish(team).await?;
    stage.close(bench).await?;
    result
}

async fn closed_loop(bench: &Bench, times: Times, outcome: &mut Outcome) -> Result<()> {
    let orders = steady::orders_for(bench, times);
    with_team(bench, orders, async |stage, team| {
        let feed = Feed::new(Target::Dueline, stage.pool.clone(), orders);
        let window = window::measure(stage, &feed, times, team).await?;
        let finished = include_str!("../../sql/finished.sql");
        let tasks = window.count(&stage.pool, finished).await?;
        outcome.measure("tasks_per_s", "/s", window.rate(tasks));
        for (process, cost) in window.costs(tasks) {
            // The team is a part of the bench.
            let process = if process == "bench" { "bench_and_team" } else { process };
            outcome.measure(format!("cost_{process}"), "core-µs", cost);
        }
        outcome.judged(judge::judge(stage, feed.scheduled()).await?);
        Ok(())
    })
    .await
}

async fn open_loop(bench: &Bench, outcome: &mut Outcome) -> Result<()> {
    let time = bench.options.seconds(10, 5);
    #[allow(clippy::cast_possible_truncation)]
    let count = (FIXED_RATE * time.as_secs_f64()).round().max(100.0) as i64;
    with_team(bench, count, async |stage, _| {
        let late = late::measure(stage, 1, count, FIXED_RATE).await?;
        late.report(outcome, "at_1000");
        outcome.judged(judge::judge(stage, count).await?);
        Ok(())
    })
    .await
}
