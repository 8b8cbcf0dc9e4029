//! Whose fault an error is, with a real broker and a consumer process of its own.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dueline_core::letter::Reason;
use dueline_tests::testkit::wait;
use dueline_tests::{CLOSE_ORDER, KIND, PATIENCE, Shop};
use sqlx::Connection as _;

use super::consumer_support::{number, readiness, schedule_with, with_rust_handler};
use super::relay_support::{await_published, letters};

const AT_ONCE: Duration = Duration::ZERO;

/// Closes orders; order 500 breaks a rule, order 3 is asked for at a bad moment.
const POISONED: &str = "
update orders
   set status = 'closed', closed_at = clock_timestamp(),
       times = orders.times + 1 / (case when orders.id = 500 then 0 else 1 end)
  from batch
 where orders.id = batch.key::bigint and orders.status = 'unpaid'
returning batch.ord";

#[tokio::test]
async fn h31_one_poison_row_in_a_batch_of_a_thousand_dies_alone() -> Result<()> {
    let builder = Shop::build().await?.kind(KIND, POISONED).without_consumer();
    let mut shop = builder.set("relay.lease", "30s").start().await?;
    shop.orders(1..=1_000).await?;
    shop.schedule(KIND, 1..=1_000, AT_ONCE).await?;
    await_published(&shop, 1_000, PATIENCE).await?;
    shop.start_consumer().await?;
    shop.await_count("done", 999, PATIENCE * 2).await?;
    let dead = shop.await_state(KIND, 500, "dead", PATIENCE).await?;
    assert_eq!(dead.attempt, 1);
    assert!(dead.last_error.context("an error")?.contains("division by zero"));
    assert_eq!(number(&shop, "select count(*) from dueline.task where attempt > 0").await?, 1);
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 999);
    lettered(&shop, 1).await?;
    let letters = letters(&shop).await?;
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    let task = letter.task.as_ref().context("it tells of a row")?;
    assert_eq!((letter.reason, task.key.as_str(), task.attempts), (Reason::Permanent, "500", 1));
    assert_eq!((task.task_id, task.generation), (dead.id, dead.generation));
    Ok(())
}

/// Waits until so many deaths have their letter.
async fn lettered(shop: &Shop, deaths: i64) -> Result<()> {
    let query = "select count(*) from dueline.stranded where lettered_at is not null";
    wait::until("the letters", PATIENCE, async || Ok(number(shop, query).await? == deaths)).await
}

#[tokio::test]
async fn d01_a_transient_failure_is_retried_on_the_row_and_dies_exhausted() -> Result<()> {
    let raise = "create function not_now(id bigint) returns integer language plpgsql as $$
        begin if id = 3 then raise exception 'gateway timeout'; end if; return 1; end $$";
    let statement = CLOSE_ORDER.replace("orders.times + 1", "orders.times + not_now(orders.id)");
    let builder = Shop::build().await?.sql(raise).await?.kind(KIND, &statement);
    let builder = builder.set("kinds.close_order.backoff", ["100ms", "200ms", "300ms"]);
    let shop = builder.start().await?;
    shop.orders(1..=50).await?;
    shop.schedule(KIND, 1..=50, AT_ONCE).await?;
    let dead = shop.await_state(KIND, 3, "dead", PATIENCE).await?;
    assert_eq!(dead.attempt, 4);
    shop.await_count("done", 49, PATIENCE).await?;
    let history = "select jsonb_array_length(history)::bigint from dueline.stranded where reason = 'exhausted'";
    assert_eq!(number(&shop, history).await?, 4);
    assert_eq!(number(&shop, "select count(*) from dueline.task where attempt > 0").await?, 1);
    lettered(&shop, 1).await?;
    assert_eq!(letters(&shop).await?[0].reason, Reason::Exhausted);
    Ok(())
}

#[tokio::test]
async fn d02_verdicts_of_a_rust_handler_charge_the_task_alone() -> Result<()> {
    let builder = with_rust_handler(Shop::build().await?);
    let shop =
        builder.set("kinds.close_order.backoff", ["100ms", "100ms", "100ms"]).start().await?;
    shop.orders(1..=40).await?;
    shop.pay(7).await?;
    for id in 1..=40 {
        let payload = match id {
            5 => r#"{"fail": "permanent"}"#,
            6 => r#"{"fail": "transient"}"#,
            _ => "{}",
        };
        schedule_with(&shop, id, payload).await?;
    }
    let permanent = shop.await_state(KIND, 5, "dead", PATIENCE).await?;
    let exhausted = shop.await_state(KIND, 6, "dead", PATIENCE).await?;
    assert_eq!((permanent.attempt, exhausted.attempt), (1, 4));
    shop.await_count("done", 37, PATIENCE).await?;
    assert_eq!(shop.count("skipped").await?, 1);
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 37);
    Ok(())
}

#[tokio::test]
async fn h33_a_locked_business_table_costs_no_task_an_attempt() -> Result<()> {
    let mut shop = Shop::build().await?.set("consumer.environment_pause_max", "1s").start().await?;
    shop.orders(1..=3_000).await?;
    let mut connection = shop.connect().await?;
    let mut tx = connection.begin().await?;
    sqlx::query("alter table orders add column note text").execute(&mut *tx).await?;
    let end = Instant::now() + Duration::from_secs(10);
    let mut next = 1;
    while Instant::now() < end && next <= 3_000 {
        shop.schedule(KIND, next..=next + 99, AT_ONCE).await?;
        next += 100;
        let said_so = readiness(shop.consumer()).await?.contains("environment");
        ensure!(said_so, "the component is shown");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    wait::until("the consumer to say that it waits", PATIENCE, async || {
        Ok(readiness(shop.consumer()).await?.contains("lock timeout"))
    })
    .await?;
    assert_eq!(shop.count("done").await?, 0);
    tx.commit().await?;
    shop.schedule(KIND, 1..=3_000, AT_ONCE).await?;
    shop.await_count("done", 3_000, PATIENCE * 2).await?;
    assert_eq!(number(&shop, "select count(*) from dueline.task where attempt > 0").await?, 0);
    assert_eq!(number(&shop, "select count(*) from dueline.stranded").await?, 0);
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 3_000);
    wait::until("the consumer to be ready again", PATIENCE, async || {
        Ok(shop.consumer().get("/readyz").await?.0 == 200)
    })
    .await
}

#[tokio::test]
async fn h33_a_consumer_that_starts_while_a_table_is_locked_waits_for_it() -> Result<()> {
    let shop = Shop::build().await?.without_consumer().start().await?;
    shop.orders(1..=20).await?;
    let mut connection = shop.connect().await?;
    let mut tx = connection.begin().await?;
    sqlx::query("alter table orders add column note text").execute(&mut *tx).await?;
    let mut consumer = shop.program("dueline-consumer", "waits")?.start()?;
    wait::until("the consumer to say what it waits for", PATIENCE, async || {
        ensure!(consumer.ended().is_none(), "it ended: {}", consumer.log_tail());
        Ok(readiness(&mut consumer).await?.contains("lock timeout"))
    })
    .await?;
    tx.commit().await?;
    consumer.ready().await?;
    shop.schedule(KIND, 1..=20, AT_ONCE).await?;
    shop.await_count("done", 20, PATIENCE).await
}

#[tokio::test]
async fn h39_a_handler_with_a_wrong_ord_stops_and_loses_nothing() -> Result<()> {
    let wrong = CLOSE_ORDER.replace("returning batch.ord", "returning batch.ord + 1000");
    let mut shop = Shop::build().await?.kind(KIND, &wrong).start().await?;
    shop.orders(1..=20).await?;
    shop.schedule(KIND, 1..=20, AT_ONCE).await?;
    wait::until("the handler to be stopped", PATIENCE, async || {
        let (status, text) = shop.consumer().get("/readyz").await?;
        Ok(status == 503 && text.contains("handlers: close_order") && text.contains("ord"))
    })
    .await?;
    assert_eq!((shop.count("live").await?, shop.count_orders("unpaid").await?), (20, 20));
    assert_eq!(number(&shop, "select count(*) from dueline.task where attempt > 0").await?, 0);
    shop.settings.sql_kind(KIND, dueline_tests::QUEUE, CLOSE_ORDER);
    shop.settings.write(shop.config())?;
    assert_eq!(shop.consumer().stop().and_then(|status| status.code()), Some(0));
    shop.start_consumer().await?;
    shop.await_count("done", 20, PATIENCE).await
}

#[tokio::test]
async fn h39_a_wrong_statement_keeps_the_consumer_from_starting_and_says_what_to_do() -> Result<()>
{
    let wrong = "update orders set status = 'closed'";
    let builder = Shop::build().await?.kind(KIND, wrong);
    let shop = builder.without_relay().without_consumer().start().await?;
    let mut consumer = shop.program("dueline-consumer", "wrong")?.start()?;
    let status = consumer.wait(PATIENCE).await?;
    assert_eq!(status.code(), Some(78));
    let output = consumer.output()?;
    assert!(output.contains("kinds.close_order.sql") && output.contains("returning"), "{output}");
    Ok(())
}

/// Closes, and then lingers with the rows in its hand.
const LINGERING: &str = "
with closed as (
    update orders set status = 'closed', closed_at = clock_timestamp(), times = orders.times + 1
      from batch
     where orders.id = batch.key::bigint and orders.status = 'unpaid'
    returning batch.ord)
select ord from closed, lateral (select pg_sleep(1) where ord > 0) as nap";

/// The server runs a batch of statements by itself: whoever waits for a row of it waits for nobody outside.
#[tokio::test]
async fn h34_a_stopped_consumer_holds_up_a_payer_no_longer_than_its_statement() -> Result<()> {
    let builder = Shop::build().await?.kind(KIND, LINGERING);
    let mut shop = builder.set("consumer.handler_timeout", "1500ms").start().await?;
    shop.orders(1..=1).await?;
    shop.schedule(KIND, 1..=1, AT_ONCE).await?;
    let lingers = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'
                   and application_name = 'dueline-consumer' and state = 'active'
                   and datname = current_database()";
    wait::until("the effect", PATIENCE, async || Ok(number(&shop, lingers).await? > 0)).await?;
    shop.consumer().pause();
    let began = Instant::now();
    assert!(!shop.pay(1).await?, "it was closed first");
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(6), "the payer waited {waited:?}");
    shop.await_state(KIND, 1, "done", PATIENCE).await?;
    shop.consumer().resume();
    assert_eq!((shop.count_orders("paid").await?, shop.count_orders("closed").await?), (0, 1));
    Ok(())
}
