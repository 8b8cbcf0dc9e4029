//! Tasks at a fixed rate, whether or not anybody keeps up: scheduled some seconds ahead, due one after
//! another at even distances. What is late is then the product, and never the one who asks.

use std::time::{Duration, Instant};

use anyhow::Result;
use dueline_core::Micros;
use dueline_store::Pool;
use tokio_util::sync::CancellationToken;

use crate::load::{self, BATCH};
use crate::stage::Stage;

/// How long before its due time a task is scheduled: within the shortest tier, and longer than any pause of
/// a relay.
pub(crate) const AHEAD: Duration = Duration::from_secs(4);
/// What the first call gets beside: its own time.
const START_UP: Duration = Duration::from_millis(500);
/// How much time the tasks of one round of calls cover: short, as from many callers, so that no single call
/// keeps a core busy for longer than what is measured takes.
const SLICE: Duration = Duration::from_millis(50);

/// A plan of tasks at a fixed rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenLoop {
    /// The first order; the others follow.
    pub first: i64,
    /// How many tasks.
    pub count: i64,
    /// Tasks a second.
    pub rate: f64,
    /// When the first is due, by the database's clock.
    pub start: Micros,
    /// The same by our own.
    pub start_here: Instant,
}

impl OpenLoop {
    /// `count` tasks for the orders from `first` on, the first of them due a little more than [`AHEAD`] from
    /// now.
    pub async fn from_now(stage: &Stage, first: i64, count: i64, rate: f64) -> Result<Self> {
        let lead = AHEAD + START_UP;
        Ok(Self::starting(stage.now().await?.plus(lead), Instant::now() + lead, first, count, rate))
    }

    fn starting(start: Micros, start_here: Instant, first: i64, count: i64, rate: f64) -> Self {
        Self { first, count, rate, start, start_here }
    }

    /// When the `n`-th task is due, from 0.
    pub fn due(&self, n: i64) -> Micros {
        self.start.plus(self.offset(n))
    }

    /// When the `n`-th task is due, by our clock.
    pub fn due_here(&self, n: i64) -> Instant {
        self.start_here + self.offset(n)
    }

    /// How many tasks are due in this time.
    #[allow(clippy::cast_possible_truncation)]
    pub fn tasks_in(&self, time: Duration) -> i64 {
        (self.rate * time.as_secs_f64()).ceil() as i64
    }

    /// Schedules them all, each slice [`AHEAD`] of its time, until `stop`; answers how many.
    pub async fn schedule(&self, pool: &Pool, stop: &CancellationToken) -> Result<i64> {
        let mut n = 0;
        while n < self.count {
            let begin = tokio::time::sleep_until((self.due_here(n) - AHEAD).into());
            if stop.run_until_cancelled(begin).await.is_none() {
                break;
            }
            let slice = self.slice_from(n);
            while n < slice {
                let to = (n + BATCH).min(slice);
                let due_at = (n..to).map(|n| self.due(n)).collect();
                load::schedule_at(pool, self.first + n..=self.first + to - 1, due_at).await?;
                n = to;
            }
        }
        Ok(n)
    }

    /// The end of the slice that begins with the `n`-th task: at least one task more.
    fn slice_from(&self, n: i64) -> i64 {
        (n + self.tasks_in(SLICE).max(1)).min(self.count)
    }

    #[allow(clippy::cast_precision_loss)]
    fn offset(&self, n: i64) -> Duration {
        Duration::from_secs_f64(n.max(0) as f64 / self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_due_at_even_distances_and_slices_come_to_an_end() {
        let plan = OpenLoop::starting(Micros(5_000_000), Instant::now(), 7, 1_050, 1_000.0);
        assert_eq!(plan.due(0), Micros(5_000_000));
        assert_eq!(plan.due(1_000), Micros(6_000_000));
        assert_eq!(plan.due_here(500), plan.start_here + Duration::from_millis(500));
        assert_eq!((plan.slice_from(0), plan.slice_from(1_000)), (50, 1_050));
        let slow = OpenLoop { rate: 0.5, ..plan };
        assert_eq!(slow.slice_from(3), 4, "a slice is never empty");
    }
}
