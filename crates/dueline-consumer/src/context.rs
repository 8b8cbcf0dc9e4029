//! What all jobs of a queue share.

use std::sync::Arc;

use dueline_core::RetryPolicy;
use dueline_store::Sessions;
use dueline_store::effect::{CrashMarks, SqlHandler};
use dueline_webhook::Webhook;
use tokio::sync::{RwLock, Semaphore};

use crate::alarm::Alarms;
use crate::handler::RustEffect;
use crate::letters::Letters;

/// One kind with its handler.
pub(crate) struct KindSpec {
    pub name: Arc<str>,
    pub effect: KindEffect,
    pub retry: RetryPolicy,
    /// Bytes.
    pub max_payload: usize,
}

/// What carries out its effect.
pub(crate) enum KindEffect {
    Sql(SqlHandler),
    Rust(RustEffect),
    Http(Arc<Webhook>),
}

impl KindEffect {
    pub fn webhook(&self) -> Option<&Arc<Webhook>> {
        match self {
            Self::Http(webhook) => Some(webhook),
            Self::Sql(_) | Self::Rust(_) => None,
        }
    }
}

/// What all jobs of a queue share.
pub(crate) struct Context {
    pub queue: String,
    /// The connections, of which batches keep some; the same for all queues.
    pub sessions: Arc<Sessions>,
    /// As many permits as the pool has connections: who waits here is in no trouble.
    pub connections: Arc<Semaphore>,
    /// The role that handlers run as.
    pub role: String,
    pub marks: CrashMarks,
    pub letters: Letters,
    pub alarms: Alarms,
    /// How often a message may be in work when its consumer dies.
    pub crash_limit: i32,
    /// Held for writing by a lone message that was there at a death, for reading by its lone neighbours;
    /// the same for all queues. Two suspects at work at once would share the next death.
    pub suspicion: Arc<RwLock<()>>,
}
