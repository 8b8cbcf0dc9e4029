//! H12, H13, V8: the broker, the consumers or the database are away for a while, and no task pays.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_tests::testkit::checker;
use dueline_tests::testkit::services::{Kafka, Postgres};
use dueline_tests::testkit::wait;
use dueline_tests::{Bench, KIND, PATIENCE, Shop, ShopBuilder, shared_brokers};
use tokio::time::MissedTickBehavior;

use super::job_support::{
    CLOSE_AND_NOTE, LEDGER, assert_nobody_paid, await_rest, judge, places, short_leases,
};

/// How long the broker is away: far longer than a delivery may take, so that both fates of a message occur.
const OUTAGE: Duration = Duration::from_secs(120);
/// How long the backlog may take after that: clients reconnect with pauses of up to ten seconds.
const DRAIN: Duration = Duration::from_secs(90);
/// Tasks of one step of the load, and the time between two.
const STEP: i64 = 20;
const PACE: Duration = Duration::from_millis(200);

/// Orders that keep coming in.
struct Load {
    next: i64,
}

impl Load {
    /// Places orders, each due within a second, for so long.
    async fn run(&mut self, shop: &Shop, time: Duration) -> Result<()> {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            pace.tick().await;
            self.step(shop).await?;
        }
        Ok(())
    }

    async fn step(&mut self, shop: &Shop) -> Result<()> {
        let ids = self.next..=self.next + STEP - 1;
        shop.orders(ids.clone()).await?;
        ensure!(shop.schedule(KIND, ids, Duration::from_millis(700)).await? == STEP);
        self.next += STEP;
        Ok(())
    }

    fn count(&self) -> i64 {
        self.next - 1
    }
}

fn job(builder: ShopBuilder) -> ShopBuilder {
    builder.kind(KIND, CLOSE_AND_NOTE)
}

/// Everything that was scheduled is done once, nothing was charged, the invariants hold.
async fn assert_all_done(shop: &Shop, load: &Load) -> Result<()> {
    await_rest(shop, DRAIN).await?;
    assert_eq!(shop.count("done").await?, load.count());
    assert_nobody_paid(shop).await?;
    judge(shop, Vec::new(), &[]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h13_v8_the_broker_is_down_for_a_while() -> Result<()> {
    let mut kafka = tokio::task::spawn_blocking(Kafka::start).await??;
    let builder = Shop::build_on(Bench::new().await?, &kafka.bootstrap()).sql(LEDGER).await?;
    let shop = job(builder).start().await?;
    let mut load = Load { next: 1 };
    load.run(&shop, Duration::from_secs(3)).await?;
    let mut kafka = tokio::task::spawn_blocking(move || {
        kafka.stop();
        kafka
    })
    .await?;
    load.run(&shop, OUTAGE).await?;
    assert_nobody_paid(&shop).await?;
    let _kafka = tokio::task::spawn_blocking(move || kafka.start_again().map(|()| kafka)).await??;
    load.run(&shop, Duration::from_secs(3)).await?;
    assert_all_done(&shop, &load).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h12_consumers_are_down_and_the_topic_is_not_flooded() -> Result<()> {
    let builder = short_leases(Shop::build().await?.sql(LEDGER).await?);
    let mut shop = job(builder).start().await?;
    let mut load = Load { next: 1 };
    // Every partition gets a committed offset: what says later that its messages still wait.
    load.run(&shop, Duration::from_secs(2)).await?;
    await_rest(&shop, PATIENCE).await?;
    shop.consumer().stop();

    load.run(&shop, Duration::from_secs(5)).await?;
    let extensions = "select coalesce(min(extensions), 0)::bigint from dueline.due";
    wait::until("every lease to have ended at least twice", DRAIN, async || {
        Ok(sqlx::query_scalar::<_, i64>(extensions).fetch_one(&shop.pool).await? >= 2)
    })
    .await?;
    let waiting: i64 =
        sqlx::query_scalar("select count(*) from dueline.due").fetch_one(&shop.pool).await?;
    let lag = checker::lag(&places(&shop)?).await?;
    assert!(lag * 10 <= waiting * 12, "{lag} messages wait for {waiting} tasks");

    shop.start_consumer().await?;
    await_rest(&shop, DRAIN).await?;
    let evidence = checker::gather(&shop.pool, &places(&shop)?).await?;
    let (messages, tasks) = (evidence.published.len(), evidence.tasks.len());
    assert!(messages * 10 <= tasks * 12, "{messages} messages for {tasks} tasks");
    assert_all_done(&shop, &load).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v8_the_database_crashes_once() -> Result<()> {
    let mut postgres = tokio::task::spawn_blocking(Postgres::start).await??;
    let bench = Bench::in_cluster(&postgres.url()).await?;
    let builder = Shop::build_on(bench, &shared_brokers()?).sql(LEDGER).await?;
    let shop = job(builder).start().await?;
    let mut load = Load { next: 1 };
    load.run(&shop, Duration::from_secs(3)).await?;
    let _postgres = tokio::task::spawn_blocking(move || {
        postgres.kill();
        postgres.start_again().map(|()| postgres)
    })
    .await??;
    wait::until("the database to answer again", PATIENCE, async || {
        Ok(sqlx::query("select 1").execute(&shop.pool).await.is_ok())
    })
    .await?;
    load.run(&shop, Duration::from_secs(3)).await?;
    assert_all_done(&shop, &load).await
}
