//! Every statement of the store still fits the schema, and the client's use the indexes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_store::client::{self, ScheduleMany};
use dueline_tests::testkit::plans::explain_generic;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, SqlSafeStr as _};

use super::stage::{HALF_HOUR, HERE, Stage};

/// Pieces that are no statements of their own.
const PIECES: [&str; 2] = ["effect/batch_relation.sql", "effect/explain_described.sql"];

fn statements(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            statements(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "sql") {
            found.push(path);
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_statement_of_the_store_fits_the_schema() -> Result<()> {
    let stage = Stage::new().await?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/dueline-store/sql");
    let mut files = Vec::new();
    statements(&folder, &mut files)?;
    assert!(files.len() > 20, "{files:?}");
    let mut broken = Vec::new();
    for file in files {
        let name = file.strip_prefix(&folder)?.display().to_string();
        if PIECES.contains(&name.as_str()) {
            continue;
        }
        let statement = AssertSqlSafe(std::fs::read_to_string(&file)?).into_sql_str();
        let mut connection = stage.pool.acquire().await?;
        if let Err(error) = (&mut *connection).prepare(statement).await {
            broken.push(format!("{name}: {error}"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

/// Fills the tables, so that an index is worth its while.
async fn filled() -> Result<Stage> {
    let stage = Stage::new().await?;
    for part in 0..2 {
        let keys = (0..10_000).map(|n| format!("{part}-{n}")).collect();
        let request = ScheduleMany {
            kind: HERE.to_owned(),
            keys,
            delays: vec![HALF_HOUR],
            ..ScheduleMany::default()
        };
        client::schedule_many(&stage.pool, &request).await?;
    }
    sqlx::raw_sql("analyze dueline.task, dueline.due").execute(&stage.pool).await?;
    Ok(stage)
}

/// The functions' own plans are not to be seen, but what they scanned is counted.
const SCANS: &str = "select coalesce(sum(seq_scan), 0)::bigint from pg_stat_xact_user_tables
                     where schemaname = 'dueline' and relname in ('task', 'due', 'stranded', 'dedupe')";

#[tokio::test]
async fn s07_the_client_functions_never_scan_a_whole_table() -> Result<()> {
    let stage = filled().await?;
    let calls = [
        "select dueline.schedule('close_order', 'new', delay => '1 h')",
        "select dueline.schedule('close_order', '0-1', delay => '1 h')",
        "select dueline.schedule('close_order', '0-1', delay => '1 h', on_conflict => 'reschedule')",
        "select dueline.reschedule('close_order', '0-2', delay => '1 h')",
        "select dueline.cancel('close_order', '0-3')",
        "select dueline.cancel('close_order', '0-3')",
        "select dueline.schedule('close_order', '0-3', delay => '1 h')",
        "select dueline.get('close_order', '0-4')",
        "select dueline.cancel_many('close_order', array['0-5', '0-6'])",
        "select dueline.schedule_many('close_order', array['0-7', '0-8', 'x', 'y'],
                                      delays => array[interval '1 h'])",
        "select dueline.cancel('refund', '1')",
        "select dueline.replay(1, 0, gen_random_uuid(), 'me')",
        "select dueline.resolve(1, 0, 'me', '')",
    ];
    let mut connection = stage.connect().await?;
    for call in calls {
        let mut transaction = connection.begin().await?;
        // Again and again: the plan after the fifth is the one that production sees.
        for _ in 0..7 {
            sqlx::query(call).execute(&mut *transaction).await?;
        }
        let scans: i64 = sqlx::query_scalar(SCANS).fetch_one(&mut *transaction).await?;
        assert_eq!(scans, 0, "{call}");
        transaction.rollback().await?;
    }
    Ok(())
}

#[tokio::test]
async fn s07_a_deadline_scan_by_lane_uses_its_index() -> Result<()> {
    let stage = filled().await?;
    let mut connection = stage.connect().await?;
    let scan = "select id from dueline.due
                where lane = $1 and lease_until is null and next_at <= statement_timestamp()
                order by next_at, id limit $2";
    let plan = explain_generic(&mut connection, scan).await?;
    plan.ensure_no_seq_scan(&["task", "due"])?;
    plan.ensure_index("due_scan", &["lane", "next_at"])?;
    // H2: what this helper must be able to catch.
    let wrong = "select id from dueline.due where lane = $1 and next_at <= clock_timestamp()";
    let plan = explain_generic(&mut connection, wrong).await?;
    assert!(plan.ensure_index("due_scan", &["lane", "next_at"]).is_err(), "{plan:?}");
    Ok(())
}

#[tokio::test]
async fn the_bulk_call_is_one_statement_not_one_per_key() -> Result<()> {
    let stage = Stage::new().await?;
    let mut connection = stage.connect().await?;
    connection.execute("set statement_timeout = '20s'").await?;
    let started = std::time::Instant::now();
    let request = ScheduleMany {
        kind: HERE.to_owned(),
        keys: (0..10_000).map(|n| n.to_string()).collect(),
        due_at: vec![],
        delays: vec![HALF_HOUR],
        ..ScheduleMany::default()
    };
    client::schedule_many(&mut connection, &request).await?;
    // A quadratic join takes over ten seconds, a call per key about two; this takes a tenth of one.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    Ok(())
}
