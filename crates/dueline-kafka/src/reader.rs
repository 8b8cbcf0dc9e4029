//! Reads a whole topic up to its end, for tools: no group, nothing committed.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError as Native;
use rdkafka::{Offset, TopicPartitionList};

use crate::client::Plain;
use crate::consumer::owned;
use crate::error::KafkaError;
use crate::record::OwnedRecord;
use crate::settings::KafkaSettings;

/// The longest wait for one record before the deadline is looked at again.
const POLL: Duration = Duration::from_millis(100);

/// What a whole read came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSummary {
    /// Records given to the callback.
    pub records: u64,
    /// Whether every partition was read up to its end at the start; `false` when the callback
    /// stopped.
    pub complete: bool,
}

/// Reads a topic from its start up to the end that it had when the call began, committed records
/// only, and gives each record to `callback`, in order within a partition. Blocks: call it on a
/// thread that may (`spawn_blocking`).
///
/// # Errors
/// [`KafkaError::UnknownTopic`]; [`KafkaError::Timeout`] when `timeout` is over before the end is
/// reached; [`KafkaError::Request`] when the brokers refuse.
pub fn read_all(
    settings: &KafkaSettings,
    topic: &str,
    timeout: Duration,
    callback: impl FnMut(OwnedRecord) -> ControlFlow<()>,
) -> Result<ReadSummary, KafkaError> {
    read_since(settings, topic, None, timeout, callback)
}

/// [`read_all`] from the first record of each partition on whose timestamp is at or after `since_ms`
/// (milliseconds since the Unix epoch).
///
/// # Errors
/// As [`read_all`].
pub fn read_since(
    settings: &KafkaSettings,
    topic: &str,
    since_ms: Option<i64>,
    timeout: Duration,
    mut callback: impl FnMut(OwnedRecord) -> ControlFlow<()>,
) -> Result<ReadSummary, KafkaError> {
    let deadline = Instant::now() + timeout;
    let doing = format!("reading `{topic}`");
    let late = || KafkaError::Timeout {
        doing: doing.clone(),
        limit_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        brokers: settings.brokers.clone(),
    };
    let native = |error: &Native| KafkaError::from_native(&doing, error);
    let consumer = open(settings)?;
    let mut left = ends(&consumer, topic, deadline, &late)?;
    let mut list = TopicPartitionList::with_capacity(left.len());
    for partition in left.keys() {
        let from = since_ms.map_or(Offset::Beginning, Offset::Offset);
        list.add_partition_offset(topic, *partition, from).map_err(|e| native(&e))?;
    }
    if since_ms.is_some() {
        // The instants stand where offsets belong; the answer has the offsets, or the ends.
        list = consumer.offsets_for_times(list, timeout).map_err(|e| native(&e))?;
    }
    consumer.assign(&list).map_err(|e| native(&e))?;

    let mut topics = HashMap::new();
    let mut summary = ReadSummary { records: 0, complete: true };
    while !left.is_empty() {
        if Instant::now() >= deadline {
            return Err(late());
        }
        match consumer.poll(POLL) {
            None => {}
            Some(Ok(message)) => {
                let record = owned(&message, &mut topics);
                let Some(end) = left.get(&record.partition).copied() else { continue };
                let (partition, offset) = (record.partition, record.offset);
                if offset < end {
                    summary.records += 1;
                    if callback(record).is_break() {
                        return Ok(ReadSummary { complete: false, ..summary });
                    }
                }
                if offset + 1 >= end {
                    left.remove(&partition);
                }
            }
            // The last offsets may be markers, which are never handed out: the end itself tells.
            Some(Err(Native::PartitionEOF(partition))) => {
                left.remove(&partition);
            }
            Some(Err(error)) => {
                let error = native(&error);
                if !error.is_transient() {
                    return Err(error);
                }
                tracing::warn!(%error, "reading failed, trying again");
            }
        }
    }
    Ok(summary)
}

fn open(settings: &KafkaSettings) -> Result<BaseConsumer<Plain>, KafkaError> {
    let fixed = [
        // librdkafka assigns only where a group is named. This one is never joined and commits
        // nothing.
        ("group.id", "dueline-reader"),
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("enable.partition.eof", "true"),
        ("isolation.level", "read_committed"),
        ("auto.offset.reset", "earliest"),
    ];
    let fixed = fixed.map(|(name, value)| (name, value.to_owned()));
    let config = settings.client_config(&[], &fixed)?;
    BaseConsumer::from_config_and_context(&config, Plain)
        .map_err(|error| KafkaError::from_native("creating the reader", &error))
}

/// The end of each partition that has records.
fn ends(
    consumer: &BaseConsumer<Plain>,
    topic: &str,
    deadline: Instant,
    late: &dyn Fn() -> KafkaError,
) -> Result<HashMap<i32, i64>, KafkaError> {
    let remaining = || match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(late()),
        left => Ok(left),
    };
    let doing = format!("looking up the ends of `{topic}`");
    let native = |error: &Native| KafkaError::from_native(&doing, error);
    let metadata = consumer.fetch_metadata(Some(topic), remaining()?).map_err(|e| native(&e))?;
    let found = metadata.topics().iter().find(|t| t.name() == topic);
    let partitions = found.filter(|t| t.error().is_none()).map(|t| t.partitions());
    let mut ends = HashMap::new();
    for partition in partitions.ok_or_else(|| KafkaError::UnknownTopic(topic.to_owned()))? {
        let (low, high) = consumer
            .fetch_watermarks(topic, partition.id(), remaining()?)
            .map_err(|e| native(&e))?;
        if high > low {
            ends.insert(partition.id(), high);
        }
    }
    Ok(ends)
}
