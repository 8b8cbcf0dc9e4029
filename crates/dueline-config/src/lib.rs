//! Configuration in two steps: what was *typed* (flags over environment over a TOML file) and what is
//! *ready to run* ([`Config`]: complete, checked, with every default filled in).
//!
//! ```
//! let config = dueline_config::Config::from_toml_str(
//!     r#"
//!     [queues.orders]
//!     slots = 8
//!     "#,
//! )?;
//! assert_eq!(config.queues["orders"].topic("1m"), "dueline.orders.1m");
//! # Ok::<(), dueline_config::ConfigError>(())
//! ```
//!
//! Nothing is found out one mistake at a time: all problems of the check are reported together, each
//! with the full path of its key, where it was typed, and what to write instead. No value of a secret
//! ever stands in an error, a log line or `Debug` output.

mod catalog;
mod check;
mod error;
mod inequality;
mod layer;
mod model;
mod read;
mod secret;
mod source;
pub mod span;
pub mod topics;
mod webhook;

pub use error::ConfigError;
pub use model::{
    Admin, Config, Consumer, Effect, Handler, Http, Instance, Kafka, Kind, Log, LogFormat,
    MAX_LANES, Postgres, Queue, Relay, Retention, Webhook,
};
pub use secret::Secret;
pub use source::{CONFIG_VARIABLE, ENV_PREFIX, Source};

#[cfg(test)]
mod tests;
