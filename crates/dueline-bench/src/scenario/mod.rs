//! One file a scenario: `run` measures, compares with its baselines, and has everything judged.

mod burst;
mod drain;
mod lateness;
mod outcomes;
mod pending;
mod pinned;
mod scale;
mod schedule;
mod steady;

use std::time::Instant;

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
        let began = Instant::now();
        Box::pin(warm_up(bench)).await.context("warming up")?;
        bench.progress.say(&format!("warming up took {:.0} s", began.elapsed().as_secs_f64()));
    }
    for scenario in bench.options.chosen() {
        bench.progress.scenario(scenario.as_str());
        // Each is a large future: on the heap, one at a time.
        let began = Instant::now();
        let outcome = Box::pin(run(bench, scenario)).await;
        let mut outcome = outcome.with_context(|| format!("scenario {}", scenario.as_str()))?;
        outcome.seconds = began.elapsed().as_secs_f64();
        bench.progress.say(&format!("{} took {:.0} s", scenario.as_str(), outcome.seconds));
        outcomes.push(outcome);
    }
    // The whole time is known when everything is removed.
    Ok(Report { machine, outcomes, seconds: 0.0 })
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
        Scenario::Outcomes => outcomes::run(bench).await,
        Scenario::Schedule => schedule::run(bench).await,
    }
}
