//! Scenario `steady`: from `schedule_many` to settled in a closed loop at constant backlog, beside the same
//! statements without Kafka and beside the obvious table.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::baseline::{obvious, same_sql};
use crate::bench::Bench;
use crate::judge::{self, Judgement};
use crate::load::{self, Feed, Target};
use crate::report::{Bound, Outcome};
use crate::stage::{Setup, Stage};
use crate::window::{self, Times, Window};

/// Orders are made before a measurement for so many tasks per second and core, while no rate is known, …
const PER_CORE: f64 = 10_000.0;
/// … and for so many times the rate of the product's last run: about what the other ways reach.
const ROOM: f64 = 2.0;

/// What a contender came to.
pub(crate) struct Measured {
    pub rate: f64,
    /// Which part of the updates of a table was HOT.
    hot: Vec<(String, f64)>,
    window: Window,
    tasks: i64,
    pub judgement: Judgement,
}

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("steady");
    let times = Times { warm_up: Duration::from_secs(2), measure: bench.options.seconds(8, 4) };
    let repeats = bench.options.repeats();
    for repeat in 1..=repeats {
        bench.progress.say(&format!("steady {repeat} of {repeats}: dueline"));
        let ours = product(bench, times).await?;
        outcome.measure("tasks_per_s", "/s", ours.rate);
        for (process, cost) in ours.window.costs(ours.tasks) {
            outcome.measure(format!("cost_{process}"), "core-µs", cost);
        }
        outcome.measure("wal_per_task", "bytes", ours.window.wal_per_task(ours.tasks));
        for (table, share) in &ours.hot {
            outcome.measure(format!("hot_share_{table}"), "", *share);
        }
        outcome.judged(ours.judgement);
        bench.progress.say(&format!("steady {repeat} of {repeats}: the same SQL without Kafka"));
        let same = without_kafka(bench, times).await?;
        outcome.measure("same_sql_tasks_per_s", "/s", same.rate);
        outcome.judged(same.judgement);
        bench.progress.say(&format!("steady {repeat} of {repeats}: the obvious table"));
        outcome.measure("obvious_tasks_per_s", "/s", one_table(bench, times).await?);
    }
    if let Some(rate) = outcome.median("tasks_per_s") {
        bench.set_steady_rate(rate);
    }
    let ratio = outcome.ratio("tasks_per_s", "same_sql_tasks_per_s");
    outcome.goal("steady_vs_same_sql", ratio, Bound::AtLeast(0.8));
    let ratio = outcome.ratio("tasks_per_s", "obvious_tasks_per_s");
    outcome.goal("steady_vs_obvious", ratio, Bound::AtLeast(1.5));
    Ok(outcome)
}

/// The product's rate in a short run, for scenarios that need one when `steady` did not run before.
pub(crate) async fn short_rate(bench: &Bench) -> Result<f64> {
    let times = Times { warm_up: Duration::from_secs(2), measure: bench.options.seconds(4, 3) };
    let measured = product(bench, times).await?;
    bench.set_steady_rate(measured.rate);
    Ok(measured.rate)
}

/// Runs the product for a while, unmeasured: a broker that has just been started interprets its code, and
/// costs several times what it costs a minute later.
pub(crate) async fn warm_up(bench: &Bench) -> Result<()> {
    bench.progress.say("warming up the brokers; not measured");
    let times = Times { warm_up: Duration::from_secs(2), measure: bench.options.seconds(18, 11) };
    let measured = product(bench, times).await?;
    bench.set_seen_rate(measured.rate);
    Ok(())
}

async fn product(bench: &Bench, times: Times) -> Result<Measured> {
    let orders = orders_for(bench, times);
    let mut stage = running(bench, orders).await?;
    let measured = feed_product(&mut stage, times, orders).await?;
    stage.close(bench).await?;
    Ok(measured)
}

/// A stage with so many orders, a relay and a consumer.
pub(crate) async fn running(bench: &Bench, orders: i64) -> Result<Stage> {
    let mut stage = prepared(bench, orders).await?;
    stage.start_both().await?;
    Ok(stage)
}

async fn prepared(bench: &Bench, orders: i64) -> Result<Stage> {
    let stage = Stage::set(bench, Setup::default()).await?;
    stage.orders(1, orders).await?;
    stage.settle_down().await?;
    Ok(stage)
}

/// How many orders a measurement needs at this rate.
pub(crate) fn orders_at(rate: f64, times: Times) -> i64 {
    let seconds = (times.warm_up + times.measure).as_secs_f64();
    #[allow(clippy::cast_possible_truncation)]
    let orders = (seconds * rate) as i64;
    orders + 2 * load::BACKLOG
}

/// How many orders a measurement needs as far as we know; a feed makes more when it needs more.
pub(crate) fn orders_for(bench: &Bench, times: Times) -> i64 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    #[allow(clippy::cast_precision_loss)]
    let unknown = PER_CORE * cores as f64;
    orders_at(bench.seen_rate().map_or(unknown, |seen| seen * ROOM), times)
}

/// Runs the product in a closed loop over so many orders, and judges.
pub(crate) async fn feed_product(stage: &mut Stage, times: Times, orders: i64) -> Result<Measured> {
    let feed = Feed::new(Target::Dueline, stage.pool.clone(), orders);
    let window = window::measure(stage, &feed, times, &mut JoinSet::new()).await?;
    finish(stage, &feed, window).await
}

async fn finish(stage: &Stage, feed: &Feed, window: Window) -> Result<Measured> {
    let tasks = window.count(&stage.pool, include_str!("../../sql/finished.sql")).await?;
    let judgement = judge::judge(stage, feed.scheduled()).await?;
    let hot = sqlx::query_as(include_str!("../../sql/hot.sql")).fetch_all(&stage.pool).await?;
    Ok(Measured { rate: window.rate(tasks), hot, window, tasks, judgement })
}

async fn without_kafka(bench: &Bench, times: Times) -> Result<Measured> {
    let orders = orders_for(bench, times);
    let mut stage = prepared(bench, orders).await?;
    let feed = Feed::new(Target::Dueline, stage.pool.clone(), orders);
    let stop = CancellationToken::new();
    let mut workers = same_sql::work(&stage, &feed, &stop).await?;
    let window = window::measure(&mut stage, &feed, times, &mut workers).await?;
    stop.cancel();
    load::finish(workers).await?;
    let measured = finish(&stage, &feed, window).await?;
    stage.close(bench).await?;
    Ok(measured)
}

async fn one_table(bench: &Bench, times: Times) -> Result<f64> {
    let orders = orders_for(bench, times);
    let mut stage = prepared(bench, orders).await?;
    obvious::create(&stage.pool).await?;
    let feed = Feed::new(Target::Obvious, stage.pool.clone(), orders);
    let stop = CancellationToken::new();
    let mut workers = obvious::work(&stage.pool, &feed, &stop);
    let window = window::measure(&mut stage, &feed, times, &mut workers).await?;
    stop.cancel();
    load::finish(workers).await?;
    let finished = include_str!("../../sql/obvious/finished.sql");
    let tasks = window.count(&stage.pool, finished).await?;
    stage.close(bench).await?;
    Ok(window.rate(tasks))
}
