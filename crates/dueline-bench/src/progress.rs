//! Lines on standard error: what runs, the how-manieth of how many, since when.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Says what runs.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Instant,
    step: AtomicUsize,
    steps: usize,
}

impl Progress {
    /// Of a run with so many scenarios.
    pub fn new(steps: usize) -> Self {
        Self { began: Instant::now(), step: AtomicUsize::new(0), steps }
    }

    /// The next scenario begins.
    pub fn scenario(&self, name: &str) {
        self.step.fetch_add(1, Ordering::Relaxed);
        self.say(name);
    }

    /// What is done now.
    pub fn say(&self, what: &str) {
        let (step, steps) = (self.step.load(Ordering::Relaxed), self.steps);
        let elapsed = self.began.elapsed().as_secs();
        let (minutes, seconds) = (elapsed / 60, elapsed % 60);
        // Nobody listens any more: no reason to stop.
        let _ = writeln!(std::io::stderr(), "[{step}/{steps} {minutes:02}:{seconds:02}] {what}");
    }
}
