//! Measuring a closed loop: warm up, then count what was finished between two instants of the database's
//! clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_core::Micros;
use dueline_store::{Pool, Timestamptz};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cpu::Reading;
use crate::load::Feed;
use crate::stage::Stage;

/// How often the consumers are asked how far they are.
const ASK: Duration = Duration::from_millis(50);
/// The longest wait for the rest of a backlog when nothing is scheduled any more, beside a lease: what a
/// lost message spoke of is done after it.
const REST_TIMEOUT: Duration = Duration::from_secs(60);
/// A warm-up lasts until something was settled at least; a consumer may take so long to get its partitions.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to run before measuring, and how long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From the first settled task on.
    pub warm_up: Duration,
    /// What counts.
    pub measure: Duration,
}

/// What a window came to.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Beginning, by the database's clock.
    pub from: Micros,
    /// End.
    pub until: Micros,
    before: Reading,
    after: Reading,
    wal_bytes: f64,
}

impl Window {
    /// How many tasks were finished in it, by a statement that counts between two instants.
    pub async fn count(&self, pool: &Pool, statement: &'static str) -> Result<i64> {
        let count = sqlx::query_scalar(statement)
            .bind(Timestamptz(self.from))
            .bind(Timestamptz(self.until))
            .fetch_one(pool)
            .await?;
        Ok(count)
    }

    /// Tasks per second.
    #[allow(clippy::cast_precision_loss)]
    pub fn rate(&self, tasks: i64) -> f64 {
        tasks as f64 / self.until.since(self.from).as_secs_f64()
    }

    /// Bytes of WAL per task.
    #[allow(clippy::cast_precision_loss)]
    pub fn wal_per_task(&self, tasks: i64) -> f64 {
        self.wal_bytes / tasks.max(1) as f64
    }

    /// Core-microseconds per task by process.
    pub fn costs(&self, tasks: i64) -> std::collections::BTreeMap<&'static str, f64> {
        self.after.per_task(&self.before, tasks)
    }
}

/// Feeds whatever settles, and measures. A stage with consumers is asked by its metrics how far it is;
/// otherwise `workers` tell the feed themselves, and an error of theirs ends the measurement.
pub(crate) async fn measure(
    stage: &mut Stage,
    feed: &Arc<Feed>,
    times: Times,
    workers: &mut JoinSet<Result<()>>,
) -> Result<Window> {
    let mut clients = feed.start();
    let began = Instant::now();
    let mut watch = Watch { feed: Arc::clone(feed), clients: &mut clients, workers };
    while feed.settled.load(Ordering::Relaxed) == 0 {
        ensure!(began.elapsed() < START_TIMEOUT, "nothing is settled\n{}", stage.logs());
        watch.until(stage, Instant::now() + ASK).await?;
    }
    watch.until(stage, Instant::now() + times.warm_up).await?;
    let (from, before, wal) = (stage.now().await?, read(stage)?, wal(&stage.pool).await?);
    watch.until(stage, Instant::now() + times.measure).await?;
    let (until, after) = (stage.now().await?, read(stage)?);
    let wal_bytes = self::wal(&stage.pool).await? - wal;
    feed.stop();
    crate::load::finish(clients).await?;
    let mut nobody = JoinSet::new();
    let mut watch = Watch { feed: Arc::clone(feed), clients: &mut nobody, workers };
    let end = Instant::now() + REST_TIMEOUT + stage.config.relay.lease;
    while feed.settled.load(Ordering::Relaxed) < feed.scheduled() {
        if Instant::now() >= end {
            // The judge will say what is missing.
            tracing::warn!(scheduled = feed.scheduled(), settled = ?feed.settled, "a rest stays");
            break;
        }
        watch.until(stage, Instant::now() + ASK).await?;
    }
    Ok(Window { from, until, before, after, wal_bytes })
}

/// Bytes of WAL that the server has written in all its life.
async fn wal(pool: &Pool) -> Result<f64> {
    Ok(sqlx::query_scalar(include_str!("../sql/wal.sql")).fetch_one(pool).await?)
}

/// A reading of the processor's counters for a stage's processes.
pub(crate) fn read(stage: &Stage) -> Result<Reading> {
    let ids = |services: &[dueline_testkit::process::Service]| {
        services.iter().map(dueline_testkit::process::Service::id).collect::<Vec<_>>()
    };
    Reading::take(&ids(&stage.relays), &ids(&stage.consumers))
}

/// What must go on while time passes.
struct Watch<'a> {
    feed: Arc<Feed>,
    clients: &'a mut JoinSet<Result<()>>,
    workers: &'a mut JoinSet<Result<()>>,
}

impl Watch<'_> {
    async fn until(&mut self, stage: &mut Stage, end: Instant) -> Result<()> {
        loop {
            if stage.tells_settled() {
                let settled = stage.settled().await.with_context(|| stage.logs())?;
                self.feed.settled.store(settled, Ordering::Relaxed);
            }
            for set in [&mut *self.clients, &mut *self.workers] {
                if let Some(ended) = set.try_join_next() {
                    ended??;
                }
            }
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            tokio::time::sleep_until(end.min(now + ASK)).await;
        }
    }
}
