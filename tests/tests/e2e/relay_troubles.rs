//! The broker away, the consumers away, tasks that are too old, a start against the wrong things.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_core::letter::Reason;
use dueline_tests::testkit::services::{Kafka, KafkaOptions, Postgres};
use dueline_tests::testkit::wait;
use dueline_tests::{Bench, KIND, PATIENCE, Shop, shared_brokers};

use super::relay_support::{await_published, copies, letters};

/// How long the broker is away.
const OUTAGE: Duration = Duration::from_secs(15);

/// H13: publishing counts nothing, so a broker outage kills no task and costs no attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h13_a_broker_outage_kills_no_task_and_loses_none() -> Result<()> {
    let options = KafkaOptions { heap_mib: 512, ..KafkaOptions::default() };
    let mut kafka = Kafka::start_with(options)?;
    let builder = Shop::build_on(Bench::new().await?, &kafka.bootstrap());
    let mut shop = builder.start().await?;
    shop.orders(1..=1_500).await?;
    shop.schedule(KIND, 1..=500, Duration::ZERO).await?;
    shop.await_count("done", 500, PATIENCE).await?;
    kafka.kill();
    shop.schedule(KIND, 501..=1_000, Duration::ZERO).await?;
    shop.schedule(KIND, 1_001..=1_500, OUTAGE / 2).await?;
    let began = std::time::Instant::now();
    wait::until("readiness to be red", OUTAGE, async || {
        Ok(shop.relay().get("/readyz").await?.0 == 503)
    })
    .await?;
    // The outage itself is what is tested; it has to last.
    tokio::time::sleep(OUTAGE.saturating_sub(began.elapsed())).await;
    ensure!(shop.count("dead").await? == 0);
    kafka.restart()?;
    shop.await_count("done", 1_500, PATIENCE * 2).await?;
    let charged = "select count(*) from dueline.task where attempt > 0 or state <> 'done'";
    let charged: i64 = sqlx::query_scalar(charged).fetch_one(&shop.pool).await?;
    ensure!(charged == 0, "{charged} tasks were charged for the outage");
    Ok(())
}

/// A database that goes away is waited for: red while it lasts, no end of the process, nothing
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h21_the_relay_waits_for_its_database_and_goes_on() -> Result<()> {
    let mut postgres = Postgres::start()?;
    let bench = Bench::in_cluster(&postgres.url()).await?;
    let mut shop = Shop::build_on(bench, &shared_brokers()?).without_consumer().start().await?;
    shop.schedule(KIND, 1..=300, Duration::ZERO).await?;
    shop.schedule(KIND, 301..=600, Duration::from_secs(3)).await?;
    postgres.kill();
    wait::until("readiness to be red", PATIENCE, async || {
        Ok(shop.relay().get("/readyz").await?.0 == 503)
    })
    .await?;
    postgres.start_again()?;
    shop.relay().ready().await?;
    await_published(&shop, 600, PATIENCE).await?;
    ensure!(shop.relay().ended().is_none());
    Ok(())
}

/// H12: while the consumers are away the same tasks are not published again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h12_messages_do_not_pile_up_while_consumers_are_away() -> Result<()> {
    let mut builder = Shop::build().await?;
    let settings = builder.settings();
    settings.set("relay.lease", "3s").set("relay.lease_slack", "500ms");
    settings.set("kafka.delivery_timeout", "2s").set("consumer.handler_timeout", "1s");
    settings.set("postgres.statement_timeout", "2s");
    settings.set("postgres.idle_in_transaction_timeout", "2s");
    let mut shop = builder.start().await?;
    shop.orders(1..=1_000).await?;
    // The group commits an offset in every partition.
    shop.schedule(KIND, 1..=200, Duration::ZERO).await?;
    shop.await_count("done", 200, PATIENCE).await?;
    let status = shop.consumer().stop().context("it ended")?;
    ensure!(status.success(), "{status}");
    shop.schedule(KIND, 201..=1_000, Duration::ZERO).await?;
    await_published(&shop, 1_000, PATIENCE).await?;
    wait::until("each lease to be extended twice", PATIENCE, async || {
        let fresh = "select count(*) from dueline.due where extensions < 2";
        Ok(sqlx::query_scalar::<_, i64>(fresh).fetch_one(&shop.pool).await? == 0)
    })
    .await?;
    let messages: usize = copies(&shop).await?.values().sum();
    ensure!(messages <= 1_200, "{messages} messages for 1,000 tasks");
    let stopped =
        "select coalesce(sum(n), 0)::bigint from dueline.duplicate_stop where layer = 'scan'";
    let stopped: i64 = sqlx::query_scalar(stopped).fetch_one(&shop.pool).await?;
    ensure!(stopped >= 1_600, "the scan stopped {stopped} duplicates");
    shop.start_consumer().await?;
    shop.await_count("done", 1_000, PATIENCE).await
}

/// D5, H15: a task that nobody finishes is parked by its age, and its letter is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d05_a_task_that_is_too_old_is_parked_and_its_letter_written() -> Result<()> {
    let mut builder = Shop::build().await?.without_consumer();
    let settings = builder.settings();
    settings.set("relay.lease", "3s").set("relay.lease_slack", "500ms");
    settings.set("kafka.delivery_timeout", "2s").set("consumer.handler_timeout", "1s");
    settings.set("postgres.statement_timeout", "2s");
    settings.set("postgres.idle_in_transaction_timeout", "2s").set("relay.age_limit", "2s");
    let shop = builder.start().await?;
    shop.schedule(KIND, 1..=20, Duration::ZERO).await?;
    shop.await_count("dead", 20, PATIENCE).await?;
    wait::until("the letters", PATIENCE, async || {
        let missing = "select count(*) from dueline.stranded where lettered_at is null";
        Ok(sqlx::query_scalar::<_, i64>(missing).fetch_one(&shop.pool).await? == 0)
    })
    .await?;
    let letters = letters(&shop).await?;
    ensure!(letters.len() >= 20, "{} letters", letters.len());
    for letter in &letters {
        ensure!(letter.reason == Reason::TooOld);
        let dead = letter.task.as_ref().context("it tells of a row")?;
        ensure!(dead.kind == KIND && dead.generation == 1, "{dead:?}");
    }
    Ok(())
}

/// A fresh start with wrong surroundings says what to do, and its exit code says that waiting is no
/// use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_against_topics_that_are_not_there_says_what_to_do() -> Result<()> {
    let mut shop = Shop::build().await?.without_relay().without_consumer().start().await?;
    let program = shop.program("dueline-relay", "wrong")?;
    let mut wrong = program.args(["--set", "kafka.topic_prefix=nowhere"]).start()?;
    let status = wrong.wait(PATIENCE).await?;
    ensure!(status.code() == Some(78), "{status}\n{}", wrong.log_tail());
    let output = wrong.output()?;
    ensure!(output.contains("does not exist") && output.contains("dueline apply"), "{output}");
    shop.start_relay().await
}

/// L5: the whole round from cron, when no relay runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l05_one_round_from_the_command_line_publishes_what_is_due() -> Result<()> {
    let shop = Shop::build().await?.without_relay().without_consumer().start().await?;
    shop.schedule(KIND, 1..=300, Duration::ZERO).await?;
    shop.dueline(&["sweep", "--once"]).await?.ok()?;
    await_published(&shop, 300, PATIENCE).await?;
    ensure!(copies(&shop).await?.values().all(|copies| *copies == 1));
    Ok(())
}
