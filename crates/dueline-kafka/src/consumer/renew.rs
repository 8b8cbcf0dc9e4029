//! Topics that are made anew under a running group.
//!
//! The group keeps the offsets of the topic that is no more. Records of the new one begin below them:
//! they would never be committed, and as soon as the new topic is longer, whoever is assigned the
//! partition next would begin behind records that nobody has read. So the group's offset is set to
//! the new topic's start, and this member joins anew, which hands everything over as any rebalance.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::Shared;
use super::context::{COMMIT_TIMEOUT, GroupContext, list_of};
use crate::ffi::CommitQueue;
use crate::record::TopicPartition;

/// How long a question for a partition's ends may take.
const ASK: Duration = Duration::from_secs(2);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Partitions whose topic is another one.
pub(super) struct Renewals {
    topics: Vec<String>,
    /// With the first offset of the new topic.
    renewed: Vec<(TopicPartition, i64)>,
    next_try: Instant,
}

impl Renewals {
    pub(super) fn new(topics: Vec<String>) -> Self {
        Self { topics, renewed: Vec::new(), next_try: Instant::now() }
    }

    /// Does what is to be done; asks the broker only when there is something.
    pub(super) fn work(&mut self, consumer: &BaseConsumer<GroupContext>, shared: &Shared) {
        if Instant::now() < self.next_try {
            return;
        }
        let doubtful = shared.state().doubtful();
        if doubtful.is_empty() && self.renewed.is_empty() {
            return;
        }
        for name in doubtful {
            match consumer.fetch_watermarks(&name.topic, name.partition, ASK) {
                Ok((low, high)) => {
                    if shared.state().settle_doubt(&name, high) {
                        self.renewed.push((name, low));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, partition = %name, "is it still the same topic?");
                    // Of a topic that is not there, the others need not be asked.
                    break;
                }
            }
        }
        self.renewed.retain(|(name, _)| shared.state().is_given_up(name));
        if !self.renewed.is_empty() && self.join_anew(consumer) {
            self.renewed.clear();
        }
        self.next_try = Instant::now() + PAUSE;
    }

    fn join_anew(&self, consumer: &BaseConsumer<GroupContext>) -> bool {
        let Some(list) = list_of(&self.renewed) else { return false };
        let Some(queue) = CommitQueue::new(consumer.client().native_ptr()) else { return false };
        if queue.send(&list).is_err() {
            return false;
        }
        let answer = queue.answer(COMMIT_TIMEOUT);
        if answer.is_none_or(|answer| answer.error.is_some()) {
            tracing::warn!(
                "the offsets of a topic that was made anew could not be set: trying again"
            );
            return false;
        }
        dueline_failpoints::reached("consumer.topic.renewed");
        for (name, offset) in &self.renewed {
            tracing::warn!(
                partition = %name, offset,
                "this topic was made anew: the group reads it from its start"
            );
        }
        consumer.unsubscribe();
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        if let Err(error) = consumer.subscribe(&topics) {
            tracing::error!(%error, "joining anew failed");
            return false;
        }
        true
    }
}
