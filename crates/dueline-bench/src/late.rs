//! How late the tasks of an open loop were.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio_util::sync::CancellationToken;

use crate::histogram::Histogram;
use crate::open_loop::OpenLoop;
use crate::report::Outcome;
use crate::settings::{KIND, QUEUE};
use crate::stage::Stage;
use crate::stats::Percentiles;

/// The relay's own measure of due → acknowledged by the broker, which no row remembers.
const ACKNOWLEDGED: &str = "dueline_relay_acknowledged_lateness_seconds";
/// What is due in this time after the beginning is not counted.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long after its end the last tasks of an open loop may be settled.
const PATIENCE: Duration = Duration::from_secs(60);

/// How late, from the due time to each step, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    /// To the claim by the relay.
    pub claimed: Percentiles,
    /// To the broker's acknowledgement, as far as the buckets of the relay's histogram tell; `None` when the
    /// relay does not say.
    pub acknowledged: Option<Percentiles>,
    /// To the handler: the time that the business row got.
    pub effect: Percentiles,
    /// To the settle.
    pub settled: Percentiles,
}

impl Late {
    /// Of the tasks of the orders `first` to `last`, all of which must be settled.
    pub async fn of_orders(stage: &Stage, first: i64, last: i64) -> Result<Self> {
        type Row = (i64, Option<Vec<f64>>, Option<Vec<f64>>, Option<Vec<f64>>, i64);
        let (count, claimed, effect, settled, without): Row =
            sqlx::query_as(include_str!("../sql/late.sql"))
                .bind(first)
                .bind(last)
                .bind(QUEUE)
                .bind(KIND)
                .fetch_one(&stage.pool)
                .await?;
        ensure!(
            count == last - first + 1 && without == 0,
            "of the orders {first} to {last}, {count} have a task, and {without} of them no effect"
        );
        Ok(Self {
            claimed: percentiles(claimed)?,
            acknowledged: None,
            effect: percentiles(effect)?,
            settled: percentiles(settled)?,
        })
    }

    /// As [`Self::report`], for claim and effect alone.
    pub fn report_effect(&self, outcome: &mut Outcome, prefix: &str) {
        outcome.percentiles(&format!("{prefix}_claimed"), self.claimed);
        outcome.percentiles(&format!("{prefix}_effect"), self.effect);
    }

    /// Adds the lines `<prefix>_<step>_p50` and so on.
    pub fn report(&self, outcome: &mut Outcome, prefix: &str) {
        outcome.percentiles(&format!("{prefix}_claimed"), self.claimed);
        if let Some(acknowledged) = self.acknowledged {
            outcome.percentiles(&format!("{prefix}_acknowledged"), acknowledged);
        }
        outcome.percentiles(&format!("{prefix}_effect"), self.effect);
        outcome.percentiles(&format!("{prefix}_settled"), self.settled);
    }
}

/// Runs an open loop of `count` tasks on the orders from `first` on, which must exist, and waits until all of
/// them are settled.
pub(crate) async fn measure(stage: &mut Stage, first: i64, count: i64, rate: f64) -> Result<Late> {
    let settled_before = stage.settled().await?;
    let plan = OpenLoop::from_now(stage, first, count, rate).await?;
    let warm_up = plan.tasks_in(WARM_UP).min(count / 4);
    let (pool, never) = (stage.pool.clone(), CancellationToken::new());
    let (scheduled, acknowledged) =
        tokio::try_join!(plan.schedule(&pool, &never), acknowledged(stage, &plan, warm_up))?;
    ensure!(scheduled == count, "{scheduled} of {count} tasks were scheduled");
    stage.await_settled(settled_before + count, PATIENCE).await?;
    let late = Late::of_orders(stage, first + warm_up, first + count - 1).await?;
    Ok(Late { acknowledged, ..late })
}

/// What the relays' histogram says of the time from the `from`-th task of the plan to its last.
async fn acknowledged(
    stage: &mut Stage,
    plan: &OpenLoop,
    from: i64,
) -> Result<Option<Percentiles>> {
    tokio::time::sleep_until(plan.due_here(from).into()).await;
    let before = scrape(stage).await?;
    tokio::time::sleep_until(plan.due_here(plan.count).into()).await;
    Ok(scrape(stage).await?.since(&before).percentiles())
}

/// Of the first relay: these scenarios run one.
async fn scrape(stage: &mut Stage) -> Result<Histogram> {
    let relay = stage.relays.first_mut().context("no relay runs")?;
    let (_, body) = relay.get("/metrics").await?;
    Ok(Histogram::read(&body, ACKNOWLEDGED, ""))
}

/// From the array of `late.sql`.
fn percentiles(values: Option<Vec<f64>>) -> Result<Percentiles> {
    match values.as_deref() {
        Some(&[p50, p99, p999, max]) => Ok(Percentiles { p50, p99, p999, max }),
        _ => anyhow::bail!("a step left no time behind"),
    }
}
