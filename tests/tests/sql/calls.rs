//! `dueline.begin_calls` and `dueline.finish_calls`, as a consumer that calls webhooks uses them.

use std::time::Duration;

use anyhow::Result;
use dueline_core::{KeyHash, Micros};
use dueline_store::effect::{Beginning, EndedCall, Ending, Heard, Task, begin_calls, finish_calls};
use uuid::Uuid;

use super::stage::{ELSEWHERE, Phase, QUEUE, Stage};

const LASTING: Duration = Duration::from_secs(30);
/// It is over as soon as it has begun.
const NOTHING: Duration = Duration::ZERO;

async fn task(stage: &Stage, key: &str) -> Result<Task> {
    let id = stage.task_in(ELSEWHERE, key, Phase::Leased).await?;
    // `Phase::Leased` of a task that is due in half an hour: let it be due.
    let due = "update dueline.task set due_at = clock_timestamp() where id = $1";
    sqlx::query(due).bind(id).execute(&stage.pool).await?;
    Ok(Task {
        id,
        kind: ELSEWHERE.into(),
        key: key.to_owned(),
        key_hash: KeyHash::new(QUEUE, ELSEWHERE, key),
        generation: 0,
        attempt: 0,
        due_at: Micros(0),
        published_at: Micros(0),
        payload: None,
        traceparent: None,
    })
}

async fn begin(stage: &Stage, task: &Task, lasting: Duration) -> Result<(Uuid, Beginning)> {
    let (token, beginnings) = begin_calls(&stage.pool, QUEUE, &[task], lasting, 0).await?;
    Ok((token, beginnings[0]))
}

async fn finish(
    stage: &Stage,
    task: &Task,
    token: Uuid,
    heard: Heard,
    doubtful: bool,
) -> Result<Ending> {
    let call = EndedCall { task, token, heard, doubtful, reason: "no answer", retry_after: None };
    Ok(finish_calls(&stage.pool, &[call]).await?.remove(0))
}

const BEGUN: Beginning = Beginning::Begun { may_have_run: false };
const AGAIN: Beginning = Beginning::Begun { may_have_run: true };

#[tokio::test]
async fn v2_a_key_is_one_callers_until_its_end_is_over() -> Result<()> {
    let stage = Stage::new().await?;
    let task = task(&stage, "1").await?;
    let (first, beginning) = begin(&stage, &task, NOTHING).await?;
    assert_eq!(beginning, BEGUN);
    // Its end is over without a word: it may have run.
    let (second, beginning) = begin(&stage, &task, LASTING).await?;
    assert_eq!(beginning, AGAIN);
    assert_eq!(begin(&stage, &task, LASTING).await?.1, Beginning::InProgress);
    // What the first one says of a failure counts no more; that its effect happened is true all the same.
    assert_eq!(finish(&stage, &task, first, Heard::Retry, false).await?, Ending::Stale);
    assert!(matches!(finish(&stage, &task, first, Heard::Done, false).await?, Ending::Done(_)));
    assert_eq!(finish(&stage, &task, second, Heard::Retry, false).await?, Ending::Stale);
    assert_eq!(stage.count("done").await?, 1);
    assert_eq!(begin(&stage, &task, LASTING).await?.1, Beginning::Stale);
    Ok(())
}

#[tokio::test]
async fn v4_a_wish_to_cancel_is_honoured_by_a_failure_and_not_by_a_success() -> Result<()> {
    let stage = Stage::new().await?;
    for (key, heard) in [("1", Heard::Retry), ("2", Heard::Done)] {
        let task = task(&stage, key).await?;
        let (token, _) = begin(&stage, &task, LASTING).await?;
        let receipt: String = sqlx::query_scalar("select (dueline.cancel($1, $2)).receipt")
            .bind(ELSEWHERE)
            .bind(key)
            .fetch_one(&stage.pool)
            .await?;
        assert_eq!(receipt, "running");
        let ending = finish(&stage, &task, token, heard, false).await?;
        match heard {
            Heard::Retry => assert_eq!(ending, Ending::Cancelled),
            _ => assert!(matches!(ending, Ending::Done(_)), "{ending:?}"),
        }
    }
    Ok(())
}

/// Whoever holds the row holds up what follows, and not the truth that an effect happened.
#[tokio::test]
async fn v2_a_row_that_is_held_is_told_again_and_its_effect_is_known_at_once() -> Result<()> {
    let stage = Stage::new().await?;
    let task = task(&stage, "1").await?;
    let mut holder = stage.pool.begin().await?;
    let lock = "select from dueline.task where id = $1 for update";
    sqlx::query(lock).bind(task.id).execute(&mut *holder).await?;
    assert_eq!(begin(&stage, &task, LASTING).await?.1, Beginning::Moved);
    holder.rollback().await?;
    let (token, beginning) = begin(&stage, &task, LASTING).await?;
    assert_eq!(beginning, BEGUN, "a beginning that met a lock left nothing");
    let mut holder = stage.pool.begin().await?;
    sqlx::query(lock).bind(task.id).execute(&mut *holder).await?;
    assert_eq!(finish(&stage, &task, token, Heard::Done, false).await?, Ending::Moved);
    holder.rollback().await?;
    // Nobody tells it again: the next message finds it done.
    assert_eq!(begin(&stage, &task, LASTING).await?.1, Beginning::Known);
    assert_eq!(stage.count("done").await?, 1);
    Ok(())
}

#[tokio::test]
async fn v6_a_failure_in_doubt_stays_in_doubt_until_the_death() -> Result<()> {
    let stage = Stage::new().await?;
    let mut task = task(&stage, "1").await?;
    let (token, _) = begin(&stage, &task, LASTING).await?;
    let ending = finish(&stage, &task, token, Heard::Retry, true).await?;
    assert!(matches!(ending, Ending::Failed(ref row, None) if row.attempt == 1), "{ending:?}");
    task.attempt = 1;
    let (token, beginning) = begin(&stage, &task, LASTING).await?;
    assert_eq!(beginning, AGAIN);
    let ending = finish(&stage, &task, token, Heard::Dead, false).await?;
    assert!(matches!(ending, Ending::Failed(ref row, Some(_)) if row.died_at.is_some()));
    let reason: String = stage.ask("select reason from dueline.stranded").await?;
    assert_eq!(reason, "outcome_unknown");
    Ok(())
}

#[tokio::test]
async fn v3_what_is_not_due_by_the_databases_clock_is_not_called() -> Result<()> {
    let stage = Stage::new().await?;
    let mut early = task(&stage, "1").await?;
    let later = "update dueline.task set due_at = clock_timestamp() + interval '1 hour'";
    sqlx::query(later).execute(&stage.pool).await?;
    assert_eq!(begin(&stage, &early, LASTING).await?.1, Beginning::Early);
    let held: i64 = stage.ask("select count(*) from dueline.dedupe").await?;
    assert_eq!(held, 0);
    early.generation = 1;
    assert_eq!(begin(&stage, &early, LASTING).await?.1, Beginning::Stale);
    Ok(())
}
