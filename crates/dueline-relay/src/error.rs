//! What can go wrong in a relay.

use dueline_kafka::KafkaError;
use dueline_store::StoreError;

/// An error of the relay.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker.
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// What is configured contradicts what is there; the text says what to do.
    #[error("{0}")]
    Refused(String),
    /// This incarnation was declared dead by another relay, which has its lanes now.
    #[error("this relay was declared dead by another, which has its lanes now")]
    DeclaredDead,
    /// Asked to stop before it had begun.
    #[error("stopped while starting")]
    Stopped,
}

impl RelayError {
    /// Whether starting again cannot help before somebody changes something.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused(_)
                | Self::Store(StoreError::Refused(_))
                | Self::Kafka(KafkaError::Refused { .. } | KafkaError::Config(_))
        )
    }
}
