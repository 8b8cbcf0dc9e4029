//! Starting jobs: batches, lone messages, burials.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dueline_kafka::TopicPartition;
use dueline_store::operate::instance;
use dueline_webhook::Slot;

use super::QueueLoop;
use super::reports::{Done, Taken};
use crate::job::{BatchJob, bury};
use crate::message::Message;
use crate::pace::Permit;

/// Burials at once.
const MAX_BURYING: usize = 4;
/// How long to let slots of a host come together before looking again: what is called together is begun and finished
/// together.
const SLOT_PAUSE: Duration = Duration::from_millis(5);

impl QueueLoop {
    /// Starts whatever may start now.
    pub(super) fn start_jobs(&mut self, now: Instant) {
        for tier in 0..self.tiers.len() {
            if let Some(at) = self.tiers[tier].wake(now) {
                self.wake_at(at);
            }
            self.start_batches(tier, now);
        }
        self.start_lone(now);
        while self.burying < MAX_BURYING
            && let Some((broken, assignment)) = self.broken.pop_front()
        {
            self.burying += 1;
            let partition = broken.record.topic_partition();
            self.count_under_way(&partition, 1);
            let (context, source) = (Arc::clone(&self.context), Arc::clone(&self.source));
            self.jobs.spawn(async move {
                Done::Buried(partition, assignment, bury(context, source, broken).await)
            });
        }
    }

    fn start_batches(&mut self, tier: usize, now: Instant) {
        // Bounded: every turn starts a batch or ends the loop.
        loop {
            let mut started = false;
            for (kind, waiting) in self.tiers[tier].kinds_waiting() {
                started |= self.start_batch(tier, &kind, waiting, now);
            }
            if !started {
                return;
            }
        }
    }

    /// Whether a batch that has the database's attention may start. Calls take no worker: a receiver that is slow holds
    /// up nobody else.
    fn has_worker(&mut self, tier: usize, now: Instant) -> bool {
        if self.tiers[tier].running >= self.bounds.workers {
            return false;
        }
        let wait = self.tiers[tier].company_at(now);
        if let Some(at) = wait {
            self.wake_at(at);
        }
        wait.is_none()
    }

    /// The right to make up to `most` calls of a kind's host; nothing for a kind that calls nobody. `None`: not now.
    fn slots(&mut self, kind: &str, most: usize, now: Instant) -> Option<Vec<Slot>> {
        let Some(webhook) = self.kinds.get(kind)?.spec.effect.webhook() else {
            return Some(Vec::new());
        };
        let slots = webhook.host().free_slots(most);
        if slots.is_empty() {
            self.wake_at(now + SLOT_PAUSE);
            return None;
        }
        Some(slots)
    }

    fn calls(&self, kind: &str) -> bool {
        self.kinds.get(kind).is_some_and(|running| running.spec.effect.webhook().is_some())
    }

    fn permit(&mut self, kind: &str, now: Instant) -> Option<usize> {
        let permit = self.kinds.get_mut(kind)?.pace.permit(now);
        match permit {
            Permit::Batch(max) => Some(max),
            Permit::Wait(until) => {
                self.wake_at(until);
                None
            }
            Permit::Stopped => None,
        }
    }

    /// Starts a batch of a kind of which so many messages wait, if one may start now.
    fn start_batch(&mut self, tier: usize, kind: &Arc<str>, waiting: usize, now: Instant) -> bool {
        let calls = self.calls(kind);
        if !calls && !self.has_worker(tier, now) {
            return false;
        }
        let Some(mut slots) = self.slots(kind, waiting.min(self.bounds.batch_max), now) else {
            return false;
        };
        let Some(mut max) = self.permit(kind, now) else { return false };
        if calls {
            slots.truncate(max);
            max = slots.len();
        }
        let Some(job) = self.job(tier, kind, slots) else { return false };
        let messages = self.tiers[tier].take(kind, max);
        let worker = (!calls).then_some(tier);
        if worker.is_some() {
            self.tiers[tier].start(now);
        }
        let taken = self.count_all_under_way(&messages);
        if dueline_failpoints::planted("offset-before-commit") {
            for record in messages.iter().map(|message| &message.origin.record) {
                self.consumer.mark_finished(&record.topic_partition(), record.offset);
            }
        }
        let kind = Arc::clone(kind);
        self.jobs.spawn(async move {
            Done::Batch { tier: worker, kind, taken, report: job.run(messages).await }
        });
        true
    }

    fn count_all_under_way(&mut self, messages: &[Message]) -> Vec<Taken> {
        let mut counts: HashMap<TopicPartition, usize> = HashMap::new();
        for message in messages {
            *counts.entry(message.origin.record.topic_partition()).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|(partition, count)| {
                let assignment = self.count_under_way(&partition, count);
                Taken { partition, assignment, count }
            })
            .collect()
    }

    fn job(&self, tier: usize, kind: &str, slots: Vec<Slot>) -> Option<BatchJob> {
        let running = self.kinds.get(kind)?;
        Some(BatchJob::new(
            Arc::clone(&self.context),
            Arc::clone(&running.spec),
            running.labels.get(tier)?.clone(),
            Arc::clone(&self.source),
            slots,
        ))
    }

    /// Partitions under suspicion take no worker's place, and hold up nobody.
    fn start_lone(&mut self, now: Instant) {
        let mut ready: Vec<(TopicPartition, Arc<str>)> = Vec::new();
        let mut next: Option<Instant> = None;
        for partition in self.partitions.values() {
            let Some(lone) = &partition.lone else { continue };
            match lone.origin.not_before {
                Some(at) if at > now => next = Some(next.map_or(at, |n| n.min(at))),
                _ => ready.push((partition.name.clone(), Arc::clone(&lone.task.kind))),
            }
        }
        if let Some(at) = next {
            self.wake_at(at);
        }
        for (name, kind) in ready {
            let Some(slots) = self.slots(&kind, 1, now) else { continue };
            if self.permit(&kind, now).is_some() {
                self.start_one_lone(name, &kind, slots);
            }
        }
    }

    fn start_one_lone(&mut self, name: TopicPartition, kind: &Arc<str>, slots: Vec<Slot>) {
        let tier = self.tiers.iter().position(|tier| tier.topic == name.topic);
        let Some(job) = tier.and_then(|tier| self.job(tier, kind, slots)) else { return };
        let Some(partition) = self.partitions.get_mut(&name) else { return };
        let Some(message) = partition.lone.take() else { return };
        let mark = partition.lone_mark(message.origin.record.offset);
        let is_suspect = partition.is_suspect(mark.offset);
        partition.marked = Some(mark.offset);
        partition.under_way += 1;
        let taken = vec![Taken { partition: name, assignment: partition.assignment, count: 1 }];
        let condemned = mark.tries > self.context.crash_limit
            && !dueline_failpoints::planted("crash-limit-ignored");
        let kind = Arc::clone(kind);
        self.jobs.spawn(async move {
            let report = if condemned {
                job.condemn(message).await
            } else {
                job.run_marked(message, mark, is_suspect).await
            };
            Done::Batch { tier: None, kind, taken, report }
        });
    }

    /// Answers the assignment that the messages belong to.
    fn count_under_way(&mut self, name: &TopicPartition, count: usize) -> u64 {
        self.partitions.get_mut(name).map_or(0, |partition| {
            partition.under_way += count;
            partition.assignment
        })
    }

    /// Asks who this database is by now, before held records are looked at again.
    pub(super) fn refresh(&mut self) {
        self.refreshing = true;
        let pool = self.context.sessions.pool().clone();
        self.jobs.spawn(async move { Done::Refreshed(instance::show(&pool).await) });
    }
}
