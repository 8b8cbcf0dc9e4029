//! `dueline bench`: how fast this product is on the configured services, beside what the same machine
//! can do in other ways, in the same run.
//!
//! * [`run`] runs scenarios and answers a [`Report`];
//! * `bench`: what all scenarios share, and the clean-up at the end;
//! * `stage`: a database and topics of a scenario's own, with relay and consumer as real processes;
//! * `load` and `open_loop`: what schedules, in a closed or an open loop; `bulk`: what loads millions;
//! * `baseline`: the same work done in other ways;
//! * `late`: how late tasks were, step by step;
//! * `judge`: duplicates, losses and early runs, counted after every scenario;
//! * one file a scenario.
//!
//! The statements in `sql/` are the bench's own: its business table, its baselines and its judge. They
//! are not part of the product, whose SQL all stands in `dueline-store`, and what is measured is
//! reached through that crate, the real binaries and the public SQL functions only.

mod baseline;
mod bench;
mod bulk;
mod cpu;
mod drained;
mod histogram;
mod judge;
mod late;
mod load;
mod machine;
mod open_loop;
mod options;
mod progress;
mod report;
mod scenario;
mod settings;
mod sleep;
mod stage;
mod stats;
mod table;
mod team;
mod window;

use anyhow::{Result, bail};
use dueline_config::Config;
use tokio_util::sync::CancellationToken;

pub use options::{Options, Scenario};
pub use report::{Bound, Goal, Outcome, Report};
pub use table::render;

/// Runs the scenarios one after another on the configured PostgreSQL server and brokers, in databases
/// and topics of their own, which are dropped at the end: also after an error, and when `stop` is
/// cancelled. Progress goes to standard error.
///
/// # Errors
/// When a service does not answer, a process of ours does not start, a scenario does not come to its
/// end within its bound, or `stop` was cancelled.
pub async fn run(config: &Config, options: Options, stop: CancellationToken) -> Result<Report> {
    let began = std::time::Instant::now();
    let bench = bench::Bench::new(config.clone(), options)?;
    let result = tokio::select! {
        result = scenario::run_all(&bench) => result,
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted")),
    };
    let left = bench.clean_up().await;
    let mut report = result?;
    report.seconds = began.elapsed().as_secs_f64();
    if !left.is_empty() {
        bail!("could not be removed: {}", left.join(", "));
    }
    Ok(report)
}
