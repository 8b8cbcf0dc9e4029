//! What the poll thread and the async side share: buffers and offsets of the assigned partitions.
//! No Kafka in here.

use std::collections::{HashMap, VecDeque};

use crate::record::{OwnedRecord, TopicPartition};
use crate::tracker::OffsetTracker;

/// When a partition stops and starts being fetched. Per partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Records in the buffer above which fetching pauses; it resumes at half.
    pub records: usize,
    /// Bytes in the buffer above which fetching pauses; it resumes at half.
    pub bytes: usize,
    /// Records received and not passed by the committable offset above which fetching pauses: one
    /// record that is never finished must not let the list behind it grow without end.
    pub outstanding: usize,
}

impl Limits {
    fn halved(self) -> Self {
        Self { records: self.records / 2, bytes: self.bytes / 2, outstanding: self.outstanding / 2 }
    }
}

/// One assigned partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    buffer: VecDeque<OwnedRecord>,
    bytes: usize,
    pub tracker: OffsetTracker,
    /// Buffer or outstanding records are above the limit, and not below half of it again yet.
    full: bool,
    /// The user asked for a pause.
    held: bool,
    /// What librdkafka was last told.
    pub paused: bool,
    /// It is being taken away: nothing is handed out any more, but finishes still count.
    revoking: bool,
    /// Whether the topic may have been made anew. Nothing is committed until that is known.
    doubt: Option<Doubt>,
    /// The topic was made anew: the offsets here are of one that is no more, and none is committed.
    gone: bool,
    /// A seek to this offset is due; until it is made, what arrives is from before it.
    pub seek_to: Option<i64>,
    /// The last offset given to a commit that did not fail.
    pub sent: Option<i64>,
    /// The last offset that the broker acknowledged.
    pub committed: Option<i64>,
    /// The end of the partition at the last look.
    pub high: Option<i64>,
}

impl Partition {
    /// A partition as it is assigned. Taken as paused at first, so that the poll thread resumes it:
    /// a pause may be left over from an earlier assignment.
    pub(super) fn new(committed: Option<i64>) -> Self {
        Self { sent: committed, committed, paused: true, ..Self::default() }
    }

    fn update_full(&mut self, limits: Limits) {
        let mark = if self.full { limits.halved() } else { limits };
        self.full = self.buffer.len() > mark.records
            || self.bytes > mark.bytes
            || self.tracker.outstanding() > mark.outstanding;
    }

    /// Whether fetching should be paused.
    pub(super) fn wants_pause(&self) -> bool {
        self.full || self.held || self.revoking
    }

    /// The offset to commit, if it is ahead of what was sent.
    pub(super) fn to_commit(&self) -> Option<i64> {
        let ahead = |offset: &i64| self.sent.is_none_or(|sent| *offset > sent);
        let certain = !self.gone && self.doubt.is_none();
        self.tracker.committable().filter(|offset| certain && ahead(offset))
    }

    /// Whether an offset lies before what was received, or was passed before this assignment: the
    /// broker has reset it, or tells something twice.
    fn is_behind(&self, offset: i64) -> bool {
        match self.tracker.last() {
            Some(last) => offset <= last,
            None => self.committed.is_some_and(|committed| offset < committed),
        }
    }

    /// Records that are not finished yet, by the last known end of the partition.
    pub(super) fn lag(&self) -> Option<u64> {
        let position = self.tracker.committable().max(self.committed);
        let next = position.or_else(|| self.tracker.first_unfinished());
        let high = self.high?;
        u64::try_from(high - next.unwrap_or(high)).ok()
    }
}

/// Why a topic may be another one than it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// The first record of an assignment lies before the committed offset: reading never begins
    /// there by itself.
    BeforeCommitted,
    /// A record came that lies before the last one, or the broker did not know the topic.
    Unclear,
}

/// All assigned partitions.
#[derive(Debug)]
pub(super) struct State {
    pub partitions: HashMap<TopicPartition, Partition>,
    limits: Limits,
}

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self { partitions: HashMap::new(), limits }
    }

    /// A record arrived. Returns whether there is now something to take.
    pub(super) fn push(&mut self, record: OwnedRecord) -> bool {
        let Some(partition) = self.partitions.get_mut(&record.topic_partition()) else {
            return false;
        };
        if partition.revoking || partition.seek_to.is_some() {
            return false;
        }
        if partition.is_behind(record.offset) {
            let first = partition.tracker.last().is_none();
            let doubt = if first { Doubt::BeforeCommitted } else { Doubt::Unclear };
            partition.doubt.get_or_insert(doubt);
            return false;
        }
        partition.tracker.received(record.offset);
        partition.bytes += record.size();
        partition.buffer.push_back(record);
        partition.update_full(self.limits);
        true
    }

    /// The broker did not know these topics, or some topic (`None`): they may come back as others.
    pub(super) fn doubt(&mut self, only: Option<&TopicPartition>) {
        let all = self.partitions.iter_mut();
        for (_, partition) in all.filter(|(name, _)| only.is_none_or(|only| only == *name)) {
            partition.doubt.get_or_insert(Doubt::Unclear);
        }
    }

    /// Partitions whose topic may have been made anew.
    pub(super) fn doubtful(&self) -> Vec<TopicPartition> {
        let doubtful = self.partitions.iter().filter(|(_, p)| p.doubt.is_some() && !p.gone);
        doubtful.map(|(name, _)| name.clone()).collect()
    }

    /// `high` is the end of a doubtful partition. When that means that the topic was made anew, the
    /// partition is given up, and the answer is `true`: the offsets here, and the committed one, are
    /// of a topic that is no more.
    pub(super) fn settle_doubt(&mut self, name: &TopicPartition, high: i64) -> bool {
        let Some(partition) = self.partitions.get_mut(name) else { return false };
        let doubt = partition.doubt.take();
        let known = partition.tracker.last().map(|last| last + 1).max(partition.committed);
        // With an end that is further on, the same record came twice, or the topic never went.
        partition.gone =
            doubt == Some(Doubt::BeforeCommitted) || known.is_some_and(|known| high < known);
        let gone = partition.gone;
        if gone {
            self.revoke(std::slice::from_ref(name));
        }
        gone
    }

    /// Whether this partition was given up, and is still here.
    pub(super) fn is_given_up(&self, name: &TopicPartition) -> bool {
        self.partitions.get(name).is_some_and(|partition| partition.gone)
    }

    /// Takes up to `max` records in order.
    pub(super) fn take(&mut self, from: &TopicPartition, max: usize) -> Vec<OwnedRecord> {
        let Some(partition) = self.partitions.get_mut(from).filter(|p| !p.revoking) else {
            return Vec::new();
        };
        let count = max.min(partition.buffer.len());
        let taken: Vec<_> = partition.buffer.drain(..count).collect();
        partition.bytes -= taken.iter().map(OwnedRecord::size).sum::<usize>();
        partition.update_full(self.limits);
        taken
    }

    /// How many records each partition has to take; those with none are left out.
    pub(super) fn buffered(&self) -> Vec<(TopicPartition, usize)> {
        let readable = self.partitions.iter().filter(|(_, p)| !p.revoking && !p.buffer.is_empty());
        readable.map(|(name, p)| (name.clone(), p.buffer.len())).collect()
    }

    pub(super) fn finish(&mut self, of: &TopicPartition, offset: i64) {
        if let Some(partition) = self.partitions.get_mut(of) {
            partition.tracker.finished(offset);
            partition.update_full(self.limits);
        }
    }

    pub(super) fn hold(&mut self, name: &TopicPartition, held: bool) {
        if let Some(partition) = self.partitions.get_mut(name) {
            partition.held = held;
        }
    }

    /// Forgets what was received from `offset` on; the poll thread will seek there.
    pub(super) fn rewind(&mut self, name: &TopicPartition, offset: i64) -> bool {
        let Some(partition) = self.partitions.get_mut(name) else { return false };
        partition.buffer.retain(|record| record.offset < offset);
        partition.bytes = partition.buffer.iter().map(OwnedRecord::size).sum();
        partition.tracker.rewind(offset);
        // Of two rewinds before the seek the earlier offset wins.
        partition.seek_to = Some(partition.seek_to.map_or(offset, |before| before.min(offset)));
        partition.update_full(self.limits);
        true
    }

    /// Stops handing out records of these partitions and drops what was not taken.
    pub(super) fn revoke(&mut self, names: &[TopicPartition]) {
        for name in names {
            if let Some(partition) = self.partitions.get_mut(name) {
                partition.revoking = true;
                partition.buffer.clear();
                partition.bytes = 0;
            }
        }
    }

    /// Offsets to commit now, of all partitions or of some.
    pub(super) fn to_commit(&self, only: Option<&[TopicPartition]>) -> Vec<(TopicPartition, i64)> {
        let wanted = |name: &TopicPartition| only.is_none_or(|names| names.contains(name));
        let ahead = self.partitions.iter().filter(|(name, _)| wanted(name));
        ahead.filter_map(|(name, p)| Some((name.clone(), p.to_commit()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn record(partition: i32, offset: i64) -> OwnedRecord {
        OwnedRecord {
            topic: Arc::from("t"),
            partition,
            offset,
            timestamp_ms: 0,
            key: None,
            value: Some(vec![0; 10]),
            headers: Vec::new(),
        }
    }

    fn state(records: usize, outstanding: usize) -> State {
        let mut state = State::new(Limits { records, bytes: 1 << 20, outstanding });
        for partition in 0..2 {
            state.partitions.insert(TopicPartition::new("t", partition), Partition::new(None));
        }
        state
    }

    #[test]
    fn a_full_buffer_pauses_its_own_partition_until_it_is_half_empty() {
        let mut state = state(4, 100);
        let (first, second) = (TopicPartition::new("t", 0), TopicPartition::new("t", 1));
        for offset in 0..5 {
            assert!(state.push(record(0, offset)));
        }
        assert!(state.partitions[&first].wants_pause());
        assert!(!state.partitions[&second].wants_pause());
        state.take(&first, 2);
        assert!(state.partitions[&first].wants_pause(), "three of four left: still above half");
        state.take(&first, 1);
        assert!(!state.partitions[&first].wants_pause());
    }

    #[test]
    fn h31_a_record_that_is_never_finished_bounds_what_is_received_behind_it() {
        let mut state = state(100, 4);
        let name = TopicPartition::new("t", 0);
        for offset in 0..5 {
            state.push(record(0, offset));
        }
        state.take(&name, 100);
        for offset in 1..5 {
            state.finish(&name, offset);
        }
        assert!(state.partitions[&name].wants_pause());
        state.finish(&name, 0);
        assert!(!state.partitions[&name].wants_pause());
        assert_eq!(state.to_commit(None), vec![(name, 5)]);
    }

    #[test]
    fn h09_a_revoked_partition_hands_out_nothing_and_still_counts_finishes() {
        let mut state = state(100, 100);
        let name = TopicPartition::new("t", 0);
        for offset in 0..3 {
            state.push(record(0, offset));
        }
        assert_eq!(state.take(&name, 1).len(), 1);
        state.revoke(std::slice::from_ref(&name));
        assert!(state.take(&name, 10).is_empty());
        assert!(!state.push(record(0, 3)));
        state.finish(&name, 0);
        assert_eq!(state.to_commit(Some(std::slice::from_ref(&name))), vec![(name, 1)]);
    }

    #[test]
    fn what_arrives_between_a_rewind_and_its_seek_is_dropped() {
        let mut state = state(100, 100);
        let name = TopicPartition::new("t", 0);
        for offset in 0..3 {
            state.push(record(0, offset));
        }
        assert!(state.rewind(&name, 1));
        assert!(!state.push(record(0, 3)));
        state.partitions.get_mut(&name).expect("assigned").seek_to = None;
        assert!(state.push(record(0, 1)));
        let taken = state.take(&name, 10);
        assert_eq!(taken.iter().map(|r| r.offset).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn h11_a_topic_that_was_made_anew_is_read_from_its_start_and_its_old_offsets_are_not_committed()
    {
        let mut state = state(100, 100);
        let name = TopicPartition::new("t", 0);
        let assigned = |state: &mut State| {
            state.partitions.insert(name.clone(), Partition::new(Some(50)));
        };
        assigned(&mut state);
        assert!(!state.push(record(0, 0)), "below what is committed");
        assert_eq!(state.doubtful(), std::slice::from_ref(&name));
        assert!(state.settle_doubt(&name, 60) && state.is_given_up(&name));

        assigned(&mut state);
        assert!(state.push(record(0, 50)));
        state.finish(&name, 50);
        assert_eq!(state.to_commit(None), vec![(name.clone(), 51)]);
        assert!(!state.push(record(0, 50)));
        assert!(state.to_commit(None).is_empty(), "nothing is committed in doubt");
        assert!(!state.settle_doubt(&name, 60), "the log goes on: the record came twice");
        assert_eq!(state.to_commit(None), vec![(name.clone(), 51)]);
        state.doubt(Some(&name));
        assert!(state.settle_doubt(&name, 1), "the log ends before what was read");
        assert!(!state.push(record(0, 51)));
        assert!(state.to_commit(None).is_empty() && state.doubtful().is_empty());
    }

    #[test]
    fn h11_a_doubt_about_a_topic_that_is_the_same_passes() {
        let mut state = state(100, 100);
        state.push(record(0, 0));
        state.doubt(None);
        assert_eq!(state.doubtful().len(), 2);
        for name in state.doubtful() {
            assert!(!state.settle_doubt(&name, 1));
        }
        assert!(state.doubtful().is_empty());
    }
}
