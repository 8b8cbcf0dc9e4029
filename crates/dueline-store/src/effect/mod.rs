//! The transaction in which a batch takes effect (kind `here`), and what surrounds it.
//!
//! * [`Batch::run`]: dedupe → business rows → task → due, in one transaction, in this order of locks;
//! * [`SqlHandler`]: a user's statement, described before it is ever run; [`Effect`]: code instead;
//! * [`begin_calls`], [`finish_calls`]: around calls elsewhere;
//! * [`fail`], [`lettered`], [`identify`]: failures, deaths and their letters;
//! * [`CrashMarks`]: what a consumer was about to handle when it was last heard of;
//! * [`check_session`], [`known_kinds`]: what is asked at start.
//!
//! What to do with an answer (split, pause, stop) is the consumer's business.

mod again;
mod batch;
mod call;
mod crash;
mod failure;
mod handler;
mod session;
mod sql_handler;
mod steps;

pub use batch::{Batch, Fate};
pub use call::{Beginning, EndedCall, Ending, Heard, begin_calls, finish_calls};
pub use crash::{CrashMark, CrashMarks};
pub use failure::{FailedTask, FailureRecord, IdentifiedTask, fail, identify, lettered};
pub use handler::{Effect, Failure, Handling, Task, Trouble, Verdict};
pub use session::{KnownKind, check_session, known_kinds};
pub use sql_handler::SqlHandler;
