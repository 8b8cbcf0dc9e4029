//! One file a scenario: `run` measures, compares with its baselines, and has everything judged.

mod burst;
mod drain;
mod lateness;
mod pending;
mod pinned;
mod scale;
mod schedule;
mod steady;

use anyhow::{Context as _, Result};

use crate::bench::Bench;
use crate::machine;
use crate::options::Scenario;
use crate::report::{Outcome, Report};

pub(crate) use steady::short_rate;
use steady::warm_up;

/// Runs the chosen scenarios.
pub(crate) async fn run_all(bench: &Bench) -> Result<Report> {
    let machine = machine::describe(bench).await?;
    let mut outcomes = Vec::new();
    if bench.options.chosen().iter().any(|scenario| *scenario != Scenario::Schedule) {
        Box::pin(warm_up(bench)).await.context("warming up")?;
    }
    for scenario in bench.options.chosen() {
        bench.progress.scenario(scenario.as_str());
        // Each is a large future: on the heap, one at a time.
        let outcome = Box::pin(run(bench, scenario)).await;
        outcomes.push(outcome.with_context(|| format!("scenario {}", scenario.as_str()))?);
    }
    Ok(Report { machine, outcomes })
}

async fn run(bench: &Bench, scenario: Scenario) -> Result<Outcome> {
    match scenario {
        Scenario::Steady => steady::run(bench).await,
        Scenario::Drain => drain::run(bench).await,
        Scenario::Lateness => lateness::run(bench).await,
        Scenario::Pending => pending::run(bench).await,
        Scenario::Pinned => pinned::run(bench).await,
        Scenario::Burst => burst::run(bench).await,
        Scenario::Scale => scale::run(bench).await,
        Scenario::Schedule => schedule::run(bench).await,
    }
}
