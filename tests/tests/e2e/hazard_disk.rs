//! H23: the disk of the tables is full for a while.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_tests::testkit::disk::SmallDisk;
use dueline_tests::testkit::services::Postgres;
use dueline_tests::testkit::wait;
use dueline_tests::{Bench, KIND, PATIENCE, Shop, not_tested, shared_brokers};
use sqlx::AssertSqlSafe;

use super::job_support::{
    CLOSE_AND_NOTE, LEDGER, assert_nobody_paid, await_rest, judge, short_leases,
};

const DISK_MIB: u32 = 48;
/// Tasks, far more than fit into what room their pages have left.
const TASKS: i64 = 4_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h23_a_full_disk_stops_the_claims_and_nobody_pays() -> Result<()> {
    let disk = match SmallDisk::mount(DISK_MIB) {
        Ok(disk) => disk,
        Err(error) => {
            not_tested("H23", &format!("{error:#}"));
            return Ok(());
        }
    };
    let postgres = tokio::task::spawn_blocking(Postgres::start).await??;
    let bench = Bench::in_cluster(&postgres.url()).await?;
    let builder = short_leases(Shop::build_on(bench, &shared_brokers()?)).sql(LEDGER).await?;
    let mut shop = builder.kind(KIND, CLOSE_AND_NOTE).without_relay().start().await?;
    move_tables(&shop, &postgres, &disk).await?;
    shop.orders(1..=TASKS).await?;
    shop.schedule(KIND, 1..=TASKS, Duration::ZERO).await?;

    disk.fill()?;
    // A start, too, is possible: the disk may be full before.
    let program = shop.program("dueline-relay", "relay1")?;
    shop.relays.push(program.start()?);
    let red = wait::until("the relay's health to be red", PATIENCE, async || {
        let (status, text) = shop.relay().get("/readyz").await?;
        Ok(status == 503 && text.contains("No space left on device"))
    });
    let red = red.await;
    red.with_context(|| shop.relays[0].log_tail())?;
    let done = shop.count("done").await?;
    ensure!(done < TASKS / 2, "{done} tasks found room");
    assert_nobody_paid(&shop).await?;

    disk.free()?;
    await_rest(&shop, PATIENCE).await?;
    assert_eq!(shop.count("done").await?, TASKS);
    assert_nobody_paid(&shop).await?;
    shop.relay().ready().await?;
    shop.consumer().ready().await?;
    judge(&shop, Vec::new(), &[]).await?;
    Ok(())
}

/// Moves all tables and indexes to the small disk. Their pages are filled to the end, as after a long
/// life: each new version of a row needs a new page.
async fn move_tables(shop: &Shop, postgres: &Postgres, disk: &SmallDisk) -> Result<()> {
    let folder = disk.path().join("tables");
    std::fs::create_dir(&folder)?;
    postgres.give(&folder)?;
    let create = format!("create tablespace small location '{}'", folder.display());
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&shop.pool).await?;
    sqlx::raw_sql(
        "alter table all in tablespace pg_default set tablespace small;
         alter index all in tablespace pg_default set tablespace small;
         alter table dueline.task set (fillfactor = 100);
         alter table dueline.due set (fillfactor = 100)",
    )
    .execute(&shop.pool)
    .await?;
    Ok(())
}
