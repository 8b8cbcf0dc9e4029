//! What the integration tests share.
//!
//! * [`Bench`]: a migrated database with a shop's tables, for tests of the SQL alone;
//! * [`Shop`]: the same with topics, a relay and a consumer as separate processes;
//! * [`cli`]: the `dueline` command;
//! * [`testkit`]: services, processes, a lossy proxy, waiting, the checker.

mod bench;
#[cfg(test)]
mod hazards;
mod shop;

pub use bench::{Bench, Task};
pub use dueline_testkit as testkit;
pub use dueline_testkit::cli;
pub use shop::{CLOSE_ORDER, KIND, QUEUE, Shop, ShopBuilder, shared_brokers};

/// Says, past what hides the output of tests that pass, that a hazard is not tested on this machine.
pub fn not_tested(hazard: &str, why: &str) {
    use std::io::Write as _;
    // Nobody reads a standard error that is closed.
    let _ = writeln!(std::io::stderr(), "NOT TESTED here: {hazard}: {why}");
}

/// How long a test waits for what should take a second or so: machines that test are busy.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
