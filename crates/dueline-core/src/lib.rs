//! The pure heart of dueline: no clock, no socket, no database.
//!
//! Everything here is a value or a function of values, so that the rules of the protocol can be read
//! and tested without a running system:
//!
//! * [`state`]: the five states of a task and the transitions between them;
//! * [`key`]: the 16-byte hash that identifies one action on one business object;
//! * [`name`]: which names queues, kinds, tiers and topics may have;
//! * [`tier`]: which delay tier a requested delay belongs to;
//! * [`retry`]: how long a failed task waits, and when it is exhausted;
//! * [`envelope`]: the message on the wire (CloudEvents, Kafka binary binding);
//! * [`outcome`]: what another team says of a task, on the wire;
//! * [`delay`]: a request on a delay topic, and the headers with which its message arrives;
//! * [`webhook`]: what a webhook's answer means, its signature, its headers;
//! * [`letter`]: the dead letter on the wire;
//! * [`partition`]: which partition a key belongs to (murmur2, as Java's producer does);
//! * [`time`]: microseconds since the Unix epoch, rounded up at every edge.

pub mod delay;
pub mod envelope;
pub mod key;
pub mod letter;
pub mod name;
pub mod outcome;
pub mod partition;
pub mod retry;
pub mod state;
pub mod tier;
pub mod time;
pub mod webhook;

pub use envelope::{Envelope, EnvelopeError, Headers};
pub use key::KeyHash;
pub use letter::DeadLetter;
pub use outcome::Outcome;
pub use retry::RetryPolicy;
pub use state::TaskState;
pub use tier::Tier;
pub use time::Micros;
