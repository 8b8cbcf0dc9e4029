//! The dead, from the table and from the topic: preview, replay, verdicts; what is stale is never acted upon.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_kafka::{HeaderList, KafkaSettings, Outcome, Producer, ProducerConfig, Record};
use dueline_tests::testkit::{services::KAFKA_ENV, wait};
use dueline_tests::{PATIENCE, Shop};
use serde_json::Value;

use super::cli::FRAGILE;

const KIND: &str = "fragile";

/// A shop whose orders 1 to `n` have a dead task each, with their letters written.
async fn with_dead(n: i64) -> Result<Shop> {
    let builder = Shop::build().await?.kind(KIND, FRAGILE).set("kinds.fragile.backoff", ["1ms"]);
    let shop = builder.start().await?;
    shop.orders(1..=n).await?;
    shop.schedule(KIND, 1..=n, Duration::ZERO).await?;
    shop.await_count("dead", n, PATIENCE).await?;
    wait::until("the letters", PATIENCE, async || {
        let written = "select count(*) from dueline.stranded where lettered_at is not null";
        Ok(sqlx::query_scalar::<_, i64>(written).fetch_one(&shop.pool).await? == n)
    })
    .await?;
    Ok(shop)
}

/// What was wrong with the orders is mended.
async fn mend(shop: &Shop) -> Result<()> {
    sqlx::query("update orders set status = 'paid' where status = 'unpaid'")
        .execute(&shop.pool)
        .await?;
    Ok(())
}

async fn json(shop: &Shop, arguments: &[&str]) -> Result<(i32, Value)> {
    let output = shop.dueline(&[arguments, &["--json"]].concat()).await?;
    let document = serde_json::from_str(&output.stdout)
        .with_context(|| format!("{}{}", output.stdout, output.stderr))?;
    Ok((output.code, document))
}

fn ids(document: &Value) -> BTreeSet<i64> {
    let dead = document["dead"].as_array().cloned().unwrap_or_default();
    dead.iter().filter_map(|d| d["id"].as_i64()).collect()
}

async fn events(shop: &Shop) -> Result<i64> {
    let count = "select count(*) from dueline.task_event";
    Ok(sqlx::query_scalar(count).fetch_one(&shop.pool).await?)
}

/// Each order was handled so often.
async fn assert_times(shop: &Shop, n: i64, times: i64) -> Result<()> {
    let count = "select count(*) from orders where times = $1";
    let found: i64 = sqlx::query_scalar(count).bind(times).fetch_one(&shop.pool).await?;
    assert_eq!(found, n);
    Ok(())
}

#[tokio::test]
async fn d06_replay_from_table_and_topic_with_preview_cursor_and_audit() -> Result<()> {
    let shop = with_dead(6).await?;
    let (_, table) = json(&shop, &["dlq", "list"]).await?;
    let (_, topic) = json(&shop, &["dlq", "list", "--from", "topic"]).await?;
    assert_eq!(ids(&table).len(), 6);
    assert_eq!(ids(&topic), ids(&table), "both tell of the same tasks");

    let before = events(&shop).await?;
    for from in ["table", "topic"] {
        let preview = ["dlq", "replay", "--kind", KIND, "--from", from, "--dry-run"];
        let (code, preview) = json(&shop, &preview).await?;
        assert_eq!(code, 0);
        assert_eq!(ids(&preview).len(), 6);
    }
    assert_eq!(events(&shop).await?, before, "a preview changes nothing");
    assert_eq!(shop.count("dead").await?, 6);

    mend(&shop).await?;
    let first = ["dlq", "replay", "--kind", KIND, "--limit", "2", "--who", "ann"];
    let (code, first) = json(&shop, &first).await?;
    assert_eq!((code, &first["counts"]["replayed"]), (0, &Value::from(2)));
    let cursor = first["after"].as_str().context("a cursor")?.to_owned();
    let rest = ["dlq", "replay", "--kind", KIND, "--limit", "2", "--after", &cursor];
    let (code, rest) = json(&shop, &rest).await?;
    assert_eq!((code, &rest["counts"]["replayed"]), (0, &Value::from(2)));

    let from_topic = ["dlq", "replay", "--from", "topic", "--kind", KIND, "--rate", "1000"];
    let (code, letters) = json(&shop, &from_topic).await?;
    assert_eq!(code, 4, "some letters are stale: {letters}");
    assert_eq!(letters["counts"]["replayed"], 2);
    shop.await_count("done", 6, PATIENCE).await?;
    assert_times(&shop, 6, 1).await?;

    let before = events(&shop).await?;
    let (code, again) = json(&shop, &from_topic).await?;
    assert_eq!(code, 4);
    assert_eq!(again["counts"]["replayed"], Value::Null, "h14: a stale letter is never acted upon");
    assert_eq!(events(&shop).await?, before);
    assert_times(&shop, 6, 1).await?;
    let audited = "select count(*) from dueline.task_event
                   where step = 'replay' and detail ->> 'who' = 'ann'";
    assert_eq!(sqlx::query_scalar::<_, i64>(audited).fetch_one(&shop.pool).await?, 2);
    Ok(())
}

#[tokio::test]
async fn d06_h17_verdicts_and_what_is_too_old() -> Result<()> {
    let shop = with_dead(4).await?;
    let (_, listed) = json(&shop, &["dlq", "list"]).await?;
    let ids: Vec<String> = ids(&listed).iter().map(ToString::to_string).collect();
    let (code, shown) = json(&shop, &["dlq", "show", &ids[0]]).await?;
    assert_eq!((code, &shown["kind"]), (0, &Value::from(KIND)));

    let by_hand = ["dlq", "resolve", &ids[0], "--reason", "refunded by hand", "--who", "ann"];
    assert_eq!(json(&shop, &by_hand).await?.1["counts"]["resolved"], 1);
    let unwanted = ["dlq", "discard", &ids[1], "--reason", "a test order"];
    assert_eq!(json(&shop, &unwanted).await?.1["counts"]["discarded"], 1);
    assert_eq!((shop.count("done").await?, shop.count("cancelled").await?), (1, 1));
    assert_eq!(shop.dueline(&["dlq", "show", &ids[0]]).await?.code, 5);
    assert_eq!(shop.dueline(&["dlq", "replay", &ids[0]]).await?.code, 5, "it is not dead any more");

    mend(&shop).await?;
    sqlx::query("update dueline.stranded set died_at = clock_timestamp() - interval '60 days'")
        .execute(&shop.pool)
        .await?;
    let (code, refused) = json(&shop, &["dlq", "replay", &ids[2]]).await?;
    assert_eq!((code, &refused["counts"]["refused"]), (4, &Value::from(1)));
    assert_eq!(shop.count("dead").await?, 2);
    let (code, forced) = json(&shop, &["dlq", "replay", &ids[2], "--force"]).await?;
    assert_eq!((code, &forced["counts"]["replayed"]), (0, &Value::from(1)));
    let nothing = shop.dueline(&["dlq", "replay"]).await?;
    assert_eq!(nothing.code, 4);
    assert!(nothing.stderr.contains("--all"), "{}", nothing.stderr);
    Ok(())
}

#[tokio::test]
async fn h14_an_undecodable_message_is_sent_again_as_it_was_and_once() -> Result<()> {
    let shop = Shop::start().await?;
    let config = shop.settings.config()?;
    let queue = &config.queues["orders"];
    let brokers = std::env::var(KAFKA_ENV).context("the broker's address")?;
    let (producer, _reports) =
        Producer::<()>::new(&KafkaSettings::new(brokers), &ProducerConfig::default())?;
    let mut headers = HeaderList::new();
    headers.push("mine", b"\xff\x00 bytes");
    let topic = queue.topic("fast");
    let record = Record {
        topic: &topic,
        key: Some(b"k\xff"),
        value: Some(b"not ours"),
        headers,
        timestamp_ms: None,
    };
    assert!(matches!(producer.send_and_wait(record).await, Outcome::Delivered { .. }));
    let letters = async || -> Result<usize> {
        let list = ["dlq", "list", "--from", "topic", "--reason", "undecodable"];
        Ok(json(&shop, &list).await?.1["dead"].as_array().map_or(0, Vec::len))
    };
    wait::until("its letter", PATIENCE, async || Ok(letters().await? == 1)).await?;

    let replay = [
        "dlq",
        "replay",
        "--from",
        "topic",
        "--reason",
        "undecodable",
        "--limit",
        "1",
        "--who",
        "ann",
    ];
    let (code, resent) = json(&shop, &replay).await?;
    assert_eq!((code, &resent["counts"]["resent"]), (0, &Value::from(1)), "{resent}");
    wait::until("the same letter again", PATIENCE, async || Ok(letters().await? == 2)).await?;
    let (code, again) = json(&shop, &replay).await?;
    assert_eq!((code, &again["counts"]["already_resent"]), (4, &Value::from(1)), "{again}");
    assert_eq!(letters().await?, 2);
    let resolve = ["dlq", "resolve", "--from", "topic", "--queue", "orders", "--reason", "x"];
    assert_eq!(json(&shop, &resolve).await?.1["counts"]["no_row"], 2, "nothing to settle");
    Ok(())
}
