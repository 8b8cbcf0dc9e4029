//! What is printed: one JSON document, or text; and what an error comes to.

use std::fmt::Display;
use std::io::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use dueline_config::ConfigError;
use dueline_core::Micros;
use dueline_kafka::KafkaError;
use dueline_store::{StoreError, Timestamptz, operate};
use serde_json::{Value, json};

use crate::exit;

/// What a command has to say.
#[derive(Debug)]
pub struct Reply {
    json: Value,
    text: String,
    code: u8,
}

impl Reply {
    /// An answer, once for machines and once for people.
    pub fn new(json: Value, text: impl Into<String>) -> Self {
        Self { json, text: text.into(), code: exit::OK }
    }

    /// The same with another exit code.
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// A failure with an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    code: u8,
    text: String,
}

/// An error that ends the command with this code.
pub fn fail(code: u8, text: impl Into<String>) -> anyhow::Error {
    Failure { code, text: text.into() }.into()
}

/// Prints the outcome and returns the exit code.
pub fn show(outcome: anyhow::Result<Reply>, as_json: bool) -> u8 {
    let (document, text, code) = match outcome {
        Ok(reply) => (reply.json, Ok(reply.text), reply.code),
        Err(error) => {
            let (message, code) = (describe(&error), code_of(&error));
            let mut document = json!({ "error": message, "code": code });
            if let Some(config) = error.downcast_ref::<ConfigError>() {
                document["problems"] = json!(config.problems());
            }
            (document, Err(message), code)
        }
    };
    // A closed pipe (`| head`) is no failure of ours.
    let _ = match (as_json, text) {
        (true, _) => writeln!(std::io::stdout(), "{document:#}"),
        (false, Ok(text)) => writeln!(std::io::stdout(), "{}", text.trim_end()),
        (false, Err(message)) => writeln!(std::io::stderr(), "dueline: {message}"),
    };
    code
}

/// The error with its causes; one that its successor repeats is said once.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let store = cause.downcast_ref::<StoreError>();
        let part = store.map_or_else(|| cause.to_string(), operate::explain);
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        if store.is_some() {
            break;
        }
    }
    printable(&text)
}

/// Keys and error texts are foreign: no control character of theirs reaches a terminal (H25).
pub fn printable(text: &str) -> String {
    let keep = |c: char| c == '\n' || !c.is_control();
    text.chars().map(|c| if keep(c) { c } else { '\u{fffd}' }).collect()
}

fn code_of(error: &anyhow::Error) -> u8 {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.code;
    }
    if error.is::<ConfigError>() {
        return exit::CONFIG;
    }
    match error.downcast_ref::<StoreError>() {
        Some(StoreError::Refused(_)) => return exit::CONFIG,
        Some(store) => match store.sqlstate().as_deref() {
            // Our SQL functions refuse a request with these.
            Some("22023" | "23505") => return exit::REFUSED,
            Some("55000") => return exit::CONFIG,
            _ => return exit::FAILURE,
        },
        None => {}
    }
    match error.downcast_ref::<KafkaError>() {
        Some(KafkaError::Refused { .. } | KafkaError::Config(_)) => exit::CONFIG,
        _ => exit::FAILURE,
    }
}

/// A table for people; nothing at all when it has no rows.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(&cell.replace('\n', " "))));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// An instant for JSON.
pub fn at(instant: impl Into<Micros>) -> Value {
    Value::from(instant.into().to_string())
}

/// An instant, or null.
pub fn maybe_at(instant: Option<Timestamptz>) -> Value {
    instant.map_or(Value::Null, at)
}

/// An instant to the second, for tables.
pub fn short(instant: impl Into<Micros>) -> String {
    let text = instant.into().to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// A cell for a value that may be missing.
pub fn or_dash<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| v.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h25_control_characters_never_reach_a_terminal() {
        let text = table(&["key"], vec![vec!["a\u{1b}[2Jb\rc\nd".to_owned()]]);
        assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text:?}");
        assert_eq!(text.lines().count(), 2, "one row is one line: {text:?}");
    }

    #[test]
    fn errors_have_their_codes() {
        assert_eq!(code_of(&StoreError::Refused("x".into()).into()), exit::CONFIG);
        assert_eq!(code_of(&fail(exit::NOT_FOUND, "x")), exit::NOT_FOUND);
        assert_eq!(code_of(&KafkaError::Config("x".into()).into()), exit::CONFIG);
        assert_eq!(code_of(&KafkaError::Closed.into()), exit::FAILURE);
    }
}
