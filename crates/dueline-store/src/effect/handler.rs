//! The seam between the transaction and whatever carries out the effect.

use std::sync::Arc;

use dueline_core::{KeyHash, Micros};
use serde_json::value::RawValue;
use sqlx::PgConnection;

use super::SqlHandler;
use crate::{StoreError, Whose};

/// The most characters of an error that is kept on the row.
const MAX_ERROR_CHARS: usize = 2_000;

/// A published task, as its message tells it. Whether that is still true, the row decides.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its id in this database.
    pub id: i64,
    /// Which action.
    pub kind: Arc<str>,
    /// On which business object.
    pub key: String,
    /// Hash of queue, kind and key.
    pub key_hash: KeyHash,
    /// The generation of the message.
    pub generation: i32,
    /// Failed attempts before this one.
    pub attempt: i32,
    /// The deadline as asked for.
    pub due_at: Micros,
    /// When the alarm was claimed.
    pub published_at: Micros,
    /// The payload, JSON.
    pub payload: Option<Box<RawValue>>,
    /// W3C trace context, if the task has one.
    pub traceparent: Option<String>,
}

/// What became of one task in a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The effect happened.
    Done,
    /// Its condition did not hold: there is nothing left to do.
    Skipped,
    /// It failed and may succeed later: costs an attempt.
    Transient(String),
    /// It failed and trying again cannot help: the task dies.
    Permanent(String),
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error, for people.
    pub error: String,
    /// Whether trying again cannot help.
    pub permanent: bool,
}

impl Failure {
    /// A failure whose text is short enough for the row, and has no character that PostgreSQL refuses.
    #[must_use]
    pub fn new(error: &str, permanent: bool) -> Self {
        let error = error.chars().filter(|c| *c != '\0').take(MAX_ERROR_CHARS).collect();
        Self { error, permanent }
    }
}

/// Why a batch did not take effect. Nothing of it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// These tasks failed by themselves: record that, and run the rest again without them.
    Items(Vec<(i64, Failure)>),
    /// One of the tasks, or several: split until it stands alone.
    Batch(Failure),
    /// Not the tasks' fault: costs no attempt and splits nothing. `free` says that the same batch may be
    /// tried again at once (deadlock, serialization).
    Environment {
        /// What is wrong.
        error: String,
        /// Whether it may be tried again at once.
        free: bool,
    },
    /// The handler broke its contract: it must not run again before somebody mended it.
    Contract(String),
}

impl Trouble {
    /// An error of a statement that is *ours*, or of the connection.
    pub(super) fn ours(error: &StoreError) -> Self {
        Self::Environment { error: error.to_string(), free: error.is_free_retry() }
    }

    /// An error while the handler had the transaction, or that its deferred constraints raise at COMMIT.
    ///
    /// SQLSTATE classes 22 (bad data) and 23 (a rule broken) are permanent: the same arguments fail again.
    /// P0001, a plain `raise exception`, is transient: "not now". A handler that knows better raises with
    /// `errcode = 'DLP01'` (permanent) or `'DLT01'` (transient).
    #[must_use]
    pub fn from_handler(error: &StoreError) -> Self {
        let state = error.sqlstate().unwrap_or_default();
        match state.as_str() {
            "DLC01" => return Self::Contract(error.message()),
            "DLX01" => return Self::ours(error),
            _ => {}
        }
        let own = state.starts_with("DL");
        if own || error.whose() == Whose::Task {
            let permanent = if own { state.starts_with("DLP") } else { state != "P0001" };
            return Self::Batch(Failure::new(&format!("{error} (SQLSTATE {state})"), permanent));
        }
        if state == "25P02" {
            let text = "the handler went on after an error in its transaction";
            return Self::Batch(Failure::new(text, false));
        }
        if dueline_failpoints::planted("environment-counted-as-attempt") {
            return Self::Batch(Failure::new(&error.to_string(), false));
        }
        Self::ours(error)
    }
}

/// Who carries out the effect of a kind.
#[derive(Clone, Copy)]
pub enum Handling<'a> {
    /// A user's statement: the server runs the whole batch in one round trip.
    Statement(&'a SqlHandler),
    /// Code, which has the transaction between its own round trips.
    Code(&'a dyn Effect),
}

impl<'a> From<&'a SqlHandler> for Handling<'a> {
    fn from(handler: &'a SqlHandler) -> Self {
        Self::Statement(handler)
    }
}

impl<'a, E: Effect> From<&'a E> for Handling<'a> {
    fn from(effect: &'a E) -> Self {
        Self::Code(effect)
    }
}

/// Carries out the effect of tasks of one kind, inside the transaction that settles them.
#[async_trait::async_trait]
pub trait Effect: Send + Sync {
    /// Acts on `tasks`, which come sorted by key, and answers one verdict for each, in their order.
    async fn apply(
        &self,
        connection: &mut PgConnection,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, Trouble>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_on_the_row_are_bounded_and_clean() {
        let failure = Failure::new(&"é\0".repeat(5_000), true);
        assert_eq!(failure.error.chars().count(), MAX_ERROR_CHARS);
        assert!(!failure.error.contains('\0'));
    }

    #[test]
    fn h33_what_is_no_answer_of_the_database_is_the_environments() {
        let error = StoreError::Sqlx(sqlx::Error::PoolTimedOut);
        assert!(matches!(Trouble::from_handler(&error), Trouble::Environment { free: false, .. }));
    }
}
