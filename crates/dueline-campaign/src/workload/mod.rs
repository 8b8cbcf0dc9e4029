//! The clients of the campaign, and what they were told.

mod clerk;
mod client;
mod deed;
mod pace;
mod session;

use anyhow::Result;
use dueline_testkit::checker::Call;
use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinSet;

pub use deed::{Deed, Kind};
pub use pace::Pace;
pub use session::{Outcome, Session};

use client::Client;

/// How many clients schedule.
pub const CLIENTS: u32 = 6;
/// A statement that waits longer for a lock gives up.
const STATEMENT_TIMEOUT: &str = "6s";

/// Runs all clients and the clerk until the pace ends; returns what they were told.
///
/// # Errors
/// When the URL cannot be read, or a client panicked.
pub async fn run(seed: u64, client_url: &str, pace: Pace) -> Result<Vec<Call>> {
    let options: PgConnectOptions = client_url.parse()?;
    let options = options.options([("statement_timeout", STATEMENT_TIMEOUT)]);
    let mut running = JoinSet::new();
    for number in 1..=CLIENTS {
        running.spawn(Client::new(number, seed, options.clone()).run(pace.clone()));
    }
    running.spawn(clerk::run(seed, options, pace));
    let mut calls = Vec::new();
    while let Some(told) = running.join_next().await {
        calls.extend(told?);
    }
    Ok(calls)
}
