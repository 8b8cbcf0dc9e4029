//! Every state × every step that a client or a person can take, against `dueline_core::TaskState::after`.

use anyhow::Result;
use dueline_core::state::Step;
use dueline_core::{KeyHash, TaskState};
use dueline_store::StoreError;
use dueline_store::client::{self, Deadline, Receipt, Replay, RescheduleRequest, ScheduleRequest};

use super::stage::{HALF_HOUR, HERE, Phase, QUEUE, Stage};

const STEPS: [(Step, &str); 6] = [
    (Step::Open, "open"),
    (Step::Reschedule, "reschedule"),
    (Step::Cancel, "cancel"),
    (Step::Replay, "replay"),
    (Step::Resolve, "resolve"),
    (Step::Discard, "discard"),
];

async fn take(
    stage: &Stage,
    step: Step,
    id: i64,
    key: &str,
    generation: i32,
) -> Result<Receipt, StoreError> {
    let pool = &stage.pool;
    let deadline = Deadline::after(HALF_HOUR * 2);
    match step {
        Step::Open => client::schedule(pool, &ScheduleRequest::new(HERE, key, deadline)).await,
        Step::Reschedule => {
            client::reschedule(pool, &RescheduleRequest::new(HERE, key, deadline)).await
        }
        Step::Cancel => client::cancel(pool, HERE, key, Some("why")).await,
        Step::Replay => {
            let key_hash = KeyHash::new(QUEUE, HERE, key);
            let (who, dedupe_retention) = ("anna", HALF_HOUR);
            let replay = Replay { id, generation, key_hash, who, force: false, dedupe_retention };
            client::replay(pool, &replay).await
        }
        Step::Resolve => client::resolve(pool, id, generation, "anna", "saw it").await,
        Step::Discard => client::discard(pool, id, generation, "anna", "no need").await,
        _ => unreachable!("no client's step"),
    }
}

fn text<'a>(picture: &'a serde_json::Value, path: &str) -> &'a str {
    picture.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default()
}

fn number(picture: &serde_json::Value, path: &str) -> i32 {
    let number = picture.pointer(path).and_then(serde_json::Value::as_i64).unwrap_or(-1);
    i32::try_from(number).expect("small")
}

#[tokio::test]
async fn v09_every_step_from_every_state_is_that_of_the_core() -> Result<()> {
    let stage = Stage::new().await?;
    for phase in Phase::ALL {
        for (step, name) in STEPS {
            let case = format!("{name} of {phase:?}");
            let key = case.replace(' ', "-");
            let id = stage.task_in(HERE, &key, phase).await?;
            let before = stage.picture(id).await?;
            let fence = stage.fence(id).await.unwrap_or(0);
            let state: TaskState = text(&before, "/task/state").parse()?;
            let receipt = take(&stage, step, id, &key, number(&before, "/task/generation")).await?;
            let after = stage.picture(id).await?;
            assert_eq!(receipt.id, Some(id), "{case}");
            let Some(expected) = state.after(step) else {
                assert_eq!(after, before, "{case}: {receipt:?}");
                continue;
            };
            assert_eq!(receipt.state, Some(expected), "{case}");
            assert_eq!(text(&after, "/task/state"), expected.as_str(), "{case}");
            assert!(TaskState::renews_generation(step));
            let generation = number(&before, "/task/generation") + 1;
            assert_eq!(number(&after, "/task/generation"), generation, "{case}");
            assert_eq!(after["due"].is_object(), expected == TaskState::Live, "{case}");
            assert!(after["stranded"].is_null(), "{case}");
            if expected == TaskState::Live {
                assert_eq!(number(&after, "/due/generation"), generation, "{case}");
                assert_eq!(
                    (number(&after, "/due/attempt"), number(&after, "/task/attempt")),
                    (0, 0)
                );
                assert!(after["due"]["lease_until"].is_null(), "{case}");
            }
            if expected != TaskState::Done {
                assert!(stage.fence(id).await? > fence, "{case}: the fence went on");
            }
            assert_eq!(number(&after, "/events"), number(&before, "/events") + 1, "{case}");
            check_event(&stage, id, name, (state, expected), generation).await?;
        }
    }
    Ok(())
}

/// C4: who changed it, from what to what, and why.
async fn check_event(
    stage: &Stage,
    id: i64,
    step: &str,
    (from, to): (TaskState, TaskState),
    generation: i32,
) -> Result<()> {
    let event: (String, String, String, i32, String) = sqlx::query_as(
        "select step, from_state, to_state, generation, actor from dueline.task_event
         where task_id = $1 order by event desc limit 1",
    )
    .bind(id)
    .fetch_one(&stage.pool)
    .await?;
    let expected = (
        step.to_owned(),
        from.as_str().to_owned(),
        to.as_str().to_owned(),
        generation,
        "postgres".to_owned(),
    );
    assert_eq!(event, expected);
    Ok(())
}

#[tokio::test]
async fn v09_a_verdict_acts_only_on_the_very_row_it_names() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(HERE, "1", Phase::Dead).await?;
    let before = stage.picture(id).await?;
    let key_hash = KeyHash::new(QUEUE, HERE, "1");
    let right = Replay {
        id,
        generation: 1,
        key_hash,
        who: "anna",
        force: false,
        dedupe_retention: HALF_HOUR,
    };
    let other = KeyHash::new(QUEUE, HERE, "2");
    let wrong = [
        ("stale", Replay { generation: 0, ..right.clone() }),
        ("stale", Replay { generation: 2, ..right.clone() }),
        ("gone", Replay { key_hash: other, force: true, ..right.clone() }),
        ("gone", Replay { id: id + 1_000, force: true, ..right.clone() }),
    ];
    for (receipt, replay) in wrong {
        let answer = client::replay(&stage.pool, &replay).await?;
        assert_eq!(answer.receipt.as_str(), receipt, "{replay:?}");
    }
    for generation in [0, 2] {
        for answer in [
            client::resolve(&stage.pool, id, generation, "anna", "").await?,
            client::discard(&stage.pool, id, generation, "anna", "").await?,
        ] {
            assert_eq!(answer.receipt.as_str(), "stale");
        }
    }
    assert_eq!(stage.picture(id).await?, before);
    assert_eq!(stage.ask::<i64>("select count(*) from dueline.dedupe").await?, 0);
    // Of another generation, but by force: a person saw the row.
    let forced = Replay { generation: 0, force: true, ..right };
    assert_eq!(client::replay(&stage.pool, &forced).await?.receipt.as_str(), "replayed");
    assert_eq!(client::replay(&stage.pool, &forced).await?.receipt.as_str(), "stale");
    Ok(())
}

#[tokio::test]
async fn h17_a_replay_after_the_dedupe_retention_is_refused() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(HERE, "1", Phase::Dead).await?;
    sqlx::query("update dueline.stranded set died_at = died_at - interval '31 minutes'")
        .execute(&stage.pool)
        .await?;
    let mut replay = Replay {
        id,
        generation: 1,
        key_hash: KeyHash::new(QUEUE, HERE, "1"),
        who: "anna",
        force: false,
        dedupe_retention: HALF_HOUR,
    };
    let before = stage.picture(id).await?;
    assert_eq!(client::replay(&stage.pool, &replay).await?.receipt.as_str(), "refused");
    assert_eq!(stage.picture(id).await?, before);
    replay.force = true;
    assert_eq!(client::replay(&stage.pool, &replay).await?.receipt.as_str(), "replayed");
    Ok(())
}

#[tokio::test]
async fn a_resolved_key_is_remembered_as_done() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(HERE, "1", Phase::Dead).await?;
    client::resolve(&stage.pool, id, 1, "anna", "saw it").await?;
    let outcome: String = stage.ask("select outcome from dueline.dedupe").await?;
    assert_eq!(outcome, "done");
    let again = stage.plan(HERE, "1").await?;
    assert_eq!(again.receipt.as_str(), "finished");
    Ok(())
}

#[tokio::test]
async fn h36_the_fence_never_falls_in_a_whole_life() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.plan(HERE, "1").await?.id.expect("a task");
    let mut fence = stage.fence(id).await?;
    let life = [
        (Some(Phase::Leased), Step::Reschedule),
        (Some(Phase::Leased), Step::Cancel),
        (None, Step::Open),
        (Some(Phase::Dead), Step::Replay),
        (Some(Phase::Skipped), Step::Open),
        (Some(Phase::Dead), Step::Reschedule),
        (None, Step::Reschedule),
        (Some(Phase::Dead), Step::Cancel),
        (None, Step::Reschedule),
        (Some(Phase::Dead), Step::Discard),
        (None, Step::Open),
    ];
    for (phase, step) in life {
        if let Some(phase) = phase {
            stage.put(id, phase).await?;
            let now = stage.fence(id).await?;
            assert!(now > fence, "{phase:?} before {step:?}");
            fence = now;
        }
        let generation = number(&stage.picture(id).await?, "/task/generation");
        take(&stage, step, id, "1", generation).await?;
        let now = stage.fence(id).await?;
        assert!(now > fence, "{step:?}: {now} after {fence}");
        assert_eq!(number(&stage.picture(id).await?, "/task/generation"), generation + 1);
        fence = now;
    }
    Ok(())
}
