//! The consumer: it reads the tier topics of each queue, re-checks, deduplicates, runs the effect and
//! settles the task in one transaction, retries on a schedule that is written on the row, and tells of the
//! dead in the dead-letter topic.
//!
//! A handler is a SQL statement in the configuration, or a [`Handler`] linked into a program of your own:
//!
//! ```no_run
//! use dueline_consumer::{EffectConnection, Handler, HandlerError, Task, Verdict, async_trait};
//!
//! struct RemindBuyer;
//!
//! #[async_trait]
//! impl Handler for RemindBuyer {
//!     async fn handle(
//!         &self,
//!         effect: &mut EffectConnection<'_>,
//!         tasks: &[Task],
//!     ) -> Result<Vec<Verdict>, HandlerError> {
//!         // … one statement over all keys, through `effect` …
//!         Ok(tasks.iter().map(|_| Verdict::Done).collect())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     dueline_consumer::main_with(|consumer| consumer.handler("remind_buyer", RemindBuyer))
//! }
//! ```
//!
//! Inside: [`QueueLoop`](queue) is one member of a queue's handling group and owns all decisions; jobs
//! beside it own their messages until they report. Offsets follow the reports.

mod alarm;
mod builder;
mod context;
mod error;
mod handler;
mod job;
mod letters;
mod message;
mod observe;
mod pace;
mod partition;
mod program;
mod queue;
mod select;
mod tier;

/// What becomes of a record before a database is asked: for tests that bring bad ones.
#[doc(hidden)]
pub mod sorting {
    pub use crate::message::{Broken, Message, Origin, Sorted, Sorter};
}

pub use async_trait::async_trait;
pub use builder::ConsumerBuilder;
pub use error::ConsumerError;
pub use handler::{EffectConnection, Handler, HandlerError, Task, Verdict};
pub use program::main_with;
