//! Another team, as far as its contract goes: it reads the tier topics in the queue's group, and writes outcomes.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::outcome::Verdict;
use dueline_core::{Envelope, Outcome};
use dueline_kafka::{
    Admin, Consumer, ConsumerConfig, Event, HeaderList, KafkaSettings, Outcome as Delivery,
    Producer, ProducerConfig, Record,
};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, QUEUE, Shop, ShopBuilder};

/// A shop whose one kind is another team's.
pub async fn shop() -> Result<ShopBuilder> {
    let mut builder = Shop::build().await?.without_consumer();
    builder
        .settings()
        .remove(&format!("kinds.{KIND}.sql"))
        .set(&format!("kinds.{KIND}.outcomes"), true)
        .set_toml(&format!("kinds.{KIND}.backoff"), r#"["100ms", "100ms", "100ms"]"#);
    Ok(builder)
}

/// See the module.
pub struct Team {
    consumer: Consumer,
    producer: Producer<()>,
    admin: Admin,
    outcomes: String,
    group: String,
}

impl Team {
    pub fn of(shop: &Shop) -> Result<Self> {
        let config = shop.settings.config()?;
        let queue = &config.queues[QUEUE];
        let settings = KafkaSettings::new(config.kafka.bootstrap_servers());
        let reads = ConsumerConfig::new(&queue.group, queue.tier_topics());
        let (producer, _reports) = Producer::new(&settings, &ProducerConfig::default())?;
        Ok(Self {
            consumer: Consumer::start(&settings, reads)?,
            producer,
            admin: Admin::new(&settings, Duration::from_secs(10))?,
            outcomes: queue.outcome_topic().expect("the kind is another team's"),
            group: config.outcome_group(),
        })
    }

    /// The next `count` messages; their offsets are committed in the background.
    pub async fn take(&self, count: usize) -> Result<Vec<Envelope>> {
        let mut messages = Vec::new();
        wait::until(&format!("{count} messages"), PATIENCE, async || {
            while let Ok(Some(event)) =
                tokio::time::timeout(Duration::from_millis(1), self.consumer.next_event()).await
            {
                if let Event::Revoked(_, ack) = event {
                    ack.done();
                }
            }
            for (partition, buffered) in self.consumer.buffered() {
                for record in self.consumer.take(&partition, buffered) {
                    messages.push(Envelope::read(&record)?);
                    self.consumer.mark_finished(&partition, record.offset);
                }
            }
            Ok(messages.len() >= count)
        })
        .await?;
        Ok(messages)
    }

    /// Writes an outcome of the try that a message names.
    pub async fn say(&self, message: &Envelope, verdict: Verdict) -> Result<()> {
        self.send(&of(message, verdict)).await
    }

    pub async fn send(&self, outcome: &Outcome) -> Result<()> {
        let headers = outcome.headers(&uuid::Uuid::new_v4().to_string(), "/billing");
        let headers: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        self.write(outcome.body().as_bytes(), &headers).await
    }

    /// Writes anything at all into the outcome topic.
    pub async fn write(&self, value: &[u8], headers: &[(&str, &[u8])]) -> Result<()> {
        let record = Record {
            topic: &self.outcomes,
            key: Some(b"1"),
            value: Some(value),
            headers: headers.iter().copied().collect::<HeaderList>(),
            timestamp_ms: None,
        };
        let delivery = self.producer.send_and_wait(record).await;
        ensure!(matches!(delivery, Delivery::Delivered { .. }), "{delivery:?}");
        Ok(())
    }

    /// Waits until the relays have passed everything in the outcome topic.
    pub async fn await_passed(&self) -> Result<()> {
        wait::until("all outcomes to be passed", PATIENCE, async || {
            let view = self.admin.group_view(&self.group, &self.outcomes).await?;
            let ends = self.admin.watermarks(&self.outcomes).await?;
            Ok(view
                .committed
                .iter()
                .zip(&ends)
                .all(|(committed, ends)| committed.unwrap_or(ends.low) >= ends.high))
        })
        .await
    }
}

/// An outcome of the try that a message names.
pub fn of(message: &Envelope, verdict: Verdict) -> Outcome {
    Outcome {
        instance: message.source.clone(),
        task_id: message.task_id,
        key_hash: message.key_hash,
        generation: message.generation,
        attempt: message.attempt,
        verdict,
    }
}
