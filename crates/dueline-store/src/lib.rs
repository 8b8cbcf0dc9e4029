//! All SQL of dueline.
//!
//! Statements stand in `sql/<part>/<step>.sql`, one file each, named after the step of the protocol that
//! they take. This crate binds and reads them; what to do with the answers is decided by the callers:
//!
//! * [`client`]: schedule, reschedule, cancel and get, as thin callers of the SQL functions;
//! * [`relay`]: lanes, claims, the sweep, missing letters, the retention patrol;
//! * [`effect`]: the transaction in which a batch takes effect;
//! * [`operate`]: what the command line asks and changes.

pub mod client;
pub mod effect;
pub mod error;
mod migrate;
pub mod operate;
pub mod pool;
pub mod relay;
mod types;

pub use error::{StoreError, Whose};
pub use migrate::migrate;
pub use pool::{PoolSettings, Sessions, connect, connect_for_batches};
pub use types::{PgInterval, Timestamptz};

/// The pool that every part of this crate works on.
pub type Pool = sqlx::PgPool;
