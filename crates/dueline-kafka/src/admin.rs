//! Topics, groups and offsets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier};
use rdkafka::admin::{ConfigSource, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};

use crate::client::Plain;
use crate::error::KafkaError;
use crate::ffi;
use crate::settings::KafkaSettings;

/// Events (log lines, errors) of the idle client that are handled before each request.
const EVENTS_PER_REQUEST: usize = 64;

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
    /// `max.message.bytes`, …); empty when only identified.
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
/// librdkafka's calls block, so each runs on tokio's blocking threads, limited by the timeout that the
/// `Admin` was made with. Methods must be called within a tokio runtime.
#[derive(Clone)]
pub struct Admin {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    client: BaseConsumer<Plain>,
    settings: KafkaSettings,
    pub timeout: Duration,
}

impl Admin {
    /// A client whose requests take at most `timeout` each. Connects when first used.
    ///
    /// # Errors
    /// When the settings are refused, by dueline or by librdkafka.
    pub fn new(settings: &KafkaSettings, timeout: Duration) -> Result<Self, KafkaError> {
        let timeout = timeout.max(Duration::from_millis(100));
        let fixed = [("enable.auto.commit", "false".to_owned())];
        let config = settings.client_config(&[], &fixed)?;
        let client = BaseConsumer::from_config_and_context(&config, Plain)
            .map_err(|error| KafkaError::from_native("creating the admin client", &error))?;
        Ok(Self { inner: Arc::new(Inner { client, settings: settings.clone(), timeout }) })
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

    /// Each topic's id, partitions and replication, in the order asked; `None` for those that do not
    /// exist. One request.
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
        self.run(move |inner| {
            let doing = format!("widening topic `{topic}` to {total} partitions");
            let new = NewPartitions::new(&topic, total as usize);
            let results = inner.admin(&doing, async |c, o| c.create_partitions([&new], o).await)?;
            first_error(&doing, results)
        })
        .await
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
        self.run(move |inner| {
            let doing = format!("changing the settings of topic `{topic}`");
            ffi::alter_topic(inner.native(), &topic, &settings, inner.timeout)
                .map_err(|code| inner.error(&doing, code))
        })
        .await
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

    /// For each partition, the first offset whose timestamp is at or after `ms` (milliseconds since the
    /// Unix epoch); `None` where there is none.
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

impl Inner {
    fn native(&self) -> *mut rdkafka::types::RDKafka {
        self.client.client().native_ptr()
    }

    /// Logs what librdkafka had to say since the last request, so that nothing piles up in an idle
    /// client. A zero poll handles one event.
    fn handle_events(&self) {
        for _ in 0..EVENTS_PER_REQUEST {
            let _ = self.client.poll(Duration::ZERO);
        }
    }

    pub(crate) fn error(&self, doing: &str, code: Code) -> KafkaError {
        match code {
            Code::OperationTimedOut | Code::RequestTimedOut => KafkaError::Timeout {
                doing: doing.to_owned(),
                limit_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
                brokers: self.settings.brokers.clone(),
            },
            code => KafkaError::from_code(doing, code),
        }
    }

    fn native_error(&self, doing: &str, error: &rdkafka::error::KafkaError) -> KafkaError {
        match error.rdkafka_error_code() {
            Some(code) => self.error(doing, code),
            None => KafkaError::from_native(doing, error),
        }
    }

    pub(crate) fn identify(
        &self,
        topics: &[String],
    ) -> Result<Vec<Option<TopicDescription>>, KafkaError> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let found = ffi::describe_topics(self.native(), &names, self.timeout)
            .map_err(|code| self.error("describing topics", code))?;
        let mut by_name: BTreeMap<String, TopicDescription> = found
            .into_iter()
            .map(|topic| {
                let description = TopicDescription {
                    name: topic.name.clone(),
                    topic_id: topic.id,
                    partitions: topic.partitions,
                    replication: topic.replication,
                    configs: BTreeMap::new(),
                    overrides: Vec::new(),
                };
                (topic.name, description)
            })
            .collect();
        Ok(topics.iter().map(|name| by_name.remove(name)).collect())
    }

    fn add_configs(&self, topics: &mut [Option<TopicDescription>]) -> Result<(), KafkaError> {
        let doing = "reading the settings of topics";
        let names: Vec<String> = topics.iter().flatten().map(|t| t.name.clone()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let resources: Vec<_> = names.iter().map(|n| ResourceSpecifier::Topic(n)).collect();
        let results = self.admin(doing, async |c, o| c.describe_configs(&resources, o).await)?;
        // The answers come in the order of the question.
        for (topic, result) in topics.iter_mut().flatten().zip(results) {
            let resource = result.map_err(|code| self.error(doing, code))?;
            for entry in resource.entries {
                if entry.source == ConfigSource::DynamicTopic {
                    topic.overrides.push(entry.name.clone());
                }
                if let Some(value) = entry.value.filter(|_| !entry.is_sensitive) {
                    topic.configs.insert(entry.name, value);
                }
            }
            topic.overrides.sort();
        }
        Ok(())
    }

    fn create(&self, spec: &TopicSpec) -> Result<(), KafkaError> {
        let doing = format!("creating topic `{}`", spec.name);
        let partitions = i32::try_from(spec.partitions).unwrap_or(i32::MAX);
        let replication = i32::try_from(spec.replication).unwrap_or(i32::MAX);
        let mut topic = NewTopic::new(&spec.name, partitions, TopicReplication::Fixed(replication));
        for (name, value) in &spec.configs {
            topic = topic.set(name, value);
        }
        let results = self.admin(&doing, async |c, o| c.create_topics([&topic], o).await)?;
        first_error(&doing, results)
    }

    /// Runs one of rust-rdkafka's admin operations, with a client of its own: they are rare, and that
    /// client cannot do the frequent ones.
    pub(crate) fn admin<T>(
        &self,
        doing: &str,
        work: impl AsyncFnOnce(
            &AdminClient<Plain>,
            &AdminOptions,
        ) -> Result<T, rdkafka::error::KafkaError>,
    ) -> Result<T, KafkaError> {
        let config = self.settings.client_config(&[], &[])?;
        let client = AdminClient::from_config_and_context(&config, Plain)
            .map_err(|error| KafkaError::from_native(doing, &error))?;
        let options = AdminOptions::new()
            .request_timeout(Some(self.timeout))
            .operation_timeout(Some(self.timeout));
        tokio::runtime::Handle::current()
            .block_on(work(&client, &options))
            .map_err(|error| self.native_error(doing, &error))
    }

    pub(crate) fn partitions(&self, topic: &str) -> Result<u32, KafkaError> {
        let found = self.identify(&[topic.to_owned()])?.pop().flatten();
        found.map(|t| t.partitions).ok_or_else(|| KafkaError::UnknownTopic(topic.to_owned()))
    }

    pub(crate) fn members(&self, group: &str) -> Result<usize, KafkaError> {
        let doing = format!("describing group `{group}`");
        ffi::group_members(self.native(), group, self.timeout)
            .map_err(|code| self.error(&doing, code))
    }

    pub(crate) fn committed(
        &self,
        group: &str,
        topic: &str,
        partitions: u32,
    ) -> Result<Vec<Option<i64>>, KafkaError> {
        let doing = format!("reading the offsets of group `{group}` in `{topic}`");
        ffi::group_offsets(self.native(), group, topic, partitions, self.timeout)
            .map_err(|code| self.error(&doing, code))
    }

    /// One end of each partition.
    pub(crate) fn ends(
        &self,
        topic: &str,
        partitions: u32,
        end: Offset,
    ) -> Result<Vec<i64>, KafkaError> {
        let asked = (0..partitions).map(|partition| (partition, end));
        let offsets = self.query(topic, asked.collect())?;
        // Every partition has both ends; an empty one has the same offset for both.
        Ok(offsets.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// For each (partition, ms), the first offset whose timestamp is at or after it. One request to
    /// each leader, so a partition may be asked about one time only.
    pub(crate) fn list_offsets(
        &self,
        topic: &str,
        asked: &[(u32, i64)],
    ) -> Result<Vec<Option<i64>>, KafkaError> {
        self.query(topic, asked.iter().map(|(p, ms)| (*p, Offset::Offset(*ms))).collect())
    }

    fn query(
        &self,
        topic: &str,
        asked: Vec<(u32, Offset)>,
    ) -> Result<Vec<Option<i64>>, KafkaError> {
        let doing = format!("looking up offsets of `{topic}`");
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let mut list = TopicPartitionList::with_capacity(asked.len());
        for (partition, at) in &asked {
            let partition = i32::try_from(*partition).unwrap_or(i32::MAX);
            list.add_partition_offset(topic, partition, *at)
                .map_err(|error| self.native_error(&doing, &error))?;
        }
        let found = self
            .client
            .offsets_for_times(list, self.timeout)
            .map_err(|error| self.native_error(&doing, &error))?;
        let mut offsets = Vec::with_capacity(asked.len());
        for (partition, _) in &asked {
            let partition = i32::try_from(*partition).unwrap_or(i32::MAX);
            let element = found
                .find_partition(topic, partition)
                .ok_or_else(|| self.error(&doing, Code::UnknownPartition))?;
            element.error().map_err(|error| self.native_error(&doing, &error))?;
            offsets.push(match element.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            });
        }
        Ok(offsets)
    }
}

/// The first failure among results that each concern one topic.
fn first_error(
    doing: &str,
    results: Vec<Result<String, (String, Code)>>,
) -> Result<(), KafkaError> {
    match results.into_iter().find_map(Result::err) {
        Some((_, code)) => Err(KafkaError::from_code(doing, code)),
        None => Ok(()),
    }
}
