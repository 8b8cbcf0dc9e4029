//! What can go wrong when talking to Kafka, in words that say what to do.

use rdkafka::error::KafkaError as Native;
use rdkafka::types::RDKafkaErrorCode as Code;

/// An error of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaError {
    /// A librdkafka property is one that dueline sets itself.
    #[error("Kafka property `{property}` cannot be set: {reason}")]
    Refused {
        /// The property's name.
        property: String,
        /// Why dueline decides it.
        reason: &'static str,
    },
    /// librdkafka refuses the configuration.
    #[error("the Kafka configuration is not valid: {0}")]
    Config(String),
    /// A request failed. `code` is librdkafka's name of the error.
    #[error("{doing} failed: {detail} ({code}){}", hint(*transient))]
    Request {
        /// What was being done, with the topic or group it concerns.
        doing: String,
        /// librdkafka's own words.
        detail: String,
        /// librdkafka's name of the error.
        code: String,
        /// Whether the same request may succeed later without anybody's help.
        transient: bool,
    },
    /// A topic does not exist.
    #[error("topic `{0}` does not exist: create it with `dueline apply`")]
    UnknownTopic(String),
    /// The request did not end within its limit.
    #[error("{doing} took longer than {limit_ms} ms: is the broker at `{brokers}` reachable?")]
    Timeout {
        /// What was being done.
        doing: String,
        /// The limit, in milliseconds.
        limit_ms: u64,
        /// The brokers that were asked.
        brokers: String,
    },
    /// The client is closed, or its thread has ended.
    #[error("the Kafka client is closed")]
    Closed,
}

fn hint(transient: bool) -> &'static str {
    if transient { "; it may succeed later" } else { "" }
}

impl KafkaError {
    /// Whether the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Request { transient, .. } => *transient,
            Self::Timeout { .. } => true,
            Self::Refused { .. } | Self::Config(_) | Self::UnknownTopic(_) | Self::Closed => false,
        }
    }

    /// An error code, with what was being done when it came.
    pub(crate) fn from_code(doing: impl Into<String>, code: Code) -> Self {
        Self::Request {
            doing: doing.into(),
            detail: code.to_string(),
            code: format!("{code:?}"),
            transient: is_transient(code),
        }
    }

    /// An error of rust-rdkafka, with what was being done when it came.
    pub(crate) fn from_native(doing: impl Into<String>, error: &Native) -> Self {
        match error {
            // Its own text prints the value, which may be a password.
            Native::ClientConfig(_, description, key, value) => {
                let safe = if value.is_empty() {
                    description.clone()
                } else {
                    description.replace(value.as_str(), "<hidden>")
                };
                Self::Config(format!("`{key}`: {safe}"))
            }
            Native::ClientCreation(text) => Self::Config(text.clone()),
            Native::AdminOp(code) => Self::from_code(doing, *code),
            other => match other.rdkafka_error_code() {
                Some(code) => Self::from_code(doing, code),
                None => Self::Request {
                    doing: doing.into(),
                    detail: other.to_string(),
                    code: "local".to_owned(),
                    transient: true,
                },
            },
        }
    }

    /// Whether the broker does not know this kind of request.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Request { code, .. } if code == "UnsupportedFeature")
    }

    /// Whether this says that a topic does not exist.
    #[must_use]
    pub fn is_unknown_topic(&self) -> bool {
        match self {
            Self::UnknownTopic(_) => true,
            Self::Request { code, .. } => {
                code == "UnknownTopicOrPartition" || code == "UnknownTopic"
            }
            _ => false,
        }
    }
}

/// Whether waiting may help. Anything that a person must change first (rights, names, sizes,
/// configuration) is not transient; what is not known here is taken as transient, since a needless
/// retry costs less than giving up on a broker that comes back.
fn is_transient(code: Code) -> bool {
    !matches!(
        code,
        Code::InvalidArgument
            | Code::MessageSizeTooLarge
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::UnknownTopicOrPartition
            | Code::InvalidTopic
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::UnsupportedVersion
            | Code::UnsupportedFeature
            | Code::NotImplemented
            | Code::SSL
            | Code::Fatal
            | Code::InvalidConfig
            | Code::InvalidPartitions
            | Code::InvalidReplicationFactor
            | Code::PolicyViolation
            | Code::TopicAlreadyExists
            | Code::InvalidRequest
            | Code::InvalidGroupId
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h26_a_refused_value_is_not_in_the_error() {
        let native = Native::ClientConfig(
            rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
            "Invalid value \"hunter2\" for configuration property".into(),
            "sasl.password".into(),
            "hunter2".into(),
        );
        let error = KafkaError::from_native("x", &native);
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        assert!(error.to_string().contains("sasl.password"));
    }

    #[test]
    fn what_a_person_must_mend_is_not_transient() {
        let error = |code| KafkaError::from_code("sending", code);
        assert!(!error(Code::TopicAuthorizationFailed).is_transient());
        assert!(!error(Code::MessageSizeTooLarge).is_transient());
        assert!(error(Code::BrokerTransportFailure).is_transient());
        assert!(error(Code::NotEnoughReplicas).is_transient());
    }
}
