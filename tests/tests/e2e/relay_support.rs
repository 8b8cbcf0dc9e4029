//! What the tests of the relay share: reading what it published, and looking at who owns what.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::Result;
use dueline_core::{DeadLetter, Envelope};
use dueline_kafka::{KafkaSettings, OwnedRecord, read_all};
use dueline_tests::testkit::wait;
use dueline_tests::{QUEUE, Shop};

const READ_TIMEOUT: Duration = Duration::from_secs(30);

async fn records(shop: &Shop, topic: String) -> Result<Vec<OwnedRecord>> {
    let settings = KafkaSettings::new(shop.settings.config()?.kafka.bootstrap_servers());
    tokio::task::spawn_blocking(move || {
        let mut records = Vec::new();
        read_all(&settings, &topic, READ_TIMEOUT, |record| {
            records.push(record);
            ControlFlow::Continue(())
        })?;
        anyhow::Ok(records)
    })
    .await?
}

/// Every message in the tier topics.
pub async fn messages(shop: &Shop) -> Result<Vec<Envelope>> {
    let mut all = Vec::new();
    for topic in shop.settings.config()?.queues[QUEUE].tier_topics() {
        for record in records(shop, topic).await? {
            all.push(Envelope::read(&record)?);
        }
    }
    Ok(all)
}

/// How many messages each task has.
pub async fn copies(shop: &Shop) -> Result<BTreeMap<i64, usize>> {
    let mut copies = BTreeMap::new();
    for message in messages(shop).await? {
        *copies.entry(message.task_id).or_default() += 1;
    }
    Ok(copies)
}

/// Every letter in the dead-letter topic.
pub async fn letters(shop: &Shop) -> Result<Vec<DeadLetter>> {
    let topic = shop.settings.config()?.queues[QUEUE].dead_letter_topic();
    let records = records(shop, topic).await?;
    Ok(records.iter().filter_map(DeadLetter::read).collect())
}

/// How many lanes each living relay has, sorted; lanes without an owner count as one more entry.
pub async fn shares(shop: &Shop) -> Result<Vec<i64>> {
    let statement = "
        select count(*) from dueline.lane l
        left join dueline.relay r on r.epoch = l.epoch and r.ended_at is null
        group by r.epoch order by 1";
    Ok(sqlx::query_scalar(statement).fetch_all(&shop.pool).await?)
}

/// Waits until the living relays have so many lanes each.
pub async fn await_shares(shop: &Shop, wanted: &[i64], timeout: Duration) -> Result<()> {
    let what = format!("lanes shared as {wanted:?}");
    wait::until(&what, timeout, async || Ok(shares(shop).await? == wanted)).await
}

/// Waits until every one of `count` tasks has a message.
pub async fn await_published(shop: &Shop, count: usize, timeout: Duration) -> Result<()> {
    let what = format!("{count} tasks to be published");
    // Reading a topic costs a consumer: the database says when it is worth it.
    wait::until(&what, timeout, async || {
        let waiting = "select count(*) from dueline.due where lease_until is null";
        let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&shop.pool).await?;
        Ok(waiting == 0 && copies(shop).await?.len() == count)
    })
    .await
}
