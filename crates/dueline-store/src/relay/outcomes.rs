//! What other teams say of their tasks.

use std::time::Duration;

use dueline_core::outcome::Outcome;
use sqlx::PgConnection;

use super::interval;
use crate::StoreError;

/// What an outcome did; `dueline.settle_outcomes` describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The task is done.
    Done,
    /// The task is skipped.
    Skipped,
    /// It was done before: a duplicate.
    Known,
    /// An effect of an earlier generation settled the live task.
    OldGeneration,
    /// An effect of a task that is cancelled, skipped or dead: an event tells of it.
    WithoutTask,
    /// The try failed; the next one waits.
    Retry,
    /// The task is dead.
    Dead,
    /// The try failed, and somebody had asked for a cancel: the task is cancelled.
    Cancelled,
    /// The lease goes on.
    Working,
    /// The row has gone on: nothing changed.
    Stale,
    /// No such task, or a try that never was: nothing changed.
    Unknown,
    /// Somebody holds the row: nothing changed, ask again.
    Locked,
}

impl Settled {
    const ALL: [Self; 12] = [
        Self::Done,
        Self::Skipped,
        Self::Known,
        Self::OldGeneration,
        Self::WithoutTask,
        Self::Retry,
        Self::Dead,
        Self::Cancelled,
        Self::Working,
        Self::Stale,
        Self::Unknown,
        Self::Locked,
    ];

    /// The text in the database's answer, and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Known => "known",
            Self::OldGeneration => "old_generation",
            Self::WithoutTask => "without_task",
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Working => "working",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
            Self::Locked => "locked",
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        let known = Self::ALL.into_iter().find(|settled| settled.as_str() == text);
        known.ok_or_else(|| StoreError::Unexpected(format!("the outcome's verdict {text}")))
    }
}

/// Settles outcomes, at most one of each task; answers what each of them did, in their order.
/// `lease` is what `working` asks for. One statement: all of it, or nothing.
///
/// # Errors
/// When the database refuses, a lock is held for longer than the session waits, or it cannot be reached.
pub async fn settle_outcomes(
    db: &mut PgConnection,
    outcomes: &[&Outcome],
    lease: Duration,
) -> Result<Vec<Settled>, StoreError> {
    if outcomes.is_empty() {
        return Ok(Vec::new());
    }
    let said = outcomes.iter();
    let pause = |o: &&Outcome| o.verdict.retry_after_ms().and_then(|ms| i64::try_from(ms).ok());
    let verdicts: Vec<String> =
        sqlx::query_scalar(include_str!("../../sql/relay/settle_outcomes.sql"))
            .bind(said.clone().map(|o| o.task_id).collect::<Vec<_>>())
            .bind(said.clone().map(|o| o.key_hash.as_uuid()).collect::<Vec<_>>())
            .bind(said.clone().map(|o| o.generation).collect::<Vec<_>>())
            .bind(said.clone().map(|o| o.attempt).collect::<Vec<_>>())
            .bind(said.clone().map(|o| o.verdict.as_str()).collect::<Vec<_>>())
            .bind(said.clone().map(|o| o.verdict.reason()).collect::<Vec<_>>())
            .bind(said.map(pause).collect::<Vec<_>>())
            .bind(interval(lease))
            .fetch_one(db)
            .await?;
    if verdicts.len() != outcomes.len() {
        let (step, expected, actual) = ("settle_outcomes", outcomes.len(), verdicts.len());
        return Err(StoreError::Count { step, expected, actual });
    }
    verdicts.iter().map(|text| Settled::parse(text)).collect()
}

/// Counts duplicates that the settling of outcomes stopped: `(layer, how many)`.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn count_stops(
    db: &mut PgConnection,
    queue: &str,
    stops: &[(&str, i64)],
) -> Result<(), StoreError> {
    sqlx::query(include_str!("../../sql/effect/duplicates.sql"))
        .bind(queue)
        .bind(stops.iter().map(|(layer, _)| *layer).collect::<Vec<_>>())
        .bind(stops.iter().map(|(_, n)| *n).collect::<Vec<_>>())
        .execute(db)
        .await?;
    Ok(())
}
