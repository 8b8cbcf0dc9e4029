//! Scenario `pending`.

use anyhow::Result;

use crate::bench::Bench;
use crate::report::Outcome;

/// Measures it.
pub(crate) async fn run(_bench: &Bench) -> Result<Outcome> {
    Ok(Outcome::new("pending"))
}
