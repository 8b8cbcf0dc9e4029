//! Taking records out of the partitions' buffers, and sorting them.

use std::time::Instant;

use dueline_kafka::{OwnedRecord, TopicPartition};

use super::{LOOK_AGAIN, QueueLoop};
use crate::alarm::component;
use crate::message::Sorted;
use crate::partition::Watch;

/// Broken messages that may wait for their burial before nothing more is taken.
const MAX_BROKEN: usize = 1_000;

impl QueueLoop {
    /// Takes what there is room for, round-robin over the partitions of each tier.
    pub(super) fn fill(&mut self) {
        let mut buffered = self.consumer.buffered();
        if buffered.is_empty() {
            self.start_mark_jobs(&[]);
            return;
        }
        self.start_mark_jobs(&buffered);
        if self.broken.len() > MAX_BROKEN {
            return;
        }
        buffered.sort_unstable();
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn % buffered.len();
        buffered.rotate_left(first);
        for (name, _) in &buffered {
            if self.partitions.get(name).is_some_and(|partition| partition.wants_lone()) {
                self.take_lone(name);
            }
        }
        for tier in 0..self.tiers.len() {
            self.fill_tier(tier, &buffered);
        }
    }

    fn fill_tier(&mut self, tier: usize, buffered: &[(TopicPartition, usize)]) {
        let topic = std::sync::Arc::clone(&self.tiers[tier].topic);
        let open: Vec<&TopicPartition> = buffered
            .iter()
            .map(|(name, _)| name)
            .filter(|name| name.topic == topic)
            .filter(|name| self.partitions.get(name).is_some_and(|p| p.is_open()))
            .collect();
        // A fair share for each, then what is left for whoever has more.
        for rest in [open.len(), 1] {
            for name in &open {
                let room = self.bounds.in_hand().saturating_sub(self.tiers[tier].len());
                if room == 0 {
                    return;
                }
                let records = self.consumer.take(name, room.div_ceil(rest.max(1)));
                self.sort_all(name, records);
            }
        }
    }

    /// One message of a partition under suspicion; the suspicion ends at its far end.
    fn take_lone(&mut self, name: &TopicPartition) {
        let records = self.consumer.take(name, 1);
        let Some(partition) = self.partitions.get_mut(name) else { return };
        if let (Some(record), Watch::Lone { until, .. }) = (records.first(), partition.watch)
            && record.offset >= until
        {
            tracing::info!(partition = %name, "no longer under suspicion");
            partition.watch = Watch::Open;
        }
        self.sort_all(name, records);
    }

    /// Sorts records of one partition, in their order.
    pub(super) fn sort_all(&mut self, name: &TopicPartition, records: Vec<OwnedRecord>) {
        let Some(assignment) = self.partitions.get(name).map(|p| p.assignment) else { return };
        dueline_failpoints::reached("consumer.taken");
        for record in records {
            match self.sorter.sort(record, assignment) {
                Sorted::Task(message) => {
                    let Some(partition) = self.partitions.get_mut(name) else { return };
                    if matches!(partition.watch, Watch::Lone { .. }) && partition.lone.is_none() {
                        partition.lone = Some(*message);
                    } else if let Some(tier) =
                        self.tiers.iter_mut().find(|tier| tier.topic == name.topic)
                    {
                        tier.push(*message);
                    }
                }
                Sorted::Stale(record) => self.consumer.mark_finished(name, record.offset),
                Sorted::Broken(broken) => self.broken.push_back((*broken, assignment)),
                Sorted::Held(record, reason) => self.hold(name, record, reason),
            }
        }
    }

    /// Leaves a record where it is: nothing more is taken from its partition until somebody helps.
    pub(super) fn hold(&mut self, name: &TopicPartition, record: OwnedRecord, reason: String) {
        let Some(partition) = self.partitions.get_mut(name) else { return };
        if self.context.alarms.raise(component::PARTITIONS, &name.to_string(), &reason) {
            tracing::error!(
                partition = %name, offset = record.offset, reason,
                "this partition waits: nothing is lost, and nothing behind this message is read"
            );
        }
        partition.held.push_back(record);
        partition.look_again = Some(Instant::now() + LOOK_AGAIN);
    }
}
