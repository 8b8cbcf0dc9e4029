//! The poll thread of a group member.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError as Native;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, Timestamp, TopicPartitionList};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::context::GroupContext;
use super::renew::Renewals;
use super::{ConsumerConfig, Event, Shared};
use crate::error::KafkaError;
use crate::ffi::{self, CommitQueue};
use crate::record::{OwnedRecord, TopicPartition};
use crate::settings::KafkaSettings;

/// The longest wait for a record, and so the longest delay of a pause, a resume or a close.
const POLL: Duration = Duration::from_millis(10);
/// The most records taken from librdkafka in one round, before pauses and commits are looked at.
const ROUND: usize = 500;
/// How often the partitions' ends are looked up (in librdkafka's memory).
const LOOK: Duration = Duration::from_secs(1);
const SEEK_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the thread. `ended` closes when it is over and the group is left.
pub(super) fn spawn(
    settings: &KafkaSettings,
    config: ConsumerConfig,
    shared: Arc<Shared>,
    events: UnboundedSender<Event>,
    ended: oneshot::Sender<()>,
) -> Result<(), KafkaError> {
    let client = settings.client_config(&defaults(), &fixed(&config))?;
    let context =
        GroupContext { shared: Arc::clone(&shared), events, revoke_timeout: config.revoke_timeout };
    let consumer = BaseConsumer::from_config_and_context(&client, context)
        .map_err(|error| KafkaError::from_native("creating the consumer", &error))?;
    let topics: Vec<&str> = config.topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics).map_err(|error| KafkaError::from_native("subscribing", &error))?;
    let poller = Poller {
        consumer,
        shared,
        commit_interval: config.commit_interval,
        next_commit: Instant::now() + config.commit_interval,
        next_look: Instant::now(),
        topics: HashMap::new(),
        renewals: Renewals::new(config.topics),
    };
    std::thread::Builder::new()
        .name("dueline-poll".to_owned())
        .spawn(move || {
            poller.run();
            drop(ended);
        })
        .map_err(|error| KafkaError::Config(format!("no thread for the consumer: {error}")))?;
    Ok(())
}

fn defaults() -> Vec<(&'static str, String)> {
    vec![
        // A paused partition that resumes joins only the next fetch: keep the waiting ones short.
        ("fetch.wait.max.ms", "50".to_owned()),
        ("fetch.queue.backoff.ms", "10".to_owned()),
        ("fetch.max.bytes", (16 << 20).to_string()),
        // What librdkafka itself may hold beside the buffers of the partitions.
        ("queued.max.messages.kbytes", (32 << 10).to_string()),
        ("queued.min.messages", "5000".to_owned()),
        ("socket.timeout.ms", "10000".to_owned()),
    ]
}

fn fixed(config: &ConsumerConfig) -> Vec<(&'static str, String)> {
    let session = config.session_timeout.as_millis();
    let poll = config.max_poll_interval.max(config.session_timeout).as_millis();
    vec![
        ("group.id", config.group.clone()),
        ("partition.assignment.strategy", "cooperative-sticky".to_owned()),
        ("enable.auto.commit", "false".to_owned()),
        ("enable.auto.offset.store", "false".to_owned()),
        ("auto.offset.reset", "earliest".to_owned()),
        ("isolation.level", "read_committed".to_owned()),
        ("enable.partition.eof", "false".to_owned()),
        ("session.timeout.ms", session.to_string()),
        ("heartbeat.interval.ms", (session / 4).clamp(1, 3_000).to_string()),
        ("max.poll.interval.ms", poll.to_string()),
    ]
}

struct Poller {
    consumer: BaseConsumer<GroupContext>,
    shared: Arc<Shared>,
    commit_interval: Duration,
    next_commit: Instant,
    next_look: Instant,
    /// One allocation per topic instead of one per record.
    topics: HashMap<String, Arc<str>>,
    renewals: Renewals,
}

impl Poller {
    fn run(mut self) {
        let mut batch = Vec::with_capacity(ROUND);
        // A local, so that it is gone before the client is.
        let Some(commits) = CommitQueue::new(self.consumer.client().native_ptr()) else {
            self.consumer.context().send(Event::Failed(KafkaError::Closed));
            return;
        };
        while !self.shared.closing.load(Ordering::SeqCst) {
            if let Err(error) = self.collect(&mut batch) {
                tracing::error!(%error, "the consumer cannot go on");
                self.shared.set_error(Some(error.clone()));
                self.consumer.context().send(Event::Failed(error));
                break;
            }
            self.hand_over(&mut batch);
            self.seek();
            self.renewals.work(&self.consumer, &self.shared);
            self.pause_and_resume();
            self.commit(&commits);
            self.look();
        }
        self.consumer.context().commit_now(&self.consumer, None);
        // Dropping the native consumer revokes, commits what was finished meanwhile, and leaves.
    }

    /// Waits for records and collects what is there, at most a round. Errors are fatal ones.
    fn collect(&mut self, batch: &mut Vec<OwnedRecord>) -> Result<(), KafkaError> {
        let mut wait = POLL;
        while batch.len() < ROUND {
            match self.consumer.poll(wait) {
                Some(Ok(message)) => batch.push(owned(&message, &mut self.topics)),
                Some(Err(error @ Native::MessageConsumptionFatal(_))) => {
                    return Err(KafkaError::from_native("reading", &error));
                }
                Some(Err(error)) => {
                    // librdkafka goes on by itself; the line is for the reader of the log.
                    tracing::warn!(%error, "reading failed, trying again");
                    if error.rdkafka_error_code() == Some(Code::UnknownTopicOrPartition) {
                        self.shared.state().doubt(None);
                    }
                    self.shared.set_error(Some(KafkaError::from_native("reading", &error)));
                    break;
                }
                None => break,
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    fn hand_over(&self, batch: &mut Vec<OwnedRecord>) {
        if batch.is_empty() {
            return;
        }
        let mut readable = false;
        let mut state = self.shared.state();
        for record in batch.drain(..) {
            readable |= state.push(record);
        }
        drop(state);
        if readable {
            self.shared.set_error(None);
            self.shared.readable.notify_one();
        }
    }

    /// Makes the seeks that are due. A failed one is tried again in the next round.
    fn seek(&self) {
        let due: Vec<(TopicPartition, i64)> = {
            let state = self.shared.state();
            let wanted = state.partitions.iter();
            wanted.filter_map(|(name, p)| Some((name.clone(), p.seek_to?))).collect()
        };
        for (name, offset) in due {
            let to = Offset::Offset(offset);
            if let Err(error) = self.consumer.seek(&name.topic, name.partition, to, SEEK_TIMEOUT) {
                tracing::warn!(%error, partition = %name, offset, "rewinding failed, trying again");
                continue;
            }
            if let Some(partition) = self.shared.state().partitions.get_mut(&name) {
                // A rewind to an even earlier offset may have come meanwhile.
                partition.seek_to = partition.seek_to.filter(|later| *later != offset);
            }
        }
    }

    fn pause_and_resume(&self) {
        for pause in [true, false] {
            let names: Vec<TopicPartition> = {
                let state = self.shared.state();
                let wrong = state.partitions.iter().filter(|(_, p)| p.wants_pause() != p.paused);
                wrong.filter(|(_, p)| p.wants_pause() == pause).map(|(n, _)| n.clone()).collect()
            };
            if names.is_empty() {
                continue;
            }
            let mut list = TopicPartitionList::with_capacity(names.len());
            for name in &names {
                list.add_partition(&name.topic, name.partition);
            }
            let result =
                if pause { self.consumer.pause(&list) } else { self.consumer.resume(&list) };
            if let Err(error) = result {
                tracing::warn!(%error, pause, "pausing or resuming failed, trying again");
                continue;
            }
            let mut state = self.shared.state();
            for name in &names {
                if let Some(partition) = state.partitions.get_mut(name) {
                    partition.paused = pause;
                }
            }
        }
    }

    fn commit(&mut self, commits: &CommitQueue) {
        let context = self.consumer.context();
        // At most one answer is due per commit that was sent.
        while let Some(answer) = commits.answer(Duration::ZERO) {
            context.committed(answer);
        }
        let now = Instant::now();
        if now >= self.next_commit {
            context.commit_soon(commits);
            self.next_commit = now + self.commit_interval;
        }
    }

    /// Looks up the partitions' ends.
    fn look(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        let client = self.consumer.client().native_ptr();
        for (name, partition) in &mut self.shared.state().partitions {
            if let Some((_, high)) = ffi::cached_watermarks(client, &name.topic, name.partition) {
                partition.high = Some(high);
            }
        }
    }
}

/// Copies a record out of librdkafka's memory.
pub(crate) fn owned(
    message: &BorrowedMessage<'_>,
    topics: &mut HashMap<String, Arc<str>>,
) -> OwnedRecord {
    let topic = match topics.get(message.topic()) {
        Some(topic) => Arc::clone(topic),
        None => {
            let topic: Arc<str> = Arc::from(message.topic());
            topics.insert(message.topic().to_owned(), Arc::clone(&topic));
            topic
        }
    };
    let timestamp_ms = match message.timestamp() {
        Timestamp::NotAvailable => -1,
        Timestamp::CreateTime(ms) | Timestamp::LogAppendTime(ms) => ms,
    };
    OwnedRecord {
        topic,
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms,
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: ffi::headers(message),
    }
}
