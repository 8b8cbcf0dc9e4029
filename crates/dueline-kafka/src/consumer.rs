//! One member of a consumer group, with bounded buffers per partition.
//!
//! A thread of its own polls librdkafka without ever stopping, so that a slow handler does not cost
//! the membership; what it reads waits in a buffer per partition. A full buffer pauses its own
//! partition and no other. The async side takes records, works, and says which are finished;
//! offsets follow.

mod context;
mod poll;
mod renew;
mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::KafkaError;
use crate::record::{OwnedRecord, TopicPartition};
use crate::settings::KafkaSettings;
use state::{Limits, State};

pub(crate) use poll::owned;

/// How a group member reads.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The consumer group.
    pub group: String,
    /// The topics to subscribe to.
    pub topics: Vec<String>,
    /// How long the broker waits for a heartbeat before it gives the partitions to others.
    pub session_timeout: Duration,
    /// How long this process may go without polling before it leaves the group. Only a rebalance
    /// that waits for in-flight work stops the polls; at least `session_timeout`.
    pub max_poll_interval: Duration,
    /// How often finished offsets are committed.
    pub commit_interval: Duration,
    /// How long a rebalance waits for in-flight work of the partitions that are taken away. It must
    /// be well below `max_poll_interval`.
    pub revoke_timeout: Duration,
    /// Records waiting in one partition's buffer at which its fetching pauses (it resumes at half).
    pub buffer_records: usize,
    /// Bytes waiting in one partition's buffer at which its fetching pauses (it resumes at half).
    pub buffer_bytes: usize,
    /// Records of one partition between reception and the committable offset at which its fetching
    /// pauses: what one stuck record may let pile up behind it.
    pub max_outstanding: usize,
}

impl ConsumerConfig {
    /// The defaults for a group and its topics.
    #[must_use]
    pub fn new(group: impl Into<String>, topics: Vec<String>) -> Self {
        Self {
            group: group.into(),
            topics,
            session_timeout: Duration::from_secs(10),
            max_poll_interval: Duration::from_secs(60),
            commit_interval: Duration::from_millis(500),
            revoke_timeout: Duration::from_secs(20),
            buffer_records: 2_000,
            buffer_bytes: 4 << 20,
            max_outstanding: 10_000,
        }
    }

    fn check(&self) -> Result<(), KafkaError> {
        if self.topics.is_empty() {
            return Err(KafkaError::Config(format!("group `{}` has no topics", self.group)));
        }
        if self.revoke_timeout >= self.max_poll_interval {
            return Err(KafkaError::Config(format!(
                "a rebalance may wait {} ms for work in flight, and must wait less than the {} ms \
                 after which the broker takes this member for dead",
                self.revoke_timeout.as_millis(),
                self.max_poll_interval.as_millis(),
            )));
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits {
            records: self.buffer_records.max(1),
            bytes: self.buffer_bytes.max(1),
            outstanding: self.max_outstanding.max(1),
        }
    }
}

/// A partition that was given to this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedPartition {
    /// The partition.
    pub partition: TopicPartition,
    /// The group's committed offset in it: where reading starts. `None` when there is none (reading
    /// starts at the log's start), or when the broker could not be asked.
    pub committed: Option<i64>,
}

/// What happens to the membership.
#[derive(Debug)]
pub enum Event {
    /// These partitions are now this member's, in addition to what it has. May be empty: the member
    /// has joined and there is nothing for it.
    Assigned(Vec<AssignedPartition>),
    /// These partitions are being taken away. No more records of them are handed out; finish what
    /// is in flight, [`Consumer::mark_finished`] it, then [`RevokeAck::done`]. The rebalance waits
    /// for that ([`ConsumerConfig::revoke_timeout`]) and commits.
    Revoked(Vec<TopicPartition>, RevokeAck),
    /// These partitions are gone already: another member may have them. Nothing can be committed.
    Lost(Vec<TopicPartition>),
    /// The member cannot go on; its thread ends and the consumer must be made anew.
    Failed(KafkaError),
}

/// Lets a rebalance go on. Dropping it does the same.
#[derive(Debug)]
pub struct RevokeAck(SyncSender<()>);

impl RevokeAck {
    /// All in-flight work of the revoked partitions is finished or given up.
    pub fn done(self) {
        // The rebalance may have stopped waiting.
        let _ = self.0.try_send(());
    }
}

/// How far behind a partition's end the finished work is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionLag {
    /// The partition.
    pub partition: TopicPartition,
    /// Records between the next offset to commit and the partition's end, at the last look.
    pub records: u64,
}

/// What the poll thread and the handle share.
struct Shared {
    state: Mutex<State>,
    readable: Notify,
    closing: AtomicBool,
    last_error: Mutex<Option<(KafkaError, Instant)>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves at worst one record counted twice; reading on is safe.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_error(&self, error: Option<KafkaError>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) =
            error.map(|error| (error, Instant::now()));
    }
}

/// A group member. Its methods may be called from any task; only [`Consumer::next_event`] and
/// [`Consumer::readable`] wait.
pub struct Consumer {
    shared: Arc<Shared>,
    events: tokio::sync::Mutex<mpsc::UnboundedReceiver<Event>>,
    ended: tokio::sync::Mutex<oneshot::Receiver<()>>,
    brokers: String,
}

impl Consumer {
    /// Joins the group in the background; [`Event::Assigned`] tells when.
    ///
    /// # Errors
    /// When the settings are refused, by dueline or by librdkafka, or no thread can be started.
    pub fn start(settings: &KafkaSettings, config: ConsumerConfig) -> Result<Self, KafkaError> {
        config.check()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(config.limits())),
            readable: Notify::new(),
            closing: AtomicBool::new(false),
            last_error: Mutex::new(None),
        });
        // Unbounded, for the poll thread must not wait here. One entry per rebalance.
        let (sender, events) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        poll::spawn(settings, config, Arc::clone(&shared), sender, end)?;
        Ok(Self {
            shared,
            events: tokio::sync::Mutex::new(events),
            ended: tokio::sync::Mutex::new(ended),
            brokers: settings.brokers.clone(),
        })
    }

    /// The next change of the membership; `None` once the member has ended. Safe to cancel.
    pub async fn next_event(&self) -> Option<Event> {
        self.events.lock().await.recv().await
    }

    /// Waits until records may have arrived since the last call returned; look at
    /// [`Consumer::buffered`] before waiting, for it does not tell again of what is there already.
    /// One waiter at a time; safe to cancel.
    pub async fn readable(&self) {
        self.shared.readable.notified().await;
    }

    /// How many records each partition has to take; partitions with none are left out.
    #[must_use]
    pub fn buffered(&self) -> Vec<(TopicPartition, usize)> {
        self.shared.state().buffered()
    }

    /// Takes up to `max` records of a partition, in order. Empty when there are none, or when the
    /// partition is not (or no longer) this member's.
    #[must_use]
    pub fn take(&self, from: &TopicPartition, max: usize) -> Vec<OwnedRecord> {
        self.shared.state().take(from, max)
    }

    /// A record is finished: its offset may be passed once everything received before it is
    /// finished too. Unknown offsets are ignored.
    pub fn mark_finished(&self, of: &TopicPartition, offset: i64) {
        self.shared.state().finish(of, offset);
    }

    /// [`Consumer::mark_finished`] for many records of one partition, under one lock.
    pub fn mark_all_finished(&self, of: &TopicPartition, offsets: impl IntoIterator<Item = i64>) {
        let mut state = self.shared.state();
        for offset in offsets {
            state.finish(of, offset);
        }
    }

    /// The last offset of a partition that the broker acknowledged: the one it was assigned with,
    /// or a later commit of this member.
    #[must_use]
    pub fn committed(&self, of: &TopicPartition) -> Option<i64> {
        self.shared.state().partitions.get(of)?.committed
    }

    /// Stops fetching from a partition, within some 10 ms. What is buffered can still be taken.
    pub fn pause(&self, partition: &TopicPartition) {
        self.shared.state().hold(partition, true);
    }

    /// Ends a [`Consumer::pause`].
    pub fn resume(&self, partition: &TopicPartition) {
        self.shared.state().hold(partition, false);
    }

    /// Reads a partition again from `offset` on. Records from there on that are buffered are
    /// dropped, and those in flight are forgotten: they come again. Answers whether the partition
    /// is assigned.
    pub fn rewind(&self, partition: &TopicPartition, offset: i64) -> bool {
        self.shared.state().rewind(partition, offset)
    }

    /// How far behind each assigned partition is, as of the last second or so. Partitions of which
    /// nothing was fetched yet are left out.
    #[must_use]
    pub fn lag(&self) -> Vec<PartitionLag> {
        let state = self.shared.state();
        let known = state.partitions.iter();
        known
            .filter_map(|(name, p)| {
                Some(PartitionLag { partition: name.clone(), records: p.lag()? })
            })
            .collect()
    }

    /// All records that are behind: the sum of [`Consumer::lag`].
    #[must_use]
    pub fn records_lag(&self) -> u64 {
        self.lag().iter().map(|lag| lag.records).sum()
    }

    /// The last error of reading or committing and how long ago it was, if no record has come and
    /// no commit has succeeded since. An idle member cannot tell by itself that it is over: look at
    /// the age.
    #[must_use]
    pub fn last_error(&self) -> Option<(KafkaError, Duration)> {
        let last = self.shared.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|(error, at)| (error.clone(), at.elapsed()))
    }

    /// Commits what is finished and leaves the group. Work in flight should be finished before:
    /// nothing waits for it here. [`Event::Revoked`] may still be seen on the way.
    ///
    /// # Errors
    /// [`KafkaError::Timeout`] when leaving takes longer; it goes on in the background.
    pub async fn close(&self, timeout: Duration) -> Result<(), KafkaError> {
        self.shared.closing.store(true, Ordering::SeqCst);
        let mut ended = self.ended.lock().await;
        // An error of the receiver means that the thread has ended: that is what is waited for.
        match tokio::time::timeout(timeout, &mut *ended).await {
            Ok(_) => Ok(()),
            Err(_) => Err(KafkaError::Timeout {
                doing: "leaving the consumer group".to_owned(),
                limit_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
                brokers: self.brokers.clone(),
            }),
        }
    }
}

/// A dropped handle makes the member commit and leave in the background.
impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let assigned = self.shared.state().partitions.len();
        f.debug_struct("Consumer").field("assigned", &assigned).finish_non_exhaustive()
    }
}
