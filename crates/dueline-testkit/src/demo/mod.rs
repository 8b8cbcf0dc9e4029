//! The demo: a small shop, from its deadlines to the invariants.
//!
//! [`plan`] decides from a seed what happens to each order and refund; [`stage`] brings up the
//! services and our processes; [`actors`] plays the customers; [`outcome`] says what came of it.

mod actors;
mod outcome;
mod plan;
mod progress;
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::Instant;

use crate::{checker, wait};
use actors::{Clock, Ledger};
use outcome::Outcome;
use plan::Plan;
use progress::Progress;
use stage::Stage;

/// When the relay is killed, after the last task was scheduled. What is due before shows how it
/// runs undisturbed.
pub(crate) const RELAY_DIES_AFTER: Duration = Duration::from_millis(4_000);
/// When the consumer is killed.
const CONSUMER_DIES_AFTER: Duration = Duration::from_millis(7_500);
/// How long a killed process stays away.
const AWAY: Duration = Duration::from_millis(700);
/// The most that the whole backlog may take once it is due.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(180);

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many orders and refunds, together.
    pub orders: u32,
    /// What the plan is drawn from.
    pub seed: u64,
    /// Where the outcome is written as JSON.
    pub json: Option<PathBuf>,
    /// Whether the services stay up at the end.
    pub keep: bool,
    /// librdkafka's in-process broker instead of Kafka.
    pub mock_kafka: bool,
    /// A broker that is there already.
    pub brokers: Option<String>,
}

/// Runs the demo. Returns whether every invariant holds.
///
/// # Errors
/// When something does not start, end or answer in time.
pub async fn run(options: Options) -> Result<bool> {
    let began = Instant::now();
    let progress = Progress::new();
    let plan = Plan::draw(options.orders, options.seed);
    let mut stage = Stage::set(&options, &progress).await?;
    stage.start_services(&progress).await?;

    let (ledger, clock) = actors::place(&stage.pool, &plan, &progress).await?;
    let ledger = play(&mut stage, &plan, ledger, clock, &progress).await?;
    let replayed = replay_the_dead(&stage, &progress).await?;
    settle_down(&mut stage, &progress).await?;

    progress.say("checking V1 to V9 over tables, topics, letters, offsets and the shop's ledger");
    let outcome = Outcome::collect(&stage, &ledger, &options, replayed, began.elapsed()).await?;
    progress.finish();
    outcome.print();
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&outcome)?;
        std::fs::write(path, json + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.keep {
        stage.leave();
    }
    Ok(outcome.holds)
}

/// The customers act, the relay and the consumer are killed, the backlog drains.
async fn play(
    stage: &mut Stage,
    plan: &Plan,
    ledger: Ledger,
    clock: Clock,
    progress: &Progress,
) -> Result<Ledger> {
    let pool = stage.pool.clone();
    let customers = actors::play(&pool, plan, ledger, clock);
    let disasters = async {
        let start = Instant::now();
        tokio::time::sleep_until(start + RELAY_DIES_AFTER).await;
        progress.say("SIGKILL to the relay");
        stage.relay.kill();
        tokio::time::sleep(AWAY).await;
        stage.relay.restart()?;
        stage.relay.ready().await?;
        progress.say("the relay is back");
        tokio::time::sleep_until(start + CONSUMER_DIES_AFTER).await;
        progress.say("SIGKILL to the consumer");
        stage.consumer.kill();
        tokio::time::sleep(AWAY).await;
        stage.consumer.restart()?;
        stage.consumer.ready().await?;
        progress.say("the consumer is back");
        anyhow::Ok(())
    };
    let drained = async { progress.watch(&pool, plan.len(), DRAIN_TIMEOUT).await };
    let (ledger, (), ()) = tokio::try_join!(customers, disasters, drained)?;
    // A reschedule at the last moment can open what the watch took for the end.
    progress.watch(&pool, plan.len(), DRAIN_TIMEOUT).await?;
    Ok(ledger)
}

/// Mends the cause of the permanent failures, then replays every dead letter through the command
/// line.
async fn replay_the_dead(stage: &Stage, progress: &Progress) -> Result<u64> {
    let dead = progress::counts(&stage.pool).await?.remove("dead").unwrap_or(0);
    progress.say(&format!("{dead} tasks are dead; mending the cause, then `dueline dlq replay`"));
    sqlx::query(include_str!("../../sql/demo/repair.sql")).execute(&stage.pool).await?;
    let limit = dead.max(1).to_string();
    let arguments = ["dlq", "replay", "--all", "--limit", &limit, "--json"];
    if dead > 0 {
        stage.dueline(&arguments).await?.ok().context("dueline dlq replay")?;
    }
    let total = progress::counts(&stage.pool).await?.values().sum::<i64>();
    progress.watch(&stage.pool, usize::try_from(total)?, DRAIN_TIMEOUT).await?;
    let left = progress::counts(&stage.pool).await?.remove("dead").unwrap_or(0);
    ensure!(left == 0, "{left} tasks are dead again after the cause was mended");
    Ok(u64::try_from(dead)?)
}

/// Waits until every message is behind its group's offset, then stops both processes cleanly.
async fn settle_down(stage: &mut Stage, progress: &Progress) -> Result<()> {
    progress.say("waiting for the last offsets, then SIGTERM to relay and consumer");
    let places = stage.places.clone();
    wait::until("the groups to reach the ends of their topics", DRAIN_TIMEOUT, async || {
        Ok(checker::lag(&places).await? == 0)
    })
    .await?;
    for service in [&mut stage.relay, &mut stage.consumer] {
        let status = service.stop().context("it did not end")?;
        ensure!(status.success(), "it ended with {status}\n{}", service.log_tail());
    }
    Ok(())
}
