//! The database's clock, watched against our own steady one (T1, T4, H5).
//!
//! A relay takes nothing that is due later than its steady clock allows the database's clock to be.
//! When the database's clock jumps ahead, what the jump made "due" waits for a bounded pause while
//! an alarm goes out; then the new clock is believed, for it is the only one that counts.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dueline_core::Micros;

/// How far ahead of its expected value the database's clock may be.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(5);
/// How long a jump ahead is not believed.
pub(crate) const DISBELIEF: Duration = Duration::from_secs(30);

/// What a reading of the database's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It is where it should be.
    Steady,
    /// It is ahead; not believed yet.
    Ahead(Duration),
    /// It went back.
    Back(Duration),
    /// It was ahead for so long that it is believed now.
    Believed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockGuard {
    anchor: Option<(Micros, Instant)>,
    ahead_since: Option<Instant>,
}

impl ClockGuard {
    pub fn new() -> Self {
        Self { anchor: None, ahead_since: None }
    }

    /// The latest instant that the database's clock can honestly show now.
    pub fn horizon(&self, at: Instant) -> Micros {
        match self.anchor {
            None => Micros(i64::MAX),
            Some((clock, read)) => clock.plus(at.saturating_duration_since(read)).plus(TOLERANCE),
        }
    }

    /// The last reading: the database's clock is not before it.
    pub fn last(&self) -> Option<Micros> {
        self.anchor.map(|(clock, _)| clock)
    }

    /// The best guess of the database's clock, without asking it.
    pub fn guess(&self, at: Instant) -> Option<Micros> {
        self.anchor.map(|(clock, read)| clock.plus(at.saturating_duration_since(read)))
    }

    /// The database showed `clock` in the answer to a question that was asked at `at`: however long
    /// the answer took, the clock was not further on at that time.
    pub fn read(&mut self, clock: Micros, at: Instant) -> Reading {
        let Some((last, read)) = self.anchor else {
            self.anchor = Some((clock, at));
            return Reading::Steady;
        };
        let horizon = self.horizon(at);
        if clock > horizon {
            let since = *self.ahead_since.get_or_insert(at);
            if at.saturating_duration_since(since) < DISBELIEF {
                return Reading::Ahead(clock.since(horizon) + TOLERANCE);
            }
            self.ahead_since = None;
            self.anchor = Some((clock, at));
            return Reading::Believed;
        }
        self.ahead_since = None;
        self.anchor = Some((clock, at));
        let expected = last.plus(at.saturating_duration_since(read));
        match expected.since(clock) {
            // Questions cross: only a real step back counts.
            _ if clock >= last => Reading::Steady,
            behind if behind > TOLERANCE => Reading::Back(behind),
            _ => Reading::Steady,
        }
    }
}

/// This host's clock minus the database's, in seconds; for people and alerts only.
#[expect(
    clippy::disallowed_methods,
    reason = "the host's clock is what is measured; nothing acts on it"
)]
pub(crate) fn host_offset_seconds(database: Micros) -> f64 {
    let host = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host = i64::try_from(host.as_micros()).unwrap_or(i64::MAX);
    host.saturating_sub(database.0) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn h05_a_jump_ahead_is_believed_only_after_a_while() {
        let start = Instant::now();
        let mut guard = ClockGuard::new();
        assert_eq!(guard.read(Micros(0), start), Reading::Steady);
        let hour = Micros(0).plus(SECOND * 3_600);
        assert!(matches!(guard.read(hour, start + SECOND), Reading::Ahead(_)));
        assert_eq!(guard.horizon(start + SECOND), Micros(0).plus(SECOND + TOLERANCE));
        let later = start + SECOND + DISBELIEF;
        assert_eq!(guard.read(hour.plus(DISBELIEF), later), Reading::Believed);
        assert!(guard.horizon(later) > hour);
    }

    #[test]
    fn h05_a_jump_that_is_taken_back_changes_nothing() {
        let start = Instant::now();
        let mut guard = ClockGuard::new();
        guard.read(Micros(0), start);
        assert!(matches!(guard.read(Micros(0).plus(SECOND * 60), start), Reading::Ahead(_)));
        assert_eq!(guard.read(Micros(0).plus(SECOND), start + SECOND), Reading::Steady);
    }

    #[test]
    fn h05_a_step_back_is_noticed_and_a_late_reading_is_not_one() {
        let start = Instant::now();
        let mut guard = ClockGuard::new();
        guard.read(Micros(0).plus(SECOND * 1_000), start);
        // The clock it shows is old, but later than the last one.
        let slow = guard.read(Micros(0).plus(SECOND * 1_001), start + SECOND * 11);
        assert_eq!(slow, Reading::Steady);
        let back = guard.read(Micros(0).plus(SECOND * 400), start + SECOND * 12);
        assert!(matches!(back, Reading::Back(_)), "{back:?}");
    }
}
