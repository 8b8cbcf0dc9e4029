//! The plans of the relay's statements, on a table of 240,000 alarms in eight lanes (S7, H2).

use std::fmt::Write as _;

use anyhow::Result;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::relay_ground::Ground;

/// A statement and arguments of the right types.
type Hot = (&'static str, &'static str, &'static str);

const LANES: &str = "array[1,2,3,4,5,6,7,8], array_fill('-infinity'::timestamptz, array[8]),
                     array_fill(0::bigint, array[8])";

/// Every statement that runs more often than once in a while.
const STATEMENTS: [Hot; 9] = [
    (
        "claim",
        include_str!("../../../crates/dueline-store/sql/relay/claim.sql"),
        "{lanes}, 1, 1000, '1 minute', 'infinity'",
    ),
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
    (_, sql, arguments): Hot,
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
    for mode in ["force_generic_plan", "force_custom_plan"] {
        for hot in STATEMENTS {
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
    let plan = plan(&mut connection, "force_generic_plan", options, STATEMENTS[0]).await?;
    let conditions = plan.lines().filter(|l| l.contains("Index Cond") && l.contains("lane"));
    let bounded = |l: &str| l.contains("statement_timestamp()") && l.contains("ROW(next_at, id)");
    assert_eq!(conditions.filter(|l| bounded(l)).count(), 2, "{plan}");
    assert!(!plan.contains("Rows Removed by Filter"), "{plan}");
    Ok(())
}
