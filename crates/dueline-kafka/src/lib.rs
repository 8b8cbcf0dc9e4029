//! Everything that knows `rdkafka`. What this crate exposes is dueline's own types only.
//!
//! * [`KafkaSettings`]: how to reach the brokers; librdkafka properties pass through, except those
//!   that the protocol's correctness needs;
//! * [`Producer`]: idempotent, `acks=all`, with delivery reports that tell *certainly not written*
//!   from *unknown*;
//! * [`Consumer`]: one group member: bounded buffers per partition, and offsets that only ever pass
//!   finished records ([`OffsetTracker`]);
//! * [`Admin`]: topics with their ids, groups, offsets, and whether a published task
//!   [still waits](Admin::still_waiting) in its topic;
//! * [`read_all`], [`read_since`]: a topic up to its end, for tools;
//! * `mock` (a cargo feature): librdkafka's in-process broker, for the demo;
//! * `testing` (a cargo feature): what only a fault injector does to a broker.
//!
//! librdkafka's threads call back into this crate; nothing that they call ever waits for the async
//! side, with one bounded exception: a rebalance waits for in-flight work to finish.

mod admin;
mod client;
mod consumer;
mod error;
mod ffi;
#[cfg(feature = "mock")]
pub mod mock;
mod producer;
mod reader;
mod record;
mod settings;
#[cfg(feature = "testing")]
pub mod testing;
mod tracker;
mod waiting;

pub use admin::{Admin, GroupView, TopicDescription, TopicSpec, Watermarks};
pub use consumer::{AssignedPartition, Consumer, ConsumerConfig, Event, PartitionLag, RevokeAck};
pub use error::KafkaError;
pub use producer::{Outcome, Producer, ProducerConfig, Report, Reports, SendRefused};
pub use reader::{ReadSummary, read_all, read_since};
pub use record::{HeaderList, OwnedRecord, Record, TopicPartition};
pub use settings::KafkaSettings;
pub use tracker::OffsetTracker;
pub use waiting::{Claim, Verdict, WaitingQuery};
