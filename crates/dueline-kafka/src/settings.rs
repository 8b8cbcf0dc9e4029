//! How to reach Kafka: brokers and librdkafka properties, with what correctness needs kept fixed.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;

use crate::error::KafkaError;

/// How to reach the brokers. `Debug` hides the values of properties that look like secrets.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct KafkaSettings {
    /// `host:port`, separated by commas.
    pub brokers: String,
    /// librdkafka properties, passed on as they are. They win over dueline's defaults, except for
    /// those of [`KafkaSettings::check`].
    pub properties: BTreeMap<String, String>,
    /// What the broker's logs and metrics call this process.
    pub client_id: String,
}

const BY_DUELINE: &str = "dueline sets it from its own configuration";

/// Properties that a user must not set, and why.
const REFUSED: &[(&str, &str)] = &[
    ("bootstrap.servers", "set `brokers` instead"),
    ("metadata.broker.list", "set `brokers` instead"),
    ("client.id", BY_DUELINE),
    ("group.id", "each queue names its one handling group in dueline's configuration"),
    (
        "enable.idempotence",
        "the producer must be idempotent, or a retry inside it doubles messages",
    ),
    ("acks", "a message counts as published only when all in-sync replicas have it"),
    (
        "request.required.acks",
        "a message counts as published only when all in-sync replicas have it",
    ),
    ("partitioner", "it must be murmur2_random, so that Java producers and dueline agree on a key"),
    ("transactional.id", "dueline does not use Kafka transactions: the database row is the truth"),
    ("delivery.timeout.ms", "it must stay below the lease; set dueline's message timeout"),
    ("message.timeout.ms", "it must stay below the lease; set dueline's message timeout"),
    ("enable.auto.commit", "an offset may pass a message only after its effect is committed"),
    ("auto.commit.enable", "an offset may pass a message only after its effect is committed"),
    ("auto.commit.interval.ms", BY_DUELINE),
    ("enable.auto.offset.store", "an offset may pass a message only after its effect is committed"),
    ("auto.offset.reset", "it must be `earliest`, or a new group skips what is already waiting"),
    ("isolation.level", "it must be read_committed, or aborted messages of others are handled"),
    (
        "partition.assignment.strategy",
        "it must be cooperative-sticky, on every member of the group",
    ),
    ("group.protocol", "dueline relies on the classic protocol's cooperative rebalance"),
    ("group.instance.id", "a static member that dies blocks its partitions for a whole session"),
    ("max.poll.interval.ms", BY_DUELINE),
    ("session.timeout.ms", BY_DUELINE),
    ("enable.partition.eof", BY_DUELINE),
    ("allow.auto.create.topics", "a topic that the broker makes up has the wrong partitions"),
    ("log_level", "set dueline's log filter for `librdkafka` instead"),
];

/// Parts of a property's name that mean that its value is a secret.
const SECRET_PARTS: &[&str] = &[
    "password",
    "secret",
    "key",
    "jaas",
    "token",
    "credential",
    "oauthbearer.config",
    "assertion",
];

/// Whether the value of this property must never be shown.
fn is_secret(property: &str) -> bool {
    let lower = property.to_ascii_lowercase();
    SECRET_PARTS.iter().any(|part| lower.contains(part))
}

impl KafkaSettings {
    /// Settings for these brokers without further properties.
    #[must_use]
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            properties: BTreeMap::new(),
            client_id: "dueline".to_owned(),
        }
    }

    /// Checks that there are brokers and that no property is one that dueline must decide.
    ///
    /// # Errors
    /// [`KafkaError::Refused`] names the first such property and why it is fixed.
    pub fn check(&self) -> Result<(), KafkaError> {
        if self.brokers.trim().is_empty() {
            return Err(KafkaError::Config("`brokers` is empty: give host:port".to_owned()));
        }
        for property in self.properties.keys() {
            let refused = REFUSED.iter().find(|(name, _)| name.eq_ignore_ascii_case(property));
            if let Some((_, reason)) = refused {
                return Err(KafkaError::Refused { property: property.clone(), reason });
            }
        }
        Ok(())
    }

    /// The configuration of one client: dueline's defaults, then the user's properties, then what
    /// correctness needs. Never log the result: its `Debug` shows secrets.
    pub(crate) fn client_config(
        &self,
        defaults: &[(&str, String)],
        fixed: &[(&str, String)],
    ) -> Result<ClientConfig, KafkaError> {
        self.check()?;
        let mut config = ClientConfig::new();
        // A broker that comes back is found again within a second or so, not within ten.
        config.set("reconnect.backoff.max.ms", "1000");
        config.set("socket.keepalive.enable", "true");
        config.set("allow.auto.create.topics", "false");
        for (name, value) in defaults {
            config.set(*name, value);
        }
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        for (name, value) in fixed {
            config.set(*name, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        if !self.client_id.is_empty() {
            config.set("client.id", &self.client_id);
        }
        Ok(config)
    }
}

impl fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: BTreeMap<&str, &str> = self
            .properties
            .iter()
            .map(|(name, value)| {
                (name.as_str(), if is_secret(name) { "<hidden>" } else { value.as_str() })
            })
            .collect();
        f.debug_struct("KafkaSettings")
            .field("brokers", &self.brokers)
            .field("client_id", &self.client_id)
            .field("properties", &shown)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(property: &str, value: &str) -> KafkaSettings {
        let mut settings = KafkaSettings::new("localhost:9092");
        settings.properties.insert(property.to_owned(), value.to_owned());
        settings
    }

    #[test]
    fn h26_debug_hides_secrets() {
        for secret in [
            "sasl.password",
            "ssl.key.pem",
            "ssl.key.password",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.config",
            "sasl.jaas.config",
            "SASL.PASSWORD",
        ] {
            let text = format!("{:?}", with(secret, "hunter2"));
            assert!(!text.contains("hunter2"), "{secret}: {text}");
            assert!(text.contains(secret), "the name helps to find a mistake: {text}");
        }
        assert!(format!("{:?}", with("sasl.username", "ann")).contains("ann"));
    }

    #[test]
    fn h10_properties_that_correctness_needs_are_refused_with_a_reason() {
        for property in
            ["enable.idempotence", "acks", "partitioner", "enable.auto.commit", "auto.offset.reset"]
        {
            let error = with(property, "x").check().expect_err(property);
            assert!(error.to_string().contains(property), "{error}");
            assert!(matches!(error, KafkaError::Refused { reason, .. } if reason.len() > 10));
        }
        assert!(with("Acks", "1").check().is_err(), "case does not matter");
        assert!(with("security.protocol", "ssl").check().is_ok());
    }

    #[test]
    fn a_users_property_wins_over_a_default_and_not_over_what_is_fixed() {
        let settings = with("linger.ms", "7");
        let config = settings
            .client_config(&[("linger.ms", "1".into())], &[("acks", "all".into())])
            .expect("valid");
        assert_eq!(config.get("linger.ms"), Some("7"));
        assert_eq!(config.get("acks"), Some("all"));
    }
}
