//! What a fault injector does to a broker, and dueline itself never does.

use std::time::Duration;

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::admin::{Admin, first_error};
use crate::client::Plain;
use crate::error::KafkaError;

/// Deletes a topic.
///
/// # Errors
/// When it does not exist, or the brokers refuse or do not answer.
pub async fn delete_topic(admin: &Admin, topic: &str) -> Result<(), KafkaError> {
    let topic = topic.to_owned();
    admin
        .run(move |inner| {
            let doing = format!("deleting topic `{topic}`");
            let results = inner.admin(&doing, async |c, o| c.delete_topics(&[&topic], o).await)?;
            first_error(&doing, results)
        })
        .await
}

/// Deletes a group and its offsets; it must have no members.
///
/// # Errors
/// When it has members or does not exist, or the brokers refuse or do not answer.
pub async fn delete_group(admin: &Admin, group: &str) -> Result<(), KafkaError> {
    let group = group.to_owned();
    admin
        .run(move |inner| {
            let doing = format!("deleting group `{group}`");
            let results = inner.admin(&doing, async |c, o| c.delete_groups(&[&group], o).await)?;
            first_error(&doing, results)
        })
        .await
}

/// Deletes a partition's records below an offset, as retention would.
///
/// # Errors
/// When the brokers refuse or do not answer.
pub async fn delete_records(
    admin: &Admin,
    topic: &str,
    partition: i32,
    before: i64,
) -> Result<(), KafkaError> {
    let topic = topic.to_owned();
    admin
        .run(move |inner| {
            let doing = format!("deleting records of `{topic}`");
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(&topic, partition, Offset::Offset(before))
                .map_err(|error| KafkaError::from_native(&doing, &error))?;
            let found = inner.admin(&doing, async |c, o| c.delete_records(&list, o).await)?;
            found.elements().iter().try_for_each(|element| {
                element.error().map_err(|error| KafkaError::from_native(&doing, &error))
            })
        })
        .await
}

/// Sets the committed offset of each partition of a topic, as an operator would by hand; the group
/// must have no members.
///
/// # Errors
/// When it has members, or the brokers refuse or do not answer.
pub async fn set_offsets(
    admin: &Admin,
    group: &str,
    topic: &str,
    offsets: &[i64],
) -> Result<(), KafkaError> {
    let (group, topic, offsets) = (group.to_owned(), topic.to_owned(), offsets.to_vec());
    admin
        .run(move |inner| {
            let doing = format!("setting the offsets of group `{group}`");
            let native = |error| KafkaError::from_native(&doing, &error);
            let fixed = [("group.id", group.clone()), ("enable.auto.commit", "false".to_owned())];
            let config = inner.settings.client_config(&[], &fixed)?;
            let consumer: BaseConsumer<Plain> =
                BaseConsumer::from_config_and_context(&config, Plain).map_err(native)?;
            let mut list = TopicPartitionList::with_capacity(offsets.len());
            for (partition, offset) in (0..).zip(&offsets) {
                list.add_partition_offset(&topic, partition, Offset::Offset(*offset))
                    .map_err(native)?;
            }
            consumer.commit(&list, CommitMode::Sync).map_err(native)
        })
        .await
}

/// Waits until a topic exists (or not), asking every 20 ms.
///
/// # Errors
/// [`KafkaError::UnknownTopic`] when `limit` is over first.
pub async fn await_topic(
    admin: &Admin,
    topic: &str,
    exists: bool,
    limit: Duration,
) -> Result<(), KafkaError> {
    let deadline = tokio::time::Instant::now() + limit;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    while tokio::time::Instant::now() < deadline {
        ticks.tick().await;
        let found = admin.identify(&[topic.to_owned()]).await?.pop().flatten();
        if found.is_some() == exists {
            return Ok(());
        }
    }
    Err(KafkaError::UnknownTopic(topic.to_owned()))
}
