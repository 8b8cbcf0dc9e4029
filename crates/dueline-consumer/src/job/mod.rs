//! What runs beside the loop: each job owns its messages and answers with a report.

mod batch;
mod broken;
mod calls;

pub(crate) use batch::{BatchJob, BatchReport, Outcome};
pub(crate) use broken::{BrokenReport, bury};
pub(crate) use calls::TELL_FOR;

/// How often a deadlock or serialization failure is tried again at once.
pub(crate) const MAX_FREE_RETRIES: usize = 5;
