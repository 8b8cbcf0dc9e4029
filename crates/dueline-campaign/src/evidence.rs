//! What is noted while the campaign runs, and would be gone afterwards.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dueline_testkit::checker::{Call, Probe, Published};

/// The first key of a parcel that kills its consumer; clients' keys are below.
const FIRST_POISON: i64 = 9_000_000_000;

/// Notes of the nemesis.
#[derive(Debug, Default)]
pub struct Archive {
    notes: Mutex<Notes>,
    poisons: AtomicI64,
    turns: AtomicUsize,
}

/// See [`Archive`].
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Records of topics before they were deleted.
    pub lost: Vec<Published>,
    /// Partitions whose committed offset was moved ahead, and where to.
    pub moved: Vec<(String, i32, i64)>,
    /// The nemesis's own calls.
    pub calls: Vec<Call>,
    /// What looks at V7 found.
    pub probes: Probe,
}

impl Archive {
    /// Keeps records that are about to be deleted.
    pub fn keep(&self, records: Vec<Published>) {
        self.with(|notes| notes.lost.extend(records));
    }

    /// The committed offset of each partition was moved ahead to this.
    pub fn note_moved(&self, topic: &str, offsets: &[i64]) {
        let moved = (0..).zip(offsets).map(|(p, offset)| (topic.to_owned(), p, *offset));
        self.with(|notes| notes.moved.extend(moved));
    }

    /// The topic is a new one: its offsets start again.
    pub fn forget_moved(&self, topic: &str) {
        self.with(|notes| notes.moved.retain(|(of, ..)| of != topic));
    }

    /// What a look at V7 found, without the offsets that were moved by hand.
    pub fn note_probe(&self, mut probe: Probe) {
        self.with(|notes| {
            let moved = |topic: &str, partition, offset| {
                notes.moved.iter().any(|(t, p, to)| t == topic && *p == partition && offset < *to)
            };
            let before = probe.passed.len();
            probe.passed.retain(|p| !moved(&p.record.topic, p.record.partition, p.record.offset));
            probe.checked -= before - probe.passed.len();
            notes.probes.add(probe);
        });
    }

    /// A call of the nemesis's own.
    pub fn note_call(&self, call: Call) {
        self.with(|notes| notes.calls.push(call));
    }

    /// A key for the next parcel that kills its consumer.
    pub fn next_poison(&self) -> i64 {
        FIRST_POISON + self.poisons.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts, for whatever takes turns.
    pub fn next_turn(&self) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// All notes so far.
    #[must_use]
    pub fn notes(&self) -> Notes {
        self.with(|notes| notes.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Notes) -> T) -> T {
        work(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
