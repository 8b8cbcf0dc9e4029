//! What the figures were measured on.

use anyhow::Result;
use serde_json::{Value, json};

use crate::bench::Bench;

/// Describes machine and services.
pub(crate) async fn describe(_bench: &Bench) -> Result<Value> {
    let cores = std::thread::available_parallelism()?.get();
    Ok(json!({ "cores": cores }))
}
