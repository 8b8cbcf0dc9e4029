//! Why a consumer does not start, or stops.

use dueline_kafka::KafkaError;
use dueline_store::StoreError;

/// Why a consumer does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// The configuration contradicts this program or the database; starting again cannot help.
    #[error("{0}")]
    Refused(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker.
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// A task of this process panicked.
    #[error("a part of the consumer ended badly: {0}")]
    Broken(String),
}

impl ConsumerError {
    /// Whether somebody must change something before a start can succeed.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Store(StoreError::Refused(_)) => true,
            Self::Kafka(error) => {
                matches!(error, KafkaError::Refused { .. } | KafkaError::Config(_))
            }
            Self::Store(_) | Self::Broken(_) => false,
        }
    }
}
