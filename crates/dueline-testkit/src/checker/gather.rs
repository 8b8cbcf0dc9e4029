//! Reading the evidence: tables, topics, dead letters, offsets.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_config::Config;
use dueline_core::{DeadLetter, Envelope, Micros, TaskState};
use dueline_kafka::{Admin, KafkaSettings, OwnedRecord, read_since};
use sqlx::{PgPool, Row as _, postgres::PgRow};

use super::evidence::{Alarm, Event, Evidence, Letter, Offset, Published, Stranded, Task};

/// The most that reading one topic, or one answer of the broker, may take.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const ASK_TIMEOUT: Duration = Duration::from_secs(15);

/// Where the evidence is.
#[derive(Clone, Debug)]
pub struct Places {
    /// How to reach the broker.
    pub kafka: KafkaSettings,
    /// The queues.
    pub queues: Vec<Queue>,
}

/// One queue's topics and group.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The handling group.
    pub group: String,
    /// The tier topics.
    pub topics: Vec<String>,
    /// The dead-letter topic.
    pub dead_letters: String,
}

impl Places {
    /// The places that a configuration names.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let mut kafka = KafkaSettings::new(config.kafka.bootstrap_servers());
        kafka.properties = config.kafka.exposed_properties();
        let queues = config.queues.values().map(|queue| Queue {
            group: queue.group.clone(),
            topics: queue.tier_topics(),
            dead_letters: queue.dead_letter_topic(),
        });
        Self { kafka, queues: queues.collect() }
    }
}

/// Reads tables, topics and offsets. What clients were told and the business's own ledger
/// (`heard`, `effects`, `contradictions`, `business_objects`) is for the caller to add.
///
/// # Errors
/// When the database or the broker does not answer.
pub async fn gather(pool: &PgPool, places: &Places) -> Result<Evidence> {
    let mut evidence = Evidence {
        tasks: tasks(pool).await?,
        orphans: sqlx::query_scalar(include_str!("../../sql/checker/orphans.sql"))
            .fetch_all(pool)
            .await?,
        events: events(pool).await?,
        ..Evidence::default()
    };
    for queue in &places.queues {
        for topic in &queue.topics {
            evidence.offsets.extend(offsets(&places.kafka, &queue.group, topic).await?);
            evidence.published.extend(read(&places.kafka, topic, None, published).await?);
        }
        evidence.letters.extend(read(&places.kafka, &queue.dead_letters, None, letter).await?);
    }
    Ok(evidence)
}

/// Reads the records of one tier topic, whole: before it is deleted, for example.
///
/// # Errors
/// When the broker does not answer.
pub async fn read_published(places: &Places, topic: &str) -> Result<Vec<Published>> {
    read(&places.kafka, topic, None, published).await
}

/// How many records the groups have not passed yet, in all tier topics.
///
/// # Errors
/// When the broker does not answer.
pub async fn lag(places: &Places) -> Result<i64> {
    let mut lag = 0;
    for queue in &places.queues {
        for topic in &queue.topics {
            let offsets = offsets(&places.kafka, &queue.group, topic).await?;
            lag += offsets.iter().map(|o| o.end - o.committed.unwrap_or(o.low)).sum::<i64>();
        }
    }
    Ok(lag)
}

/// How often each layer stopped a duplicate (I5).
///
/// # Errors
/// When the database does not answer.
pub async fn duplicates(pool: &PgPool) -> Result<BTreeMap<String, i64>> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as(include_str!("../../sql/checker/duplicates.sql")).fetch_all(pool).await?;
    Ok(rows.into_iter().collect())
}

async fn tasks(pool: &PgPool) -> Result<Vec<Task>> {
    let rows = sqlx::query(include_str!("../../sql/checker/tasks.sql")).fetch_all(pool).await?;
    rows.iter().map(task).collect()
}

fn task(row: &PgRow) -> Result<Task> {
    let alarm_generation: Option<i32> = row.try_get("alarm_generation")?;
    let stranded_generation: Option<i32> = row.try_get("stranded_generation")?;
    let dedupe: Option<String> = row.try_get("dedupe_outcome")?;
    Ok(Task {
        id: row.try_get("id")?,
        kind: row.try_get("kind")?,
        key: row.try_get("key")?,
        queue: row.try_get("queue")?,
        tier: row.try_get("tier")?,
        state: row.try_get::<String, _>("state")?.parse()?,
        generation: row.try_get("generation")?,
        attempt: row.try_get("attempt")?,
        due_at: Micros(row.try_get("due_at")?),
        finished_at: row.try_get::<Option<i64>, _>("finished_at")?.map(Micros),
        alarm: match alarm_generation {
            None => None,
            Some(generation) => Some(Alarm {
                generation,
                attempt: row.try_get("alarm_attempt")?,
                claim_no: row.try_get("alarm_claim_no")?,
                leased: row.try_get("leased")?,
            }),
        },
        deduped: dedupe.as_deref() == Some("done"),
        stranded: match stranded_generation {
            None => None,
            Some(generation) => Some(Stranded {
                generation,
                attempts: row.try_get("stranded_attempts")?,
                lettered: row.try_get("lettered")?,
            }),
        },
    })
}

async fn events(pool: &PgPool) -> Result<Vec<Event>> {
    let rows = sqlx::query(include_str!("../../sql/checker/events.sql")).fetch_all(pool).await?;
    let state = |text: Option<String>| -> Result<Option<TaskState>> {
        Ok(text.map(|text| text.parse()).transpose()?)
    };
    let event = |row: &PgRow| {
        Ok(Event {
            task_id: row.try_get("task_id")?,
            step: row.try_get("step")?,
            from: state(row.try_get("from_state")?)?,
            to: state(row.try_get("to_state")?)?,
            generation: row.try_get("generation")?,
            attempt: row.try_get("attempt")?,
            error: row.try_get("error")?,
        })
    };
    rows.iter().map(event).collect()
}

/// Reads a topic on a thread that may block.
pub(super) async fn read<T: Send + 'static>(
    settings: &KafkaSettings,
    topic: &str,
    since_ms: Option<i64>,
    convert: fn(OwnedRecord) -> T,
) -> Result<Vec<T>> {
    let (settings, topic) = (settings.clone(), topic.to_owned());
    let read = move || {
        let mut all = Vec::new();
        let summary = read_since(&settings, &topic, since_ms, READ_TIMEOUT, |record| {
            all.push(convert(record));
            ControlFlow::Continue(())
        })?;
        ensure!(summary.complete, "{topic} was not read to its end");
        Ok(all)
    };
    tokio::task::spawn_blocking(read).await?
}

pub(super) fn published(record: OwnedRecord) -> Published {
    Published {
        topic: record.topic.to_string(),
        partition: record.partition,
        offset: record.offset,
        envelope: Envelope::read(&record).ok(),
    }
}

fn letter(record: OwnedRecord) -> Letter {
    let letter = DeadLetter::read(&record);
    Letter {
        task: letter.as_ref().and_then(|l| l.task.as_ref()).map(|t| (t.task_id, t.generation)),
        origin: letter.and_then(|l| l.origin).map(|o| (o.topic, o.partition, o.offset)),
    }
}

pub(super) async fn offsets(
    settings: &KafkaSettings,
    group: &str,
    topic: &str,
) -> Result<Vec<Offset>> {
    let admin = Admin::new(settings, ASK_TIMEOUT)?;
    let view = admin.group_view(group, topic).await.context("asking for committed offsets")?;
    let ends = admin.watermarks(topic).await.context("asking for the ends of a topic")?;
    let pairs = ends.iter().zip(&view.committed).enumerate();
    Ok(pairs
        .map(|(partition, (ends, committed))| Offset {
            group: group.to_owned(),
            topic: topic.to_owned(),
            partition: i32::try_from(partition).unwrap_or(i32::MAX),
            committed: *committed,
            low: ends.low,
            end: ends.high,
        })
        .collect())
}
