//! Outcomes that were read and are not settled yet, in the order in which they were read.

use std::collections::{BTreeMap, HashSet};

use dueline_core::Outcome;
use dueline_kafka::{OwnedRecord, TopicPartition};

/// One record.
#[derive(Debug)]
pub(super) enum Entry {
    /// It says something of a task.
    Says(Outcome),
    /// It cannot be read, and why.
    Broken(Box<OwnedRecord>, String),
}

/// What is done in one go: numbers of entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Outcomes, at most one of each task, the oldest of its task.
    pub said: Vec<usize>,
    /// Records that cannot be read.
    pub broken: Vec<usize>,
}

impl Turn {
    pub fn is_empty(&self) -> bool {
        self.said.is_empty() && self.broken.is_empty()
    }
}

/// See the module. Entries are known by a number that only grows.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    entries: BTreeMap<usize, (TopicPartition, i64, Entry)>,
    next: usize,
}

impl Inbox {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn has(&self, n: usize) -> bool {
        self.entries.contains_key(&n)
    }

    pub fn push(&mut self, partition: &TopicPartition, offset: i64, entry: Entry) {
        self.entries.insert(self.next, (partition.clone(), offset, entry));
        self.next += 1;
    }

    /// Takes an entry out.
    pub fn remove(&mut self, n: usize) -> Option<(TopicPartition, i64)> {
        self.entries.remove(&n).map(|(partition, offset, _)| (partition, offset))
    }

    /// Drops what was read from these partitions.
    pub fn forget(&mut self, partitions: &[TopicPartition]) {
        self.entries.retain(|_, (partition, _, _)| !partitions.contains(partition));
    }

    /// The next at most `max` entries that do not have to wait for an earlier one of their task.
    pub fn turn(&self, max: usize) -> Turn {
        let mut turn = Turn::default();
        let mut tasks = HashSet::new();
        for (n, (_, _, entry)) in &self.entries {
            if turn.said.len() + turn.broken.len() >= max {
                break;
            }
            match entry {
                Entry::Says(outcome) if tasks.insert(outcome.task_id) => turn.said.push(*n),
                Entry::Says(_) => {}
                Entry::Broken(..) => turn.broken.push(*n),
            }
        }
        turn
    }

    pub fn said(&self, n: usize) -> Option<(&TopicPartition, &Outcome)> {
        match self.entries.get(&n)? {
            (partition, _, Entry::Says(outcome)) => Some((partition, outcome)),
            _ => None,
        }
    }

    pub fn outcome(&self, n: usize) -> Option<&Outcome> {
        self.said(n).map(|(_, outcome)| outcome)
    }

    pub fn broken(&self, n: usize) -> Option<(&OwnedRecord, &str)> {
        match self.entries.get(&n)? {
            (_, _, Entry::Broken(record, error)) => Some((record, error)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use dueline_core::KeyHash;
    use dueline_core::outcome::Verdict;

    use super::*;

    fn says(task_id: i64) -> Entry {
        Entry::Says(Outcome {
            instance: "dueline://shop/0/1".into(),
            task_id,
            key_hash: KeyHash::new("billing", "charge", "1"),
            generation: 0,
            attempt: 0,
            verdict: Verdict::Done,
        })
    }

    fn inbox(tasks: &[i64]) -> Inbox {
        let mut inbox = Inbox::default();
        for (offset, task) in (0..).zip(tasks) {
            inbox.push(&TopicPartition::new("t", (offset % 2) as i32), offset, says(*task));
        }
        inbox
    }

    #[test]
    fn a_turn_has_the_oldest_outcome_of_each_task() {
        let mut inbox = inbox(&[7, 8, 7, 9, 8]);
        assert_eq!(inbox.turn(10).said, [0, 1, 3]);
        assert_eq!(inbox.remove(0).map(|(_, offset)| offset), Some(0));
        // 8 is held by somebody: its later outcome stays behind it.
        assert_eq!(inbox.turn(10).said, [1, 2, 3]);
    }

    #[test]
    fn a_turn_is_bounded_and_an_empty_inbox_has_none() {
        let inbox = inbox(&[1, 2, 3, 4]);
        assert_eq!(inbox.turn(2).said, [0, 1]);
        assert!(Inbox::default().turn(2).is_empty());
    }

    #[test]
    fn what_was_read_from_a_partition_that_goes_is_forgotten() {
        let mut inbox = inbox(&[1, 2, 3]);
        inbox.forget(&[TopicPartition::new("t", 0)]);
        assert_eq!(inbox.turn(9).said, [1]);
        assert_eq!(inbox.len(), 1);
    }
}
