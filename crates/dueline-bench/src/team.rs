//! Another team, as far as its contract goes: it reads the tier topics, closes orders in a transaction of its own, and
//! answers with outcomes.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_core::outcome::Verdict;
use dueline_core::{Envelope, Outcome};
use dueline_kafka::{
    Consumer, ConsumerConfig, Event, HeaderList, KafkaSettings, Outcome as Delivery, Producer,
    ProducerConfig, Record, TopicPartition,
};
use dueline_store::Pool;
use futures_util::future::try_join_all;
use tokio_util::sync::CancellationToken;

use crate::settings::QUEUE;
use crate::stage::Stage;

/// The most messages of one transaction of the team.
const BATCH: usize = 1_000;
/// How long it waits for messages before it looks again.
const LOOK: Duration = Duration::from_millis(50);
const LEAVE: Duration = Duration::from_secs(5);
/// Who says the outcomes.
const SOURCE: &str = "/bench";

/// See the module.
pub(crate) struct Team {
    consumer: Consumer,
    producer: Producer<()>,
    outcomes: String,
    pool: Pool,
}

impl Team {
    /// Joins the queue's group.
    pub fn of(stage: &Stage) -> Result<Self> {
        let config = &stage.config;
        let queue = config.queues.get(QUEUE).context("the queue")?;
        let mut settings = KafkaSettings::new(config.kafka.bootstrap_servers());
        settings.properties = config.kafka.exposed_properties();
        let (producer, _reports) = Producer::new(&settings, &ProducerConfig::default())?;
        Ok(Self {
            consumer: Consumer::start(
                &settings,
                ConsumerConfig::new(&queue.group, queue.tier_topics()),
            )?,
            producer,
            outcomes: queue.outcome_topic().context("the kind is another team's")?,
            pool: stage.pool.clone(),
        })
    }

    /// Handles until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        while !stop.is_cancelled() {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = self.consumer.next_event() => match event {
                    Some(Event::Revoked(_, ack)) => ack.done(),
                    Some(Event::Failed(error)) => return Err(error.into()),
                    Some(_) => {}
                    None => break,
                },
                () = self.consumer.readable() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            while self.handle().await? {}
        }
        self.consumer.close(LEAVE).await?;
        Ok(())
    }

    /// One transaction; whether there was anything.
    async fn handle(&self) -> Result<bool> {
        let mut read: HashMap<TopicPartition, Vec<i64>> = HashMap::new();
        let mut messages = Vec::new();
        for (partition, buffered) in self.consumer.buffered() {
            for record in self.consumer.take(&partition, buffered.min(BATCH - messages.len())) {
                messages.push(Envelope::read(&record)?);
                read.entry(partition.clone()).or_default().push(record.offset);
            }
        }
        if messages.is_empty() {
            return Ok(false);
        }
        let ids = messages.iter().map(|m| Ok(m.key.parse::<i64>()?)).collect::<Result<Vec<_>>>()?;
        let hashes: Vec<uuid::Uuid> = messages.iter().map(|m| m.key_hash.as_uuid()).collect();
        let close = sqlx::query(include_str!("../sql/team_close.sql")).bind(ids).bind(hashes);
        close.execute(&self.pool).await?;
        try_join_all(messages.iter().map(|message| self.say_done(message))).await?;
        for (partition, offsets) in read {
            self.consumer.mark_all_finished(&partition, offsets);
        }
        Ok(true)
    }

    async fn say_done(&self, message: &Envelope) -> Result<()> {
        let outcome = Outcome {
            instance: message.source.clone(),
            task_id: message.task_id,
            key_hash: message.key_hash,
            generation: message.generation,
            attempt: message.attempt,
            verdict: Verdict::Done,
        };
        let id = format!("{}-{}-{}", message.task_id, message.generation, message.attempt);
        let headers = outcome.headers(&id, SOURCE);
        let headers: HeaderList = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let (key, body) = (Some(message.key.as_bytes()), outcome.body());
        let value = Some(body.as_bytes());
        let record = Record { topic: &self.outcomes, key, value, headers, timestamp_ms: None };
        let delivery = self.producer.send_and_wait(record).await;
        ensure!(matches!(delivery, Delivery::Delivered { .. }), "an outcome: {delivery:?}");
        Ok(())
    }
}
