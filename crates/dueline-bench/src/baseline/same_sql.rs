//! The product's own statements in one process, without Kafka: what publishing and consuming cost on top.
//! One connection claims, two apply; the relay and the consumer use as many under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use dueline_core::Micros;
use dueline_store::effect::{Batch, Fate, SqlHandler, Task};
use dueline_store::relay::{self, Body, Cursor, Round};
use dueline_store::{Pool, PoolSettings, Sessions};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::load::{BATCH, Feed};
use crate::settings::{KIND, QUEUE};
use crate::stage::Stage;

/// Connections that apply at once: as many as a consumer's workers of one tier.
const WORKERS: usize = 2;
/// Claimed batches that wait for a worker, at most.
const AHEAD: usize = 4;
/// The pause after a claim that brought little, as the relay paces its rounds under load.
const PAUSE: Duration = Duration::from_millis(10);

/// A pool with the sessions of relays and consumers.
fn pool(stage: &Stage) -> Result<Pool> {
    let settings = PoolSettings::of(&stage.config.postgres, "dueline-bench");
    Ok(dueline_store::connect_for_batches(&settings)?)
}

/// Starts claiming and applying until `stop`, and tells the feed how many are done.
pub(crate) async fn work(
    stage: &Stage,
    feed: &Arc<Feed>,
    stop: &CancellationToken,
) -> Result<JoinSet<Result<()>>> {
    let (pool, role) = (pool(stage)?, stage.config.postgres.handler_role.clone());
    let statement = include_str!("../../sql/close_order.sql");
    let handler = Arc::new(SqlHandler::describe(&pool, KIND, &role, statement).await?);
    let (batches, taken) = mpsc::channel(AHEAD);
    let taken = Arc::new(Mutex::new(taken));
    let mut tasks = JoinSet::new();
    let sessions = Arc::new(Sessions::new(pool));
    let claimer = Claimer::register(Arc::clone(&sessions), &stage.config.relay).await?;
    tasks.spawn(claimer.run(batches, stop.clone()));
    for _ in 0..WORKERS {
        let (sessions, role, handler) = (Arc::clone(&sessions), role.clone(), Arc::clone(&handler));
        let (taken, feed) = (Arc::clone(&taken), Arc::clone(feed));
        tasks.spawn(async move {
            loop {
                // The lock is held while waiting: whoever has it takes the next batch.
                let next = taken.lock().await.recv().await;
                let Some(tasks) = next else { return Ok(()) };
                feed.done(apply(&sessions, &role, &handler, tasks).await?);
            }
        });
    }
    Ok(tasks)
}

async fn apply(
    sessions: &Sessions,
    role: &str,
    handler: &SqlHandler,
    mut tasks: Vec<Task>,
) -> Result<i64> {
    let batch = Batch { queue: QUEUE, role, handler: handler.into(), repeated: 0 };
    let fates = match batch.run_in(sessions, &mut tasks).await {
        Ok(fates) => fates,
        Err(trouble) => bail!("the batch failed: {trouble:?}"),
    };
    let done = fates.values().filter(|fate| matches!(fate, Fate::Done(_))).count();
    ensure!(done == tasks.len(), "{} tasks of {} were not done", tasks.len() - done, tasks.len());
    Ok(i64::try_from(done)?)
}

/// The claims of a relay, without its bookkeeping of deliveries.
struct Claimer {
    sessions: Arc<Sessions>,
    epoch: i64,
    lease: Duration,
    window: Duration,
    sweep_interval: Duration,
    swept: Instant,
    heads: Vec<Cursor>,
}

impl Claimer {
    async fn register(sessions: Arc<Sessions>, config: &dueline_config::Relay) -> Result<Self> {
        let pool = sessions.pool();
        let epoch = relay::register(pool, "bench", env!("CARGO_PKG_VERSION")).await?;
        let lanes: Vec<i32> = relay::lanes(pool).await?.into_iter().map(|l| l.lane).collect();
        let taken = relay::take_free(pool, epoch, &lanes, lanes.len()).await?;
        let heads = taken
            .into_iter()
            .map(|lane| Cursor { lane, at: relay::BEGINNING, id: i64::MIN })
            .collect();
        Ok(Self {
            sessions,
            epoch,
            lease: config.lease,
            window: config.window_min,
            sweep_interval: config.sweep_interval,
            swept: Instant::now(),
            heads,
        })
    }

    async fn run(
        mut self,
        batches: mpsc::Sender<Vec<Task>>,
        stop: CancellationToken,
    ) -> Result<()> {
        let kind: Arc<str> = KIND.into();
        while !stop.is_cancelled() {
            let round = self.claim().await?;
            let few = round.claimed.len() < usize::try_from(BATCH)? / 2;
            if !round.claimed.is_empty() {
                let tasks = tasks_of(&kind, round);
                if batches.send(tasks).await.is_err() {
                    return Ok(());
                }
            }
            if few {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// One claim. From time to time one from the very beginning, as the relay's sweep: it finds what committed
    /// too late for the window.
    async fn claim(&mut self) -> Result<Round> {
        let budget = usize::try_from(BATCH)?;
        let sweeps = self.swept.elapsed() >= self.sweep_interval;
        let beginning = |head: &Cursor| Cursor { at: relay::BEGINNING, id: i64::MIN, ..*head };
        let from_beginning: Vec<Cursor> = self.heads.iter().map(beginning).collect();
        let cursors = if sweeps { &from_beginning } else { &self.heads };
        let never = Micros(i64::MAX);
        let (epoch, lease) = (self.epoch, self.lease);
        let claim = async |db: &mut _| relay::claim(db, epoch, cursors, budget, lease, never).await;
        let round = self.sessions.run(claim).await?;
        if sweeps {
            self.swept = Instant::now();
            return Ok(round);
        }
        let behind = Micros(round.now.0 - i64::try_from(self.window.as_micros())?);
        for head in &mut self.heads {
            let of_lane = || round.claimed.iter().filter(|c| c.lane == head.lane);
            let last = of_lane().max_by_key(|c| (c.next_at, c.id));
            // A full share: there is more behind it, and to look back would read what was just claimed. Else
            // all that was due is taken, but for what has yet to commit within the window.
            match last.filter(|_| of_lane().count() >= round.share) {
                Some(last) => (head.at, head.id) = (last.next_at, last.id),
                None => (head.at, head.id) = (behind.max(head.at), i64::MIN),
            }
        }
        Ok(round)
    }
}

fn tasks_of(kind: &Arc<str>, round: Round) -> Vec<Task> {
    let mut bodies: std::collections::HashMap<i64, Body> =
        round.bodies.into_iter().map(|body| (body.id, body)).collect();
    let tasks = round.claimed.into_iter().filter_map(|claim| {
        let body = bodies.remove(&claim.id)?;
        Some(Task {
            id: claim.id,
            kind: Arc::clone(kind),
            key: body.key,
            key_hash: body.key_hash,
            generation: claim.generation,
            attempt: claim.attempt,
            due_at: body.due_at,
            published_at: claim.claimed_at,
            payload: None,
            traceparent: None,
        })
    });
    tasks.collect()
}
