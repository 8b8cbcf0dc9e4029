//! Topics, groups and offsets.

mod inner;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::Offset;

use crate::error::KafkaError;
use crate::settings::KafkaSettings;

pub(crate) use inner::Inner;
#[cfg(feature = "testing")]
pub(crate) use inner::first_error;

/// A topic as the brokers have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// The topic.
    pub name: String,
    /// The broker's id of it: a topic that is deleted and made again has another one.
    pub topic_id: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// How many replicas its first partition has.
    pub replication: u32,
    /// All its effective settings (`message.timestamp.type`, `retention.ms`, `cleanup.policy`,
    /// `max.message.bytes`, …); empty when only identified, and on librdkafka's in-process broker,
    /// which cannot tell them.
    pub configs: BTreeMap<String, String>,
    /// The names of those settings that are set on the topic itself, not inherited.
    pub overrides: Vec<String>,
}

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// The topic.
    pub name: String,
    /// How many partitions, at least 1.
    pub partitions: u32,
    /// How many replicas each has, at least 1.
    pub replication: u32,
    /// Settings beside the broker's defaults.
    pub configs: BTreeMap<String, String>,
}

/// What a group has done with a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Living members of the group, whatever they read.
    pub members: usize,
    /// The committed offset of each partition; `None` where nothing is committed.
    pub committed: Vec<Option<i64>>,
}

/// The ends of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// The first offset that is still there.
    pub low: i64,
    /// The offset of the next record to be readable.
    pub high: i64,
}

/// Asks the brokers, and changes topics. Cheap to clone; every clone shares one connection.
///
/// librdkafka's calls block, so each runs on tokio's blocking threads, limited by the timeout that
/// the `Admin` was made with. Methods must be called within a tokio runtime.
#[derive(Clone)]
pub struct Admin {
    pub(crate) inner: Arc<Inner>,
}

impl Admin {
    /// A client whose requests take at most `timeout` each. Connects when first used.
    ///
    /// # Errors
    /// When the settings are refused, by dueline or by librdkafka.
    pub fn new(settings: &KafkaSettings, timeout: Duration) -> Result<Self, KafkaError> {
        Ok(Self { inner: Arc::new(Inner::new(settings, timeout)?) })
    }

    /// Runs blocking work with the shared client.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, KafkaError> {
        let inner = Arc::clone(&self.inner);
        let task = tokio::task::spawn_blocking(move || {
            inner.handle_events();
            work(&inner)
        });
        task.await.map_err(|_| KafkaError::Closed)?
    }

    /// Each topic's id, partitions and replication, in the order asked; `None` for those that do
    /// not exist. One request.
    ///
    /// # Errors
    /// When the brokers do not answer in time, or do not allow it.
    pub async fn identify(
        &self,
        topics: &[String],
    ) -> Result<Vec<Option<TopicDescription>>, KafkaError> {
        let topics = topics.to_vec();
        self.run(move |inner| inner.identify(&topics)).await
    }

    /// [`Admin::identify`] with all settings of each topic.
    ///
    /// # Errors
    /// When the brokers do not answer in time, or do not allow it.
    pub async fn describe(
        &self,
        topics: &[String],
    ) -> Result<Vec<Option<TopicDescription>>, KafkaError> {
        let topics = topics.to_vec();
        self.run(move |inner| {
            let mut found = inner.identify(&topics)?;
            inner.add_configs(&mut found)?;
            Ok(found)
        })
        .await
    }

    /// Creates a topic and waits until all brokers know it. One that exists already is an error.
    ///
    /// # Errors
    /// When it exists, is not valid, or the brokers do not answer in time.
    pub async fn create(&self, spec: TopicSpec) -> Result<(), KafkaError> {
        self.run(move |inner| inner.create(&spec)).await
    }

    /// Widens a topic to `total` partitions.
    ///
    /// # Errors
    /// When it has as many or more, or the brokers refuse or do not answer.
    pub async fn add_partitions(&self, topic: &str, total: u32) -> Result<(), KafkaError> {
        let topic = topic.to_owned();
        self.run(move |inner| inner.widen(&topic, total)).await
    }

    /// Sets settings of a topic; those not named keep their values.
    ///
    /// # Errors
    /// When the brokers refuse a value or do not answer.
    pub async fn alter_config(
        &self,
        topic: &str,
        settings: BTreeMap<String, String>,
    ) -> Result<(), KafkaError> {
        let topic = topic.to_owned();
        self.run(move |inner| inner.alter(&topic, &settings)).await
    }

    /// Members of a group, and its committed offsets in a topic.
    ///
    /// # Errors
    /// [`KafkaError::UnknownTopic`], or when the brokers do not answer in time or do not allow it.
    pub async fn group_view(&self, group: &str, topic: &str) -> Result<GroupView, KafkaError> {
        let (group, topic) = (group.to_owned(), topic.to_owned());
        self.run(move |inner| {
            let partitions = inner.partitions(&topic)?;
            Ok(GroupView {
                members: inner.members(&group)?,
                committed: inner.committed(&group, &topic, partitions)?,
            })
        })
        .await
    }

    /// For each partition, the first offset whose timestamp is at or after `ms` (milliseconds since
    /// the Unix epoch); `None` where there is none.
    ///
    /// # Errors
    /// [`KafkaError::UnknownTopic`], or when the brokers do not answer in time or do not allow it.
    pub async fn offsets_for_times(
        &self,
        topic: &str,
        ms: i64,
    ) -> Result<Vec<Option<i64>>, KafkaError> {
        let topic = topic.to_owned();
        self.run(move |inner| {
            let asked: Vec<_> = (0..inner.partitions(&topic)?).map(|p| (p, ms.max(0))).collect();
            inner.list_offsets(&topic, &asked)
        })
        .await
    }

    /// The ends of each partition.
    ///
    /// # Errors
    /// [`KafkaError::UnknownTopic`], or when the brokers do not answer in time or do not allow it.
    pub async fn watermarks(&self, topic: &str) -> Result<Vec<Watermarks>, KafkaError> {
        let topic = topic.to_owned();
        self.run(move |inner| {
            let partitions = inner.partitions(&topic)?;
            let lows = inner.ends(&topic, partitions, Offset::Beginning)?;
            let highs = inner.ends(&topic, partitions, Offset::End)?;
            Ok(lows.into_iter().zip(highs).map(|(low, high)| Watermarks { low, high }).collect())
        })
        .await
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("settings", &self.inner.settings).finish()
    }
}
