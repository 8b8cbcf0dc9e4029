//! What waits in one tier: messages in hand, by kind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dueline_kafka::TopicPartition;

use crate::message::Message;

/// So many messages are worth a batch beside the one that runs.
const CROWD: usize = 100;
/// A batch that runs for longer no longer keeps others from starting.
const PATIENCE: Duration = Duration::from_millis(5);

/// One tier of a queue: its topic, its workers, its messages in hand. Tiers never wait for each other.
#[derive(Debug)]
pub(crate) struct Tier {
    pub topic: Arc<str>,
    /// Batches under way that have a worker.
    pub running: usize,
    /// When the last batch was started.
    started: Option<Instant>,
    waiting: Vec<(Arc<str>, VecDeque<Message>)>,
    /// Rows that were locked when they were looked at.
    later: Vec<Message>,
    /// Whose turn it is among the kinds.
    turn: usize,
}

impl Tier {
    pub fn new(topic: Arc<str>, kinds: impl IntoIterator<Item = Arc<str>>) -> Self {
        let waiting = kinds.into_iter().map(|kind| (kind, VecDeque::new())).collect();
        Self { topic, running: 0, started: None, waiting, later: Vec::new(), turn: 0 }
    }

    /// Messages in hand that are not under way.
    pub fn len(&self) -> usize {
        self.later.len() + self.in_line()
    }

    /// Messages that could go into a batch now.
    fn in_line(&self) -> usize {
        self.waiting.iter().map(|(_, queue)| queue.len()).sum()
    }

    /// A batch starts now.
    pub fn start(&mut self, now: Instant) {
        self.running += 1;
        self.started = Some(now);
    }

    /// When a batch may start beside the one that runs; `None`: now. What trickles in while a batch
    /// runs is better served together by the next one than each by itself: the fixed cost of a batch
    /// is that of dozens of tasks. A crowd, or a batch that takes long, gets company.
    pub fn company_at(&self, now: Instant) -> Option<Instant> {
        let at = self.started? + PATIENCE;
        (self.running > 0 && self.in_line() < CROWD && now < at).then_some(at)
    }

    /// Takes a message in, behind the others of its kind.
    pub fn push(&mut self, message: Message) {
        if message.origin.not_before.is_some() {
            self.later.push(message);
        } else if let Some((_, queue)) =
            self.waiting.iter_mut().find(|(kind, _)| *kind == message.task.kind)
        {
            queue.push_back(message);
        }
    }

    /// Lets those whose time has come wait among the others; answers when the next one's comes.
    pub fn wake(&mut self, now: Instant) -> Option<Instant> {
        let mut next = None;
        for mut message in std::mem::take(&mut self.later) {
            match message.origin.not_before {
                Some(at) if at > now => {
                    next = Some(next.map_or(at, |earlier: Instant| earlier.min(at)));
                    self.later.push(message);
                }
                _ => {
                    message.origin.not_before = None;
                    self.push(message);
                }
            }
        }
        next
    }

    /// The kinds that have messages waiting, with how many, beginning with the one after the last that was taken.
    pub fn kinds_waiting(&self) -> Vec<(Arc<str>, usize)> {
        let (before, after) = self.waiting.split_at(self.turn.min(self.waiting.len()));
        let turns = after.iter().chain(before).filter(|(_, queue)| !queue.is_empty());
        turns.map(|(kind, queue)| (Arc::clone(kind), queue.len())).collect()
    }

    /// Takes up to `max` messages of a kind.
    pub fn take(&mut self, kind: &str, max: usize) -> Vec<Message> {
        let Some(place) = self.waiting.iter().position(|(name, _)| &**name == kind) else {
            return Vec::new();
        };
        self.turn = place + 1;
        let queue = &mut self.waiting[place].1;
        queue.drain(..max.min(queue.len())).collect()
    }

    /// Forgets what was read from these partitions: others will read it.
    pub fn forget(&mut self, partitions: &[TopicPartition]) {
        let stays = |message: &Message| {
            let record = &message.origin.record;
            !partitions.iter().any(|p| p.partition == record.partition && p.topic == record.topic)
        };
        self.later.retain(stays);
        self.waiting.iter_mut().for_each(|(_, queue)| queue.retain(stays));
    }
}
