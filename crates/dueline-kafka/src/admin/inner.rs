//! The blocking half of [`super::Admin`]: one shared client, each request limited by its timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigSource, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError as Native;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};

use super::{TopicDescription, TopicSpec};
use crate::client::Plain;
use crate::error::KafkaError;
use crate::ffi;
use crate::settings::KafkaSettings;

/// Events (log lines, errors) of the idle client that are handled before each request.
const EVENTS_PER_REQUEST: usize = 64;

pub(crate) struct Inner {
    client: BaseConsumer<Plain>,
    pub settings: KafkaSettings,
    /// See [`Inner::broker_to_ask`].
    via: OnceLock<Option<i32>>,
    timeout: Duration,
}

impl Inner {
    pub(super) fn new(settings: &KafkaSettings, timeout: Duration) -> Result<Self, KafkaError> {
        let timeout = timeout.max(Duration::from_millis(100));
        let fixed = [("enable.auto.commit", "false".to_owned())];
        let config = settings.client_config(&[], &fixed)?;
        let client = BaseConsumer::from_config_and_context(&config, Plain)
            .map_err(|error| KafkaError::from_native("creating the admin client", &error))?;
        Ok(Self { client, settings: settings.clone(), via: OnceLock::new(), timeout })
    }

    fn native(&self) -> *mut rdkafka::types::RDKafka {
        self.client.client().native_ptr()
    }

    /// Logs what librdkafka had to say since the last request, so that nothing piles up in an idle
    /// client. A zero poll handles one event.
    pub(super) fn handle_events(&self) {
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

    fn native_error(&self, doing: &str, error: &Native) -> KafkaError {
        match error {
            Native::AdminOp(code) => self.error(doing, *code),
            error => match error.rdkafka_error_code() {
                Some(code) => self.error(doing, code),
                None => KafkaError::from_native(doing, error),
            },
        }
    }

    /// The broker to ask when the controller cannot be: librdkafka's in-process cluster names a
    /// controller, 0, that is none of its brokers. `None` everywhere else.
    fn broker_to_ask(&self, topic: &str) -> Result<Option<i32>, KafkaError> {
        if let Some(known) = self.via.get() {
            return Ok(*known);
        }
        let via = match ffi::controller(self.native(), self.timeout) {
            None => return Err(self.error("finding the controller", Code::OperationTimedOut)),
            Some(0) => {
                let metadata = self
                    .client
                    .fetch_metadata(Some(topic), self.timeout)
                    .map_err(|error| self.native_error("listing the brokers", &error))?;
                let ids: Vec<i32> = metadata.brokers().iter().map(|b| b.id()).collect();
                ids.first().copied().filter(|_| !ids.contains(&0))
            }
            Some(_) => None,
        };
        Ok(*self.via.get_or_init(|| via))
    }

    pub(crate) fn identify(
        &self,
        topics: &[String],
    ) -> Result<Vec<Option<TopicDescription>>, KafkaError> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let names: BTreeSet<&str> = topics.iter().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let via = self.broker_to_ask(names[0])?;
        let found = ffi::describe_topics(self.native(), &names, via, self.timeout)
            .map_err(|code| self.error("describing topics", code))?;
        let by_name: BTreeMap<String, TopicDescription> = found
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
        Ok(topics.iter().map(|name| by_name.get(name).cloned()).collect())
    }

    pub(super) fn add_configs(
        &self,
        topics: &mut [Option<TopicDescription>],
    ) -> Result<(), KafkaError> {
        let doing = "reading the settings of topics";
        let names: Vec<String> = topics.iter().flatten().map(|t| t.name.clone()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let resources: Vec<_> = names.iter().map(|n| ResourceSpecifier::Topic(n)).collect();
        let asked = self.admin(doing, async |c, o| c.describe_configs(&resources, o).await);
        let results = match asked {
            Err(error) if error.is_unsupported() => {
                tracing::warn!(%error, "topic settings are unknown, this broker cannot tell them");
                return Ok(());
            }
            asked => asked?,
        };
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

    pub(super) fn create(&self, spec: &TopicSpec) -> Result<(), KafkaError> {
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

    pub(super) fn widen(&self, topic: &str, total: u32) -> Result<(), KafkaError> {
        let doing = format!("widening topic `{topic}` to {total} partitions");
        let new = NewPartitions::new(topic, total as usize);
        let results = self.admin(&doing, async |c, o| c.create_partitions([&new], o).await)?;
        first_error(&doing, results)
    }

    pub(super) fn alter(
        &self,
        topic: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), KafkaError> {
        let doing = format!("changing the settings of topic `{topic}`");
        ffi::alter_topic(self.native(), topic, settings, self.timeout)
            .map_err(|code| self.error(&doing, code))
    }

    /// Runs one of rust-rdkafka's admin operations, with a client of its own: they are rare, and
    /// that client cannot do the frequent ones.
    pub(crate) fn admin<T>(
        &self,
        doing: &str,
        work: impl AsyncFnOnce(&AdminClient<Plain>, &AdminOptions) -> Result<T, Native>,
    ) -> Result<T, KafkaError> {
        let config = self.settings.client_config(&[], &[])?;
        let client = AdminClient::from_config_and_context(&config, Plain)
            .map_err(|error| KafkaError::from_native(doing, &error))?;
        let options = AdminOptions::new()
            .request_timeout(Some(self.timeout))
            .operation_timeout(Some(self.timeout))
            .broker_id(self.via.get().copied().flatten());
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
        match ffi::group_members(self.native(), group, self.timeout) {
            Ok(members) => Ok(members),
            // librdkafka's in-process broker cannot tell; the demo that uses it runs a consumer.
            Err(Code::UnsupportedFeature) => Ok(1),
            Err(code) => Err(self.error(&doing, code)),
        }
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
pub(crate) fn first_error(
    doing: &str,
    results: Vec<Result<String, (String, Code)>>,
) -> Result<(), KafkaError> {
    match results.into_iter().find_map(Result::err) {
        Some((_, code)) => Err(KafkaError::from_code(doing, code)),
        None => Ok(()),
    }
}
