//! The fault campaign: real processes under real faults, and the judgement of what came of it.
//!
//! * [`stage`]: PostgreSQL, Kafka, two relays, two consumers, and a proxy before every connection;
//! * [`parcels`]: the handler in Rust that the consumers link.

pub mod clock;
pub mod parcels;
pub mod role;
pub mod stage;

pub use role::Role;
pub use stage::{Stage, StageOptions};
