//! Scenario `pending`: what millions of tasks that wait for weeks cost those that are due now.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_store::client::{self, ReceiptKind};
use dueline_testkit::wait;

use super::lateness::FIXED_RATE;
use crate::bench::Bench;
use crate::judge::judge;
use crate::report::{Bound, Outcome};
use crate::settings::{KIND, QUEUE};
use crate::stage::{Setup, Stage};
use crate::{cpu, late, load};

/// The keys of waiting tasks begin here: beyond all orders.
const FIRST_WAITING: i64 = 1_000_000_000;
/// Waiting tasks of one statement.
const WAITING_BATCH: i64 = 100_000;
/// How long a relay may take to claim what is due, and a consumer to settle it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// A stage on which so many tasks wait.
struct Crowd {
    name: &'static str,
    stage: Stage,
    orders: i64,
}

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("pending");
    let mut crowds = Vec::new();
    let sizes =
        [("100k", 100_000, 10_000), ("1m", 1_000_000, 100_000), ("10m", 10_000_000, 500_000)];
    for (name, full, quick) in sizes {
        let waiting = bench.options.count(full, quick);
        bench.progress.say(&format!("loading {waiting} waiting tasks"));
        crowds.push(Crowd { name, stage: crowded(bench, waiting).await?, orders: 0 });
    }
    for repeat in 1..=bench.options.repeats() {
        for crowd in &mut crowds {
            bench.progress.say(&format!("{} waiting: claims and lateness, {repeat}", crowd.name));
            measure(bench, crowd, &mut outcome).await?;
        }
    }
    for crowd in crowds {
        outcome.judged(judge(&crowd.stage, crowd.orders).await?);
        crowd.stage.close(bench).await?;
    }
    goals(&mut outcome);
    Ok(outcome)
}

/// A stage with so many waiting tasks, which the product knows as its own.
async fn crowded(bench: &Bench, waiting: i64) -> Result<Stage> {
    let stage = Stage::set(bench, Setup::default()).await?;
    let last = FIRST_WAITING + waiting - 1;
    let pool = stage.pool.clone();
    load::in_parallel(FIRST_WAITING..=last, WAITING_BATCH, move |keys| {
        let pool = pool.clone();
        async move {
            let load = sqlx::query(include_str!("../../sql/waiting.sql"));
            let count = keys.end() - keys.start() + 1;
            let made = load.bind(*keys.start()).bind(count).bind(KIND).execute(&pool).await?;
            ensure!(made.rows_affected() == count.unsigned_abs(), "not all of {count} were made");
            Ok(())
        }
    })
    .await?;
    let receipt = client::cancel(&stage.pool, KIND, &last.to_string(), None).await?;
    ensure!(receipt.receipt == ReceiptKind::Cancelled, "{last} was not waiting: {receipt:?}");
    stage.settle_down().await?;
    Ok(stage)
}

/// How fast a relay claims, how late tasks are at the fixed rate, and how much memory the relay has then.
async fn measure(bench: &Bench, crowd: &mut Crowd, outcome: &mut Outcome) -> Result<()> {
    let (name, stage) = (crowd.name, &mut crowd.stage);
    let due = bench.options.count(100_000, 50_000);
    #[allow(clippy::cast_possible_truncation)]
    let count = (FIXED_RATE * bench.options.seconds(10, 5).as_secs_f64()) as i64;
    let orders = crowd.orders;
    stage.orders(orders + 1, orders + due + count).await?;
    load::schedule_all(&stage.pool, orders + 1..=orders + due).await?;
    stage.start_relay().await?;
    let rate = claim_rate(stage, orders + 1..=orders + due).await?;
    outcome.measure(format!("{name}_claims_per_s"), "/s", rate);
    stage.start_consumer().await?;
    stage.await_settled(due, DRAIN_TIMEOUT).await?;
    let late = late::measure(stage, orders + due + 1, count, FIXED_RATE).await?;
    late.report(outcome, name);
    let memory = cpu::resident_bytes(stage.relays[0].id())? / f64::from(1 << 20);
    outcome.measure(format!("{name}_relay_mib"), "MiB", memory);
    stage.stop().await?;
    crowd.orders += due + count;
    Ok(())
}

/// Claims per second of a relay alone, from the first to the last of these due tasks.
async fn claim_rate(stage: &mut Stage, orders: RangeInclusive<i64>) -> Result<f64> {
    let (first, last) = orders.into_inner();
    #[allow(clippy::cast_precision_loss)]
    let wanted = (last - first + 1) as f64;
    let relay = &mut stage.relays[0];
    wait::until("all that is due to be claimed", DRAIN_TIMEOUT, async || {
        Ok(relay.metric("dueline_relay_claimed_total", "").await? >= wanted)
    })
    .await?;
    let (claimed, seconds): (i64, Option<f64>) =
        sqlx::query_as(include_str!("../../sql/claim_pace.sql"))
            .bind(first)
            .bind(last)
            .bind(QUEUE)
            .bind(KIND)
            .fetch_one(&stage.pool)
            .await?;
    ensure!(claimed == last - first + 1, "{claimed} tasks are claimed, not {wanted}");
    Ok(wanted / seconds.unwrap_or_default().max(1e-3))
}

fn goals(outcome: &mut Outcome) {
    for (name, line, most) in [
        ("lateness_1m_pending_p50_ms", "1m_effect_p50", 4.0),
        ("lateness_1m_pending_p99_ms", "1m_effect_p99", 10.0),
    ] {
        outcome.goal(name, outcome.median(line), Bound::AtMost(most));
    }
    let claims = outcome.ratio("10m_claims_per_s", "100k_claims_per_s");
    outcome.goal("pending_10m_vs_100k", claims, Bound::AtLeast(0.9));
    let memory = outcome.ratio("10m_relay_mib", "100k_relay_mib");
    outcome.goal("pending_memory_ratio", memory, Bound::AtMost(1.1));
}
