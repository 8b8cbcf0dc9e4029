//! How long to wait between rounds, how far each looks back, and how often it may.

use std::time::{Duration, Instant};

/// A claim of so many rows is worth its cost: the next follows at once.
const FULL: usize = 500;
/// Time constant of the arrival rate's moving average.
const MEMORY: Duration = Duration::from_millis(500);
/// At this rate (rows a second) the pause is two thirds of the way to its longest. It grows with the
/// square of the rate: a few thousand tasks a second leave the machine idle, and are better served
/// early than together.
const KNEE: f64 = 25_000.0;
/// What a look back may cost: a tenth of the scanning time, so it rests nine times as long as it
/// took.
const REST: u32 = 9;

/// Paces claims by what they bring: the faster tasks become due, the more rows one claim should
/// take.
#[derive(Debug)]
pub(crate) struct Pace {
    min: Duration,
    max: Duration,
    rate: f64,
    last: Option<Instant>,
}

impl Pace {
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max: max.max(min), rate: 0.0, last: None }
    }

    /// The pause after a claim at `now` that brought `rows`, and left due work behind or did not.
    pub fn after(&mut self, now: Instant, rows: usize, more: bool) -> Duration {
        let elapsed = self.last.map_or(MEMORY, |last| now.saturating_duration_since(last));
        self.last = Some(now);
        let elapsed = elapsed.as_secs_f64().max(1e-4);
        let weight = 1.0 - (-elapsed / MEMORY.as_secs_f64()).exp();
        self.rate += weight * (rows as f64 / elapsed - self.rate);
        if more || rows >= FULL {
            return Duration::ZERO;
        }
        let share = 1.0 - (-(self.rate / KNEE).powi(2)).exp();
        self.min + (self.max - self.min).mul_f64(share.clamp(0.0, 1.0))
    }
}

/// How far a round looks behind its watermark: as far as rows were committed late, within bounds.
#[derive(Debug)]
pub(crate) struct Window {
    min: Duration,
    max: Duration,
    current: Duration,
    calm_since: Option<Instant>,
}

impl Window {
    /// After so long without a late row the window is halved.
    const CALM: Duration = Duration::from_secs(60);

    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max: max.max(min), current: min, calm_since: None }
    }

    pub fn current(&self) -> Duration {
        self.current
    }

    /// A row was found `lag` after the scan had passed it. Rows as late as that fit from now on.
    pub fn late(&mut self, now: Instant, lag: Duration) {
        let wanted = lag.saturating_mul(3) / 2;
        if wanted >= self.current / 2 {
            self.calm_since = Some(now);
        }
        self.current = self.current.max(wanted).clamp(self.min, self.max);
    }

    /// Shrinks after a calm while.
    pub fn tick(&mut self, now: Instant) {
        let since = *self.calm_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= Self::CALM {
            self.current = (self.current / 2).clamp(self.min, self.max);
            self.calm_since = Some(now);
        }
    }
}

/// Lets something happen only as often as its cost allows: it rests nine times as long as it took,
/// and at most `longest`.
#[derive(Debug)]
pub(crate) struct Rest {
    longest: Duration,
    until: Option<Instant>,
}

impl Rest {
    pub fn new(longest: Duration) -> Self {
        Self { longest, until: None }
    }

    pub fn allows(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    pub fn took(&mut self, ended: Instant, cost: Duration) {
        self.until = Some(ended + cost.saturating_mul(REST).min(self.longest));
    }
}

/// A token bucket with one second's worth of tokens.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: f64,
    tokens: f64,
    filled: Option<Instant>,
}

impl Bucket {
    pub fn new(per_second: u32) -> Self {
        let rate = f64::from(per_second.max(1));
        Self { rate, tokens: rate, filled: None }
    }

    /// Takes up to `wanted` tokens.
    pub fn take(&mut self, now: Instant, wanted: usize) -> usize {
        let elapsed = self.filled.map_or(Duration::ZERO, |f| now.saturating_duration_since(f));
        self.filled = Some(now);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * self.rate).min(self.rate);
        let taken = (self.tokens as usize).min(wanted);
        self.tokens -= taken as f64;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The pause that a steady rate settles at.
    fn pause_at(rate: usize) -> Duration {
        let mut pace = Pace::new(2 * MS, 25 * MS);
        let mut now = Instant::now();
        let mut pause = 2 * MS;
        for _ in 0..2_000 {
            now += pause + MS;
            let rows = rate * usize::try_from((pause + MS).as_micros()).expect("small") / 1_000_000;
            pause = pace.after(now, rows.min(FULL - 1), false);
        }
        pause
    }

    #[test]
    fn l02_the_faster_tasks_become_due_the_more_rows_one_claim_takes() {
        let slow = pause_at(1_000);
        assert!(slow >= 2 * MS && slow <= 5 * MS, "{slow:?}");
        let fast = pause_at(25_000);
        assert!(fast >= 12 * MS && fast <= 25 * MS, "{fast:?}");
    }

    #[test]
    fn s03_what_is_left_is_judged_again_at_once() {
        let mut pace = Pace::new(2 * MS, 25 * MS);
        assert_eq!(pace.after(Instant::now(), 1, true), Duration::ZERO);
        assert_eq!(pace.after(Instant::now(), FULL, false), Duration::ZERO);
    }

    #[test]
    fn h01_the_window_follows_late_rows_within_its_bounds_and_comes_back() {
        let start = Instant::now();
        let mut window = Window::new(300 * MS, 30_000 * MS);
        window.late(start, 100 * MS);
        assert_eq!(window.current(), 300 * MS);
        window.late(start, 4_000 * MS);
        assert_eq!(window.current(), 6_000 * MS);
        window.late(start, 90_000 * MS);
        assert_eq!(window.current(), 30_000 * MS);
        let mut now = start;
        for _ in 0..10 {
            now += Window::CALM;
            window.tick(now);
        }
        assert_eq!(window.current(), 300 * MS);
    }

    #[test]
    fn looking_back_costs_at_most_a_tenth() {
        let start = Instant::now();
        let mut rest = Rest::new(1_000 * MS);
        assert!(rest.allows(start));
        rest.took(start, 10 * MS);
        assert!(!rest.allows(start + 89 * MS));
        assert!(rest.allows(start + 90 * MS));
        rest.took(start, 5_000 * MS);
        assert!(rest.allows(start + 1_000 * MS), "one slow look does not stop all others");
    }

    #[test]
    fn l02_a_bucket_gives_its_rate_and_no_more() {
        let start = Instant::now();
        let mut bucket = Bucket::new(100);
        assert_eq!(bucket.take(start, 1_000), 100);
        assert_eq!(bucket.take(start, 1_000), 0);
        assert_eq!(bucket.take(start + 500 * MS, 1_000), 50);
    }
}
