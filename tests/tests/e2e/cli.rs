//! The command line against a running shop: apply, why in every phase, a round from cron.

use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_kafka::{Admin, KafkaSettings, TopicSpec};
use dueline_tests::testkit::{services::KAFKA_ENV, wait};
use dueline_tests::{KIND, PATIENCE, Shop};
use serde_json::Value;

/// Fails as long as its order is unpaid.
pub const FRAGILE: &str = "
update orders as o
   set status = 'closed', times = o.times + 1 / (case when o.status = 'unpaid' then 0 else 1 end)
  from batch
 where o.id = batch.key::bigint
returning batch.ord";

/// A handler that is told "not now", which is worth another attempt.
const SHY: &str = "update orders set times = not_now() from batch where orders.id = batch.key::bigint returning ord";
const NOT_NOW: &str = "
create function not_now() returns integer language plpgsql as
$$ begin raise exception 'gateway timeout'; end $$";

fn admin() -> Result<Admin> {
    let brokers = std::env::var(KAFKA_ENV).context("the broker's address")?;
    Ok(Admin::new(&KafkaSettings::new(brokers), Duration::from_secs(10))?)
}

/// The plan's lines of one topic or another thing: its action, and the detail.
fn line(plan: &Value, name: &str) -> (String, String) {
    let items = plan["items"].as_array().cloned().unwrap_or_default();
    let item = items.into_iter().find(|i| i["name"] == name).unwrap_or_default();
    let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
    (text("action"), text("detail"))
}

/// The one-line answer of `why`.
async fn headline(shop: &Shop, key: &str) -> Result<String> {
    let answer = shop.dueline(&["why", key, "--json"]).await?.json()?;
    Ok(answer["tasks"][0]["why"].as_str().unwrap_or_default().to_owned())
}

/// Waits until `why` says all of this.
async fn says(shop: &Shop, key: &str, parts: &[&str]) -> Result<()> {
    let mut last = String::new();
    let waited = wait::until("why to say so", PATIENCE, async || {
        last = headline(shop, key).await?;
        Ok(parts.iter().all(|part| last.contains(part)))
    });
    let waited = waited.await;
    waited.with_context(|| format!("{parts:?} expected, `why` says {last:?}"))
}

#[tokio::test]
async fn apply_plans_makes_and_widens_topics_and_refuses_to_shrink() -> Result<()> {
    let shop = Shop::build().await?.without_relay().without_consumer().start().await?;
    let prefix = shop.settings.config()?.kafka.topic_prefix;
    let again = shop.dueline(&["apply", "--plan", "--json"]).await?;
    assert_eq!(again.code, 0, "{}", again.stdout);
    assert_eq!(again.json()?["changes"], false);

    let wider = ["--set", "queues.orders.partitions=4", "apply", "--json"];
    let planned = shop.dueline(&[wider.as_slice(), &["--plan"]].concat()).await?;
    assert_eq!(planned.code, 3, "there is something to do: {}", planned.stdout);
    let planned: Value = serde_json::from_str(&planned.stdout)?;
    let fast = format!("{prefix}.orders.fast");
    assert_eq!(line(&planned, &fast), ("change".into(), "partitions 2 → 4".into()));
    let done = shop.dueline(&wider).await?.json()?;
    assert_eq!(done["items"], planned["items"], "the plan is what apply does");
    let described = admin()?.identify(std::slice::from_ref(&fast)).await?;
    assert_eq!(described[0].as_ref().map(|t| t.partitions), Some(4));

    let refused = shop.dueline(&["apply", "--json"]).await?;
    assert_eq!(refused.code, 4, "two partitions again");
    let (action, detail) = line(&serde_json::from_str(&refused.stdout)?, &fast);
    assert_eq!(action, "refuse");
    assert!(detail.contains("partitions = 4"), "{detail}");
    Ok(())
}

#[tokio::test]
async fn apply_refuses_a_topic_with_the_brokers_timestamps() -> Result<()> {
    let shop = Shop::build().await?.without_relay().without_consumer().start().await?;
    let prefix = format!("{}x", shop.settings.config()?.kafka.topic_prefix);
    let name = format!("{prefix}.orders.fast");
    let configs = [("message.timestamp.type".to_owned(), "LogAppendTime".to_owned())].into();
    let spec = TopicSpec { name: name.clone(), partitions: 2, replication: 1, configs };
    admin()?.create(spec).await?;
    let set = format!("kafka.topic_prefix={prefix}");
    let refused = shop.dueline(&["--set", &set, "apply", "--json"]).await?;
    assert_eq!(refused.code, 4, "{}", refused.stdout);
    let (action, detail) = line(&serde_json::from_str(&refused.stdout)?, &name);
    assert_eq!(action, "refuse");
    assert!(detail.contains("CreateTime"), "{detail}");
    let other = admin()?.identify(&[format!("{prefix}.orders.slow")]).await?;
    assert_eq!(other, [None], "with one refusal, nothing is done");
    Ok(())
}

#[tokio::test]
async fn c02_why_in_every_phase_with_the_real_processes() -> Result<()> {
    let builder = Shop::build().await?.without_relay().without_consumer();
    let builder = builder.sql(NOT_NOW).await?.kind("shy", SHY).set("kinds.shy.backoff", ["1h"]);
    let builder = builder.kind("brittle", FRAGILE);
    let mut shop = builder.start().await?;
    shop.orders(1..=9).await?;
    shop.schedule(KIND, 1..=1, Duration::from_secs(3_600)).await?;
    shop.schedule(KIND, 2..=2, Duration::ZERO).await?;
    says(&shop, "1", &["not due yet", "due in 59 m"]).await?;
    says(&shop, "2", &["overdue by", "no relay is running"]).await?;

    shop.start_relay().await?;
    says(&shop, "2", &["waiting at lag", "has no members"]).await?;
    shop.start_consumer().await?;
    says(&shop, "2", &["done at"]).await?;

    shop.schedule("shy", 3..=3, Duration::ZERO).await?;
    says(&shop, "3", &["in backoff after error", "gateway timeout", "next attempt in"]).await?;
    shop.schedule("brittle", 4..=4, Duration::ZERO).await?;
    says(&shop, "4", &["dead since", "failed attempts"]).await?;
    shop.cancel(KIND, 1).await?;
    says(&shop, "1", &["cancelled at"]).await?;
    shop.pay(5).await?;
    shop.schedule(KIND, 5..=5, Duration::ZERO).await?;
    says(&shop, "5", &["skipped at"]).await?;

    shop.relay().kill();
    shop.schedule(KIND, 6..=6, Duration::ZERO).await?;
    says(&shop, "6", &["overdue by", "has been silent for"]).await?;
    let unknown = shop.dueline(&["why", "no-such-key"]).await?;
    assert_eq!(unknown.code, 5);
    assert!(unknown.stderr.contains("no task has the key"), "{}", unknown.stderr);
    Ok(())
}

#[tokio::test]
async fn l05_a_sweep_from_cron_is_a_whole_round_and_leaves_living_relays_alone() -> Result<()> {
    let mut shop = Shop::build().await?.without_relay().start().await?;
    shop.orders(1..=30).await?;
    shop.schedule(KIND, 1..=20, Duration::ZERO).await?;
    let round = shop.dueline(&["sweep", "--once", "--json"]).await?.json()?;
    assert_eq!((&round["claimed"], &round["lanes"]), (&Value::from(20), &Value::from(4)));
    shop.await_count("done", 20, PATIENCE).await?;
    shop.start_relay().await?;
    wait::until("the relay to own the lanes", PATIENCE, async || {
        let free = "select count(*) from dueline.lane where epoch is null";
        Ok(sqlx::query_scalar::<_, i64>(free).fetch_one(&shop.pool).await? == 0)
    })
    .await?;
    let round = shop.dueline(&["sweep", "--once", "--json"]).await?.json()?;
    assert_eq!((&round["claimed"], &round["lanes"]), (&Value::from(0), &Value::from(0)));
    Ok(())
}
