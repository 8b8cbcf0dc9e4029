//! Several relays: fair shares, no task twice, takeover after SIGKILL, hand-over at a clean stop.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dueline_store::relay as store;
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, Shop};

use super::relay_support::{await_published, await_shares, copies};

/// A shop whose claims keep their leases for as long as a test runs.
async fn shop() -> Result<Shop> {
    Shop::build().await?.set("relay.lease", "60s").without_consumer().start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_share_the_lanes_and_publish_no_task_twice() -> Result<()> {
    let mut shop = shop().await?;
    await_shares(&shop, &[4], PATIENCE).await?;
    shop.start_relay().await?;
    await_shares(&shop, &[2, 2], PATIENCE).await?;
    for wave in 0..10 {
        let first = wave * 500 + 1;
        shop.schedule(KIND, first..=first + 499, Duration::from_millis(150 * wave as u64)).await?;
    }
    await_published(&shop, 5_000, PATIENCE).await?;
    let twice = copies(&shop).await?.values().filter(|copies| **copies > 1).count();
    ensure!(twice == 0, "{twice} tasks were published twice");
    // The second leaves, and the first has everything again.
    let status = shop.relays[1].stop().context("it ended")?;
    ensure!(status.success(), "{status}");
    await_shares(&shop, &[4], PATIENCE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h06_a_killed_relay_is_replaced_within_seconds_and_nothing_is_lost() -> Result<()> {
    let mut shop = shop().await?;
    shop.start_relay().await?;
    await_shares(&shop, &[2, 2], PATIENCE).await?;
    shop.schedule(KIND, 1..=4_000, Duration::from_millis(500)).await?;
    wait::until("some tasks to be claimed", PATIENCE, async || {
        let claimed = "select exists (select from dueline.due where lease_until is not null)";
        Ok(sqlx::query_scalar(claimed).fetch_one(&shop.pool).await?)
    })
    .await?;
    shop.relay().kill();
    let killed = Instant::now();
    await_shares(&shop, &[4], PATIENCE).await?;
    await_published(&shop, 4_000, PATIENCE).await?;
    let took = killed.elapsed();
    ensure!(took < Duration::from_secs(20), "a lease is 60 s, and this took {took:?}");
    Ok(())
}

/// H6: killed between claim and produce. The dead relay is played by the test: it registers, takes
/// the lanes, claims, and is never heard of again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h06_what_was_claimed_and_never_produced_is_published_by_the_successor() -> Result<()> {
    let builder = Shop::build().await?.set("relay.lease", "60s");
    let mut shop = builder.without_relay().without_consumer().start().await?;
    shop.schedule(KIND, 1..=100, Duration::ZERO).await?;
    let epoch = store::register(&shop.pool, "doomed", "0").await?;
    let lanes: Vec<i32> = store::lanes(&shop.pool).await?.iter().map(|l| l.lane).collect();
    ensure!(store::take_free(&shop.pool, epoch, &lanes, 100).await?.len() == lanes.len());
    let cursors: Vec<store::Cursor> = lanes
        .iter()
        .map(|lane| store::Cursor { lane: *lane, at: store::BEGINNING, id: 0 })
        .collect();
    let end = dueline_core::Micros(i64::MAX);
    let lease = Duration::from_secs(60);
    let round = store::claim(&shop.pool, epoch, &cursors, 1_000, lease, end).await?;
    ensure!(round.claimed.len() == 100);
    shop.start_relay().await?;
    await_published(&shop, 100, PATIENCE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h32_a_clean_stop_leaves_nothing_unconfirmed_and_hands_the_lanes_over() -> Result<()> {
    let mut shop = shop().await?;
    shop.schedule(KIND, 1..=20_000, Duration::ZERO).await?;
    wait::until("a part to be claimed", PATIENCE, async || {
        let claimed = "select count(*) from dueline.due where lease_until is not null";
        Ok(sqlx::query_scalar::<_, i64>(claimed).fetch_one(&shop.pool).await? > 1_000)
    })
    .await?;
    let status = shop.relay().stop().context("it ended")?;
    ensure!(status.success(), "{status}");
    let unconfirmed = "
        select count(*) from dueline.due d join dueline.relay r on r.epoch = d.claim_epoch
        where d.claimed_at > r.confirmed_upto or d.id = any (r.exceptions)";
    let unconfirmed: i64 = sqlx::query_scalar(unconfirmed).fetch_one(&shop.pool).await?;
    ensure!(unconfirmed == 0, "{unconfirmed} alarms are claimed and not confirmed");
    let leased = "select array_agg(id) from dueline.due where lease_until is not null";
    let leased: Vec<i64> = sqlx::query_scalar(leased).fetch_one(&shop.pool).await?;
    let copies = copies(&shop).await?;
    ensure!(leased.iter().all(|id| copies.contains_key(id)), "a leased alarm has no message");
    shop.start_relay().await?;
    await_published(&shop, 20_000, PATIENCE * 2).await?;
    let twice = super::relay_support::copies(&shop).await?.values().filter(|n| **n > 1).count();
    ensure!(twice == 0, "{twice} tasks were published twice");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h08_a_relay_that_was_paused_comes_back_as_another_one() -> Result<()> {
    let mut shop = shop().await?;
    shop.start_relay().await?;
    await_shares(&shop, &[2, 2], PATIENCE).await?;
    shop.relay().pause();
    await_shares(&shop, &[4], PATIENCE).await?;
    shop.schedule(KIND, 1..=500, Duration::ZERO).await?;
    await_published(&shop, 500, PATIENCE).await?;
    shop.relay().resume();
    await_shares(&shop, &[2, 2], PATIENCE).await?;
    ensure!(copies(&shop).await?.values().all(|copies| *copies == 1));
    Ok(())
}
