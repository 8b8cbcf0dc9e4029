//! What tests may do to a process from inside: kill or delay it between two durable actions (**fail
//! points**), and take a guard away (**planted bugs**), so that the campaign can show that a crash at any
//! line does no harm and that its checker would see a guard that is missing.
//!
//! Without the feature `enabled`, which no release build can have, every function here is empty and
//! inlined, and reads no environment. With it:
//!
//! - `FAILPOINTS`, in the syntax of the crate [`fail`](https://docs.rs/fail): `relay.claimed=1*return(kill)`
//!   ends the process by SIGABRT when it gets there for the first time, `2%return(delay:6000)` stops its
//!   thread there for 6,000 ms, two times in a hundred. Separated by `;`.
//! - `DUELINE_PLANTED` names one planted bug.
//!
//! [`POINTS`] lists all places. Those that a task's way does not lead to have to be provoked: the campaign
//! knows how.

#[cfg(all(feature = "enabled", not(debug_assertions)))]
compile_error!(
    "fail points are for tests: build release binaries without dueline-failpoints/enabled"
);

mod points;
pub use points::{POINTS, Point, Process};

/// Whether this build has them.
pub const ENABLED: bool = cfg!(feature = "enabled");

#[cfg(feature = "enabled")]
mod switched;
#[cfg(feature = "enabled")]
pub use switched::{planted, reached, set_up};

#[cfg(not(feature = "enabled"))]
mod empty {
    /// Reads `FAILPOINTS`: once, at the start of a process.
    #[inline(always)]
    pub fn set_up() {}

    /// Marks a place between two durable actions.
    #[inline(always)]
    pub fn reached(_point: &'static str) {}

    /// Whether this bug is planted: the guard beside the question is then left out.
    #[inline(always)]
    #[must_use]
    pub fn planted(_bug: &'static str) -> bool {
        false
    }
}
#[cfg(not(feature = "enabled"))]
pub use empty::{planted, reached, set_up};
