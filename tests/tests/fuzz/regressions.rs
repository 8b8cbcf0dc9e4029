//! What the fuzzing of the SQL functions has found, by name. What it found elsewhere is tested beside the code.

use anyhow::Result;
use dueline_store::StoreError;

use super::stage::{HERE, Phase, Stage, refusal};

async fn refused(stage: &Stage, statement: &'static str) -> (String, String) {
    let result = sqlx::query(statement).execute(&stage.pool).await;
    refusal(result.map_err(StoreError::from))
}

/// `generation <> null` is unknown, and an unknown condition had let the verdict pass: on whatever the row was by
/// then, and for `resolve` without remembering the key.
#[tokio::test]
async fn v06_a_verdict_without_a_generation_is_of_no_dead_row() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(HERE, "1", Phase::Dead).await?;
    let before = stage.picture(id).await?;
    for verdict in [
        "select receipt from dueline.replay($1, null, null, 'me')",
        "select receipt from dueline.resolve($1, null, 'me', 'why')",
        "select receipt from dueline.discard($1, null, 'me', 'why')",
    ] {
        let receipt: String = sqlx::query_scalar(verdict).bind(id).fetch_one(&stage.pool).await?;
        assert_eq!(receipt, "stale", "{verdict}");
    }
    assert_eq!(stage.picture(id).await?, before);
    let forced = "select receipt from dueline.replay($1, null, null, 'me', force => true)";
    let receipt: String = sqlx::query_scalar(forced).bind(id).fetch_one(&stage.pool).await?;
    assert_eq!(receipt, "replayed", "whoever forces it names no generation");
    Ok(())
}

/// They compare as short and reach far: PostgreSQL refused them in the middle, without a hint.
#[tokio::test]
async fn spans_whose_parts_cancel_out_are_refused_with_a_hint() -> Result<()> {
    let stage = Stage::new().await?;
    for statement in [
        "select dueline.schedule('close_order', '1', delay => '70000000 months -2100000000 days')",
        "select dueline.schedule('close_order', '1', delay => '-70000000 months 2100000000 days')",
        "select dueline.schedule('close_order', '1', delay => '1 s', jitter => '9999999 months -299999970 days')",
        "select dueline.schedule_many('close_order', '{1}', delays => '{10000000 months -300000000 days}')",
        "select dueline.reschedule('close_order', '1', delay => '-100000000 days 2400000010 hours')",
    ] {
        let (state, text) = refused(&stage, statement).await;
        assert!(state == "22023" && text.contains("pass a"), "{statement}: {state} {text}");
    }
    Ok(())
}

/// With its jitter it would have been past the last instant that a header can write.
#[tokio::test]
async fn the_last_deadline_has_room_for_its_jitter() -> Result<()> {
    let stage = Stage::new().await?;
    let last =
        "select (dueline.schedule('close_order', '1', due_at => '9988-12-31 23:59:59.999999+00',
                                         jitter => '10 years')).receipt";
    let receipt: String = stage.ask(last).await?;
    assert_eq!(receipt, "scheduled");
    let (state, text) = refused(
        &stage,
        "select dueline.schedule('close_order', '2', due_at => '9989-01-01 00:00:00+00', jitter => '10 years')",
    )
    .await;
    assert!(state == "22023" && text.contains("due_at is out of range"), "{state} {text}");
    Ok(())
}

/// Each of the headers was in order; all of them together broke the bound of the column, which said only its
/// own name.
#[tokio::test]
async fn headers_that_are_too_much_together_are_refused_with_a_hint() -> Result<()> {
    let stage = Stage::new().await?;
    let (state, text) = refused(
        &stage,
        "select dueline.schedule('close_order', '1', delay => '1 s', headers =>
                (select jsonb_object_agg('h' || g, repeat('x', 4096)) from generate_series(1, 5) g))",
    )
    .await;
    assert!(state == "22023" && text.contains("put data into the payload"), "{state} {text}");
    Ok(())
}

/// An array of one element in two dimensions has it at `[1][1]`; `[1]` of it is null.
#[tokio::test]
async fn one_element_for_all_keys_may_stand_in_any_number_of_dimensions() -> Result<()> {
    let stage = Stage::new().await?;
    sqlx::query(
        "select dueline.schedule_many('close_order', '{1,2}', delays => array[interval '1 h'],
                payloads => array[['{\"a\": 1}'::jsonb]])",
    )
    .execute(&stage.pool)
    .await?;
    let kept: i64 =
        stage.ask("select count(*) from dueline.task where payload = '{\"a\": 1}'").await?;
    assert_eq!(kept, 2, "the payload of both");
    Ok(())
}
