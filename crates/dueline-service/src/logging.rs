//! Log lines on standard error.

use std::any::Any;
use std::io::IsTerminal as _;
use std::panic;

use dueline_config::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter directives cannot be read.
    #[error(
        "log.level: {level:?} is no filter: {reason}; write a level (info) or levels by crate \
         (info,dueline_relay=debug)"
    )]
    Level {
        /// What was configured.
        level: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Logs were set up before.
    #[error("logging was set up before: {0}")]
    Twice(String),
}

/// Sets up logging for the process, and a panic hook that logs a panic as one line.
///
/// JSON lines carry the fields of an event beside `timestamp`, `level`, `target` and `message`, and
/// those of its span under `span`. What a task, key or error text contains is escaped: one event is
/// one line (hazard H25). The `pretty` format is for a person's terminal.
///
/// # Errors
/// When the level is no filter, or logging was set up before.
pub fn init(log: &Log) -> Result<(), LogError> {
    let filter = EnvFilter::builder()
        .parse(&log.level)
        .map_err(|e| LogError::Level { level: log.level.clone(), reason: e.to_string() })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).try_init(),
        LogFormat::Pretty => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    installed.map_err(|e| LogError::Twice(e.to_string()))?;
    log_panics();
    Ok(())
}

fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        let thread = std::thread::current();
        tracing::error!(
            panic = message(info.payload()),
            place,
            thread = thread.name(),
            "a task panicked: this is a bug, please report it"
        );
    }));
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_level_says_what_to_write() {
        let log = Log { format: LogFormat::Json, level: "info,dueline_relay=loud".to_owned() };
        let error = init(&log).expect_err("not a level").to_string();
        assert!(error.contains("log.level") && error.contains("dueline_relay=debug"), "{error}");
    }

    #[test]
    fn panic_messages_of_both_types_are_read() {
        assert_eq!(message(&"static"), "static");
        assert_eq!(message(&"owned".to_owned()), "owned");
        assert_eq!(message(&42), "unknown");
    }
}
