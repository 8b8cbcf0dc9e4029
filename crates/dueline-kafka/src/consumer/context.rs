//! Rebalances and commits: what librdkafka calls on the poll thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError as Native;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc::UnboundedSender;

use super::state::Partition;
use super::{AssignedPartition, Event, RevokeAck, Shared};
use crate::client::{log_error, log_line};
use crate::error::KafkaError;
use crate::ffi::{CommitAnswer, CommitQueue};
use crate::record::TopicPartition;

/// How long one question for committed offsets may take, and how often it is asked.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(5);
const COMMITTED_TRIES: usize = 2;
/// How often a waiting rebalance looks whether the member is being closed.
const CLOSING_CHECK: Duration = Duration::from_millis(50);
/// How long a rebalance or a close waits for the answer to its commit.
pub(super) const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct GroupContext {
    pub shared: Arc<Shared>,
    pub events: UnboundedSender<Event>,
    pub revoke_timeout: Duration,
}

impl ClientContext for GroupContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        log_line(level, facility, line);
    }

    fn error(&self, error: Native, reason: &str) {
        log_error(&error, reason);
        self.shared.set_error(Some(KafkaError::from_native("reading", &error)));
    }
}

impl ConsumerContext for GroupContext {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => self.assign(consumer, list),
            Rebalance::Revoke(list) => self.revoke(consumer, list),
            Rebalance::Error(error) => log_error(error, "the group could not be rebalanced"),
        }
    }
}

impl GroupContext {
    /// Partitions are told before librdkafka starts to fetch them, so that no record finds its
    /// partition unknown.
    fn assign(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let committed = committed_offsets(consumer, list);
        let assigned: Vec<AssignedPartition> = names(list)
            .into_iter()
            .map(|partition| {
                let found = committed
                    .as_ref()
                    .and_then(|found| found.find_partition(&partition.topic, partition.partition));
                let offset = found.filter(|e| e.error().is_ok()).map(|e| e.offset());
                let committed = match offset {
                    Some(Offset::Offset(offset)) => Some(offset),
                    _ => None,
                };
                AssignedPartition { partition, committed }
            })
            .collect();
        let mut state = self.shared.state();
        for one in &assigned {
            state.partitions.insert(one.partition.clone(), Partition::new(one.committed));
        }
        drop(state);
        self.send(Event::Assigned(assigned));
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let names = names(list);
        self.shared.state().revoke(&names);
        if consumer.assignment_lost() {
            self.forget(&names);
            self.send(Event::Lost(names));
            return;
        }
        let (sender, done) = sync_channel(1);
        self.send(Event::Revoked(names.clone(), RevokeAck(sender)));
        if !names.is_empty() {
            self.wait_for(&done);
        }
        self.commit_now(consumer, Some(&names));
        dueline_failpoints::reached("consumer.revoke.committed");
        self.forget(&names);
    }

    /// Waits for the ack, for its being dropped, or for the limit: what is unfinished then is read
    /// again by the next owner. A member that closes has finished its work before.
    fn wait_for(&self, done: &Receiver<()>) {
        let deadline = Instant::now() + self.revoke_timeout;
        while Instant::now() < deadline && !self.shared.closing.load(Ordering::SeqCst) {
            match done.recv_timeout(CLOSING_CHECK) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn forget(&self, names: &[TopicPartition]) {
        let mut state = self.shared.state();
        for name in names {
            state.partitions.remove(name);
        }
    }

    /// Commits what is finished and waits for the answer, within a limit.
    pub(super) fn commit_now(
        &self,
        consumer: &BaseConsumer<Self>,
        only: Option<&[TopicPartition]>,
    ) {
        let offsets = self.shared.state().to_commit(only);
        let Some(list) = list_of(&offsets) else { return };
        let Some(queue) = CommitQueue::new(consumer.client().native_ptr()) else { return };
        let answer = match queue.send(&list) {
            Ok(()) => queue.answer(COMMIT_TIMEOUT),
            Err(code) => Some(CommitAnswer { error: Some(code), offsets: Vec::new() }),
        };
        match answer {
            Some(answer) => self.committed(answer),
            None => tracing::warn!("no answer to a commit: its records may be read again"),
        }
    }

    /// Hands what is finished over to librdkafka to commit; the answer comes to the queue.
    pub(super) fn commit_soon(&self, queue: &CommitQueue) {
        let offsets = self.shared.state().to_commit(None);
        let Some(list) = list_of(&offsets) else { return };
        if let Err(code) = queue.send(&list) {
            self.committed(CommitAnswer { error: Some(code), offsets: Vec::new() });
            return;
        }
        dueline_failpoints::reached("consumer.offsets.sent");
        let mut state = self.shared.state();
        for (name, offset) in offsets {
            if let Some(partition) = state.partitions.get_mut(&name) {
                partition.sent = Some(offset);
            }
        }
    }

    /// Notes the answer to a commit. A failed one is repeated at the next interval.
    pub(super) fn committed(&self, answer: CommitAnswer) {
        let mut failed = answer.error;
        let mut state = self.shared.state();
        for (topic, partition, offset, done) in answer.offsets {
            let name = TopicPartition::new(topic, partition);
            if !done && failed == Some(Code::UnknownTopicOrPartition) {
                // To be repeated only if the topic that comes back is the same.
                state.doubt(Some(&name));
            }
            let Some(partition) = state.partitions.get_mut(&name) else { continue };
            if done && offset >= 0 {
                partition.committed = partition.committed.max(Some(offset));
                partition.sent = partition.sent.max(Some(offset));
            } else {
                partition.sent = partition.committed;
                failed = failed.or(Some(Code::Fail));
            }
        }
        drop(state);
        match failed {
            None => {
                dueline_failpoints::reached("consumer.offsets.committed");
                self.shared.set_error(None);
            }
            // Everything in the list had been committed before.
            Some(Code::NoOffset) => {}
            Some(code) => {
                let error = KafkaError::from_code("committing offsets", code);
                tracing::warn!(%error, "the next commit repeats it");
                self.shared.set_error(Some(error));
            }
        }
    }

    pub(super) fn send(&self, event: Event) {
        // The handle may be gone, and with it everybody who wants to know.
        let _ = self.events.send(event);
    }
}

fn committed_offsets(
    consumer: &BaseConsumer<GroupContext>,
    list: &TopicPartitionList,
) -> Option<TopicPartitionList> {
    if list.count() == 0 {
        return None;
    }
    for _ in 0..COMMITTED_TRIES {
        match consumer.committed_offsets(list.clone(), COMMITTED_TIMEOUT) {
            Ok(found) => return Some(found),
            Err(error) => tracing::warn!(%error, "committed offsets could not be read"),
        }
    }
    None
}

fn names(list: &TopicPartitionList) -> Vec<TopicPartition> {
    let elements = list.elements();
    elements.iter().map(|e| TopicPartition::new(e.topic(), e.partition())).collect()
}

pub(super) fn list_of(offsets: &[(TopicPartition, i64)]) -> Option<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (name, offset) in offsets {
        list.add_partition_offset(&name.topic, name.partition, Offset::Offset(*offset)).ok()?;
    }
    (!offsets.is_empty()).then_some(list)
}
