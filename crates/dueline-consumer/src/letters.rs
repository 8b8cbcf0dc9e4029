//! Dead letters. The row is dead before its letter is sent; what is not sent here, the relay's sweep sends.

use std::sync::Arc;
use std::time::Duration;

use dueline_core::Micros;
use dueline_core::letter::{DeadLetter, DeadTask, Origin, Reason, header};
use dueline_kafka::{HeaderList, Outcome, OwnedRecord, Producer, Record};
use dueline_store::Pool;
use dueline_store::effect::{FailedTask, Task, lettered};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// The most letters on their way; more are left to the relay.
const MAX_UNDER_WAY: usize = 256;

/// Writes the dead letters of one queue.
#[derive(Clone)]
pub(crate) struct Letters {
    pub producer: Arc<Producer<()>>,
    pub pool: Pool,
    pub queue: String,
    pub topic: String,
    under_way: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Letters {
    pub fn new(producer: Arc<Producer<()>>, pool: Pool, queue: String, topic: String) -> Self {
        let under_way = Arc::new(Semaphore::new(MAX_UNDER_WAY));
        Self { producer, pool, queue, topic, under_way, tasks: TaskTracker::new() }
    }

    /// Tells of a death in the background, and stamps the row when the letter is written.
    pub fn of_death(
        &self,
        task: &Task,
        failed: &FailedTask,
        source: &str,
        record: &OwnedRecord,
        (reason, error): (Reason, &str),
    ) {
        dueline_failpoints::reached("consumer.death.written");
        let Ok(slot) = Arc::clone(&self.under_way).try_acquire_owned() else { return };
        let letter = DeadLetter {
            reason,
            error: error.to_owned(),
            queue: self.queue.clone(),
            at: failed.died_at.unwrap_or_default(),
            task: Some(DeadTask {
                source: source.to_owned(),
                task_id: task.id,
                generation: failed.generation,
                kind: task.kind.to_string(),
                key: task.key.clone(),
                key_hash: task.key_hash,
                attempts: failed.attempt,
            }),
            origin: Some(origin(record)),
        };
        let (own, record) = (self.clone(), record.clone());
        let (id, generation) = (task.id, failed.generation);
        self.tasks.spawn(async move {
            let _slot = slot;
            if dueline_failpoints::planted("letter-noted-before-it-is-sent") {
                return own.stamp(id, generation).await;
            }
            match own.send(&letter, &record).await {
                Outcome::Delivered { .. } => {
                    dueline_failpoints::reached("consumer.letter.sent");
                    own.stamp(id, generation).await;
                    dueline_failpoints::reached("consumer.letter.noted");
                }
                Outcome::NotWritten { error } | Outcome::Unknown { error } => {
                    tracing::warn!(id, %error, "a dead letter is left to the relay");
                }
            }
        });
    }

    async fn stamp(&self, id: i64, generation: i32) {
        // The relay sends it again if this is lost: letters are written at least once.
        if let Err(error) = lettered(&self.pool, id, generation).await {
            tracing::warn!(id, %error, "a dead letter is written but not noted");
        }
    }

    /// The letter of a message that no row can be told from: its only trace, so the caller waits for it.
    pub async fn without_row(
        &self,
        record: &OwnedRecord,
        at: Micros,
        (reason, error): (Reason, &str),
    ) -> Outcome {
        let letter = DeadLetter {
            reason,
            error: error.to_owned(),
            queue: self.queue.clone(),
            at,
            task: None,
            origin: Some(origin(record)),
        };
        self.send(&letter, record).await
    }

    async fn send(&self, letter: &DeadLetter, record: &OwnedRecord) -> Outcome {
        let mut headers = HeaderList::with_capacity(record.headers.len() + 16);
        for (name, value) in &record.headers {
            if !name.starts_with(header::PREFIX) {
                headers.push(name, value);
            }
        }
        for (name, value) in letter.headers() {
            headers.push(name, value.as_bytes());
        }
        let record = Record {
            topic: &self.topic,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers,
            timestamp_ms: None,
        };
        let outcome = self.producer.send_and_wait(record).await;
        let result = match outcome {
            Outcome::Delivered { .. } => "delivered",
            Outcome::NotWritten { .. } => "not_written",
            Outcome::Unknown { .. } => "unknown",
        };
        metrics::counter!(
            "dueline_consumer_letters_total", "queue" => self.queue.clone(), "outcome" => result
        )
        .increment(1);
        outcome
    }

    /// Waits for the letters that are under way, at most `timeout`.
    pub async fn drain(&self, timeout: Duration) {
        self.tasks.close();
        if tokio::time::timeout(timeout, self.tasks.wait()).await.is_err() {
            tracing::warn!("some dead letters are left to the relay");
        }
    }
}

fn origin(record: &OwnedRecord) -> Origin {
    Origin { topic: record.topic.to_string(), partition: record.partition, offset: record.offset }
}
