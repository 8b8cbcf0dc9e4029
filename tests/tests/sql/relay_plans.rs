//! The plans of the relay's statements, on a table of 240,000 alarms in eight lanes (S7, H2).

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::effect::settings;
use super::effect_plans::{self, body_of, first_of};
use super::relay_ground::Ground;

/// A statement and arguments of the right types.
type Hot<'a> = (&'static str, &'a str, &'static str);

const LANES: &str = "array[1,2,3,4,5,6,7,8], array_fill('-infinity'::timestamptz, array[8]),
                     array_fill(0::bigint, array[8])";

/// Every statement that runs more often than once in a while.
const STATEMENTS: [Hot<'static>; 8] = [
    ("next_due", include_str!("../../../crates/dueline-store/sql/relay/next_due.sql"), "{lanes}"),
    (
        "bodies",
        include_str!("../../../crates/dueline-store/sql/relay/bodies.sql"),
        "array_fill(1::bigint, array[1000])",
    ),
    (
        "release",
        include_str!("../../../crates/dueline-store/sql/relay/release.sql"),
        "array_fill(1::bigint, array[1000]), array_fill(1, array[1000])",
    ),
    (
        "sweep_page",
        include_str!("../../../crates/dueline-store/sql/relay/sweep_page.sql"),
        "{lanes}, array_fill('infinity'::timestamptz, array[8]), 500, '1 hour'",
    ),
    (
        "subjects",
        include_str!("../../../crates/dueline-store/sql/relay/subjects.sql"),
        "array_fill(1::bigint, array[1000])",
    ),
    (
        "republish",
        include_str!("../../../crates/dueline-store/sql/relay/republish.sql"),
        "array_fill(1::bigint, array[1000]), array_fill(1, array[1000]),
      array_fill(1::bigint, array[1000]), array_fill(true, array[1000]), 1",
    ),
    (
        "extend",
        include_str!("../../../crates/dueline-store/sql/relay/extend.sql"),
        "array_fill(1::bigint, array[1000]), array_fill(1, array[1000]),
      array_fill(1::bigint, array[1000])",
    ),
    (
        "park",
        include_str!("../../../crates/dueline-store/sql/relay/park.sql"),
        "array_fill(1::bigint, array[1000]), array_fill(1, array[1000]),
      array_fill('too_old'::text, array[1000]), array_fill(''::text, array[1000])",
    ),
];

/// The two statements of the function `dueline.claim`.
async fn claim_statements(connection: &mut sqlx::PgConnection) -> Result<[String; 2]> {
    let body = body_of(connection, "claim").await?;
    let (_, bodies) = body.split_once("then\n").context("a condition")?;
    Ok([first_of(&body)?, first_of(bodies)?.replace("claim.id", "$1::bigint[]")])
}

const CLAIM_ARGUMENTS: &str = "{lanes}, 1, 1000, '1 minute', 'infinity'";
const BODIES_ARGUMENTS: &str = "array_fill(1::bigint, array[1000])";

async fn crowd() -> Result<Ground> {
    let ground = Ground::new().await?;
    for lane in &ground.lanes {
        // Half is due, half is not.
        ground.lay(*lane, 30_000, -15_000).await?;
    }
    sqlx::raw_sql("analyze dueline.task; analyze dueline.due; analyze dueline.lane")
        .execute(&ground.pool)
        .await?;
    Ok(ground)
}

/// The plan of a statement in a transaction that is rolled back.
async fn plan(
    connection: &mut sqlx::PgConnection,
    mode: &str,
    options: &str,
    (_, sql, arguments): Hot<'_>,
) -> Result<String> {
    let arguments = arguments.replace("{lanes}", LANES);
    let mut tx = connection.begin().await?;
    tx.execute(AssertSqlSafe(format!("set local plan_cache_mode = {mode}"))).await?;
    tx.execute(AssertSqlSafe(format!("prepare hot as {sql}"))).await?;
    let explain = format!("explain {options} execute hot({arguments})");
    let lines: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut *tx).await?;
    tx.rollback().await?;
    connection.execute("deallocate hot").await?;
    Ok(lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{line}");
        text
    }))
}

#[tokio::test]
async fn s07_the_relays_statements_walk_indexes_also_with_generic_plans() -> Result<()> {
    let ground = crowd().await?;
    let mut connection = ground.pool.acquire().await?;
    let [claim, bodies] = claim_statements(&mut connection).await?;
    let inner = [("claim", &*claim, CLAIM_ARGUMENTS), ("its bodies", &*bodies, BODIES_ARGUMENTS)];
    for mode in ["force_generic_plan", "force_custom_plan"] {
        for hot in STATEMENTS.into_iter().chain(inner) {
            let plan = plan(&mut connection, mode, "", hot).await?;
            for table in ["task", "due"] {
                let scan = format!("Seq Scan on {table}");
                assert!(!plan.contains(&scan), "{}, {mode}: {scan}\n{plan}", hot.0);
            }
        }
    }
    Ok(())
}

/// H2: the clock and the cursor bound the index scan, they do not filter what it returns.
#[tokio::test]
async fn h02_the_claim_reads_what_it_takes_and_little_more() -> Result<()> {
    let ground = crowd().await?;
    let mut connection = ground.pool.acquire().await?;
    let options = "(analyze, buffers, timing off)";
    let [claim, _] = claim_statements(&mut connection).await?;
    let hot = ("claim", &*claim, CLAIM_ARGUMENTS);
    let plan = plan(&mut connection, "force_generic_plan", options, hot).await?;
    let conditions = plan.lines().filter(|l| l.contains("Index Cond") && l.contains("lane"));
    let bounded = |l: &str| l.contains("statement_timestamp()") && l.contains("ROW(next_at, id)");
    assert_eq!(conditions.filter(|l| bounded(l)).count(), 2, "{plan}");
    assert!(!plan.contains("Rows Removed by Filter"), "{plan}");
    Ok(())
}

/// A plan that a session made for empty tables is kept while they fill: it has to be the right one
/// then, too, and whatever the planner believes.
#[tokio::test]
async fn s07_a_plan_kept_from_empty_tables_is_the_one_for_full_ones() -> Result<()> {
    let ground = Ground::new().await?;
    let pool = dueline_store::connect_for_batches(&settings(&ground.url()))?;
    let mut connection = pool.acquire().await?;
    let [claim, bodies] = claim_statements(&mut connection).await?;
    let inner = [("claim", &*claim, CLAIM_ARGUMENTS), ("its bodies", &*bodies, BODIES_ARGUMENTS)];
    let effects = effect_plans::statements(&mut connection).await?;
    let effects = effects.iter().map(|(name, sql, arguments)| (*name, sql.as_str(), *arguments));
    let all: Vec<Hot<'_>> = STATEMENTS.into_iter().chain(inner).chain(effects).collect();
    let mut empty = Vec::new();
    for hot in &all {
        empty.push(plan(&mut connection, "force_generic_plan", "(costs off)", *hot).await?);
    }
    for lane in &ground.lanes {
        ground.lay(*lane, 30_000, -15_000).await?;
    }
    sqlx::raw_sql(
        "insert into dueline.dedupe (key_hash, finished_at, generation, attempt, outcome)
         select key_hash, now(), 0, 0, 'done' from dueline.task;
         analyze dueline.task; analyze dueline.due; analyze dueline.dedupe; analyze dueline.lane",
    )
    .execute(&ground.pool)
    .await?;
    for (hot, before) in all.iter().zip(empty) {
        let after = plan(&mut connection, "force_generic_plan", "(costs off)", *hot).await?;
        for scan in ["Seq Scan on task", "Seq Scan on due", "Seq Scan on dedupe", "Hash Join"] {
            assert!(!before.contains(scan), "{}: {scan}\n{before}", hot.0);
            assert!(!after.contains(scan), "{}: {scan}\n{after}", hot.0);
        }
    }
    Ok(())
}
