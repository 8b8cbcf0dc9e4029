//! Which offset of a partition may be committed.

use std::collections::VecDeque;

/// The offsets of one partition between reception and finish.
///
/// The committable offset passes a record only when that record *and every record received before
/// it* is finished (invariant V7). Contiguity is over what was received: transaction markers and
/// compacted records leave gaps in the offsets, and waiting for them would stop the partition for
/// ever.
///
/// Its length is bounded by whoever calls [`OffsetTracker::received`]: the consumer pauses a
/// partition that has too many records outstanding.
#[derive(Clone, Debug, Default)]
pub struct OffsetTracker {
    /// Received and not yet passed, ascending; the flag says whether it is finished.
    outstanding: VecDeque<(i64, bool)>,
    /// The next offset to read after the last passed record.
    committable: Option<i64>,
    /// The last received offset.
    last: Option<i64>,
}

impl OffsetTracker {
    /// A tracker that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A record was received. Offsets that are not above the last one are ignored and answered with
    /// `false`: the record is known already.
    pub fn received(&mut self, offset: i64) -> bool {
        if self.last.is_some_and(|last| offset <= last) {
            return false;
        }
        self.last = Some(offset);
        self.outstanding.push_back((offset, false));
        true
    }

    /// A record is finished. An offset that was never received, or is passed already, changes
    /// nothing: the answer of an earlier assignment may come late.
    pub fn finished(&mut self, offset: i64) {
        let Ok(index) = self.outstanding.binary_search_by_key(&offset, |(o, _)| *o) else {
            return;
        };
        self.outstanding[index].1 = true;
        if dueline_failpoints::planted("offset-over-a-hole") {
            self.outstanding.iter_mut().take(index).for_each(|(_, finished)| *finished = true);
        }
        while let Some((passed, true)) = self.outstanding.front().copied() {
            self.outstanding.pop_front();
            // A record that was passed before a rewind is passed again: never step back.
            self.committable = self.committable.max(Some(passed + 1));
        }
    }

    /// The offset to commit: that of the next record to read, or `None` when nothing is finished.
    #[must_use]
    pub fn committable(&self) -> Option<i64> {
        self.committable
    }

    /// The first received and unfinished offset.
    #[must_use]
    pub fn first_unfinished(&self) -> Option<i64> {
        self.outstanding.front().map(|(offset, _)| *offset)
    }

    /// The last received offset; `None` when there was none yet.
    #[must_use]
    pub fn last(&self) -> Option<i64> {
        self.last
    }

    /// How many records are received and not passed yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Forgets every record from `offset` on: they will be received again.
    pub fn rewind(&mut self, offset: i64) {
        while self.outstanding.back().is_some_and(|(o, _)| *o >= offset) {
            self.outstanding.pop_back();
        }
        self.last = match self.outstanding.back() {
            Some((last, _)) => Some(*last),
            None => Some(offset - 1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn v07_an_unfinished_record_holds_the_offset_back() {
        let mut tracker = OffsetTracker::new();
        for offset in [10, 11, 12] {
            assert!(tracker.received(offset));
        }
        tracker.finished(11);
        tracker.finished(12);
        assert_eq!(tracker.committable(), None);
        assert_eq!(tracker.first_unfinished(), Some(10));
        tracker.finished(10);
        assert_eq!(tracker.committable(), Some(13));
        assert_eq!(tracker.outstanding(), 0);
    }

    #[test]
    fn v07_gaps_of_control_records_do_not_hold_it_back() {
        let mut tracker = OffsetTracker::new();
        tracker.received(3);
        tracker.received(9);
        tracker.finished(3);
        assert_eq!(tracker.committable(), Some(4));
        tracker.finished(9);
        assert_eq!(tracker.committable(), Some(10));
    }

    #[test]
    fn h09_late_answers_and_repeats_change_nothing() {
        let mut tracker = OffsetTracker::new();
        tracker.finished(7);
        assert_eq!(tracker.committable(), None);
        tracker.received(7);
        tracker.finished(7);
        tracker.finished(7);
        assert!(!tracker.received(7), "known already");
        assert_eq!(tracker.committable(), Some(8));
    }

    #[test]
    fn rewound_records_are_received_again() {
        let mut tracker = OffsetTracker::new();
        for offset in 0..5 {
            tracker.received(offset);
        }
        tracker.finished(0);
        tracker.finished(3);
        tracker.rewind(2);
        assert_eq!(tracker.outstanding(), 1);
        for offset in 2..5 {
            assert!(tracker.received(offset));
        }
        for offset in 1..5 {
            tracker.finished(offset);
        }
        assert_eq!(tracker.committable(), Some(5));
    }

    proptest! {
        /// Against the definition, computed naively: the end of the longest finished prefix.
        #[test]
        fn h10_committable_is_the_end_of_the_finished_prefix(
            gaps in prop::collection::vec(1_i64..4, 1..60),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..120),
        ) {
            let mut offset = 100;
            let offsets: Vec<i64> = gaps.iter().map(|gap| { offset += gap; offset }).collect();
            let mut tracker = OffsetTracker::new();
            let mut received = 0;
            let mut done = std::collections::BTreeSet::new();
            for (step, index) in order.iter().enumerate() {
                // Reception and finishing interleave.
                if received < offsets.len() && step % 2 == 0 {
                    tracker.received(offsets[received]);
                    received += 1;
                }
                let pick = offsets[index.index(offsets.len())];
                tracker.finished(pick);
                if offsets[..received].contains(&pick) {
                    done.insert(pick);
                }
                let prefix = offsets[..received].iter().take_while(|o| done.contains(o)).last();
                prop_assert_eq!(tracker.committable(), prefix.map(|o| o + 1));
            }
        }
    }
}
