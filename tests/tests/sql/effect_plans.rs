//! The plans of the effect's statements, and what their writes cost (S7, H2).

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::effect::{Lab, is_done};

/// Each hot statement with arguments of the right types.
const STATEMENTS: [(&str, &str, &str); 2] = [
    ("fail", include_str!("../../../crates/dueline-store/sql/effect/fail.sql"),
     "array[1]::bigint[], array[gen_random_uuid()], array[0], array[0], array[now()], array[1]::bigint[],
      array[1], array['e'], array[null]::text[]"),
    ("fates", include_str!("../../../crates/dueline-store/sql/effect/fates.sql"),
     "array[1]::bigint[], array[gen_random_uuid()], array[0], array[0]"),
];

/// Each function that is one hot statement.
const FUNCTIONS: [(&str, &str); 3] = [
    ("admit", "array[1]::bigint[], array[gen_random_uuid()], array[0], array[0]"),
    (
        "settle",
        "array[1]::bigint[], array[gen_random_uuid()], array[0], array[0], array[now()], array['done']",
    ),
    ("return_early", "array[1]::bigint[], array[0], array[0]"),
];

/// The statements of a function, as the database has them, with parameters for its arguments.
pub async fn body_of(connection: &mut PgConnection, function: &str) -> Result<String> {
    let (source, names, types): (String, Vec<String>, Vec<String>) = sqlx::query_as(
        "select p.prosrc, p.proargnames,
                array(select t::regtype::text from unnest(p.proargtypes::oid[]) with ordinality a (t, o)
                      order by o)
         from pg_proc p where p.oid = ('dueline.' || $1)::regproc",
    )
    .bind(function)
    .fetch_one(connection)
    .await?;
    let lines = source.lines().filter(|line| {
        let line = line.trim_start();
        !line.starts_with("--") && !line.starts_with("into ")
    });
    let body = lines.collect::<Vec<_>>().join("\n");
    let mut body = body.split_once("begin\n").context("a body")?.1.to_owned();
    for (n, (name, kind)) in names.iter().zip(&types).enumerate() {
        let name = format!("{function}.{name}");
        ensure!(body.contains(&name), "{name} is not in {body}");
        body = body.replace(&name, &format!("${}::{kind}", n + 1));
    }
    Ok(body)
}

/// Up to the end of its first statement.
pub fn first_of(body: &str) -> Result<String> {
    Ok(body.split_once(';').context("a statement")?.0.to_owned())
}

/// Every hot statement of the effect: its name, its text, and arguments of the right types.
pub async fn statements(
    connection: &mut PgConnection,
) -> Result<Vec<(&'static str, String, &'static str)>> {
    let mut all: Vec<_> =
        STATEMENTS.map(|(name, sql, arguments)| (name, sql.to_owned(), arguments)).into();
    for (function, arguments) in FUNCTIONS {
        all.push((function, first_of(&body_of(connection, function).await?)?, arguments));
    }
    Ok(all)
}

#[tokio::test]
async fn s07_the_effects_statements_walk_indexes_also_with_generic_plans() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=20_000).await?;
    lab.publish(1..=20_000).await?;
    sqlx::raw_sql("analyze dueline.task; analyze dueline.due; analyze dueline.dedupe")
        .execute(&lab.pool)
        .await?;
    let mut connection = lab.connect().await?;
    for mode in ["force_generic_plan", "force_custom_plan"] {
        for (name, sql, arguments) in statements(&mut connection).await? {
            let mut tx = connection.begin().await?;
            tx.execute(AssertSqlSafe(format!("set local plan_cache_mode = {mode}"))).await?;
            tx.execute(AssertSqlSafe(format!("prepare s as {sql}"))).await?;
            let explain = format!("explain execute s({arguments})");
            let lines: Vec<String> =
                sqlx::query_scalar(AssertSqlSafe(explain)).fetch_all(&mut *tx).await?;
            let plan = lines.iter().fold(String::new(), |mut text, line| {
                let _ = writeln!(text, "{line}");
                text
            });
            for table in ["task", "due"] {
                let scan = format!("Seq Scan on {table}");
                assert!(!plan.contains(&scan), "{name}, {mode}: {scan}\n{plan}");
            }
            tx.rollback().await?;
            connection.execute("deallocate s").await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn s07_settles_in_creation_order_are_hot() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=20_000).await?;
    let mut tasks = lab.publish(1..=20_000).await?;
    let counters = "select pg_stat_get_tuples_updated('dueline.task'::regclass)::bigint";
    let hot = "select pg_stat_get_tuples_hot_updated('dueline.task'::regclass)::bigint";
    let handler = lab.close_order().await?;
    for batch in tasks.chunks_mut(1_000) {
        let fates = lab.run(&handler, batch).await.expect("no trouble");
        assert!(fates.values().all(|fate| is_done(*fate)));
    }
    lab.pool.close().await;
    // Counters are sent when a session ends.
    let enough = dueline_tests::testkit::wait::until(
        "the counters of 20,000 updates",
        dueline_tests::PATIENCE,
        async || Ok(lab.number(counters).await? >= 20_000),
    );
    enough.await?;
    let share = lab.number(hot).await? * 100 / lab.number(counters).await?;
    assert!(share >= 80, "only {share} % of the settles were HOT");
    Ok(())
}
