//! H21: the primary dies, and a standby that lagged behind takes its place.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_tests::testkit::checker;
use dueline_tests::testkit::proxy::{Mode, TcpProxy};
use dueline_tests::testkit::services::{Postgres, Standby};
use dueline_tests::testkit::wait;
use dueline_tests::{Bench, KIND, PATIENCE, Shop, shared_brokers};
use sqlx::{Connection as _, PgConnection};

use super::job_support::{
    CLOSE_AND_NOTE, LEDGER, assert_nobody_paid, await_rest, effects, places, short_leases,
};

fn on_loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h21_a_lagging_standby_is_promoted_and_only_what_it_lacked_is_lost() -> Result<()> {
    let primary = tokio::task::spawn_blocking(Postgres::start).await??;
    // Everybody finds the database by the one, the standby its primary by the other.
    let way = TcpProxy::start(on_loopback(primary.port())).await?;
    let replication = TcpProxy::start(on_loopback(primary.port())).await?;
    let bench =
        Bench::in_cluster(&format!("postgres://postgres@{}/postgres", way.address())).await?;
    let builder = short_leases(Shop::build_on(bench, &shared_brokers()?)).sql(LEDGER).await?;
    let mut shop = builder.kind(KIND, CLOSE_AND_NOTE).start().await?;
    let port = replication.address().port();
    let copied = move || Standby::of(&primary, port).map(|standby| (primary, standby));
    let (mut primary, standby) = tokio::task::spawn_blocking(copied).await??;

    shop.orders(1..=60).await?;
    shop.schedule(KIND, 1..=20, Duration::ZERO).await?;
    shop.schedule(KIND, 21..=40, Duration::from_secs(3_600)).await?;
    shop.await_count("done", 20, PATIENCE).await?;
    await_replication(&shop, &standby).await?;
    replication.set(Mode::Refuse);

    lose(&shop).await?;
    tokio::task::spawn_blocking(move || primary.kill()).await?;
    let mut promoted = PgConnection::connect(&standby.url(shop.name())).await?;
    sqlx::query("select pg_promote()").execute(&mut promoted).await?;
    way.lead_to(on_loopback(standby.port()));
    assert_lost(&mut promoted).await?;

    // Nobody starts anything again: relay and consumer find the new primary by themselves.
    wait::until("the database to answer again", PATIENCE, async || {
        Ok(sqlx::query("select 1").execute(&shop.pool).await.is_ok())
    })
    .await?;
    for id in 21..=40 {
        shop.reschedule(KIND, id, Duration::ZERO).await?;
    }
    // The keys that were lost are free again. Their ids may be handed out again before the failover is
    // noticed: what is left in Kafka speaks for nobody else, and for nobody before his time.
    shop.schedule(KIND, 41..=50, Duration::from_secs(1)).await?;
    let last = "select last_value > 1000000 from dueline.task_id_seq";
    wait::until("the ids to be moved on", PATIENCE, async || {
        Ok(sqlx::query_scalar(last).fetch_one(&shop.pool).await?)
    })
    .await?;
    shop.schedule(KIND, 51..=60, Duration::from_secs(1)).await?;
    await_rest(&shop, PATIENCE).await?;
    assert_eq!(shop.count("done").await?, 60);
    assert_nobody_paid(&shop).await?;
    for process in shop.relays.iter_mut().chain(&mut shop.consumers) {
        process.ready().await?;
    }
    judge_survivors(&shop).await
}

/// Work whose commits the primary acknowledges and the standby never hears of.
async fn lose(shop: &Shop) -> Result<()> {
    shop.schedule(KIND, 41..=50, Duration::ZERO).await?;
    for id in 21..=25 {
        shop.reschedule(KIND, id, Duration::ZERO).await?;
    }
    ensure!(shop.cancel(KIND, 26).await? == "cancelled");
    ensure!(shop.pay(27).await?);
    // Their effects happened, and their messages are read and passed.
    shop.await_count("done", 35, PATIENCE).await
}

/// What the new primary lacks is what was done after its last message from the old one, and no more.
async fn assert_lost(promoted: &mut PgConnection) -> Result<()> {
    let states = "
        select t.key::bigint between 1 and 20 as early, t.state, o.status, count(*)
          from dueline.task as t join orders as o on o.id = t.key::bigint
         group by 1, 2, 3 order by 1";
    let states: Vec<(bool, String, String, i64)> =
        sqlx::query_as(states).fetch_all(&mut *promoted).await?;
    let expected = [(false, "live", "unpaid", 20), (true, "done", "closed", 20)];
    let expected =
        expected.map(|(early, state, status, n)| (early, state.into(), status.into(), n));
    ensure!(states == expected, "{states:?}");
    Ok(())
}

/// Waits until the standby has everything that the primary has now.
async fn await_replication(shop: &Shop, standby: &Standby) -> Result<()> {
    let there = "select pg_current_wal_lsn()::text";
    let there: String = sqlx::query_scalar(there).fetch_one(&shop.pool).await?;
    let url = standby.url(shop.name());
    let has = "select pg_last_wal_replay_lsn() >= $1::pg_lsn";
    wait::until("the standby to have caught up", PATIENCE, async || {
        let Ok(mut standby) = PgConnection::connect(&url).await else { return Ok(false) };
        let has: Option<bool> =
            sqlx::query_scalar(has).bind(&there).fetch_one(&mut standby).await?;
        Ok(has == Some(true))
    })
    .await
}

/// V1–V9 over the rows that survived; messages of rows that did not are nobody's.
async fn judge_survivors(shop: &Shop) -> Result<()> {
    let mut evidence = checker::gather(&shop.pool, &places(shop)?).await?;
    evidence.effects = effects(&shop.pool).await?;
    let known: Vec<i64> = evidence.tasks.iter().map(|task| task.id).collect();
    let speaks = |id: i64| known.contains(&id);
    let before = evidence.published.len();
    evidence.published.retain(|p| p.envelope.as_ref().is_some_and(|e| speaks(e.task_id)));
    ensure!(evidence.published.len() < before, "no message outlived its row");
    let findings = checker::judge(&evidence);
    let broken: Vec<_> = findings.iter().filter(|finding| finding.violations > 0).collect();
    ensure!(broken.is_empty(), "invariants are broken: {broken:#?}");
    let newest = "select count(*) from dueline.task where id > 1000000";
    let newest: i64 = sqlx::query_scalar(newest).fetch_one(&shop.pool).await?;
    ensure!(newest == 10, "{newest} of 10 tasks have ids that were never handed out");
    Ok(())
}
