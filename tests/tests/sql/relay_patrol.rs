//! The retention patrol: what it deletes, in which order, and what never.

use std::time::Duration;

use anyhow::Result;
use dueline_store::relay::{self, Purge};

use super::relay_ground::{Ground, beat};

const DAY: Duration = Duration::from_secs(86_400);

fn purge() -> Purge {
    Purge { dedupe: 30 * DAY, task: 30 * DAY, events: 90 * DAY, blocks: 10_000, limit: 1_000 }
}

/// Tasks that finished `days` ago, with their dedupe rows.
async fn finished(ground: &Ground, state: &'static str, count: i64, days: i32) -> Result<()> {
    let statement = "
        with t as (
            insert into dueline.task (key_hash, due_at, kind, key, tier, state, fence, finished_at)
            select gen_random_uuid(), clock_timestamp() - $3 * interval '1 day', 'close_order',
                   gen_random_uuid()::text, 'fast', $1, 1, clock_timestamp() - $3 * interval '1 day'
            from generate_series(1, $2) returning *),
        s as (
            insert into dueline.stranded (id, queue, kind, key, generation, attempts, reason)
            select id, 'orders', kind, key, generation, 4, 'exhausted' from t where state = 'dead')
        insert into dueline.dedupe (key_hash, finished_at, generation, attempt, outcome)
        select key_hash, finished_at, generation, attempt, 'done' from t";
    sqlx::query(statement).bind(state).bind(count).bind(days).execute(&ground.pool).await?;
    Ok(())
}

async fn left(ground: &Ground) -> Result<(i64, i64)> {
    let statement =
        "select (select count(*) from dueline.task), (select count(*) from dueline.dedupe)";
    Ok(sqlx::query_as(statement).fetch_one(&ground.pool).await?)
}

#[tokio::test]
async fn what_is_old_goes_key_before_task_and_what_is_young_or_stranded_stays() -> Result<()> {
    let ground = Ground::new().await?;
    finished(&ground, "done", 50, 40).await?;
    finished(&ground, "done", 20, 1).await?;
    finished(&ground, "dead", 7, 400).await?;
    ground.lay(ground.lanes[0], 5, -1_000).await?;
    let done = relay::purge(&ground.pool, &purge()).await?;
    assert_eq!((done.dedupe, done.task, done.wrapped), (50, 50, true));
    assert_eq!(left(&ground).await?, (32, 27));
    let done = relay::purge(&ground.pool, &purge()).await?;
    assert_eq!((done.dedupe, done.task), (0, 0));
    Ok(())
}

#[tokio::test]
async fn a_task_stays_as_long_as_its_key_is_remembered() -> Result<()> {
    let ground = Ground::new().await?;
    finished(&ground, "done", 10, 40).await?;
    let mut longer = purge();
    longer.dedupe = 60 * DAY;
    assert_eq!(relay::purge(&ground.pool, &longer).await?.task, 0);
    assert_eq!(left(&ground).await?, (10, 10));
    Ok(())
}

#[tokio::test]
async fn a_key_stays_as_long_as_its_task_may_act() -> Result<()> {
    let ground = Ground::new().await?;
    finished(&ground, "done", 3, 40).await?;
    sqlx::raw_sql(
        "update dueline.task set state = 'live', finished_at = null, fence = null
         where id = (select min(id) from dueline.task)",
    )
    .execute(&ground.pool)
    .await?;
    assert_eq!(relay::purge(&ground.pool, &purge()).await?.dedupe, 2);
    Ok(())
}

#[tokio::test]
async fn a_key_that_was_never_done_goes_with_its_task() -> Result<()> {
    let ground = Ground::new().await?;
    finished(&ground, "cancelled", 4, 40).await?;
    finished(&ground, "cancelled", 4, 1).await?;
    finished(&ground, "dead", 2, 40).await?;
    // Of each age one has failed, one was begun and given up, one is being worked on; the fourth was done.
    sqlx::raw_sql(
        "with numbered as (
             select key_hash, row_number() over (partition by date_trunc('day', finished_at), generation) as n
             from dueline.task)
         update dueline.dedupe d
         set outcome = case n.n when 1 then 'failed' else 'in_progress' end, finished_at = null,
             token = case when n.n > 1 then gen_random_uuid() end,
             until = case n.n when 2 then clock_timestamp() - interval '40 days'
                              when 3 then clock_timestamp() + interval '1 minute' end
         from numbered n where n.key_hash = d.key_hash and n.n < 4",
    )
    .execute(&ground.pool)
    .await?;
    let purged = relay::purge(&ground.pool, &purge()).await?;
    assert_eq!(
        (purged.dedupe, purged.task),
        (3, 3),
        "the old ones, but for the one that is worked on"
    );
    Ok(())
}

#[tokio::test]
async fn a_step_is_bounded_and_the_position_is_kept() -> Result<()> {
    let ground = Ground::new().await?;
    finished(&ground, "done", 500, 40).await?;
    let mut small = purge();
    (small.blocks, small.limit) = (2, 20);
    let first = relay::purge(&ground.pool, &small).await?;
    assert!(first.dedupe == 20 && first.more && !first.wrapped, "{first:?}");
    let mut steps = 0;
    while left(&ground).await? != (0, 0) {
        let step = relay::purge(&ground.pool, &small).await?;
        assert!(step.dedupe <= 20 && step.task <= 20);
        steps += 1;
        assert!(steps < 1_000, "the patrol comes to no end");
    }
    Ok(())
}

#[tokio::test]
async fn s06_one_patrol_at_a_time() -> Result<()> {
    let ground = Ground::new().await?;
    let mut other = ground.pool.begin().await?;
    sqlx::query("select pg_try_advisory_xact_lock(hashtext('dueline.patrol'), 0)")
        .execute(&mut *other)
        .await?;
    assert!(relay::purge(&ground.pool, &purge()).await?.elsewhere);
    other.rollback().await?;
    assert!(!relay::purge(&ground.pool, &purge()).await?.elsewhere);
    Ok(())
}

#[tokio::test]
async fn i05_counts_of_stopped_duplicates_are_folded_by_the_hour_and_never_lost() -> Result<()> {
    let ground = Ground::new().await?;
    sqlx::raw_sql(
        "insert into dueline.duplicate_stop (at, queue, layer, n)
         select date_trunc('hour', clock_timestamp()) - interval '90 minutes'
                + g * interval '1 minute',
                'orders', 'scan', 1
         from generate_series(0, 29) g;
         insert into dueline.duplicate_stop (queue, layer, n) values ('orders', 'scan', 5);",
    )
    .execute(&ground.pool)
    .await?;
    for _ in 0..2 {
        relay::purge(&ground.pool, &purge()).await?;
        let rows: (i64, i64) =
            sqlx::query_as("select count(*), sum(n)::bigint from dueline.duplicate_stop")
                .fetch_one(&ground.pool)
                .await?;
        assert_eq!(rows, (2, 35));
    }
    Ok(())
}

#[tokio::test]
async fn an_ended_relay_goes_when_its_last_claim_is_gone() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    let gone = relay::register(&ground.pool, "two", "0").await?;
    for epoch in [ground.epoch, gone] {
        relay::end(&ground.pool, epoch, "stopped", &beat()).await?;
    }
    sqlx::raw_sql("update dueline.relay set ended_at = ended_at - interval '2 hours'")
        .execute(&ground.pool)
        .await?;
    relay::purge(&ground.pool, &purge()).await?;
    let statement = "select array_agg(epoch) from dueline.relay";
    let left: Vec<i64> = sqlx::query_scalar(statement).fetch_one(&ground.pool).await?;
    assert_eq!(left, [ground.epoch], "alarm {} is still its claim", claim.id);
    Ok(())
}
