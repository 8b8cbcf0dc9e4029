//! The invariants V1–V9, judged over independent evidence.
//!
//! [`gather()`] reads the tables (with SQL of its own: it must not share a mistake with the
//! product), the topics, the dead letters and the committed offsets. The caller adds what its
//! clients were told and what its ledger of effects says. [`judge()`] is pure, so that a test can
//! plant each bug.

mod calls;
mod evidence;
mod gather;
mod judge;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod planted_calls;
mod probe;
mod story;

pub use evidence::{
    Alarm, Answer, Call, Effect, Event, Evidence, Heard, Letter, Offset, Published, Stranded, Task,
    Told,
};
pub use gather::{Places, Queue, duplicates, gather, lag, read_published};
pub use judge::{Finding, judge};
pub use probe::{FormerOffsets, Passed, Probe, probe};

/// Whether every invariant holds.
#[must_use]
pub fn all_hold(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.violations == 0)
}
