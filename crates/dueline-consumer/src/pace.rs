//! How fast a kind may run: trouble of the environment, poison, and a handler that must not run at all.
//!
//! * **Environment**: a pause, then one lone task as a probe; when it succeeds, batches grow again from
//!   one, doubling. What waits is taken round-robin, so that a single locked row ends up alone and
//!   everything else passes it.
//! * **Poison**: when more than a tenth of the recent tasks failed by themselves, batches of one at a
//!   limited rate, for a while: splitting large batches again and again costs more.
//! * **Contract**: stopped until the process starts again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dueline_service::backoff::Pauses;

/// Batches that are remembered to judge the share of poison.
const REMEMBERED: usize = 32;
/// The least number of tasks among them before a share means anything.
const MIN_TASKS: usize = 100;
/// How long a poisoned kind runs in batches of one.
const SINGLES_FOR: Duration = Duration::from_secs(10);
/// The pause between two of those.
const SINGLES_PAUSE: Duration = Duration::from_millis(5);

/// What may be started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// A batch of up to so many tasks.
    Batch(usize),
    /// Nothing before this instant; a report may change that.
    Wait(Instant),
    /// Nothing any more.
    Stopped,
}

#[derive(Debug)]
enum State {
    /// Batches of at most so many tasks, doubling.
    Open(usize),
    /// The environment is in trouble until about then.
    Pausing(Instant),
    /// A lone task is on its way to find out; give up waiting for its report then.
    Probing(Instant),
    Stopped,
}

/// The pace of one kind.
pub(crate) struct Pace {
    state: State,
    pauses: Pauses,
    batch_max: usize,
    probe_timeout: Duration,
    recent: VecDeque<(usize, usize)>,
    singles_until: Option<Instant>,
    next_single: Instant,
}

impl Pace {
    /// Full speed. `probe_timeout` is longer than any batch takes.
    pub fn new(batch_max: usize, pause: (Duration, Duration), probe_timeout: Duration) -> Self {
        Self {
            state: State::Open(batch_max),
            pauses: Pauses::new(pause.0, pause.1),
            batch_max,
            probe_timeout,
            recent: VecDeque::with_capacity(REMEMBERED),
            singles_until: None,
            next_single: Instant::now(),
        }
    }

    /// What may start at `now`. Asking takes it: a permit that is not used delays a probe.
    pub fn permit(&mut self, now: Instant) -> Permit {
        match self.state {
            State::Stopped => Permit::Stopped,
            State::Pausing(until) | State::Probing(until) if now < until => Permit::Wait(until),
            State::Pausing(_) | State::Probing(_) => {
                self.state = State::Probing(now + self.probe_timeout);
                Permit::Batch(1)
            }
            State::Open(limit) => self.open_permit(now, limit),
        }
    }

    fn open_permit(&mut self, now: Instant, limit: usize) -> Permit {
        match self.singles_until {
            Some(until) if now < until => {
                if now < self.next_single {
                    return Permit::Wait(self.next_single);
                }
                self.next_single = now + SINGLES_PAUSE;
                Permit::Batch(1)
            }
            Some(_) => {
                self.singles_until = None;
                Permit::Batch(limit)
            }
            None => Permit::Batch(limit),
        }
    }

    /// A batch came back, with so many tasks that failed by themselves.
    pub fn worked(&mut self, now: Instant, tasks: usize, poison: usize) {
        match self.state {
            State::Stopped => return,
            State::Open(limit) => self.state = State::Open((limit * 2).min(self.batch_max)),
            // Something that began before the trouble ended well: that proves less than a probe does.
            State::Pausing(_) => {}
            State::Probing(_) => {
                self.pauses.reset();
                self.state = State::Open(2.min(self.batch_max));
            }
        }
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((tasks, poison));
        let (all, bad) = self.recent.iter().fold((0, 0), |(a, b), (t, p)| (a + t, b + p));
        if all >= MIN_TASKS && bad * 10 > all {
            self.recent.clear();
            self.singles_until = Some(now + SINGLES_FOR);
        }
    }

    /// The environment is in trouble. Returns the pause.
    pub fn troubled(&mut self, now: Instant) -> Duration {
        let already = matches!(self.state, State::Pausing(until) if now < until);
        if already || matches!(self.state, State::Stopped) {
            return Duration::ZERO;
        }
        let pause = self.pauses.next_pause();
        self.state = State::Pausing(now + pause);
        pause
    }

    /// The handler broke its contract.
    pub fn stop(&mut self) {
        self.state = State::Stopped;
    }

    /// Whether the kind neither pauses nor is stopped.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether it runs in batches of one because of poison.
    pub fn is_poisoned(&self) -> bool {
        self.singles_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(2);

    fn pace() -> (Pace, Instant) {
        (Pace::new(1_000, (MIN, MAX), Duration::from_secs(60)), Instant::now())
    }

    #[test]
    fn h33_trouble_is_probed_by_one_task_a_pause_and_batches_grow_again() {
        let (mut pace, now) = pace();
        assert_eq!(pace.permit(now), Permit::Batch(1_000));
        assert!(pace.troubled(now) <= MIN * 2);
        assert!(matches!(pace.permit(now), Permit::Wait(_)));
        let later = now + MAX;
        assert_eq!(pace.permit(later), Permit::Batch(1));
        assert!(matches!(pace.permit(later), Permit::Wait(_)), "one probe at a time");
        pace.worked(later, 1, 0);
        assert_eq!(pace.permit(later), Permit::Batch(2));
        pace.worked(later, 2, 0);
        assert_eq!(pace.permit(later), Permit::Batch(4));
    }

    #[test]
    fn h33_a_lost_probe_does_not_stop_the_kind_for_ever() {
        let (mut pace, now) = pace();
        pace.troubled(now);
        assert_eq!(pace.permit(now + MAX), Permit::Batch(1));
        assert_eq!(pace.permit(now + MAX + Duration::from_secs(61)), Permit::Batch(1));
    }

    #[test]
    fn h31_more_than_a_tenth_poison_means_singles_for_a_bounded_while() {
        let (mut pace, now) = pace();
        pace.worked(now, 100, 10);
        assert_eq!(pace.permit(now), Permit::Batch(1_000), "a tenth is not more than a tenth");
        pace.worked(now, 100, 30);
        assert!(pace.is_poisoned());
        assert_eq!(pace.permit(now), Permit::Batch(1));
        assert!(matches!(pace.permit(now), Permit::Wait(_)), "limited in rate");
        assert_eq!(pace.permit(now + SINGLES_FOR), Permit::Batch(1_000));
    }

    #[test]
    fn h39_a_stopped_kind_never_runs_again() {
        let (mut pace, now) = pace();
        pace.stop();
        pace.worked(now, 1, 0);
        pace.troubled(now);
        assert_eq!(pace.permit(now + MAX * 10), Permit::Stopped);
    }
}
