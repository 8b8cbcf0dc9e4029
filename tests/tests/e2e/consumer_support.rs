//! What the tests of the consumer share: writing into tier topics by hand, offsets, payloads.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_core::{Envelope, KeyHash, Micros};
use dueline_kafka::{Admin, HeaderList, KafkaSettings, Outcome, Producer, ProducerConfig, Record};
use dueline_tests::testkit::process::Service;
use dueline_tests::{KIND, QUEUE, Shop, ShopBuilder};
use sqlx::Row as _;

/// A producer for a shop's fast tier.
pub struct Wire {
    producer: Producer<()>,
    /// The topic of tier `fast`.
    pub topic: String,
    /// The source of this shop's messages.
    pub source: String,
}

/// Headers of a message, to be bent.
pub type Headers = Vec<(String, Vec<u8>)>;

impl Wire {
    pub async fn of(shop: &Shop) -> Result<Self> {
        let config = shop.settings.config()?;
        let settings = KafkaSettings::new(config.kafka.bootstrap_servers());
        let (producer, _reports) = Producer::new(&settings, &ProducerConfig::default())?;
        let source = sqlx::query_scalar("select dueline.source()").fetch_one(&shop.pool).await?;
        Ok(Self { producer, topic: config.queues[QUEUE].topic("fast"), source })
    }

    pub async fn send(&self, key: &str, value: Option<&[u8]>, headers: &Headers) -> Result<()> {
        let record = Record {
            topic: &self.topic,
            key: Some(key.as_bytes()),
            value,
            headers: headers
                .iter()
                .map(|(n, v)| (n.as_str(), v.as_slice()))
                .collect::<HeaderList>(),
            timestamp_ms: None,
        };
        let outcome = self.producer.send_and_wait(record).await;
        ensure!(matches!(outcome, Outcome::Delivered { .. }), "{outcome:?}");
        Ok(())
    }

    /// Claims what waits, as a relay does, and returns the envelopes without sending them.
    pub async fn claim(&self, shop: &Shop) -> Result<Vec<Envelope>> {
        let rows = sqlx::query(
            "with claimed as (
                 update dueline.due set lease_until = clock_timestamp() + interval '1 hour',
                        claimed_at = clock_timestamp(), claim_epoch = 1, claim_no = claim_no + 1,
                        fence = fence + 1
                 where lease_until is null and next_at <= clock_timestamp()
                 returning id, generation, attempt, claim_no)
             select t.id, t.key, t.key_hash, t.kind, c.generation, c.attempt, c.claim_no,
                    (extract(epoch from t.due_at) * 1000000)::bigint as due_at
             from claimed c join dueline.task t using (id) order by t.id",
        )
        .fetch_all(&shop.pool)
        .await?;
        rows.iter()
            .map(|row| {
                let due_at = Micros(row.try_get("due_at")?);
                Ok(Envelope {
                    task_id: row.try_get("id")?,
                    source: self.source.clone(),
                    kind: row.try_get("kind")?,
                    key: row.try_get("key")?,
                    key_hash: KeyHash(row.try_get::<uuid::Uuid, _>("key_hash")?.into_bytes()),
                    generation: row.try_get("generation")?,
                    attempt: row.try_get("attempt")?,
                    delivery: row.try_get("claim_no")?,
                    due_at,
                    claimed_at: due_at,
                    traceparent: None,
                })
            })
            .collect()
    }

    /// An envelope of this shop that no row stands behind.
    pub fn nobodys(&self, key: &str) -> Envelope {
        Envelope {
            task_id: 1_000_000_000,
            source: self.source.clone(),
            kind: KIND.to_owned(),
            key: key.to_owned(),
            key_hash: KeyHash::new(QUEUE, KIND, key),
            generation: 0,
            attempt: 0,
            delivery: 1,
            due_at: Micros(0),
            claimed_at: Micros(0),
            traceparent: None,
        }
    }
}

/// An envelope's headers.
pub fn headers(envelope: &Envelope) -> Headers {
    let mut headers = Headers::new();
    envelope.write_headers(|name, value| headers.push((name.to_owned(), value.to_vec())));
    headers
}

/// Makes the shop's kind one that the example `rust_handler` handles.
pub fn with_rust_handler(mut builder: ShopBuilder) -> ShopBuilder {
    builder
        .settings()
        .remove(&format!("kinds.{KIND}.sql"))
        .set(&format!("kinds.{KIND}.rust"), true);
    builder.consumer_binary("examples/rust_handler")
}

/// Schedules one task with a payload, due now.
pub async fn schedule_with(shop: &Shop, id: i64, payload: &str) -> Result<()> {
    sqlx::query("select dueline.schedule($1, $2, delay => interval '0', payload => $3::jsonb)")
        .bind(KIND)
        .bind(id.to_string())
        .bind(payload)
        .execute(&shop.pool)
        .await?;
    Ok(())
}

/// The group's committed offsets in the fast tier.
pub async fn committed(shop: &Shop) -> Result<Vec<Option<i64>>> {
    let config = shop.settings.config()?;
    let queue = &config.queues[QUEUE];
    let settings = KafkaSettings::new(config.kafka.bootstrap_servers());
    let admin = Admin::new(&settings, Duration::from_secs(10))?;
    Ok(admin.group_view(&queue.group, &queue.topic("fast")).await?.committed)
}

/// One number that a query answers.
pub async fn number(shop: &Shop, query: &'static str) -> Result<i64> {
    Ok(sqlx::query_scalar(query).fetch_one(&shop.pool).await?)
}

/// What `/readyz` says.
pub async fn readiness(consumer: &mut Service) -> Result<String> {
    Ok(consumer.get("/readyz").await.context("the admin port")?.1)
}
