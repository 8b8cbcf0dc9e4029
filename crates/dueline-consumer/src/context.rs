//! What all jobs of a queue share.

use std::sync::Arc;

use dueline_core::RetryPolicy;
use dueline_store::Sessions;
use dueline_store::effect::{CrashMarks, Effect};
use tokio::sync::{RwLock, Semaphore};

use crate::alarm::Alarms;
use crate::letters::Letters;

/// One kind with its handler.
pub(crate) struct KindSpec {
    pub name: Arc<str>,
    pub effect: Box<dyn Effect>,
    pub retry: RetryPolicy,
    /// Bytes.
    pub max_payload: usize,
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
