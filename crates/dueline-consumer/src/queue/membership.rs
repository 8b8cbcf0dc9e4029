//! Partitions that come and go, and their crash marks.

use std::sync::Arc;
use std::time::Duration;

use dueline_kafka::{AssignedPartition, Event, KafkaError, TopicPartition};

use super::QueueLoop;
use super::reports::Done;
use crate::alarm::component;
use crate::error::ConsumerError;
use crate::partition::{Partition, Watch};

/// How long a rebalance waits for the marks of a clean hand-over to be removed. A mark that stays costs one
/// try too many at the next assignment, if nothing is committed by then.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(1);

impl QueueLoop {
    pub(super) fn on_event(&mut self, event: Option<Event>) -> Result<(), ConsumerError> {
        match event {
            Some(Event::Assigned(assigned)) => self.assigned(assigned),
            Some(Event::Revoked(names, ack)) => {
                self.let_go(&names);
                self.revokes.push((names, ack));
            }
            Some(Event::Lost(names)) => {
                tracing::warn!(partitions = names.len(), "partitions were lost: others have them");
                self.let_go(&names);
                self.partitions.retain(|name, _| !names.contains(name));
            }
            Some(Event::Failed(error)) => return Err(error.into()),
            None => return Err(KafkaError::Closed.into()),
        }
        Ok(())
    }

    fn assigned(&mut self, assigned: Vec<AssignedPartition>) {
        tracing::info!(queue = self.context.queue, partitions = assigned.len(), "assigned");
        self.context.alarms.clear(component::KAFKA, &self.context.queue);
        // Also when there are none: the member has joined.
        self.assignments += 1;
        for AssignedPartition { partition: name, committed } in assigned {
            self.assignments += 1;
            let partition = Partition::new(name.clone(), self.assignments, committed);
            self.partitions.insert(name, partition);
        }
    }

    /// Nothing more of these partitions is started.
    fn let_go(&mut self, names: &[TopicPartition]) {
        for tier in &mut self.tiers {
            tier.forget(names);
        }
        for name in names {
            let Some(partition) = self.partitions.get_mut(name) else { continue };
            partition.revoking = true;
            partition.lone = None;
            partition.held.clear();
            partition.look_again = None;
            self.context.alarms.clear(component::PARTITIONS, &name.to_string());
        }
        let assigned: Vec<u64> =
            self.partitions.values().filter(|p| !p.revoking).map(|p| p.assignment).collect();
        self.broken.retain(|(_, assignment)| assigned.contains(assignment));
    }

    /// Lets rebalances go on whose partitions have nothing under way any more: a clean hand-over.
    pub(super) async fn acknowledge_revokes(&mut self) {
        let mut waiting = Vec::new();
        for (names, ack) in std::mem::take(&mut self.revokes) {
            let of = |name: &TopicPartition| self.partitions.get(name).map_or(0, |p| p.under_way);
            if names.iter().map(of).sum::<usize>() > 0 {
                waiting.push((names, ack));
                continue;
            }
            dueline_failpoints::reached("consumer.revoke.drained");
            self.clear_all_marks(&names).await;
            self.partitions.retain(|name, _| !names.contains(name));
            ack.done();
            dueline_failpoints::reached("consumer.revoke.acknowledged");
        }
        self.revokes = waiting;
    }

    pub(super) async fn clear_all_marks(&self, names: &[TopicPartition]) {
        let marked: Vec<_> = names
            .iter()
            .filter(|name| self.partitions.get(name).is_some_and(|p| p.marked.is_some()))
            .map(|name| (Arc::clone(&name.topic), name.partition, i64::MAX))
            .collect();
        if marked.is_empty() {
            return;
        }
        let clear = self.context.marks.clear(&marked);
        match tokio::time::timeout(CLEAR_TIMEOUT, clear).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "crash marks of a clean hand-over stay"),
            Err(_) => tracing::warn!("crash marks of a clean hand-over stay: no answer in time"),
        }
    }

    /// Reads and writes marks where that must come before the first batch.
    pub(super) fn start_mark_jobs(&mut self, buffered: &[(TopicPartition, usize)]) {
        let mut unread = Vec::new();
        for partition in self.partitions.values_mut().filter(|p| !p.revoking) {
            if partition.watch == (Watch::Unread { asked: false }) {
                partition.watch = Watch::Unread { asked: true };
                unread.push((Arc::clone(&partition.name.topic), partition.name.partition));
            }
        }
        if !unread.is_empty() {
            let marks = self.context.marks.clone();
            self.jobs.spawn(async move {
                let result = marks.read(&unread).await;
                let names = unread.into_iter().map(|(t, p)| TopicPartition::new(t, p)).collect();
                Done::MarksRead(names, result)
            });
        }
        let mut unmarked = Vec::new();
        for (name, _) in buffered {
            let Some(partition) = self.partitions.get_mut(name).filter(|p| !p.revoking) else {
                continue;
            };
            if let Watch::Unmarked { tries, asked: false } = partition.watch {
                partition.watch = Watch::Unmarked { tries, asked: true };
                unmarked.push(partition.mark(partition.start, tries));
            }
        }
        if !unmarked.is_empty() {
            let marks = self.context.marks.clone();
            self.jobs.spawn(async move {
                let result = marks.write(&unmarked).await;
                dueline_failpoints::reached("consumer.mark.written");
                Done::Marked(unmarked, result)
            });
        }
    }

    /// A commit that passed a mark makes it void.
    pub(super) fn clear_passed_marks(&mut self) {
        let mut passed = Vec::new();
        for partition in self.partitions.values_mut() {
            let committed = self.consumer.committed(&partition.name);
            // A lone message's mark is under way with it: it is replaced, not removed.
            let busy = matches!(partition.watch, Watch::Lone { .. }) && partition.under_way > 0;
            if let (Some(marked), Some(committed)) = (partition.marked, committed)
                && committed > marked
                && !busy
            {
                partition.marked = None;
                passed.push((
                    Arc::clone(&partition.name.topic),
                    partition.name.partition,
                    committed,
                ));
            }
        }
        if !passed.is_empty() {
            let marks = self.context.marks.clone();
            self.jobs.spawn(async move {
                if let Err(error) = marks.clear(&passed).await {
                    // A mark below the committed offset says nothing at the next assignment anyway.
                    tracing::debug!(%error, "passed crash marks stay");
                }
                dueline_failpoints::reached("consumer.mark.passed");
                Done::Nothing
            });
        }
    }
}
