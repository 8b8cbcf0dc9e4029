//! Calls elsewhere (kind `elsewhere`): a key is taken before its call, and let go with what was heard.

use std::time::Duration;

use dueline_core::Micros;
use dueline_core::letter::Reason;
use uuid::Uuid;

use super::again::freely;
use super::failure::FailedTask;
use super::handler::Task;
use super::steps::Guards;
use crate::{Pool, StoreError, Timestamptz};

/// Whether a try may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It may, by us alone. `may_have_run`: an earlier call of its key ended without anybody knowing how.
    Begun {
        /// See above.
        may_have_run: bool,
    },
    /// Its key was done before: the task is settled.
    Known,
    /// Somebody else calls it; its message comes again when that is over.
    InProgress,
    /// It has failed before, and the task does not know: to be finished as failed, without a call.
    Failed,
    /// The database's clock says not yet: the alarm is returned.
    Early,
    /// The message no longer speaks of the row's present try.
    Stale,
    /// Somebody else holds the row: look again a little later.
    Moved,
}

/// Takes the keys of these tasks, at most one task per id, for `lasting`. Answers the token to finish the calls with.
/// `repeated`: duplicates that the caller took out already.
///
/// # Errors
/// When the database fails; then nothing was written, or the keys are ours and nobody knows: they are free again after
/// `lasting`.
pub async fn begin_calls(
    pool: &Pool,
    queue: &str,
    tasks: &[&Task],
    lasting: Duration,
    repeated: usize,
) -> Result<(Uuid, Vec<Beginning>), StoreError> {
    let guards = Guards::of(tasks.iter().copied());
    let step = || async {
        let row: (Uuid, Vec<String>, Vec<bool>) =
            sqlx::query_as(include_str!("../../sql/effect/begin_calls.sql"))
                .bind(queue)
                .bind(&guards.ids)
                .bind(&guards.hashes)
                .bind(&guards.generations)
                .bind(&guards.attempts)
                .bind(milliseconds(lasting))
                .bind(i64::try_from(repeated).unwrap_or(i64::MAX))
                .fetch_one(pool)
                .await?;
        Ok(row)
    };
    let (token, verdicts, may_have_run) = freely(step).await?;
    let (expected, actual) = (tasks.len(), verdicts.len());
    if actual != expected || may_have_run.len() != expected {
        return Err(StoreError::Count { step: "begin_calls", expected, actual });
    }
    let beginnings = verdicts.iter().zip(may_have_run).map(|(verdict, may_have_run)| {
        Ok(match verdict.as_str() {
            "begun" => Beginning::Begun { may_have_run },
            "done" => Beginning::Known,
            "in_progress" => Beginning::InProgress,
            "failed" => Beginning::Failed,
            "early" => Beginning::Early,
            "stale" => Beginning::Stale,
            "moved" => Beginning::Moved,
            other => return Err(StoreError::Unexpected(format!("the beginning `{other}`"))),
        })
    });
    Ok((token, beginnings.collect::<Result<_, _>>()?))
}

/// What was heard of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The effect happened.
    Done,
    /// There was nothing to do.
    Skipped,
    /// It failed and may succeed later: costs an attempt.
    Retry,
    /// It failed and must not be tried again.
    Dead,
}

impl Heard {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Retry => "retry",
            Self::Dead => "dead",
        }
    }
}

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct EndedCall<'a> {
    /// Its task.
    pub task: &'a Task,
    /// The token that it began with.
    pub token: Uuid,
    /// What was heard.
    pub heard: Heard,
    /// Whether nobody knows if it had an effect.
    pub doubtful: bool,
    /// Why it failed.
    pub reason: &'a str,
    /// The least pause that the other side asked for.
    pub retry_after: Option<Duration>,
}

/// What became of the task of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is done, at this instant of the database's clock. Also when the row had gone on: then an event tells of it.
    Done(Micros),
    /// It is skipped.
    Skipped,
    /// Its failure is recorded; a reason when it died of it.
    Failed(FailedTask, Option<Reason>),
    /// Its failure is recorded, and somebody had asked for a cancel meanwhile.
    Cancelled,
    /// The row has gone on, or the key is somebody else's by now: nothing was written.
    Stale,
    /// Somebody else holds the row: ask again a little later.
    Moved,
}

type Row = (String, Option<i32>, Option<i32>, Option<String>, Option<Timestamptz>);

/// Lets keys go with what was heard. At most one call per task.
///
/// # Errors
/// When the database fails; then nothing was written, or all of it: asking again is safe.
pub async fn finish_calls(pool: &Pool, calls: &[EndedCall<'_>]) -> Result<Vec<Ending>, StoreError> {
    let guards = Guards::of(calls.iter().map(|call| call.task));
    let tokens: Vec<Uuid> = calls.iter().map(|call| call.token).collect();
    let heard: Vec<&str> = calls.iter().map(|call| call.heard.as_str()).collect();
    let doubtful: Vec<bool> = calls.iter().map(|call| call.doubtful).collect();
    let reasons: Vec<&str> = calls.iter().map(|call| call.reason).collect();
    let pauses: Vec<Option<i64>> =
        calls.iter().map(|call| call.retry_after.map(milliseconds)).collect();
    let step = || async {
        let rows: Vec<Row> = sqlx::query_as(include_str!("../../sql/effect/finish_calls.sql"))
            .bind(&guards.ids)
            .bind(&guards.hashes)
            .bind(&guards.generations)
            .bind(&guards.attempts)
            .bind(&tokens)
            .bind(&heard)
            .bind(&doubtful)
            .bind(&reasons)
            .bind(&pauses)
            .fetch_all(pool)
            .await?;
        Ok(rows)
    };
    let rows = freely(step).await?;
    let (expected, actual) = (calls.len(), rows.len());
    if actual != expected {
        return Err(StoreError::Count { step: "finish_calls", expected, actual });
    }
    calls.iter().zip(rows).map(|(call, row)| ending(call, row)).collect()
}

fn ending(
    call: &EndedCall<'_>,
    (verdict, generation, attempt, reason, at): Row,
) -> Result<Ending, StoreError> {
    let at = at.map(Micros::from);
    let failed = |died_at| FailedTask {
        id: call.task.id,
        died_at,
        generation: generation.unwrap_or(call.task.generation),
        attempt: attempt.unwrap_or(call.task.attempt),
    };
    Ok(match verdict.as_str() {
        "done" | "known" | "old_generation" | "without_task" => {
            Ending::Done(at.unwrap_or_default())
        }
        "skipped" => Ending::Skipped,
        "retry" => Ending::Failed(failed(None), None),
        "dead" => {
            let reason = reason.as_deref().and_then(Reason::parse);
            Ending::Failed(failed(at), Some(reason.unwrap_or(Reason::Permanent)))
        }
        "cancelled" => Ending::Cancelled,
        "stale" | "taken" | "unknown" => Ending::Stale,
        "locked" => Ending::Moved,
        other => return Err(StoreError::Unexpected(format!("the ending `{other}`"))),
    })
}

fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
