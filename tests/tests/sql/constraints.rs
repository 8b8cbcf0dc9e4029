//! Impossible rows are refused by the database itself.

use anyhow::Result;

use super::stage::{HERE, Phase, Stage, refusal};

#[tokio::test]
async fn v09_impossible_rows_are_refused() -> Result<()> {
    let stage = Stage::new().await?;
    stage.task_in(HERE, "live", Phase::Waiting).await?;
    stage.task_in(HERE, "leased", Phase::Leased).await?;
    stage.task_in(HERE, "dead", Phase::Dead).await?;
    let impossible = [
        "update dueline.task set state = 'paid'",
        "update dueline.task set finished_at = clock_timestamp() where key = 'live'",
        "update dueline.task set finished_at = null where key = 'dead'",
        "update dueline.task set state = 'done' where key = 'live'",
        "update dueline.task set fence = null where key = 'dead'",
        "update dueline.task set fence = 1 where key = 'live'",
        "update dueline.task set generation = -1",
        "update dueline.task set attempt = -1",
        "update dueline.task set due_at = 'infinity'",
        "update dueline.task set due_at = '-infinity'",
        "update dueline.task set due_at = '10000-01-01'",
        "update dueline.task set key = ''",
        "update dueline.task set key = repeat('x', 513)",
        "update dueline.task set headers = '[]'",
        "update dueline.task set last_error = repeat('x', 2001)",
        "update dueline.due set next_at = 'infinity'",
        "update dueline.due set lease_until = null where lease_until is not null",
        "update dueline.due set claimed_at = null where lease_until is not null",
        "update dueline.due set claim_epoch = 1 where lease_until is null",
        "update dueline.due set extensions = 1 where lease_until is null",
        "update dueline.stranded set reason = 'bored'",
        "insert into dueline.dedupe (key_hash, generation, attempt, outcome)
         values (gen_random_uuid(), 0, 0, 'done')",
        "insert into dueline.dedupe (key_hash, generation, attempt, outcome)
         values (gen_random_uuid(), 0, 0, 'in_progress')",
        "insert into dueline.dedupe (key_hash, generation, attempt, outcome, token, until)
         values (gen_random_uuid(), 0, 0, 'failed', gen_random_uuid(), now())",
        "insert into dueline.queue values ('or.ders', 1, 'g')",
        "insert into dueline.queue values ('many', 65, 'g')",
        "insert into dueline.tier values ('mail', 'dlq', 9, '1 s')",
        "insert into dueline.tier values ('mail', 'zero', 9, '0')",
        "update dueline.kind set effect = 'somewhere'",
        "update dueline.kind set backoff_ms = '{-1}'",
    ];
    for statement in impossible {
        let result = sqlx::query(statement).execute(&stage.pool).await;
        let (state, text) = refusal(result.map_err(dueline_store::StoreError::from));
        assert_eq!(state, "23514", "{statement}: {text}");
    }
    for (statement, expected) in [
        ("insert into dueline.lane (queue, tier, slot) values ('mail', 'never', 0)", "23503"),
        ("insert into dueline.lane (queue, tier, slot) values ('mail', '10s', 0)", "23505"),
        (
            "insert into dueline.task (key_hash, due_at, kind, key, tier)
             select key_hash, due_at, kind, 'copy', tier from dueline.task where key = 'live'",
            "23505",
        ),
        ("delete from dueline.task where key = 'dead'", "23503"),
    ] {
        let result = sqlx::query(statement).execute(&stage.pool).await;
        let (state, text) = refusal(result.map_err(dueline_store::StoreError::from));
        assert_eq!(state, expected, "{statement}: {text}");
    }
    Ok(())
}
