//! The message on the topic as another team sees it, and another team that reads along.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::envelope::{CONTENT_TYPE, EVENT_TYPE, header};
use dueline_core::partition::partition_for;
use dueline_core::{Envelope, KeyHash, Micros};
use dueline_kafka::{Consumer, ConsumerConfig, OwnedRecord, read_all};
use dueline_tests::testkit::{checker, wait};
use dueline_tests::{KIND, PATIENCE, QUEUE, Shop};

use super::job_support::{
    CLOSE_AND_NOTE, LEDGER, assert_nobody_paid, await_lag, await_rest, judge, places, short_leases,
};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PAYLOAD: &str = r#"{"amount": 12.5, "note": "Grüße, \"quoted\"", "lines": [1, 2]}"#;

async fn read(shop: &Shop, topic: &str) -> Result<Vec<OwnedRecord>> {
    let (settings, topic) = (places(shop)?.kafka, topic.to_owned());
    tokio::task::spawn_blocking(move || {
        let mut records = Vec::new();
        read_all(&settings, &topic, PATIENCE, |record| {
            records.push(record);
            ControlFlow::Continue(())
        })?;
        Ok(records)
    })
    .await?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q02_q05_the_message_is_what_the_documents_promise() -> Result<()> {
    let builder = Shop::build().await?.sql(LEDGER).await?.kind(KIND, CLOSE_AND_NOTE);
    let shop = builder.without_consumer().start().await?;
    let schedule = "
        select (extract(epoch from (dueline.schedule($1, id::text, delay => interval '200 ms',
                   payload => case id when 1 then $2::jsonb end,
                   headers => case id when 1 then
                       jsonb_build_object('tenant', 'north',
                                          'traceparent', $3::text) end)).due_at)
                * 1000000)::bigint
          from generate_series(1, 20) as id order by id";
    let due: Vec<i64> = sqlx::query_scalar(schedule)
        .bind(KIND)
        .bind(serde_json::from_str::<serde_json::Value>(PAYLOAD)?)
        .bind(TRACE)
        .fetch_all(&shop.pool)
        .await?;
    await_lag(&shop, 20, PATIENCE).await?;
    let config = shop.settings.config()?;
    let topic = config.queues[QUEUE].topic("fast");
    let records = read(&shop, &topic).await?;
    assert_eq!(records.len(), 20);
    for record in &records {
        let key = std::str::from_utf8(record.key.as_deref().expect("a key"))?;
        let partition = partition_for(key.as_bytes(), 2);
        assert_eq!(u32::try_from(record.partition)?, partition, "as Java's producer would choose");
        let id: usize = key.parse()?;
        assert_message(&shop, record, key, Micros(due[id - 1])).await?;
    }
    assert!(records.iter().any(|r| r.partition == 0) && records.iter().any(|r| r.partition == 1));
    Ok(())
}

/// Key, value, timestamp and every header of one message, in their order.
async fn assert_message(shop: &Shop, record: &OwnedRecord, key: &str, due: Micros) -> Result<()> {
    let row = "
        select t.id, (extract(epoch from d.claimed_at) * 1000000)::bigint, t.payload::text,
               'dueline://' || i.name || '/' || i.uuid || '/' || i.timeline
          from dueline.task as t join dueline.due as d using (id), dueline.instance as i
         where t.kind = $1 and t.key = $2";
    let (id, claimed, payload, source): (i64, i64, Option<String>, String) =
        sqlx::query_as(row).bind(KIND).bind(key).fetch_one(&shop.pool).await?;
    let claimed = Micros(claimed);
    let rich = key == "1";
    let hash = KeyHash::new(QUEUE, KIND, key).to_string();
    let mut expected = vec![
        (header::SPEC_VERSION, "1.0".to_owned()),
        (header::ID, format!("{id}-0-0")),
        (header::SOURCE, source),
        (header::TYPE, EVENT_TYPE.to_owned()),
        (header::SUBJECT, key.to_owned()),
        (header::TIME, due.to_string()),
        (header::VERSION, "1".to_owned()),
        (header::TASK_ID, id.to_string()),
        (header::KIND, KIND.to_owned()),
        (header::KEY_HASH, hash),
        (header::GENERATION, "0".to_owned()),
        (header::ATTEMPT, "0".to_owned()),
        (header::DELIVERY, "1".to_owned()),
        (header::CLAIMED_AT, claimed.to_string()),
    ];
    if rich {
        expected.push((header::TRACEPARENT, TRACE.to_owned()));
    }
    expected.push((header::CONTENT_TYPE, CONTENT_TYPE.to_owned()));
    if rich {
        expected.push(("tenant", "north".to_owned()));
    }
    let found: Vec<(&str, String)> = (record.headers.iter())
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value).into_owned()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(record.timestamp_ms, claimed.floor_ms());
    assert_eq!(record.value.as_deref(), payload.as_deref().map(str::as_bytes));
    assert_eq!(payload.is_some(), rich);
    if let Some(value) = &record.value {
        let value: serde_json::Value = serde_json::from_slice(value)?;
        assert_eq!(value, serde_json::from_str::<serde_json::Value>(PAYLOAD)?);
    }
    ensure!(claimed >= due, "V3");
    Ok(())
}

/// A group of another team: reads what there is, and commits.
struct Foreign {
    consumer: Consumer,
    /// How often it read each message.
    seen: BTreeMap<(String, i32, i64), usize>,
}

impl Foreign {
    fn join(shop: &Shop) -> Result<Self> {
        let places = places(shop)?;
        let topics = places.queues.iter().flat_map(|queue| queue.topics.clone()).collect();
        let group = format!("audit.{}", places.queues[0].group);
        let consumer = Consumer::start(&places.kafka, ConsumerConfig::new(group, topics))?;
        Ok(Self { consumer, seen: BTreeMap::new() })
    }

    async fn await_messages(&mut self, n: usize) -> Result<()> {
        let what = format!("the other group to read {n} messages");
        wait::until(&what, PATIENCE, async || {
            let event = tokio::time::timeout(Duration::from_millis(1), self.consumer.next_event());
            let _ = event.await;
            for (partition, _) in self.consumer.buffered() {
                for record in self.consumer.take(&partition, 1_000) {
                    self.consumer.mark_finished(&partition, record.offset);
                    let envelope = Envelope::read(&record)?;
                    let try_ = (envelope.key, envelope.generation, i64::from(envelope.attempt));
                    *self.seen.entry(try_).or_default() += 1;
                }
            }
            Ok(self.seen.len() >= n)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h12_another_group_may_read_along() -> Result<()> {
    let builder = short_leases(Shop::build().await?.sql(LEDGER).await?);
    let mut shop = builder.kind(KIND, CLOSE_AND_NOTE).start().await?;
    let mut foreign = Foreign::join(&shop)?;
    shop.orders(1..=100).await?;
    shop.schedule(KIND, 1..=50, Duration::ZERO).await?;
    await_rest(&shop, PATIENCE).await?;
    foreign.await_messages(50).await?;

    // Their group is past these messages, and ours is not: that is no answer, and no reason to publish
    // again.
    shop.consumer().stop();
    shop.schedule(KIND, 51..=100, Duration::ZERO).await?;
    foreign.await_messages(100).await?;
    let extended = "select coalesce(min(extensions), 0)::bigint from dueline.due";
    wait::until("every lease to be extended", PATIENCE, async || {
        Ok(sqlx::query_scalar::<_, i64>(extended).fetch_one(&shop.pool).await? >= 1)
    })
    .await?;
    assert_eq!(checker::lag(&places(&shop)?).await?, 50);
    shop.start_consumer().await?;
    await_rest(&shop, PATIENCE).await?;
    assert_eq!(shop.count("done").await?, 100);
    assert_nobody_paid(&shop).await?;
    judge(&shop, Vec::new(), &[]).await?;
    foreign.consumer.close(PATIENCE).await?;
    assert!(
        foreign.seen.values().all(|times| *times == 1),
        "each message once: {:?}",
        foreign.seen
    );
    Ok(())
}
