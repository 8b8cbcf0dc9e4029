//! What every long-running dueline process shares, so that their `main` reads downwards: logs, panic
//! hook, configuration, signals, admin port, work, drain.
//!
//! * [`logging`]: JSON or text lines on standard error, and a panic hook that logs one line;
//! * [`shutdown`]: SIGTERM and SIGINT become a cancelled token; the second one ends the process;
//! * [`health`]: which parts are ready, and whether the loops still turn;
//! * [`admin`]: `/livez`, `/readyz` and `/metrics` on a loopback port;
//! * [`backoff`]: jittered, bounded pauses between attempts to reach something;
//! * [`exit`]: the exit codes.

pub mod admin;
pub mod backoff;
mod connection;
pub mod exit;
pub mod health;
pub mod logging;
pub mod shutdown;

pub use health::{Health, Pulse};
pub use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod tests;
