//! Schedule, reschedule, cancel, get, and a person's verdicts on dead tasks: thin callers of the SQL functions of
//! schema `dueline`, for use inside the caller's own transaction.
//!
//! Every call takes an executor: a pool, a connection, or `&mut *transaction`. What a receipt means is said at
//! [`ReceiptKind`]. Refused requests come back as [`StoreError`](crate::StoreError) with SQLSTATE 22023 and a
//! message that says what to do.
//!
//! ```no_run
//! # async fn pay(pool: &dueline_store::Pool) -> Result<(), dueline_store::StoreError> {
//! use dueline_store::client::{self, Deadline, ScheduleRequest};
//! use std::time::Duration;
//!
//! let mut transaction = pool.begin().await?;
//! // … insert the order …
//! let request = ScheduleRequest::new("close_order", "1001", Deadline::after(Duration::from_secs(1800)));
//! let receipt = client::schedule(&mut *transaction, &request).await?;
//! transaction.commit().await?;
//! println!("{}: task {:?}", receipt.receipt, receipt.id);
//! # Ok(())
//! # }
//! ```

mod calls;
mod receipt;
mod request;
mod verdict;

pub use calls::{cancel, cancel_many, cancel_or_raise, get, reschedule, schedule, schedule_many};
pub use receipt::{Phase, Receipt, ReceiptKind, TaskView};
pub use request::{Deadline, OnConflict, RescheduleRequest, ScheduleMany, ScheduleRequest};
pub use verdict::{Replay, discard, replay, resolve};
