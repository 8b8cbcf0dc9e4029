//! Messages that are broken, foreign, new or unknown (H14, H35), written into the topic by hand.

use anyhow::{Context as _, Result};
use dueline_core::envelope::{header, source_uri};
use dueline_core::letter::Reason;
use dueline_core::{DeadLetter, KeyHash};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, QUEUE, Shop};
use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

use super::consumer_support::{Headers, Wire, committed, headers, number, readiness};
use super::relay_support::letters;

/// A shop whose messages this test writes itself: no relay, one partition.
async fn shop() -> Result<(Shop, Wire)> {
    let builder = Shop::build().await?.set("queues.orders.partitions", 1);
    let mut shop = builder.without_relay().without_consumer().start().await?;
    let wire = Wire::of(&shop).await?;
    shop.start_consumer().await?;
    Ok((shop, wire))
}

async fn await_letters(shop: &Shop, count: usize) -> Result<Vec<DeadLetter>> {
    wait::some(&format!("{count} letters"), PATIENCE, async || {
        let letters = letters(shop).await?;
        Ok((letters.len() >= count).then_some(letters))
    })
    .await
}

async fn await_committed(shop: &Shop, offset: i64) -> Result<()> {
    let what = format!("the offset {offset} to be committed");
    wait::until(&what, PATIENCE, async || Ok(committed(shop).await? == [Some(offset)])).await
}

fn set(headers: &mut Headers, name: &str, value: &[u8]) {
    headers.retain(|(n, _)| n != name);
    headers.push((name.to_owned(), value.to_vec()));
}

#[tokio::test]
async fn h14_what_no_row_can_be_told_from_is_lettered_with_its_bytes_before_its_offset()
-> Result<()> {
    let (shop, wire) = shop().await?;
    let good = headers(&wire.nobodys("1"));
    wire.send("1", Some(b"\xff\x00 no json"), &Headers::new()).await?;
    wire.send("1", None, &Headers::new()).await?;
    let mut garbled = good.clone();
    set(&mut garbled, header::TASK_ID, b"many");
    wire.send("1", Some(b"{}"), &garbled).await?;
    let mut unknown = good.clone();
    set(&mut unknown, header::KIND, b"refund");
    set(&mut unknown, header::KEY_HASH, KeyHash::new(QUEUE, "refund", "1").to_string().as_bytes());
    wire.send("1", Some(b"{}"), &unknown).await?;
    let long = vec![b'1'; 9_000];
    wire.send("1", Some(&long), &good).await?;
    let letters = await_letters(&shop, 5).await?;
    let reasons: Vec<Reason> = letters.iter().map(|letter| letter.reason).collect();
    use Reason::{Oversized, Undecodable, UnknownKind};
    assert_eq!(reasons.iter().filter(|r| **r == Undecodable).count(), 3, "{reasons:?}");
    assert!(reasons.contains(&UnknownKind) && reasons.contains(&Oversized), "{reasons:?}");
    assert!(letters.iter().all(|letter| letter.task.is_none() && letter.origin.is_some()));
    await_committed(&shop, 5).await?;
    assert_eq!(number(&shop, "select count(*) from dueline.task").await?, 0);
    Ok(())
}

#[tokio::test]
async fn h14_a_broken_message_of_a_published_task_dies_through_its_row() -> Result<()> {
    let (shop, wire) = shop().await?;
    shop.orders(1..=4).await?;
    shop.schedule(KIND, 1..=4, std::time::Duration::ZERO).await?;
    let claimed = wire.claim(&shop).await?;
    let of = |key: &str| claimed.iter().find(|e| e.key == key).map(headers).context("claimed");
    wire.send("1", Some(b"{"), &of("1")?).await?;
    let mut other_key = of("2")?;
    set(&mut other_key, header::SUBJECT, b"3");
    wire.send("2", Some(b"{}"), &other_key).await?;
    let mut stale = of("3")?;
    set(&mut stale, header::GENERATION, b"77");
    wire.send("3", Some(b"{"), &stale).await?;
    wire.send("4", Some(b"{}"), &of("4")?).await?;
    await_committed(&shop, 4).await?;
    for id in [1, 2] {
        let dead = shop.await_state(KIND, id, "dead", PATIENCE).await?;
        assert_eq!(dead.attempt, 0, "nothing was tried");
    }
    assert_eq!(shop.await_state(KIND, 4, "done", PATIENCE).await?.attempt, 0);
    assert_eq!(shop.count("live").await?, 1, "a stale message says nothing of its row");
    let letters = await_letters(&shop, 2).await?;
    assert!(letters.iter().all(|l| l.reason == Reason::Undecodable && l.task.is_some()));
    assert_eq!(
        number(&shop, "select count(*) from dueline.stranded where reason = 'undecodable'").await?,
        2
    );
    Ok(())
}

#[tokio::test]
async fn h14_random_messages_never_stop_the_consumer() -> Result<()> {
    let (mut shop, wire) = shop().await?;
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let good = headers(&wire.nobodys("1"));
    for _ in 0..200 {
        let mut bent = good.clone();
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..bent.len());
            // The version and the source are told apart from what is broken: see the tests below.
            if [header::VERSION, header::SOURCE].contains(&bent[at].0.as_str()) {
                continue;
            }
            let mut bytes = vec![0; rng.random_range(0..40)];
            rng.fill_bytes(&mut bytes);
            bent[at].1 = bytes;
        }
        let mut value = vec![0; rng.random_range(0..200)];
        rng.fill_bytes(&mut value);
        wire.send("1", Some(&value), &bent).await?;
    }
    shop.orders(1..=1).await?;
    shop.schedule(KIND, 1..=1, std::time::Duration::ZERO).await?;
    let last = wire.claim(&shop).await?.remove(0);
    wire.send("1", None, &headers(&last)).await?;
    shop.await_state(KIND, 1, "done", PATIENCE).await?;
    await_committed(&shop, 201).await?;
    assert!(shop.consumer().ended().is_none());
    Ok(())
}

#[tokio::test]
async fn h14_a_newer_message_pauses_its_partition_and_alarms() -> Result<()> {
    let (mut shop, wire) = shop().await?;
    shop.orders(1..=1).await?;
    shop.schedule(KIND, 1..=1, std::time::Duration::ZERO).await?;
    let good = headers(&wire.claim(&shop).await?.remove(0));
    let mut newer = good.clone();
    set(&mut newer, header::VERSION, b"2");
    wire.send("1", Some(b"{}"), &newer).await?;
    wait::until("the alarm", PATIENCE, async || {
        let text = readiness(shop.consumer()).await?;
        Ok(text.contains("partitions:") && text.contains("upgrade the consumer"))
    })
    .await?;
    wire.send("1", None, &good).await?;
    wait::until("the held message to be looked at again", PATIENCE, async || {
        Ok(shop.consumer().output()?.matches("looking again").count() >= 2)
    })
    .await?;
    assert_eq!(shop.count("live").await?, 1, "what is behind it waits");
    assert_eq!(committed(&shop).await?, [None]);
    assert!(letters(&shop).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn h35_a_foreign_message_pauses_its_partition_until_it_is_ours() -> Result<()> {
    let (mut shop, wire) = shop().await?;
    shop.orders(1..=1).await?;
    shop.schedule(KIND, 1..=1, std::time::Duration::ZERO).await?;
    let mut envelope = wire.claim(&shop).await?.remove(0);
    let uuid = uuid::Uuid::new_v4();
    let (name, timeline): (String, i32) =
        sqlx::query_as("select name, timeline from dueline.instance").fetch_one(&shop.pool).await?;
    envelope.source = source_uri(&name, &uuid, timeline.unsigned_abs());
    wire.send("1", None, &headers(&envelope)).await?;
    wait::until("the alarm", PATIENCE, async || {
        Ok(readiness(shop.consumer()).await?.contains("another instance"))
    })
    .await?;
    assert_eq!((shop.count("live").await?, committed(&shop).await?), (1, vec![None]));
    sqlx::query("update dueline.instance set uuid = $1").bind(uuid).execute(&shop.pool).await?;
    shop.await_state(KIND, 1, "done", PATIENCE).await?;
    await_committed(&shop, 1).await?;
    wait::until("the alarm's end", PATIENCE, async || {
        Ok(shop.consumer().get("/readyz").await?.0 == 200)
    })
    .await
}

#[tokio::test]
async fn i05_duplicates_within_a_batch_are_finished_along_and_counted() -> Result<()> {
    let builder = Shop::build().await?.set("queues.orders.partitions", 1);
    let mut shop = builder.without_relay().without_consumer().start().await?;
    let wire = Wire::of(&shop).await?;
    shop.orders(1..=10).await?;
    shop.schedule(KIND, 1..=10, std::time::Duration::ZERO).await?;
    for envelope in wire.claim(&shop).await? {
        for _ in 0..3 {
            wire.send(&envelope.key, None, &headers(&envelope)).await?;
        }
    }
    shop.start_consumer().await?;
    shop.await_count("done", 10, PATIENCE).await?;
    await_committed(&shop, 30).await?;
    assert_eq!(number(&shop, "select count(*) from orders where times = 1").await?, 10);
    let stopped = "select coalesce(sum(n), 0)::bigint from dueline.duplicate_stop where layer in ('batch', 'guard')";
    assert_eq!(number(&shop, stopped).await?, 20);
    Ok(())
}
