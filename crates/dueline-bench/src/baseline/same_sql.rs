//! The product's own statements in one process, without Kafka: what publishing and consuming cost on top.
//! One connection claims, two apply; the relay and the consumer use as many under load.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use dueline_core::Micros;
use dueline_store::effect::{Batch, Fate, SqlHandler, Task};
use dueline_store::relay::{self, Body, Cursor, Found, Round, Span};
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
/// The longest time without a look back, as the relay has it.
const LONGEST_REST: Duration = Duration::from_secs(3);
/// Alarms of one page of the sweep, and the longest rest after it, as the relay has them.
const SWEEP_PAGE: usize = 4_000;
const SWEEP_INTERVALS: u32 = 5;

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

/// The claims of a relay, without its bookkeeping of deliveries. As the relay does, each goes on where the last
/// one ended; a look back over the window, and a sweep, come only as often as their cost allows.
struct Claimer {
    sessions: Arc<Sessions>,
    epoch: i64,
    relay: dueline_config::Relay,
    lanes: BTreeMap<i32, LaneState>,
    look_back: Rest,
    sweep: Rest,
}

/// Where a lane's claims have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaneState {
    /// The last alarm that was claimed.
    head: (Micros, i64),
    /// What was due before this was looked at.
    passed: Micros,
    /// The last claim left due work behind.
    behind: bool,
}

impl LaneState {
    const NEW: Self =
        Self { head: (relay::BEGINNING, i64::MIN), passed: relay::BEGINNING, behind: false };

    /// From where the next claim reads.
    fn start(self, look_back: Option<Duration>) -> (Micros, i64) {
        match look_back {
            Some(window) if !self.behind && self.passed > relay::BEGINNING => {
                (self.passed.minus(window), i64::MIN)
            }
            _ => self.head,
        }
    }

    /// What a claim brought: its last alarm, and whether it was a full share, behind which there is more.
    fn claimed(&mut self, last: Option<(Micros, i64)>, full: bool, now: Micros) {
        self.behind = full;
        self.head = match last {
            Some(last) if full => last,
            last => last.map_or(self.head, |last| self.head.max(last)),
        };
        self.passed = self.passed.max(if full { self.head.0 } else { now });
    }
}

/// Rests nine times as long as something took.
#[derive(Debug)]
struct Rest {
    until: Instant,
    least: Duration,
    most: Duration,
}

impl Rest {
    fn new(least: Duration, most: Duration) -> Self {
        Self { until: Instant::now() + least, least, most }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    fn took(&mut self, cost: Duration) {
        self.until = Instant::now() + (cost * 9).clamp(self.least, self.most);
    }
}

impl Claimer {
    async fn register(sessions: Arc<Sessions>, config: &dueline_config::Relay) -> Result<Self> {
        let pool = sessions.pool();
        let epoch = relay::register(pool, "bench", env!("CARGO_PKG_VERSION")).await?;
        let lanes: Vec<i32> = relay::lanes(pool).await?.into_iter().map(|l| l.lane).collect();
        let taken = relay::take_free(pool, epoch, &lanes, lanes.len()).await?;
        let interval = config.sweep_interval;
        Ok(Self {
            sessions,
            epoch,
            relay: config.clone(),
            lanes: taken.into_iter().map(|lane| (lane, LaneState::NEW)).collect(),
            look_back: Rest::new(Duration::ZERO, LONGEST_REST),
            sweep: Rest::new(interval, interval * SWEEP_INTERVALS),
        })
    }

    async fn run(
        mut self,
        batches: mpsc::Sender<Vec<Task>>,
        stop: CancellationToken,
    ) -> Result<()> {
        let kind: Arc<str> = KIND.into();
        while !stop.is_cancelled() {
            if self.sweep.is_over() {
                let began = Instant::now();
                self.sweep().await?;
                self.sweep.took(began.elapsed());
            }
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

    async fn claim(&mut self) -> Result<Round> {
        let budget = usize::try_from(self.relay.batch_max)?;
        let window = self.look_back.is_over().then_some(self.relay.window_min);
        let cursors: Vec<Cursor> = self.cursors(|lane| lane.start(window));
        let (began, never) = (Instant::now(), Micros(i64::MAX));
        let (epoch, lease) = (self.epoch, self.relay.lease);
        let claim =
            async |db: &mut _| relay::claim(db, epoch, &cursors, budget, lease, never).await;
        let round = self.sessions.run(claim).await?;
        if window.is_some() {
            self.look_back.took(began.elapsed());
        }
        let mut last: HashMap<i32, (usize, (Micros, i64))> = HashMap::new();
        for claim in &round.claimed {
            // Oldest first.
            let lane = last.entry(claim.lane).or_insert((0, (claim.next_at, claim.id)));
            *lane = (lane.0 + 1, (claim.next_at, claim.id));
        }
        for (lane, state) in &mut self.lanes {
            let found = last.get(lane);
            let full = found.is_some_and(|(count, _)| *count >= round.share);
            if found.is_some() || !round.lanes_left_out {
                state.claimed(found.map(|(_, last)| *last), full, round.now);
            }
        }
        Ok(round)
    }

    /// The walk over everything that was passed. What it finds waiting there is claimed next.
    async fn sweep(&mut self) -> Result<()> {
        let mut spans: Vec<Span> = self
            .cursors(|_| LaneState::NEW.head)
            .into_iter()
            .map(|cursor| Span { cursor, upto: self.lanes[&cursor.lane].passed })
            .collect();
        // Bounded: each page goes on behind the last one's end, and `upto` stands still.
        while !spans.is_empty() {
            let per_lane = (SWEEP_PAGE / spans.len()).max(1);
            let longest = self.relay.lease * 2;
            let page = relay::sweep_page(self.sessions.pool(), &spans, per_lane, longest).await?;
            for missed in page.iter().filter(|alarm| alarm.found == Found::Missed) {
                if let Some(lane) = self.lanes.get_mut(&missed.lane) {
                    lane.head = lane.head.min((missed.next_at, missed.id - 1));
                }
            }
            spans.retain_mut(|span| {
                let end = page.iter().find(|a| a.page_end && a.lane == span.cursor.lane);
                if let Some(end) = end {
                    (span.cursor.at, span.cursor.id) = (end.next_at, end.id);
                }
                end.is_some()
            });
        }
        Ok(())
    }

    fn cursors(&self, start: impl Fn(LaneState) -> (Micros, i64)) -> Vec<Cursor> {
        let cursor = |(lane, state): (&i32, &LaneState)| {
            let (at, id) = start(*state);
            Cursor { lane: *lane, at, id }
        };
        self.lanes.iter().map(cursor).collect()
    }
}

fn tasks_of(kind: &Arc<str>, round: Round) -> Vec<Task> {
    let mut bodies: HashMap<i64, Body> =
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

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_micros(50);

    #[test]
    fn a_lane_goes_on_where_it_was_and_looks_back_only_when_nothing_is_left() {
        let mut lane = LaneState::NEW;
        assert_eq!(lane.start(Some(WINDOW)), LaneState::NEW.head);
        lane.claimed(Some((Micros(1_000), 7)), true, Micros(2_000));
        assert_eq!(lane.start(Some(WINDOW)), (Micros(1_000), 7), "there is more behind it");
        lane.claimed(Some((Micros(1_500), 9)), false, Micros(2_000));
        assert_eq!(lane.start(None), (Micros(1_500), 9));
        assert_eq!(lane.start(Some(WINDOW)), (Micros(1_950), i64::MIN));
        lane.claimed(Some((Micros(1_400), 8)), false, Micros(2_100));
        assert_eq!(lane.start(None), (Micros(1_500), 9), "a late one does not lead it back");
        lane.claimed(None, false, Micros(2_200));
        assert_eq!(
            lane,
            LaneState { head: (Micros(1_500), 9), passed: Micros(2_200), behind: false }
        );
    }

    #[test]
    fn what_is_costly_comes_seldom() {
        let mut rest = Rest::new(Duration::ZERO, Duration::from_secs(3));
        assert!(rest.is_over());
        rest.took(Duration::from_secs(100));
        assert!(!rest.is_over() && rest.until <= Instant::now() + Duration::from_secs(3));
    }
}
