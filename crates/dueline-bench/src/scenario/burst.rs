//! Scenario `burst`: everything of one tier due within a second, and a trickle in another tier that must not
//! notice.

use std::time::{Duration, Instant};

use anyhow::Result;
use dueline_core::Micros;
use dueline_testkit::wait;
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;
use crate::bulk::{self, Place, Way};
use crate::drained::{self, Drained};
use crate::judge::judge;
use crate::late::Late;
use crate::load;
use crate::open_loop::{AHEAD, OpenLoop};
use crate::report::{Bound, Outcome};
use crate::stage::{Setup, Stage};

/// Tasks per second of the trickle.
const TRICKLE_RATE: f64 = 100.0;
/// The longest trickle: as long as a burst may take.
const TRICKLE_TIME: Duration = Duration::from_secs(180);
/// The tier of the burst, …
const BURST_TIER: &str = "1m";
/// … and what tells it among the consumer's metrics.
const BURST_DONE: &str = "tier=\"1m\",kind=\"close_order\",outcome=\"done\"";
/// How long loading the burst may take, as a share of scheduling as many.
const SHARE: f64 = 0.7;
/// So many repeats unless more are asked for: each takes more than a minute.
const MOST_REPEATS: usize = 2;
/// How long the last tasks of the trickle may take when the burst is over.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("burst");
    let repeats = bench.options.at_most(MOST_REPEATS);
    for repeat in 1..=repeats {
        bench.progress.say(&format!("a burst beside a trickle, {repeat} of {repeats}"));
        measure(bench, &mut outcome).await?;
    }
    let p99 = outcome.median("trickle_effect_p99");
    outcome.goal("burst_trickle_p99_ms", p99, Bound::AtMost(250.0));
    Ok(outcome)
}

async fn measure(bench: &Bench, outcome: &mut Outcome) -> Result<()> {
    let (warm_up, burst) =
        (bench.options.count(20_000, 20_000), bench.options.count(500_000, 100_000));
    #[allow(clippy::cast_possible_truncation)]
    let trickle = (TRICKLE_RATE * TRICKLE_TIME.as_secs_f64()) as i64;
    let (first_burst, first_trickle) = (warm_up + 1, warm_up + burst + 1);
    let mut stage = Stage::set(bench, Setup::default()).await?;
    stage.orders(1, warm_up + burst + trickle).await?;
    stage.start_relay().await?;
    stage.start_consumer().await?;

    let began = Instant::now();
    load::schedule_all(&stage.pool, 1..=warm_up).await?;
    let seconds_each = began.elapsed().as_secs_f64() / as_f64(warm_up);
    stage.await_settled(warm_up, PATIENCE).await?;

    let lead = Duration::from_secs_f64(SHARE * seconds_each * as_f64(burst)) + AHEAD;
    let burst_at = stage.now().await?.plus(lead);
    load_burst(&stage, first_burst, burst, burst_at).await?;
    let now = stage.now().await?;
    if now >= burst_at {
        // No reason to lose all other results: the time of the burst then has loading in it.
        bench.progress.say("the machine slowed down: the burst began while it was being loaded");
    }
    let begin = Instant::now() + burst_at.since(now).saturating_sub(2 * AHEAD);
    tokio::time::sleep_until(begin.into()).await;
    let plan = OpenLoop::from_now(&stage, first_trickle, trickle, TRICKLE_RATE).await?;
    let trickled = run_trickle(&mut stage, &plan, burst).await?;
    stage.await_settled(warm_up + burst + trickled, PATIENCE).await?;

    let done = drained::of_orders(&stage, first_burst..=first_burst + burst - 1).await?;
    report(&stage, &plan, trickled, (burst, burst_at), done, outcome).await?;
    outcome.judged(judge(&stage, warm_up + burst + trickled).await?);
    stage.close(bench).await
}

/// Tasks that are due evenly over the second from `at` on, all of one tier.
async fn load_burst(stage: &Stage, first: i64, count: i64, at: Micros) -> Result<()> {
    let tier = Way::of(&stage.pool).await?.tier(BURST_TIER)?;
    let place = move |id: i64, _| {
        let share = Duration::from_secs_f64(as_f64(id - first) / as_f64(count));
        Place { due_at: at.plus(share), tier }
    };
    bulk::load(&stage.pool, first..=first + count - 1, place).await
}

/// The trickle, until the burst is settled; answers how many tasks it had.
async fn run_trickle(stage: &mut Stage, plan: &OpenLoop, burst: i64) -> Result<i64> {
    let (pool, stop) = (stage.pool.clone(), CancellationToken::new());
    let until_done = async {
        let consumer = &mut stage.consumers[0];
        wait::until("the burst to be settled", TRICKLE_TIME, async || {
            Ok(consumer.metric("dueline_consumer_tasks_total", BURST_DONE).await? >= as_f64(burst))
        })
        .await?;
        stop.cancel();
        Ok(())
    };
    let (trickled, ()) = tokio::try_join!(plan.schedule(&pool, &stop), until_done)?;
    Ok(trickled)
}

/// The burst's time, and how late the trickle was while it lasted.
async fn report(
    stage: &Stage,
    plan: &OpenLoop,
    trickled: i64,
    (burst, burst_at): (i64, Micros),
    done: Drained,
    outcome: &mut Outcome,
) -> Result<()> {
    let time = done.last_settle.since(burst_at);
    outcome.measure("burst_done_after_s", "s", time.as_secs_f64());
    outcome.measure("burst_tasks_per_s", "/s", as_f64(burst) / time.as_secs_f64());
    let place = |at: Micros| plan.tasks_in(at.since(plan.start)).clamp(0, trickled - 1);
    let (from, to) = (place(burst_at), place(done.last_settle));
    let late = Late::of_orders(stage, plan.first + from, plan.first + to).await?;
    late.report_effect(outcome, "trickle");
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn as_f64(n: i64) -> f64 {
    n as f64
}
