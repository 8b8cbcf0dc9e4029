//! librdkafka's in-process broker: a demo without any set-up. It keeps nothing and is no substitute
//! for a broker in a test of durability.
//!
//! What works here (a test says so): producing with reports, group members with commits and
//! rebalances, [`crate::read_all`], and of [`crate::Admin`]: `identify`, `watermarks`, `group_view`
//! (but for the members: one is assumed). `describe` finds no settings. `offsets_for_times` finds
//! no record by its timestamp, so [`crate::Admin::still_waiting`] answers *gone*: a backlog costs
//! duplicates, which the guards stop. Creating, widening and altering topics do not work: use
//! [`MockBroker::create_topic`].

use std::fmt;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use crate::admin::TopicSpec;
use crate::error::KafkaError;

/// A running in-process cluster; it ends when this is dropped.
pub struct MockBroker {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

/// Starts a cluster of so many brokers (1 to 9) on loopback ports.
///
/// # Errors
/// When librdkafka cannot start it.
pub fn mock_cluster(brokers: u8) -> Result<MockBroker, KafkaError> {
    let count = i32::from(brokers.clamp(1, 9));
    let cluster = MockCluster::new(count)
        .map_err(|error| KafkaError::from_native("starting the in-process broker", &error))?;
    Ok(MockBroker { cluster })
}

impl MockBroker {
    /// What to put into [`crate::KafkaSettings::brokers`].
    #[must_use]
    pub fn brokers(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    /// Makes a topic; its settings are ignored.
    ///
    /// # Errors
    /// When librdkafka refuses it.
    pub fn create_topic(&self, spec: &TopicSpec) -> Result<(), KafkaError> {
        let partitions = i32::try_from(spec.partitions).unwrap_or(i32::MAX);
        let replication = i32::try_from(spec.replication).unwrap_or(i32::MAX);
        self.cluster
            .create_topic(&spec.name, partitions, replication)
            .map_err(|error| KafkaError::from_native(format!("creating `{}`", spec.name), &error))
    }
}

impl fmt::Debug for MockBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockBroker").field("brokers", &self.brokers()).finish()
    }
}
