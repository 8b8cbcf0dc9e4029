//! H5: the database's own clock is set ten minutes ahead and behind while everything runs.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueline_kafka::{Admin, testing};
use dueline_tests::testkit::faketime::MovableClock;
use dueline_tests::testkit::services::{Postgres, PostgresOptions};
use dueline_tests::testkit::wait;
use dueline_tests::{Bench, KIND, PATIENCE, QUEUE, Shop, not_tested, shared_brokers};

use super::job_support::{CLOSE_AND_NOTE, LEDGER, assert_nobody_paid, await_rest, judge, places};

/// How far the clock is moved, in seconds.
const JUMP: i64 = 600;
/// By how much the relay lets a clock jump at all.
const TOLERANCE: Duration = Duration::from_secs(5);
/// A deadline that comes, in truth, while the clock is doubted.
const SOON: Duration = Duration::from_secs(8);
/// A deadline that only the jump makes due.
const FAR: Duration = Duration::from_secs(300);
/// The relay's doubt lasts half a minute; then comes the work.
const BELIEF: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h05_the_databases_clock_jumps_ahead_and_back() -> Result<()> {
    let Some(clock) = MovableClock::new()? else {
        not_tested("H5", "libfaketime is missing (Debian's package `faketime`)");
        return Ok(());
    };
    let environment = clock.environment();
    let start = || Postgres::start_with(PostgresOptions { environment, ..Default::default() });
    let postgres = tokio::task::spawn_blocking(start).await??;
    let bench = Bench::in_cluster(&postgres.url()).await?;
    let builder = Shop::build_on(bench, &shared_brokers()?).sql(LEDGER).await?;
    let mut shop = builder.kind(KIND, CLOSE_AND_NOTE).start().await?;
    shop.orders(1..=60).await?;
    shop.schedule(KIND, 1..=10, Duration::ZERO).await?;
    shop.await_count("done", 10, PATIENCE).await?;

    ahead_and_taken_back(&mut shop, &clock).await?;
    behind(&mut shop, &clock).await?;

    // Ahead for good: there is no other clock, so it is believed in the end.
    clock.set_ahead(JUMP)?;
    await_clock(&mut shop, false).await?;
    ensure!(claims(&shop, 21, 30).await? == 0, "published by a clock that is doubted");
    shop.await_count("done", 60, BELIEF).await?;
    await_clock(&mut shop, true).await?;
    ensure!(jumps(&mut shop, "ahead").await? == 1.0);
    await_rest(&shop, PATIENCE).await?;
    assert_nobody_paid(&shop).await?;
    judge(&shop, Vec::new(), &[]).await?;
    Ok(())
}

/// What the jump alone made due is not published, what is due in truth is; an alarm goes out.
async fn ahead_and_taken_back(shop: &mut Shop, clock: &MovableClock) -> Result<()> {
    let asked = Instant::now();
    shop.schedule(KIND, 11..=20, SOON).await?;
    shop.schedule(KIND, 21..=30, FAR).await?;
    clock.set_ahead(JUMP)?;
    await_clock(shop, false).await?;
    shop.await_count("done", 20, PATIENCE).await?;
    let after = asked.elapsed();
    ensure!(after >= SOON - TOLERANCE, "done after {after:?}, asked for after {SOON:?}");
    ensure!(claims(shop, 21, 30).await? == 0, "published by a clock that is doubted");
    clock.set_ahead(0)?;
    await_clock(shop, true).await?;
    ensure!(claims(shop, 21, 30).await? == 0, "published by a clock that was wrong");
    ensure!(jumps(shop, "ahead").await? == 0.0, "it was believed");
    Ok(())
}

/// A lease that stands far in the future is ended, and new deadlines count by the new clock.
async fn behind(shop: &mut Shop, clock: &MovableClock) -> Result<()> {
    shop.consumer().stop();
    // Waiting for longer than the clock will go back, so that they are due before and after.
    let overdue = "
        with scheduled as (
            select s.receipt from dueline.schedule_many($1,
                array(select id::text from generate_series(31, 40) as id),
                delays => array[interval '0']) as s)
        select count(*) from scheduled";
    let mut transaction = shop.pool.begin().await?;
    let new: i64 = sqlx::query_scalar(overdue).bind(KIND).fetch_one(&mut *transaction).await?;
    ensure!(new == 10);
    sqlx::raw_sql(
        "update dueline.task set due_at = due_at - interval '15 minutes' where state = 'live'
            and key::bigint between 31 and 40;
         update dueline.due set next_at = next_at - interval '15 minutes' where id in (
            select id from dueline.task where key::bigint between 31 and 40)",
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    wait::until("all to be published", PATIENCE, async || Ok(claims(shop, 31, 40).await? == 10))
        .await?;
    wait::until("their messages to be lost", PATIENCE, async || lose_messages(shop).await).await?;

    clock.set_ahead(-JUMP)?;
    shop.start_consumer().await?;
    // At once, though the leases that were written before end in ten minutes only.
    shop.await_count("done", 30, PATIENCE).await?;
    shop.schedule(KIND, 41..=60, Duration::from_secs(1)).await?;
    shop.await_count("done", 50, PATIENCE).await?;
    ensure!(jumps(shop, "back").await? == 1.0);
    ensure!(claims(shop, 21, 30).await? == 0);
    Ok(())
}

/// Deletes every record of the fast tier; whether there were as many as are leased.
async fn lose_messages(shop: &Shop) -> Result<bool> {
    let admin = Admin::new(&places(shop)?.kafka, Duration::from_secs(10))?;
    let topic = shop.settings.config()?.queues[QUEUE].topic("fast");
    let mut records = 0;
    for (partition, ends) in (0..).zip(admin.watermarks(&topic).await?) {
        records += ends.high;
        if ends.high > ends.low {
            testing::delete_records(&admin, &topic, partition, ends.high).await?;
        }
    }
    // Those of the tasks that are done, and the ten.
    Ok(records >= 30)
}

/// Waits until the relay's health says that the clock is right, or that it jumped ahead.
async fn await_clock(shop: &mut Shop, right: bool) -> Result<()> {
    let what = format!("the relay to find its database's clock right: {right}");
    wait::until(&what, BELIEF, async || {
        let (status, text) = shop.relay().get("/readyz").await?;
        let doubted = text.contains("clock jumped ahead");
        ensure!(!doubted || status == 503, "doubt is no alarm: {status} {text}");
        Ok(doubted != right)
    })
    .await
}

/// Jumps in this direction that the relay counted.
async fn jumps(shop: &mut Shop, direction: &str) -> Result<f64> {
    shop.relay().metric("dueline_relay_clock_jumps_total", direction).await
}

/// How often these tasks were claimed; those that are done are not counted.
async fn claims(shop: &Shop, first: i64, last: i64) -> Result<i64> {
    let claims = "
        select coalesce(sum(d.claim_no), 0)::bigint from dueline.due as d join dueline.task as t using (id)
         where t.key::bigint between $1 and $2";
    Ok(sqlx::query_scalar(claims).bind(first).bind(last).fetch_one(&shop.pool).await?)
}
