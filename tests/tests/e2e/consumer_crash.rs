//! Consumers that die, stop, come and go.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use dueline_core::Envelope;
use dueline_core::letter::Reason;
use dueline_core::partition::partition_for;
use dueline_kafka::{Admin, KafkaSettings, read_all, testing};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, QUEUE, Shop, ShopBuilder};
use sqlx::Connection as _;

use super::consumer_support::{committed, number, schedule_with, with_rust_handler};
use super::relay_support::{await_published, letters};

const AT_ONCE: Duration = Duration::ZERO;

/// A group that notices a death soon.
async fn quick() -> Result<ShopBuilder> {
    Ok(Shop::build().await?.set("consumer.session_timeout", "2s").set("relay.lease", "30s"))
}

/// V7: what a committed offset has passed is finished.
async fn offsets_passed_only_finished_work(shop: &Shop) -> Result<usize> {
    let config = shop.settings.config()?;
    let settings = KafkaSettings::new(config.kafka.bootstrap_servers());
    let topic = config.queues[QUEUE].topic("fast");
    let offsets = committed(shop).await?;
    let passed: Vec<i64> = tokio::task::spawn_blocking(move || {
        let mut passed = Vec::new();
        read_all(&settings, &topic, PATIENCE, |record| {
            let place = usize::try_from(record.partition).unwrap_or(usize::MAX);
            let next = offsets.get(place).copied().flatten().unwrap_or(0);
            if record.offset < next
                && let Ok(envelope) = Envelope::read(&record)
            {
                passed.push(envelope.task_id);
            }
            ControlFlow::Continue(())
        })?;
        anyhow::Ok(passed)
    })
    .await??;
    let live: Vec<i64> =
        sqlx::query_scalar("select id from dueline.task where id = any($1) and state = 'live'")
            .bind(&passed)
            .fetch_all(&shop.pool)
            .await?;
    ensure!(live.is_empty(), "offsets have passed live tasks: {live:?}");
    Ok(passed.len())
}

#[tokio::test]
async fn h06_killed_between_effect_and_offset_nothing_happens_twice() -> Result<()> {
    // The first consumer never comes to commit an offset.
    let builder = quick().await?.set("consumer.commit_interval", "60s");
    let mut shop = builder.start().await?;
    shop.orders(1..=500).await?;
    shop.schedule(KIND, 1..=500, AT_ONCE).await?;
    shop.await_count("done", 500, PATIENCE).await?;
    shop.consumer().kill();
    assert_eq!(offsets_passed_only_finished_work(&shop).await?, 0);
    shop.settings.set("consumer.commit_interval", "100ms");
    shop.settings.write(shop.config())?;
    shop.start_consumer().await?;
    wait::until("every offset to be passed", PATIENCE, async || {
        Ok(offsets_passed_only_finished_work(&shop).await? >= 500)
    })
    .await?;
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 500);
    let stopped =
        "select coalesce(sum(n), 0)::bigint from dueline.duplicate_stop where layer = 'guard'";
    assert_eq!(number(&shop, stopped).await?, 500);
    Ok(())
}

#[tokio::test]
async fn h10_killed_in_the_middle_of_its_work_a_consumer_has_passed_only_what_is_finished()
-> Result<()> {
    let builder = quick().await?.set("consumer.commit_interval", "10ms");
    let mut shop = builder.set("consumer.batch_max", 20).start().await?;
    shop.orders(1..=3_000).await?;
    shop.schedule(KIND, 1..=3_000, AT_ONCE).await?;
    wait::until("half of the work", PATIENCE, async || Ok(shop.count("done").await? > 1_000))
        .await?;
    shop.consumer().kill();
    offsets_passed_only_finished_work(&shop).await?;
    shop.start_consumer().await?;
    shop.await_count("done", 3_000, PATIENCE * 2).await?;
    offsets_passed_only_finished_work(&shop).await?;
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 3_000);
    Ok(())
}

#[tokio::test]
async fn h13_a_handler_that_kills_its_consumer_is_found_and_its_neighbours_finish() -> Result<()> {
    let builder = with_rust_handler(quick().await?).set("consumer.crash_limit", 2);
    let builder = builder.set("queues.orders.partitions", 1).set("relay.lease", "60s");
    let shop = builder.without_consumer().start().await?;
    shop.orders(1..=40).await?;
    for id in 1..=40 {
        schedule_with(&shop, id, if id == 21 { r#"{"fail": "abort"}"# } else { "{}" }).await?;
    }
    await_published(&shop, 40, PATIENCE).await?;
    let mut deaths = 0;
    while shop.count("live").await? > 0 {
        ensure!(deaths <= 6, "{deaths} deaths, and {} tasks live", shop.count("live").await?);
        let mut consumer =
            shop.program("examples/rust_handler", &format!("try{deaths}"))?.start()?;
        wait::until("an end of the work or of the consumer", PATIENCE * 2, async || {
            Ok(consumer.ended().is_some() || shop.count("live").await? == 0)
        })
        .await
        .with_context(|| consumer.log_tail())?;
        if consumer.ended().is_none() {
            assert_eq!(consumer.stop().and_then(|status| status.code()), Some(0));
            break;
        }
        deaths += 1;
    }
    eprintln!("{deaths} deaths");
    let dead = shop.await_state(KIND, 21, "dead", PATIENCE).await?;
    assert_eq!(dead.attempt, 0, "a crash is no attempt");
    assert_eq!((shop.count("done").await?, shop.count("dead").await?), (39, 1));
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 39);
    let letters = letters(&shop).await?;
    assert_eq!((letters.len(), letters[0].reason), (1, Reason::Crashes));
    assert_eq!(number(&shop, "select count(*) from dueline.consuming").await?, 0, "a clean stop");
    Ok(())
}

/// A consumer that dies between the settle and the offset, again and again, leaves a message that is
/// condemned though its task is finished (found by the campaign, seed 2).
#[tokio::test]
async fn h13_a_condemned_message_whose_task_has_moved_on_holds_up_nobody() -> Result<()> {
    let builder = quick().await?.set("consumer.crash_limit", 2).set("queues.orders.partitions", 1);
    let mut shop = builder.without_consumer().start().await?;
    shop.orders(1..=20).await?;
    shop.schedule(KIND, 1..=20, AT_ONCE).await?;
    await_published(&shop, 20, PATIENCE).await?;
    let first: i64 = first_task(&shop).await?;
    assert_eq!(shop.cancel(KIND, first).await?, "published_will_be_dropped");
    let config = shop.settings.config()?;
    let queue = &config.queues[QUEUE];
    sqlx::query("insert into dueline.consuming values ($1, $2, 0, 0, 2)")
        .bind(&queue.group)
        .bind(queue.topic("fast"))
        .execute(&shop.pool)
        .await?;
    shop.start_consumer().await?;
    shop.await_count("done", 19, PATIENCE).await?;
    assert_eq!(shop.count("cancelled").await?, 1);
    wait::until("every offset to be passed", PATIENCE, async || {
        Ok(committed(&shop).await? == [Some(20)])
    })
    .await
}

/// Two suspects at work at once would share each death, and both be condemned (found by the campaign,
/// seed 2).
#[tokio::test]
async fn h13_a_suspect_of_another_partition_does_not_die_with_the_guilty_one() -> Result<()> {
    let builder = with_rust_handler(quick().await?).set("consumer.crash_limit", 3);
    let builder = builder.set("relay.lease", "60s").set("consumer.environment_pause_max", "500ms");
    let shop = builder.without_consumer().start().await?;
    let config = shop.settings.config()?;
    let queue = &config.queues[QUEUE];
    let (guilty, innocent) = in_different_partitions(queue.partitions);
    shop.orders(guilty..=innocent).await?;
    schedule_with(&shop, guilty, r#"{"fail": "abort"}"#).await?;
    schedule_with(&shop, innocent, "{}").await?;
    await_published(&shop, 2, PATIENCE).await?;
    for partition in 0..queue.partitions {
        sqlx::query("insert into dueline.consuming values ($1, $2, $3, 0, 2)")
            .bind(&queue.group)
            .bind(queue.topic("fast"))
            .bind(partition)
            .execute(&shop.pool)
            .await?;
    }
    // While its row is locked, the innocent one is at work whenever the guilty one strikes.
    let mut payer = shop.connect().await?;
    let mut payment = payer.begin().await?;
    let lock = sqlx::query("select from orders where id = $1 for update").bind(innocent);
    lock.execute(&mut *payment).await?;
    for deaths in 0..=6 {
        let mut consumer =
            shop.program("examples/rust_handler", &format!("try{deaths}"))?.start()?;
        wait::until("an end of the consumer or of the guilty one", PATIENCE * 2, async || {
            let dead = shop.task(KIND, guilty).await?.is_some_and(|task| task.state == "dead");
            Ok(dead || consumer.ended().is_some())
        })
        .await
        .with_context(|| consumer.log_tail())?;
        if consumer.ended().is_some() {
            continue;
        }
        payment.rollback().await?;
        let done = shop.await_state(KIND, innocent, "done", PATIENCE).await;
        done.with_context(|| consumer.log_tail())?;
        assert_eq!(shop.count("dead").await?, 1);
        assert_eq!(consumer.stop().and_then(|status| status.code()), Some(0));
        return Ok(());
    }
    bail!("the guilty one goes on killing");
}

/// Two orders whose messages go to different partitions.
fn in_different_partitions(partitions: i32) -> (i64, i64) {
    let partitions = partitions.unsigned_abs();
    let partition = |id: i64| partition_for(id.to_string().as_bytes(), partitions);
    let other = (2..1_000).find(|id| partition(*id) != partition(1)).expect("there is one");
    (1, other)
}

/// Whose message is the topic's first.
async fn first_task(shop: &Shop) -> Result<i64> {
    let config = shop.settings.config()?;
    let settings = KafkaSettings::new(config.kafka.bootstrap_servers());
    let topic = config.queues[QUEUE].topic("fast");
    let read = move || {
        let mut first = None;
        read_all(&settings, &topic, PATIENCE, |record| {
            first = Envelope::read(&record).ok();
            ControlFlow::Break(())
        })?;
        anyhow::Ok(first)
    };
    let first = tokio::task::spawn_blocking(read).await??.context("a message")?;
    Ok(first.key.parse()?)
}

#[tokio::test]
async fn h32_a_clean_stop_under_load_finishes_what_is_under_way_and_leaves_no_mark() -> Result<()> {
    let mut shop = quick().await?.set("consumer.batch_max", 50).start().await?;
    shop.orders(1..=3_000).await?;
    shop.schedule(KIND, 1..=3_000, AT_ONCE).await?;
    wait::until("some work", PATIENCE, async || Ok(shop.count("done").await? > 200)).await?;
    let status = shop.consumer().stop().context("it ended")?;
    assert_eq!(status.code(), Some(0), "{}", shop.consumer().log_tail());
    let done = shop.count("done").await?;
    assert_eq!(number(&shop, "select count(*) from dueline.consuming").await?, 0);
    let passed = offsets_passed_only_finished_work(&shop).await?;
    assert!(i64::try_from(passed)? >= done, "{passed} passed, {done} done: all of it is committed");
    shop.start_consumer().await?;
    shop.await_count("done", 3_000, PATIENCE * 2).await?;
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 3_000);
    let stopped = "select count(*) from dueline.duplicate_stop where layer in ('guard', 'dedupe')";
    assert_eq!(number(&shop, stopped).await?, 0, "nothing was handed over twice");
    Ok(())
}

#[tokio::test]
async fn h09_consumers_that_come_and_go_handle_everything_once() -> Result<()> {
    let builder = quick().await?.set("queues.orders.partitions", 4);
    let mut shop = builder.set("consumer.batch_max", 50).start().await?;
    shop.orders(1..=6_000).await?;
    shop.schedule(KIND, 1..=2_000, AT_ONCE).await?;
    shop.start_consumer().await?;
    shop.schedule(KIND, 2_001..=4_000, AT_ONCE).await?;
    shop.start_consumer().await?;
    shop.schedule(KIND, 4_001..=6_000, AT_ONCE).await?;
    assert_eq!(shop.consumer().stop().and_then(|status| status.code()), Some(0));
    shop.consumers[1].kill();
    shop.await_count("done", 6_000, PATIENCE * 2).await?;
    offsets_passed_only_finished_work(&shop).await?;
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 6_000);
    let attempts: HashMap<i32, i64> =
        sqlx::query_as("select attempt, count(*) from dueline.task group by attempt")
            .fetch_all(&shop.pool)
            .await?
            .into_iter()
            .collect();
    assert_eq!(attempts, HashMap::from([(0, 6_000)]));
    Ok(())
}

/// A topic that was deleted and made again: the group's offsets are of the old one. Nothing is skipped, the
/// offsets follow the new topic, and a handler that kills its consumer is found there, too (found by the
/// campaign, seed 5).
#[tokio::test]
async fn h11_a_topic_that_was_made_anew_is_read_from_its_start_and_its_offsets_follow() -> Result<()>
{
    let builder = with_rust_handler(quick().await?).set("consumer.crash_limit", 2);
    let builder = builder.set("queues.orders.partitions", 1).set("relay.lease", "10s");
    let mut shop = builder.start().await?;
    shop.orders(1..=260).await?;
    shop.schedule(KIND, 1..=200, AT_ONCE).await?;
    shop.await_count("done", 200, PATIENCE).await?;
    wait::until("all offsets", PATIENCE, async || Ok(committed(&shop).await? == [Some(200)]))
        .await?;

    // Under a running consumer.
    let config = shop.settings.config()?;
    let topic = config.queues[QUEUE].topic("fast");
    let admin = Admin::new(&KafkaSettings::new(config.kafka.bootstrap_servers()), PATIENCE)?;
    testing::delete_topic(&admin, &topic).await?;
    testing::await_topic(&admin, &topic, false, PATIENCE).await?;
    wait::until("the topic to be made again", PATIENCE, async || {
        Ok(shop.dueline(&["apply"]).await?.code == 0)
    })
    .await?;
    shop.schedule(KIND, 201..=230, AT_ONCE).await?;
    shop.await_count("done", 230, PATIENCE * 2).await?;
    wait::until("offsets of the new topic", PATIENCE, async || {
        Ok(committed(&shop).await?[0].is_some_and(|offset| (30..200).contains(&offset)))
    })
    .await?;

    // The guilty one is found by its mark, which the old topic's offsets must not hide.
    for id in 231..=240 {
        schedule_with(&shop, id, if id == 235 { r#"{"fail": "abort"}"# } else { "{}" }).await?;
    }
    for _ in 0..8 {
        let over = wait::until("an end of the work or of the consumer", PATIENCE * 2, async || {
            Ok(shop.consumer().ended().is_some() || shop.count("live").await? == 0)
        });
        over.await?;
        if shop.consumer().ended().is_none() {
            break;
        }
        shop.consumer().restart()?;
    }
    assert_eq!((shop.count("done").await?, shop.count("dead").await?), (239, 1));
    assert_eq!(number(&shop, "select count(*) from orders where times > 1").await?, 0);
    Ok(())
}
