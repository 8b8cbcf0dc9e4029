//! Faults that somebody's SQL makes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_testkit::checker::{Call, Told};
use dueline_testkit::wait;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::evidence::Archive;
use crate::parcels::{self, Flaw, Label};
use crate::role::Role;
use crate::stage::{MAX_CONNECTIONS, Stage};

/// The most that one statement of a fault may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a handler that kills its consumer may go on before its task is dead.
const POISON_PATIENCE: Duration = Duration::from_secs(60);
/// How long a connection of the database's own superuser may take.
const CONNECT: Duration = Duration::from_secs(3);

/// The name that a program gives its sessions.
fn application(role: Role) -> &'static str {
    if role.is_relay() { "dueline-relay" } else { "dueline-consumer" }
}

async fn connect(stage: &Stage) -> Result<PgConnection> {
    let options = stage.pool().connect_options();
    let connection = PgConnection::connect_with(&options);
    Ok(timeout(CONNECT, connection).await.context("connecting took too long")??)
}

/// Ends every session of this role's program.
pub async fn terminate(stage: &Stage, role: Role) -> Result<()> {
    let ended: i64 = sqlx::query_scalar(include_str!("../../sql/nemesis/terminate.sql"))
        .bind(application(role))
        .fetch_one(stage.pool())
        .await?;
    ensure!(ended > 0, "there was no session to end");
    Ok(())
}

pub async fn exhaust(stage: &Stage, hold: Duration) -> Result<()> {
    let mut taken = Vec::new();
    // Those who have a connection keep it; then they lose it, and find none.
    for _ in 0..MAX_CONNECTIONS {
        let Ok(connection) = connect(stage).await else { break };
        taken.push(connection);
    }
    for role in [Role::Relay1, Role::Consumer1] {
        terminate(stage, role).await?;
        while let Ok(connection) = connect(stage).await {
            taken.push(connection);
            if taken.len() > MAX_CONNECTIONS as usize {
                break;
            }
        }
    }
    sleep(hold).await;
    for connection in taken {
        // A server that restarts meanwhile has closed it already.
        let _ = timeout(CONNECT, connection.close()).await;
    }
    Ok(())
}

/// Holds a transaction open that did `statement`.
async fn hold_open(stage: &Stage, begin: &str, statement: String, hold: Duration) -> Result<()> {
    let mut connection = connect(stage).await?;
    let work = async {
        sqlx::raw_sql(AssertSqlSafe(begin.to_owned())).execute(&mut connection).await?;
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
        anyhow::Ok(())
    };
    timeout(PATIENCE, work).await.context("the locks were not to be had")??;
    sleep(hold).await;
    sqlx::raw_sql("rollback").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

pub async fn lock_rows(stage: &Stage, hold: Duration) -> Result<()> {
    let statement = include_str!("../../sql/nemesis/lock_rows.sql").to_owned();
    hold_open(stage, "begin", statement, hold).await
}

pub async fn lock_table(stage: &Stage, table: &str, hold: Duration) -> Result<()> {
    let statement = format!("lock table {table} in access exclusive mode");
    hold_open(stage, "begin", statement, hold).await
}

pub async fn pin_horizon(stage: &Stage, hold: Duration) -> Result<()> {
    let statement = "select count(*) from dueline.instance".to_owned();
    hold_open(stage, "begin isolation level repeatable read", statement, hold).await
}

pub async fn slow_down(stage: &Stage, hold: Duration) -> Result<()> {
    set_weather(stage, "5 s").await?;
    sleep(hold).await;
    set_weather(stage, "0").await
}

async fn set_weather(stage: &Stage, takes: &str) -> Result<()> {
    sqlx::query("update shop.weather set refund_takes = $1::text::interval")
        .bind(takes)
        .execute(stage.pool())
        .await?;
    Ok(())
}

/// Schedules a parcel that kills its consumer, and waits until it is dead.
pub async fn poison(stage: &Stage, archive: &Archive) -> Result<()> {
    let id = archive.next_poison();
    let payload = serde_json::to_string(&Label { flaw: Flaw::Abort })?;
    let asked_at = clock::now();
    let (receipt, due_at): (String, i64) =
        sqlx::query_as(include_str!("../../sql/nemesis/poison.sql"))
            .bind(id)
            .bind(payload)
            .fetch_one(stage.pool())
            .await?;
    archive.note_call(Call {
        kind: parcels::KIND.to_owned(),
        key: id.to_string(),
        who: "nemesis".to_owned(),
        wish: "schedule",
        asked_at,
        told_at: clock::now(),
        told: Told::Receipt(receipt, Some(dueline_core::Micros(due_at))),
    });
    wait::until("the task that kills its consumer to be dead", POISON_PATIENCE, async || {
        let state =
            sqlx::query_scalar("select state from dueline.task where kind = $1 and key = $2")
                .bind(parcels::KIND)
                .bind(id.to_string())
                .fetch_optional(stage.pool())
                .await;
        // The database may be the victim of another fault.
        let state: Option<String> = state.unwrap_or_default();
        Ok(state.is_some_and(|state| state != "live"))
    })
    .await
}
