//! `dueline bench`, tiny: that it measures, judges, writes what it found, and leaves nothing. No time is
//! asserted.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_kafka::{Admin, KafkaSettings};
use dueline_testkit::process::{Program, Service};
use dueline_testkit::services::POSTGRES_ENV;
use dueline_testkit::settings::Settings;
use dueline_testkit::wait;
use dueline_tests::shared_brokers;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};

/// The whole run takes under a minute on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The databases of a benchmark that are there now.
async fn databases(admin: &mut PgConnection) -> Result<Vec<String>> {
    let statement = "select datname from pg_database where datname like 'dueline\\_bench\\_%'";
    Ok(sqlx::query_scalar(statement).fetch_all(admin).await?)
}

/// A folder with a configuration for the shared services, and a run of `dueline bench` on it.
fn program(folder: &std::path::Path, arguments: &[&str]) -> Result<Program> {
    let url = std::env::var(POSTGRES_ENV).context("run by ./scripts/test")?;
    let config = folder.join("dueline.toml");
    // What a user has is neither touched nor needed: this prefix has no topics, this queue no tables.
    let mut settings = Settings::new(&url, &shared_brokers()?, "nobodys");
    settings.set("queues.orders.slots", 2).set("relay.lease", "45s");
    settings.write(&config)?;
    let given = ["--config".to_owned(), config.display().to_string(), "bench".to_owned()];
    let program = Program::built("dueline", "bench", folder)?;
    Ok(program.args(given).args(arguments.iter().copied()))
}

#[tokio::test]
async fn a_run_measures_judges_and_leaves_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bench.json");
    let path = file.display().to_string();
    let arguments =
        ["steady", "lateness", "--quick", "--repeats", "1", "--scale", "0.01", "--json", &path];
    let mut run = program(folder.path(), &arguments)?.start()?;
    let (status, made) = watched(&mut run, false).await?;
    let output = run.output()?;
    ensure!(status.success(), "{output}");

    let document: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    let machine = &document["machine"];
    assert!(machine["cores"].as_u64() > Some(0), "{machine:#}");
    assert_eq!(machine["postgres"]["synchronous_commit"], "on", "{machine:#}");
    let steady = &document["scenarios"]["steady"];
    for line in ["tasks_per_s", "same_sql_tasks_per_s", "obvious_tasks_per_s", "cost_postgres"] {
        assert!(steady[line]["median"].as_f64() > Some(0.0), "{line}: {steady:#}");
    }
    let goals: BTreeMap<String, Value> = serde_json::from_value(document["goals"].clone())?;
    for name in ["steady_vs_same_sql", "steady_vs_obvious", "lateness_1000_p50_ms"] {
        let goal = goals.get(name).with_context(|| format!("{name}: {goals:#?}"))?;
        assert!(goal["value"].is_f64() && goal["goal"].is_f64() && goal["met"].is_boolean());
    }
    for name in ["duplicates", "losses", "early"] {
        assert_eq!(goals[name]["value"], 0.0, "{goals:#?}");
        assert_eq!(goals[name]["met"], true, "{goals:#?}");
    }
    assert!(!goals.contains_key("drain_vs_raw_claim"), "what did not run has no goal");
    assert!(output.contains("tasks per s"), "the table is printed: {output}");
    nothing_is_left(&made).await
}

#[tokio::test]
async fn an_interrupted_run_leaves_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut run = program(folder.path(), &["steady", "--quick"])?.start()?;
    let (status, made) = watched(&mut run, true).await?;
    assert_eq!(status.code(), Some(1), "{}", run.output()?);
    nothing_is_left(&made).await
}

/// Waits for the end of a run, and answers the databases that were there meanwhile. With `interrupt` it is
/// asked to stop as soon as there is one.
async fn watched(run: &mut Service, interrupt: bool) -> Result<(ExitStatus, BTreeSet<String>)> {
    let mut admin = PgConnection::connect(&std::env::var(POSTGRES_ENV)?).await?;
    let (mut made, mut interrupted) = (BTreeSet::new(), false);
    let status = wait::some("the end of the run", TIMEOUT, async || {
        made.extend(databases(&mut admin).await?);
        // Once: a second signal would not wait for the clean-up.
        if interrupt && !made.is_empty() && !interrupted {
            interrupted = true;
            run.terminate();
        }
        Ok(run.ended())
    })
    .await;
    ensure!(!made.is_empty(), "it never made a database: {}", run.output()?);
    Ok((status.with_context(|| run.log_tail())?, made))
}

/// Neither these databases nor their topics. Tests of this file run at the same time: what another one is
/// using is waited for.
async fn nothing_is_left(made: &BTreeSet<String>) -> Result<()> {
    let mut admin = PgConnection::connect(&std::env::var(POSTGRES_ENV)?).await?;
    wait::until("no database to be left", TIMEOUT, async || {
        Ok(databases(&mut admin).await?.is_empty())
    })
    .await?;
    let brokers = Admin::new(&KafkaSettings::new(shared_brokers()?), Duration::from_secs(10))?;
    let topics: Vec<String> =
        made.iter().map(|name| format!("{}.bench.10s", name.replace('_', "-"))).collect();
    wait::until("no topic to be left", TIMEOUT, async || {
        Ok(brokers.identify(&topics).await?.iter().all(Option::is_none))
    })
    .await
}
