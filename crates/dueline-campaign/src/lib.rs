//! The fault campaign: real processes under real faults, and the judgement of what came of it.
//!
//! * [`campaign`]: one campaign, from the first process to the verdict;
//! * [`stage`]: PostgreSQL, Kafka, two relays, two consumers, and a proxy before every connection;
//! * [`workload`]: the clients, and what they were told;
//! * [`nemesis`]: the faults, drawn from a seed;
//! * [`planted`]: bugs of the product on purpose, each of which the judgement must find;
//! * [`outcome`]: the evidence, its judgement, and the story of each task that breaks an invariant;
//! * [`parcels`]: the handler in Rust that the consumers link.

pub mod campaign;
pub mod clock;
pub mod evidence;
pub mod monitor;
pub mod nemesis;
pub mod outcome;
pub mod parcels;
pub mod planted;
pub mod role;
pub mod stage;
pub mod workload;

pub use role::Role;
pub use stage::{Stage, StageOptions};
