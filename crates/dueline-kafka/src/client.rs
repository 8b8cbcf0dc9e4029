//! What every librdkafka client of ours has in common: its log lines go to `tracing`.

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel as Level;
use rdkafka::error::KafkaError as Native;

/// Forwards a log line of librdkafka. Its lines name brokers and properties, never secret values.
pub(crate) fn log_line(level: Level, facility: &str, line: &str) {
    match level {
        Level::Emerg | Level::Alert | Level::Critical | Level::Error => {
            tracing::error!(target: "librdkafka", facility, "{line}");
        }
        Level::Warning => tracing::warn!(target: "librdkafka", facility, "{line}"),
        Level::Notice | Level::Info => tracing::info!(target: "librdkafka", facility, "{line}"),
        Level::Debug => tracing::debug!(target: "librdkafka", facility, "{line}"),
    }
}

/// Reports a client-wide error, which librdkafka mends by itself unless it is fatal.
pub(crate) fn log_error(error: &Native, reason: &str) {
    tracing::warn!(target: "librdkafka", %error, "{reason}");
}

/// The context of clients that need no callbacks of their own.
pub(crate) struct Plain;

impl ClientContext for Plain {
    fn log(&self, level: Level, facility: &str, line: &str) {
        log_line(level, facility, line);
    }

    fn error(&self, error: Native, reason: &str) {
        log_error(&error, reason);
    }
}

impl rdkafka::consumer::ConsumerContext for Plain {}
