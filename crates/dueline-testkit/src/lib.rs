//! Private PostgreSQL and Kafka for tests and the demo, and the checker of the invariants V1–V9.
//!
//! Everything here starts *real* components on loopback, in temporary directories, and takes them
//! down again: on `Drop`, and by the kernel's parent-death signal when this process is killed.
//!
//! * [`services`]: PostgreSQL and Kafka;
//! * [`database`]: one database a test, from a migrated template;
//! * [`disk`]: a small disk that can be full;
//! * [`faketime`]: a wall clock that a test moves;
//! * [`topics`]: names that no other test has;
//! * [`plans`]: how a statement is planned, and what it scans;
//! * [`process`]: our own binaries, to be killed, stopped and paused;
//! * [`cli`]: the `dueline` command;
//! * [`settings`]: writing a configuration file;
//! * [`proxy`]: a TCP proxy that loses things;
//! * [`receiver`]: a receiver of webhooks that can misbehave;
//! * [`verdict`]: the frame of a program that ends with one;
//! * [`checker`]: the invariants V1–V9, judged over independent evidence;
//! * [`wait`]: waiting for a condition, within a bound.

pub mod checker;
pub mod child;
pub mod cli;
pub mod database;
pub mod demo;
pub mod disk;
pub mod faketime;
pub mod plans;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod receiver;
pub mod services;
pub mod settings;
pub mod tail;
pub mod topics;
pub mod verdict;
pub mod wait;
