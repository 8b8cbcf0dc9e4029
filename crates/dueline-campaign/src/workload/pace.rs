//! How fast clients schedule, and when they stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Shared by all clients; cheap to clone.
#[derive(Clone, Debug)]
pub struct Pace {
    began: Instant,
    per_second: f64,
    over: Arc<AtomicBool>,
}

impl Pace {
    /// So many tasks in so much time, by so many clients. It goes on at this rate until
    /// [`Self::end`].
    #[must_use]
    pub fn new(tasks: u32, time: Duration, clients: u32) -> Self {
        let per_second = f64::from(tasks) / time.as_secs_f64().max(1.0) / f64::from(clients.max(1));
        Self { began: Instant::now(), per_second, over: Arc::default() }
    }

    /// How many tasks one client should have scheduled by now.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "far below the range")]
    pub fn wanted(&self) -> i64 {
        (self.began.elapsed().as_secs_f64() * self.per_second) as i64
    }

    /// Tells the clients to stop.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether they are to stop.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}
