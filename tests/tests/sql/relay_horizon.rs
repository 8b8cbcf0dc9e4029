//! H22: an open snapshot keeps every dead row, and the claim walks past none of them.

use anyhow::{Context as _, Result, ensure};
use dueline_core::Micros;
use dueline_store::relay::{self, Cursor};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use super::relay_ground::{Ground, LEASE, NO_END};

/// Alarms that ring, are claimed and finished while the snapshot is open.
const WORK: i64 = 20_000;
const BATCH: usize = 500;
/// What the claims take that are measured: little, so that walking weighs more than taking.
const SMALL: usize = 10;

#[tokio::test]
async fn h22_a_pinned_horizon_makes_no_claim_dearer() -> Result<()> {
    let ground = Ground::new().await?;
    let lane = ground.lanes[0];
    let mut holder = ground.connect().await?;
    let mut snapshot = holder.begin_with("begin isolation level repeatable read").await?;
    ground.lay(lane, WORK, -WORK - 1_000).await?;
    sqlx::query("select count(*) from dueline.due").execute(&mut *snapshot).await?;

    let mut session = ground.connect().await?;
    let mut cursor = ground.beginning(&[lane])[0];
    // The first one of a session reads the catalogues, too.
    buffers(&mut session, &ground, cursor).await?;
    let first = buffers(&mut session, &ground, cursor).await?;
    let mut done = 0;
    while done < WORK - i64::try_from(BATCH)? {
        let round =
            relay::claim(&ground.pool, ground.epoch, &[cursor], BATCH, LEASE, NO_END).await?;
        let last = round.claimed.last().context("the work is not at its end")?;
        cursor = Cursor { lane, at: last.next_at, id: last.id };
        done += finish(&ground).await?;
    }
    let last = buffers(&mut session, &ground, cursor).await?;
    // Nothing could be cleaned away: who starts from the beginning walks past all of it …
    let dead = "vacuum dueline.due";
    sqlx::query(dead).execute(&ground.pool).await?;
    let pinned = buffers(&mut session, &ground, ground.beginning(&[lane])[0]).await?;
    ensure!(
        pinned > 3 * last,
        "the hazard is not there: {pinned} buffers, {last} behind the cursor"
    );
    // … and a relay starts behind its watermark.
    ensure!(last * 2 <= first * 3, "a claim read {first} buffers, then {last}");
    println!("a claim reads {first} pages, then {last}; from the beginning {pinned}");

    snapshot.rollback().await?;
    sqlx::query(dead).execute(&ground.pool).await?;
    let free = buffers(&mut session, &ground, ground.beginning(&[lane])[0]).await?;
    ensure!(free * 2 <= pinned, "{free} buffers after the vacuum, {pinned} before");
    Ok(())
}

/// Finishes everything that is claimed.
async fn finish(ground: &Ground) -> Result<i64> {
    let finish = "
        with gone as (delete from dueline.due where lease_until is not null returning id)
        update dueline.task as t set state = 'done', finished_at = clock_timestamp()
          from gone where t.id = gone.id";
    let done = sqlx::query(finish).execute(&ground.pool).await?;
    Ok(i64::try_from(done.rows_affected())?)
}

/// How many pages a small claim from this cursor looks at; it is rolled back.
async fn buffers(session: &mut PgConnection, ground: &Ground, cursor: Cursor) -> Result<i64> {
    let at = if cursor.at == Micros(i64::MIN) || cursor.id == i64::MIN {
        "'-infinity'".to_owned()
    } else {
        format!("to_timestamp({}::numeric / 1000000)", cursor.at.0)
    };
    let claim = format!(
        "explain (analyze, buffers, timing off, format json)
         select * from dueline.claim(array[{}], array[{at}::timestamptz], array[{}]::bigint[], {},
                                     {SMALL}, interval '1 minute', 'infinity')",
        cursor.lane, cursor.id, ground.epoch
    );
    let mut transaction = session.begin().await?;
    let planner = "set local enable_seqscan = off; set local enable_bitmapscan = off;
                   set local plan_cache_mode = force_generic_plan";
    sqlx::raw_sql(planner).execute(&mut *transaction).await?;
    let row = sqlx::raw_sql(AssertSqlSafe(claim)).fetch_one(&mut *transaction).await?;
    let plan: serde_json::Value = row.try_get(0)?;
    transaction.rollback().await?;
    let plan = &plan[0]["Plan"];
    let of = |name: &str| plan[name].as_i64().context("no count of buffers");
    Ok(of("Shared Hit Blocks")? + of("Shared Read Blocks")?)
}
