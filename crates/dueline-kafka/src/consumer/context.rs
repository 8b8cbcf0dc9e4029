//! Rebalances and commits: what librdkafka calls on the poll thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError as Native, KafkaResult};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc::UnboundedSender;

use super::state::Partition;
use super::{AssignedPartition, Event, RevokeAck, Shared};
use crate::client::{log_error, log_line};
use crate::error::KafkaError;
use crate::record::TopicPartition;

/// How long one question for committed offsets may take, and how often it is asked.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(5);
const COMMITTED_TRIES: usize = 2;

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

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        self.committed(result.as_ref().err(), offsets);
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
        // A member that closes has finished its work before. Otherwise wait for the ack, for its being
        // dropped, or for the limit: what is unfinished then is read again by the next owner.
        if !self.shared.closing.load(Ordering::SeqCst) && !names.is_empty() {
            let _ = done.recv_timeout(self.revoke_timeout);
        }
        self.commit_now(consumer, Some(&names));
        self.forget(&names);
    }

    fn forget(&self, names: &[TopicPartition]) {
        let mut state = self.shared.state();
        for name in names {
            state.partitions.remove(name);
        }
    }

    /// Commits and waits for the answer; librdkafka limits that by its session and socket timeouts.
    pub(super) fn commit_now(
        &self,
        consumer: &BaseConsumer<Self>,
        only: Option<&[TopicPartition]>,
    ) {
        let offsets = self.shared.state().to_commit(only);
        let Some(list) = list_of(&offsets) else { return };
        match consumer.commit(&list, CommitMode::Sync) {
            Ok(()) => self.committed(None, &list),
            Err(error) => self.committed(Some(&error), &list),
        }
    }

    /// Hands a commit over to librdkafka; the answer comes to `commit_callback`.
    pub(super) fn commit_soon(&self, consumer: &BaseConsumer<Self>) {
        let offsets = self.shared.state().to_commit(None);
        let Some(list) = list_of(&offsets) else { return };
        if let Err(error) = consumer.commit(&list, CommitMode::Async) {
            self.committed(Some(&error), &list);
            return;
        }
        let mut state = self.shared.state();
        for (name, offset) in offsets {
            if let Some(partition) = state.partitions.get_mut(&name) {
                partition.sent = Some(offset);
            }
        }
    }

    /// Notes the answer to a commit. A failed one is tried again at the next interval.
    fn committed(&self, error: Option<&Native>, list: &TopicPartitionList) {
        let mut state = self.shared.state();
        for element in list.elements() {
            let name = TopicPartition::new(element.topic(), element.partition());
            let Some(partition) = state.partitions.get_mut(&name) else { continue };
            match (error.is_none() && element.error().is_ok(), element.offset()) {
                (true, Offset::Offset(offset)) => {
                    partition.committed = partition.committed.max(Some(offset));
                    partition.sent = partition.sent.max(Some(offset));
                }
                (true, _) => {}
                (false, _) => partition.sent = partition.committed,
            }
        }
        drop(state);
        match error {
            None => self.shared.set_error(None),
            Some(Native::ConsumerCommit(rdkafka::types::RDKafkaErrorCode::NoOffset)) => {}
            Some(error) => {
                tracing::warn!(%error, "offsets could not be committed, the next commit repeats them");
                self.shared.set_error(Some(KafkaError::from_native("committing offsets", error)));
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

fn list_of(offsets: &[(TopicPartition, i64)]) -> Option<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for (name, offset) in offsets {
        list.add_partition_offset(&name.topic, name.partition, Offset::Offset(*offset)).ok()?;
    }
    (!offsets.is_empty()).then_some(list)
}
