//! Private PostgreSQL and Kafka for tests and the demo, and the checker of the invariants V1–V9.
//!
//! Everything here starts *real* components on loopback, in temporary directories, and takes them
//! down again: on `Drop`, and by the kernel's parent-death signal when this process is killed.

pub mod child;
pub mod ports;
pub mod services;
pub mod tail;
