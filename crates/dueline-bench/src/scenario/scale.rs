//! Scenario `scale`: what a second database or a second relay brings, and what a task costs then.

use std::time::Duration;

use anyhow::Result;
use dueline_testkit::process::Service;

use crate::bench::Bench;
use crate::cpu::Reading;
use crate::drained::{self, Drained};
use crate::judge::judge;
use crate::load;
use crate::report::Outcome;
use crate::stage::{Setup, Stage};

/// How long a drain may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(180);

/// A stage, and how many orders it has.
struct Site {
    stage: Stage,
    orders: i64,
}

/// Name, databases, relays per database.
const VARIANTS: [(&str, usize, usize); 4] =
    [("one", 1, 1), ("two_databases", 2, 1), ("two_relays", 1, 2), ("three_relays", 1, 3)];

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("scale");
    let mut sites = Vec::new();
    for _ in 0..2 {
        sites.push(Site { stage: Stage::set(bench, Setup::default()).await?, orders: 0 });
    }
    let count = bench.options.count(90_000, 30_000);
    for repeat in 1..=bench.options.repeats() {
        for (name, databases, relays) in VARIANTS {
            bench
                .progress
                .say(&format!("{databases} database(s), {relays} relay(s) each, {repeat}"));
            let sites = &mut sites[..databases];
            for site in sites.iter_mut() {
                site.load(count).await?;
            }
            drain(sites, name, count, relays, &mut outcome).await?;
        }
    }
    for site in sites {
        outcome.judged(judge(&site.stage, site.orders).await?);
        site.stage.close(bench).await?;
    }
    for (name, _, _) in &VARIANTS[1..] {
        let growth = outcome.ratio(&format!("{name}_tasks_per_s"), "one_tasks_per_s");
        if let Some(growth) = growth {
            outcome.measure(format!("{name}_vs_one"), "×", growth);
        }
    }
    Ok(outcome)
}

impl Site {
    /// Schedules so many tasks that are due.
    async fn load(&mut self, count: i64) -> Result<()> {
        self.stage.orders(self.orders + 1, self.orders + count).await?;
        load::schedule_all(&self.stage.pool, self.orders + 1..=self.orders + count).await?;
        self.orders += count;
        self.stage.settle_down().await
    }

    /// Starts relays; they are not ready yet.
    fn start_relays(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            let relay = self.stage.program("dueline-relay")?.start()?;
            self.stage.relays.push(relay);
        }
        Ok(())
    }
}

/// Drains what was loaded last, with one consumer on each database and all relays started at once.
async fn drain(
    sites: &mut [Site],
    name: &str,
    count: i64,
    relays: usize,
    outcome: &mut Outcome,
) -> Result<()> {
    for site in sites.iter_mut() {
        site.stage.start_consumer().await?;
    }
    let consumers = ids(sites, |stage| &stage.consumers);
    let before = Reading::take(&[], &consumers)?;
    for site in sites.iter_mut() {
        site.start_relays(relays)?;
    }
    for site in sites.iter_mut() {
        site.stage.await_settled(count, DRAIN_TIMEOUT).await?;
    }
    let after = Reading::take(&ids(sites, |stage| &stage.relays), &consumers)?;
    let total = count * i64::try_from(sites.len())?;
    for (program, cost) in after.per_task(&before, total) {
        outcome.measure(format!("{name}_{program}_us_per_task"), "µs", cost);
    }
    let mut all: Option<Drained> = None;
    for site in sites.iter_mut() {
        site.stage.stop().await;
        let orders = site.orders - count + 1..=site.orders;
        let one = drained::of_orders(&site.stage, orders).await?;
        all = Some(all.map_or(one, |all| all.and(one)));
    }
    if let Some(all) = all {
        #[allow(clippy::cast_precision_loss)]
        outcome.measure(format!("{name}_tasks_per_s"), "/s", total as f64 / all.seconds());
    }
    Ok(())
}

/// The process ids of a sort of services.
fn ids(sites: &[Site], of: impl Fn(&Stage) -> &Vec<Service>) -> Vec<u32> {
    sites.iter().flat_map(|site| of(&site.stage).iter().map(Service::id)).collect()
}
