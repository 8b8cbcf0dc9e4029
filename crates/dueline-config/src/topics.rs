//! The topics that a queue needs, and their description as Strimzi `KafkaTopic` resources, which
//! `kubectl apply` and `dueline apply` take alike.

use std::fmt::Write as _;

use crate::model::{Config, Queue};

/// A topic as it should be on the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name on the broker.
    pub name: String,
    /// Number of partitions.
    pub partitions: i32,
    /// Copies of each partition.
    pub replication: i32,
    /// Topic settings by name, sorted.
    pub config: Vec<(&'static str, String)>,
}

impl Topic {
    /// The topic's name as Kubernetes allows one: `_` becomes `-`, and no part ends with it.
    #[must_use]
    pub fn resource_name(&self) -> String {
        let parts: Vec<String> = self
            .name
            .split('.')
            .map(|part| part.replace('_', "-").trim_end_matches('-').to_owned())
            .collect();
        parts.join(".")
    }
}

/// The topics of a queue: one a tier, in the order of the tiers, then that of the outcomes where another
/// team handles it, then the dead-letter topic.
#[must_use]
pub fn of_queue(queue: &Queue) -> Vec<Topic> {
    let topic = |name: String, retention: std::time::Duration| Topic {
        name,
        partitions: queue.partitions,
        replication: queue.replication,
        config: vec![
            ("cleanup.policy", "delete".to_owned()),
            ("retention.ms", retention.as_millis().to_string()),
            // The relay asks for the first record at or after a claim; the broker's own append time
            // would be another clock's.
            ("message.timestamp.type", "CreateTime".to_owned()),
        ],
    };
    queue
        .tier_topics()
        .into_iter()
        .chain(queue.outcome_topic())
        .map(|name| topic(name, queue.topic_retention))
        .chain([topic(queue.dead_letter_topic(), queue.dead_letter_retention)])
        .collect()
}

/// The topics of all queues.
#[must_use]
pub fn of_config(config: &Config) -> Vec<Topic> {
    config.queues.values().flat_map(of_queue).collect()
}

/// The Strimzi `KafkaTopic` documents of one queue; empty when there is no such queue.
///
/// The label names the Kafka cluster `dueline`: change it to yours.
#[must_use]
pub fn strimzi_yaml(config: &Config, queue: &str) -> String {
    let mut yaml = String::new();
    let Some(queue) = config.queues.get(queue) else { return yaml };
    let _ = writeln!(yaml, "# Generated from the configuration: change that, not this file.");
    for topic in of_queue(queue) {
        write_topic(&mut yaml, &topic);
    }
    yaml
}

fn write_topic(yaml: &mut String, topic: &Topic) {
    // Names are made of a-z, 0-9, `.`, `_` and `-` only; quotes keep `7d` and `1e3` texts.
    let _ = write!(
        yaml,
        "---\n\
         apiVersion: kafka.strimzi.io/v1\n\
         kind: KafkaTopic\n\
         metadata:\n  \
           name: \"{}\"\n  \
           labels:\n    \
             strimzi.io/cluster: dueline\n\
         spec:\n  \
           topicName: \"{}\"\n  \
           partitions: {}\n  \
           replicas: {}\n  \
           config:\n",
        topic.resource_name(),
        topic.name,
        topic.partitions,
        topic.replication,
    );
    for (key, value) in &topic.config {
        let number = value.bytes().all(|b| b.is_ascii_digit());
        let quote = if number { "" } else { "\"" };
        let _ = writeln!(yaml, "    {key}: {quote}{value}{quote}");
    }
}
