//! PostgreSQL and Kafka, private to a test run.
//!
//! Starting them blocks the calling thread for seconds; call it before the work begins, or from
//! `tokio::task::spawn_blocking`.

mod kafka;
mod postgres;
mod standby;

pub use kafka::{Door, Kafka, KafkaOptions};
pub use postgres::{Postgres, PostgresOptions};
pub use standby::Standby;

use std::path::Path;

/// How often a start is tried again with other ports, should somebody take ours first.
const START_TRIES: usize = 3;

/// Where the URL of the test cluster's superuser stands.
pub const POSTGRES_ENV: &str = "DUELINE_TEST_POSTGRES";
/// Where the `host:port` of the test broker stands.
pub const KAFKA_ENV: &str = "DUELINE_TEST_KAFKA";

/// A directory of our own under the system's folder for temporary files.
fn temp_dir(what: &str) -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(&format!("dueline-{what}-")).tempdir()
}

/// Opens a log file for a child's output, appending: a restart adds to the same file.
fn log_file(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().create(true).append(true).open(path)
}
