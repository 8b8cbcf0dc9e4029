//! Scenario `pending`: what millions of tasks that wait for weeks cost those that are due now.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::KeyHash;
use dueline_store::client::{self, ReceiptKind};

use super::lateness::FIXED_RATE;
use crate::bench::Bench;
use crate::bulk::{self, Place, Way};
use crate::judge::judge;
use crate::report::{Bound, Outcome};
use crate::settings::KIND;
use crate::stage::{Setup, Stage};
use crate::{cpu, drained, late, load};

/// The keys of waiting tasks begin here: beyond all orders.
const FIRST_WAITING: i64 = 1_000_000_000;
/// The soonest that a waiting task is due, and how much later others are.
const SOONEST: Duration = Duration::from_secs(7 * 86_400);
const SPREAD: Duration = Duration::from_secs(60 * 86_400);
/// How long what is due may take to be settled.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// How many tasks wait: name, in full, and in a quick run.
const SIZES: [(&str, u32, u32); 3] =
    [("few", 100_000, 10_000), ("many", 1_000_000, 100_000), ("most", 10_000_000, 500_000)];

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
    for (name, full, quick) in SIZES {
        let waiting = bench.options.count(full, quick);
        #[allow(clippy::cast_precision_loss)]
        outcome.measure(format!("{name}_waiting"), "tasks", waiting as f64);
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
    let (soonest, tiers) =
        (stage.now().await?.plus(SOONEST), Way::of(&stage.pool).await?.tiers.len());
    // In every tier, the shortest too, as for an event that is weeks ahead.
    let place = move |key: i64, hash: KeyHash| Place {
        due_at: soonest.plus(SPREAD.mul_f64(share(hash))),
        tier: usize::try_from(key).unwrap_or(0) % tiers,
    };
    bulk::load(&stage.pool, FIRST_WAITING..=last, place).await?;
    let receipt = client::cancel(&stage.pool, KIND, &last.to_string(), None).await?;
    ensure!(receipt.receipt == ReceiptKind::Cancelled, "{last} was not waiting: {receipt:?}");
    stage.settle_down().await?;
    Ok(stage)
}

/// A number from 0 to 1 that is as random as the hash.
fn share(hash: KeyHash) -> f64 {
    let [.., a, b, c, d] = hash.0;
    f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

/// How late tasks are at the fixed rate, how much memory the relay has then, and how fast another relay claims
/// what is due when it starts, with the consumer at work beside it.
async fn measure(bench: &Bench, crowd: &mut Crowd, outcome: &mut Outcome) -> Result<()> {
    let (name, stage) = (crowd.name, &mut crowd.stage);
    #[allow(clippy::cast_possible_truncation)]
    let count = (FIXED_RATE * bench.options.seconds(6, 3).as_secs_f64()) as i64;
    let due = bench.options.count(80_000, 30_000);
    let first_due = crowd.orders + count + 1;
    let last = crowd.orders + count + due;
    stage.orders(crowd.orders + 1, last).await?;
    stage.start_relay().await?;
    stage.start_consumer().await?;
    let late = late::measure(stage, crowd.orders + 1, count, FIXED_RATE).await?;
    late.report_effect(outcome, name);
    let memory = cpu::resident_bytes(stage.relays[0].id())? / f64::from(1 << 20);
    outcome.measure(format!("{name}_relay_mib"), "MiB", memory);

    stage.stop_relays().await;
    load::schedule_all(&stage.pool, first_due..=last).await?;
    stage.start_relay().await?;
    stage.await_settled(count + due, DRAIN_TIMEOUT).await?;
    stage.stop().await;
    let drained = drained::of_orders(stage, first_due..=last).await?;
    #[allow(clippy::cast_precision_loss)]
    let rate = due as f64 / drained.claim_seconds();
    outcome.measure(format!("{name}_claims_per_s"), "/s", rate);
    crowd.orders = last;
    Ok(())
}

fn goals(outcome: &mut Outcome) {
    for (name, line, most) in [
        ("lateness_1m_pending_p50_ms", "many_effect_p50", 4.0),
        ("lateness_1m_pending_p99_ms", "many_effect_p99", 10.0),
    ] {
        outcome.goal(name, outcome.median(line), Bound::AtMost(most));
    }
    let claims = outcome.ratio("most_claims_per_s", "few_claims_per_s");
    outcome.goal("pending_10m_vs_100k", claims, Bound::AtLeast(0.9));
    let memory = outcome.ratio("most_relay_mib", "few_relay_mib");
    outcome.goal("pending_memory_ratio", memory, Bound::AtMost(1.1));
}
