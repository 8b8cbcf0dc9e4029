//! What jobs report.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use dueline_kafka::TopicPartition;
use dueline_store::StoreError;
use dueline_store::effect::CrashMark;
use dueline_store::operate::instance::Instance;
use tokio::task::JoinError;

use super::{LOOK_AGAIN, QueueLoop};
use crate::alarm::component;
use crate::error::ConsumerError;
use crate::job::{BatchReport, BrokenReport};
use crate::message::{Message, Origin};
use crate::partition::Watch;

/// Messages of one partition that a job has.
#[derive(Debug)]
pub(super) struct Taken {
    pub partition: TopicPartition,
    pub assignment: u64,
    pub count: usize,
}

/// The end of a job.
pub(super) enum Done {
    /// `tier`: whose worker it was; none for a lone message, and for calls.
    Batch {
        tier: Option<usize>,
        kind: Arc<str>,
        taken: Vec<Taken>,
        report: BatchReport,
    },
    Buried(TopicPartition, u64, BrokenReport),
    MarksRead(Vec<TopicPartition>, Result<Vec<CrashMark>, StoreError>),
    Marked(Vec<CrashMark>, Result<(), StoreError>),
    Refreshed(Result<Option<Instance>, StoreError>),
    Nothing,
}

impl QueueLoop {
    pub(super) fn on_done(&mut self, done: Result<Done, JoinError>) -> Result<(), ConsumerError> {
        match done.map_err(|error| ConsumerError::Broken(error.to_string()))? {
            Done::Batch { tier, kind, taken, report } => {
                if let Some(tier) = tier.and_then(|tier| self.tiers.get_mut(tier)) {
                    tier.running -= 1;
                }
                for taken in taken {
                    self.returned(&taken.partition, taken.assignment, taken.count);
                }
                dueline_failpoints::reached("consumer.batch.done");
                self.finished(report.finished);
                report.back.into_iter().for_each(|message| self.back(message));
                self.judge_kind(&kind, report.outcome);
            }
            Done::Buried(name, assignment, report) => self.buried(&name, assignment, report),
            Done::MarksRead(names, result) => self.marks_read(&names, result),
            Done::Marked(marks, result) => self.marked(&marks, result),
            Done::Refreshed(result) => self.refreshed(result),
            Done::Nothing => {}
        }
        Ok(())
    }

    fn returned(&mut self, name: &TopicPartition, assignment: u64, count: usize) {
        let partition = self.partitions.get_mut(name).filter(|p| p.assignment == assignment);
        if let Some(partition) = partition {
            partition.under_way = partition.under_way.saturating_sub(count);
        }
    }

    /// Their offsets may be passed. The work is done whoever has the partition now, so that an offset of an
    /// earlier assignment does no harm.
    fn finished(&mut self, origins: Vec<Origin>) {
        let mut by_partition: HashMap<TopicPartition, Vec<i64>> = HashMap::new();
        for Origin { record, .. } in origins {
            by_partition.entry(record.topic_partition()).or_default().push(record.offset);
        }
        for (name, offsets) in by_partition {
            self.consumer.mark_all_finished(&name, offsets);
        }
    }

    /// A message that is to be tried again, unless its partition is no longer ours.
    fn back(&mut self, message: Message) {
        let name = message.origin.record.topic_partition();
        let assignment = message.origin.assignment;
        let ours = |p: &&mut crate::partition::Partition| p.assignment == assignment && !p.revoking;
        let Some(partition) = self.partitions.get_mut(&name).filter(ours) else { return };
        if matches!(partition.watch, Watch::Lone { .. }) {
            partition.lone = Some(message);
        } else if let Some(tier) = self.tiers.iter_mut().find(|tier| tier.topic == name.topic) {
            tier.push(message);
        }
    }

    fn buried(&mut self, name: &TopicPartition, assignment: u64, report: BrokenReport) {
        self.burying -= 1;
        self.returned(name, assignment, 1);
        match report {
            BrokenReport::Finished(record) => self.consumer.mark_finished(name, record.offset),
            BrokenReport::Held(record, reason) => {
                let ours = self.partitions.get(name);
                if ours.is_some_and(|p| p.assignment == assignment && !p.revoking) {
                    self.hold(name, record, reason);
                }
            }
        }
    }

    fn marks_read(&mut self, names: &[TopicPartition], result: Result<Vec<CrashMark>, StoreError>) {
        let marks = match result {
            Ok(marks) => marks,
            Err(error) => {
                tracing::warn!(%error, "crash marks cannot be read: trying again");
                self.try_watch_again(names);
                return;
            }
        };
        for name in names {
            let Some(partition) = self.partitions.get_mut(name) else { continue };
            let mark = marks
                .iter()
                .find(|mark| mark.partition == name.partition && mark.topic == name.topic);
            partition.judge(mark, self.bounds.span);
            if let Watch::Lone { suspect, tries, .. } = partition.watch {
                tracing::warn!(
                    partition = %name, offset = suspect, tries,
                    "a consumer died here: reading one message at a time"
                );
            }
        }
    }

    fn marked(&mut self, marks: &[CrashMark], result: Result<(), StoreError>) {
        for mark in marks {
            let name = TopicPartition::new(Arc::clone(&mark.topic), mark.partition);
            let Some(partition) = self.partitions.get_mut(&name) else { continue };
            if !matches!(partition.watch, Watch::Unmarked { asked: true, .. }) {
                continue;
            }
            match &result {
                Ok(()) => {
                    partition.marked = Some(mark.offset);
                    partition.watch = Watch::Open;
                }
                Err(error) => {
                    tracing::warn!(%error, partition = %name, "its crash mark cannot be written");
                    self.try_watch_again(std::slice::from_ref(&name));
                }
            }
        }
    }

    /// With the pause of held records, for the database is in trouble.
    fn try_watch_again(&mut self, names: &[TopicPartition]) {
        for name in names {
            if let Some(partition) = self.partitions.get_mut(name) {
                partition.look_again = Some(Instant::now() + LOOK_AGAIN / 3);
            }
        }
    }

    /// Looks at everything again that waits for the database or for somebody's help.
    fn refreshed(&mut self, result: Result<Option<Instance>, StoreError>) {
        self.refreshing = false;
        let instance = match result {
            Ok(instance) => instance,
            Err(error) => {
                tracing::warn!(%error, "held messages cannot be judged again yet");
                return;
            }
        };
        if let Some(instance) = instance {
            self.source = instance.source().into();
            self.sorter.instance = instance;
        }
        let now = Instant::now();
        let due: Vec<TopicPartition> = self
            .partitions
            .values()
            .filter(|p| p.look_again.is_some_and(|at| at <= now))
            .map(|p| p.name.clone())
            .collect();
        for name in due {
            let Some(partition) = self.partitions.get_mut(&name) else { continue };
            partition.look_again = None;
            tracing::debug!(partition = %name, held = partition.held.len(), "looking again");
            match &mut partition.watch {
                Watch::Unread { asked } | Watch::Unmarked { asked, .. } => *asked = false,
                Watch::Open | Watch::Lone { .. } => {}
            }
            let held = Vec::from(std::mem::take(&mut partition.held));
            self.sort_all(&name, held);
            let waits = self.partitions.get(&name).is_some_and(|p| !p.held.is_empty());
            if !waits {
                self.context.alarms.clear(component::PARTITIONS, &name.to_string());
            }
        }
    }
}
