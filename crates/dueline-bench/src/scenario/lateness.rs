//! Scenario `lateness`: how late tasks are at a fixed rate and at half of what `steady` reaches, and what a
//! relay costs that has nothing to do.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bench::Bench;
use crate::judge::judge;
use crate::report::{Bound, Outcome};
use crate::scenario::short_rate;
use crate::stage::{Setup, Stage};
use crate::{cpu, late, sleep};

/// The fixed rate, in tasks per second.
pub(super) const FIXED_RATE: f64 = 1_000.0;
/// Lanes per tier of the idle relay's queue: 280 with the seven default tiers.
const IDLE_SLOTS: u16 = 40;
/// What a relay may take to come to rest after its start.
const COME_TO_REST: Duration = Duration::from_secs(2);

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("lateness");
    let half = match bench.steady_rate() {
        Some(rate) => rate,
        None => short_rate(bench).await?,
    } / 2.0;
    let idle = Setup { slots: Some(IDLE_SLOTS), ..Setup::default() };
    let mut idle = Stage::set(bench, idle).await?;
    let mut stage = Stage::set(bench, Setup::default()).await?;
    stage.start_relay().await?;
    stage.start_consumer().await?;
    // Many small requests are another path through the brokers than few large ones: not measured.
    let mut orders =
        at_rate(bench, &mut stage, &mut Outcome::new("warm_up"), 0, ("", FIXED_RATE)).await?;
    for repeat in 1..=bench.options.repeats() {
        bench.progress.say(&format!("idle relay and sleep precision, {repeat}"));
        measure_idle(bench, &mut idle, &mut outcome).await?;
        for (name, rate) in [("at_1000", FIXED_RATE), ("at_half", half)] {
            bench.progress.say(&format!("lateness at {rate:.0} tasks/s, {repeat}"));
            orders += at_rate(bench, &mut stage, &mut outcome, orders, (name, rate)).await?;
        }
    }
    outcome.judged(judge(&stage, orders).await?);
    idle.close(bench).await?;
    stage.close(bench).await?;
    goals(&mut outcome);
    Ok(outcome)
}

/// One open loop after the `orders` that there are; answers how many tasks it had.
async fn at_rate(
    bench: &Bench,
    stage: &mut Stage,
    outcome: &mut Outcome,
    orders: i64,
    (name, rate): (&str, f64),
) -> Result<i64> {
    let time = bench.options.seconds(10, 5);
    #[allow(clippy::cast_possible_truncation)]
    let count = (rate * time.as_secs_f64()).round().max(100.0) as i64;
    stage.orders(orders + 1, orders + count).await?;
    let late = late::measure(stage, orders + 1, count, rate).await?;
    outcome.measure(format!("{name}_rate"), "/s", rate);
    late.report(outcome, name);
    Ok(count)
}

/// The share of a core that a relay with nothing due takes, and how precisely the machine sleeps meanwhile.
async fn measure_idle(bench: &Bench, stage: &mut Stage, outcome: &mut Outcome) -> Result<()> {
    stage.start_relay().await?;
    tokio::time::sleep(COME_TO_REST).await;
    let id = stage.relays[0].id();
    let before = cpu::of_process(id)?;
    let began = Instant::now();
    let precision = sleep::precision(bench.options.seconds(10, 5)).await;
    let spent = cpu::of_process(id)? - before;
    outcome.measure("idle_relay_core_share", "", spent / began.elapsed().as_secs_f64());
    if let Some(precision) = precision {
        outcome.percentiles("sleep_1ms_over", precision);
    }
    stage.stop().await;
    Ok(())
}

fn goals(outcome: &mut Outcome) {
    for (name, line, most) in [
        ("lateness_1000_p50_ms", "at_1000_effect_p50", 4.0),
        ("lateness_1000_p99_ms", "at_1000_effect_p99", 10.0),
        ("lateness_half_p50_ms", "at_half_effect_p50", 10.0),
        ("lateness_half_p99_ms", "at_half_effect_p99", 50.0),
        ("idle_relay_core_share", "idle_relay_core_share", 0.01),
    ] {
        outcome.goal(name, outcome.median(line), Bound::AtMost(most));
    }
}
