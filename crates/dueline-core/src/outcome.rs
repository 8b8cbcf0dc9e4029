//! The outcome: what another team's consumer says of a task that it handled.
//!
//! A CloudEvents message like the task's own. Its headers name the try that it speaks of, as they
//! were in the task's message; its value is a JSON object that says what became of it.

use serde::Deserialize;

use crate::envelope::{CONTENT_TYPE, ENVELOPE_VERSION, Headers, header as task_header};
use crate::envelope::{EnvelopeError, malformed, number, text};
use crate::key::KeyHash;

/// `ce_type` of every outcome.
pub const EVENT_TYPE: &str = "dueline.task.outcome";
/// The most bytes of an outcome's value.
pub const MAX_BODY_BYTES: usize = 16 * 1_024;
/// The most characters of a reason that are kept.
pub const MAX_REASON_CHARS: usize = 2_000;
/// The longest pause that an outcome may ask for: 7 days, in milliseconds.
pub const MAX_RETRY_AFTER_MS: u64 = 7 * 86_400 * 1_000;
/// The most bytes of the team's own id and source.
pub const MAX_ID_BYTES: usize = 512;

/// Header names beside those that are echoed from the task's message.
pub mod header {
    /// The `ce_source` of the task's message: whose task it is.
    pub const INSTANCE: &str = "ce_instance";
}

/// What became of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The effect happened. Speaks of the key: it holds for every try.
    Done,
    /// There was nothing to do any more.
    Skipped,
    /// The try failed; it may be tried again.
    Retry {
        /// Why, for people.
        reason: String,
        /// The least pause before the next try, in milliseconds.
        after_ms: Option<u64>,
    },
    /// Trying again cannot help.
    Dead {
        /// Why, for people.
        reason: String,
    },
    /// It is still being worked on: the lease goes on.
    Working,
}

impl Verdict {
    /// The text in the body.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Retry { .. } => "retry",
            Self::Dead { .. } => "dead",
            Self::Working => "working",
        }
    }

    /// Why, if it says so.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Retry { reason, .. } | Self::Dead { reason } => Some(reason),
            _ => None,
        }
    }

    /// The least pause before the next try, in milliseconds.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Retry { after_ms, .. } => *after_ms,
            _ => None,
        }
    }
}

/// One outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The instance whose task it speaks of.
    pub instance: String,
    /// The task's id there.
    pub task_id: i64,
    /// Hash of the task's queue, kind and key.
    pub key_hash: KeyHash,
    /// The generation of the message that was handled.
    pub generation: i32,
    /// The attempt of the message that was handled.
    pub attempt: i32,
    /// What became of it.
    pub verdict: Verdict,
}

/// The value, as it may be written: unknown members are for later versions.
#[derive(Deserialize)]
struct Body {
    outcome: String,
    reason: Option<String>,
    retry_after_ms: Option<u64>,
}

impl Outcome {
    /// Reads an outcome's headers and value.
    ///
    /// # Errors
    /// [`EnvelopeError::Newer`] when it must be left in place; anything else means that it is broken.
    pub fn read(
        headers: &(impl Headers + ?Sized),
        value: Option<&[u8]>,
    ) -> Result<Self, EnvelopeError> {
        let version: u32 = number(headers, task_header::VERSION)?;
        if version > ENVELOPE_VERSION {
            return Err(EnvelopeError::Newer(version));
        }
        if text(headers, task_header::TYPE)? != EVENT_TYPE {
            return Err(malformed(task_header::TYPE, format!("it is not `{EVENT_TYPE}`")));
        }
        if text(headers, task_header::SPEC_VERSION)? != "1.0" {
            return Err(malformed(task_header::SPEC_VERSION, "it is not `1.0`"));
        }
        for name in [task_header::ID, task_header::SOURCE] {
            let length = text(headers, name)?.len();
            if length == 0 || length > MAX_ID_BYTES {
                return Err(malformed(name, format!("1 to {MAX_ID_BYTES} bytes expected")));
            }
        }
        Ok(Self {
            instance: text(headers, header::INSTANCE)?.to_owned(),
            task_id: number(headers, task_header::TASK_ID)?,
            key_hash: KeyHash::from_hex(text(headers, task_header::KEY_HASH)?).ok_or_else(
                || malformed(task_header::KEY_HASH, "32 hexadecimal digits expected"),
            )?,
            generation: count(headers, task_header::GENERATION)?,
            attempt: count(headers, task_header::ATTEMPT)?,
            verdict: verdict(value.unwrap_or_default())?,
        })
    }

    /// The headers of this outcome. `id` is the sender's own and the same whenever it is sent again,
    /// `source` says who the sender is.
    #[must_use]
    pub fn headers(&self, id: &str, source: &str) -> Vec<(&'static str, String)> {
        vec![
            (task_header::SPEC_VERSION, "1.0".to_owned()),
            (task_header::ID, id.to_owned()),
            (task_header::SOURCE, source.to_owned()),
            (task_header::TYPE, EVENT_TYPE.to_owned()),
            (task_header::VERSION, ENVELOPE_VERSION.to_string()),
            (header::INSTANCE, self.instance.clone()),
            (task_header::TASK_ID, self.task_id.to_string()),
            (task_header::KEY_HASH, self.key_hash.to_string()),
            (task_header::GENERATION, self.generation.to_string()),
            (task_header::ATTEMPT, self.attempt.to_string()),
            (task_header::CONTENT_TYPE, CONTENT_TYPE.to_owned()),
        ]
    }

    /// The value of this outcome.
    #[must_use]
    pub fn body(&self) -> String {
        let mut body = serde_json::Map::new();
        body.insert("outcome".to_owned(), self.verdict.as_str().into());
        if let Some(reason) = self.verdict.reason() {
            body.insert("reason".to_owned(), reason.into());
        }
        if let Some(after) = self.verdict.retry_after_ms() {
            body.insert("retry_after_ms".to_owned(), after.into());
        }
        serde_json::Value::Object(body).to_string()
    }
}

fn count(headers: &(impl Headers + ?Sized), name: &'static str) -> Result<i32, EnvelopeError> {
    let count: i32 = number(headers, name)?;
    if count < 0 { Err(malformed(name, "it is negative")) } else { Ok(count) }
}

fn verdict(value: &[u8]) -> Result<Verdict, EnvelopeError> {
    let wrong = |reason: String| EnvelopeError::Body { reason: crate::envelope::clean(&reason) };
    if value.len() > MAX_BODY_BYTES {
        let length = value.len();
        return Err(wrong(format!("it has {length} bytes, at most {MAX_BODY_BYTES} are allowed")));
    }
    let body: Body = serde_json::from_slice(value).map_err(|e| wrong(e.to_string()))?;
    let reason = || match body.reason.as_deref().map(str::trim) {
        None | Some("") => Err(wrong(format!("`{}` needs a `reason`", body.outcome))),
        // PostgreSQL's texts have no NUL, and a terminal that shows the reason obeys the others.
        Some(reason) => Ok(reason
            .chars()
            .take(MAX_REASON_CHARS)
            .map(|c| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c })
            .collect()),
    };
    if body.retry_after_ms.is_some_and(|ms| ms > MAX_RETRY_AFTER_MS) {
        return Err(wrong(format!("`retry_after_ms` is at most {MAX_RETRY_AFTER_MS}")));
    }
    if body.retry_after_ms.is_some() && body.outcome != "retry" {
        return Err(wrong(format!(
            "`retry_after_ms` belongs to `retry`, not to `{}`",
            body.outcome
        )));
    }
    match body.outcome.as_str() {
        "done" => Ok(Verdict::Done),
        "skipped" => Ok(Verdict::Skipped),
        "retry" => Ok(Verdict::Retry { reason: reason()?, after_ms: body.retry_after_ms }),
        "dead" => Ok(Verdict::Dead { reason: reason()? }),
        "working" => Ok(Verdict::Working),
        other => Err(wrong(format!(
            "{other:.40?} is no outcome: done, skipped, retry, dead and working are"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(verdict: Verdict) -> Outcome {
        Outcome {
            instance: "dueline://shop/6f0c/1".into(),
            task_id: 42,
            key_hash: KeyHash::new("billing", "charge", "1001"),
            generation: 1,
            attempt: 2,
            verdict,
        }
    }

    fn record(outcome: &Outcome) -> (Vec<(String, Vec<u8>)>, String) {
        let headers = outcome.headers("o-1", "/billing");
        let own = headers.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes()));
        (own.collect(), outcome.body())
    }

    #[test]
    fn what_is_written_is_read_back() {
        for verdict in [
            Verdict::Done,
            Verdict::Skipped,
            Verdict::Retry { reason: "busy".into(), after_ms: Some(10_000) },
            Verdict::Retry { reason: "busy".into(), after_ms: None },
            Verdict::Dead { reason: "no such account".into() },
            Verdict::Working,
        ] {
            let outcome = sample(verdict);
            let (headers, body) = record(&outcome);
            assert_eq!(Outcome::read(&headers, Some(body.as_bytes())), Ok(outcome));
        }
    }

    #[test]
    fn h14_every_missing_header_is_named() {
        let (headers, body) = record(&sample(Verdict::Done));
        for (name, _) in headers.iter().filter(|(name, _)| name != task_header::CONTENT_TYPE) {
            let mut less = headers.clone();
            less.retain(|(n, _)| n != name);
            let error = Outcome::read(&less, Some(body.as_bytes())).expect_err("not optional");
            assert!(error.to_string().contains(name.as_str()), "{error}");
        }
    }

    #[test]
    fn h14_a_body_that_says_nothing_clear_is_refused_in_one_line() {
        let (headers, _) = record(&sample(Verdict::Done));
        let long = format!(r#"{{"outcome":"done","reason":"{}"}}"#, "x".repeat(MAX_BODY_BYTES));
        for body in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"outcome":"finished"}"#,
            "{\"outcome\":\"\u{1b}[2J\\n\"}",
            r#"{"outcome":1}"#,
            r#"{"outcome":"retry"}"#,
            r#"{"outcome":"dead","reason":"  "}"#,
            r#"{"outcome":"retry","reason":"x","retry_after_ms":-1}"#,
            r#"{"outcome":"retry","reason":"x","retry_after_ms":604800001}"#,
            r#"{"outcome":"done","retry_after_ms":5}"#,
            &long,
        ] {
            let error = Outcome::read(&headers, Some(body.as_bytes())).expect_err(body);
            assert!(!error.to_string().chars().any(char::is_control), "{error}");
        }
        assert!(Outcome::read(&headers, None).is_err());
    }

    #[test]
    fn members_of_later_versions_are_ignored_and_a_long_reason_is_cut() {
        let (headers, _) = record(&sample(Verdict::Done));
        let body = format!(
            r#"{{"outcome":"dead","reason":"{}","cost":{{"eur":3}}}}"#,
            "é".repeat(MAX_REASON_CHARS + 5)
        );
        let outcome = Outcome::read(&headers, Some(body.as_bytes())).expect("reads");
        assert_eq!(outcome.verdict, Verdict::Dead { reason: "é".repeat(MAX_REASON_CHARS) });
    }

    #[test]
    fn a_newer_version_is_left_in_place() {
        let (mut headers, body) = record(&sample(Verdict::Done));
        headers.push((task_header::VERSION.to_owned(), b"2".to_vec()));
        let error = Outcome::read(&headers, Some(body.as_bytes())).expect_err("newer");
        assert!(error.is_newer());
    }
}
