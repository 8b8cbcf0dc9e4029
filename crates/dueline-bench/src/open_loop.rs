//! Tasks at a fixed rate, whether or not anybody keeps up: scheduled some seconds ahead, due one after
//! another at even distances. What is late is then the product, and never the one who asks.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueline_core::Micros;
use dueline_store::client::{self, ScheduleMany};
use dueline_store::{Pool, Timestamptz};

use crate::settings::KIND;

/// How long before its due time a task is scheduled: in the shortest tier, and longer than any pause of a
/// relay.
pub(crate) const AHEAD: Duration = Duration::from_secs(4);
/// How much time the tasks of one round of calls cover.
const SLICE_US: i64 = 250_000;
/// Tasks of one call.
const CHUNK: i64 = 1_000;

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
    pub async fn from_now(pool: &Pool, first: i64, count: i64, rate: f64) -> Result<Self> {
        let lead = AHEAD + Duration::from_millis(500);
        let now = clock(pool).await?;
        let start = now.plus(lead);
        Ok(Self { first, count, rate, start, start_here: Instant::now() + lead })
    }

    /// When the `n`-th task is due, from 0.
    pub fn due(&self, n: i64) -> Micros {
        self.start.plus(self.offset(n))
    }

    /// When the last one is due, by our clock.
    pub fn end_here(&self) -> Instant {
        self.start_here + self.offset(self.count)
    }

    fn offset(&self, n: i64) -> Duration {
        #[allow(clippy::cast_precision_loss)]
        Duration::from_secs_f64(n as f64 / self.rate)
    }

    /// Schedules them all, each slice [`AHEAD`] of its time. Ends [`AHEAD`] before the last is due.
    pub async fn schedule(&self, pool: &Pool) -> Result<()> {
        let mut n = 0;
        while n < self.count {
            let here = self.start_here + self.offset(n);
            tokio::time::sleep_until((here - AHEAD).into()).await;
            let slice = self.slice_from(n);
            for from in (n..slice).step_by(CHUNK as usize) {
                self.call(pool, from, (from + CHUNK).min(slice)).await?;
            }
            n = slice;
        }
        Ok(())
    }

    /// The end of the slice that begins with the `n`-th task: at least one task more.
    fn slice_from(&self, n: i64) -> i64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let tasks = (self.rate * SLICE_US as f64 / 1e6).ceil() as i64;
        (n + tasks.max(1)).min(self.count)
    }

    async fn call(&self, pool: &Pool, from: i64, to: i64) -> Result<()> {
        let request = ScheduleMany {
            kind: KIND.to_owned(),
            keys: (from..to).map(|n| (self.first + n).to_string()).collect(),
            due_at: (from..to).map(|n| self.due(n)).collect(),
            ..ScheduleMany::default()
        };
        let receipts = client::schedule_many(pool, &request).await?;
        ensure!(receipts.len() == request.keys.len(), "schedule_many left tasks out");
        Ok(())
    }
}

/// The database's clock.
pub(crate) async fn clock(pool: &Pool) -> Result<Micros> {
    let statement = include_str!("../sql/clock.sql");
    let (now,): (Timestamptz,) = sqlx::query_as(statement).fetch_one(pool).await?;
    Ok(now.into())
}
