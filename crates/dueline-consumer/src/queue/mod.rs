//! The loop of one queue: one member of its handling group, all of its tiers.
//!
//! The loop owns every decision and waits for nothing but events; work runs in jobs beside it, each of
//! which owns its messages until it reports. An offset is passed when the report says so, never earlier.

mod fill;
mod membership;
mod reports;
mod start;
mod stop;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dueline_kafka::{Consumer, RevokeAck, TopicPartition};
use dueline_service::{CancellationToken, Pulse};
use tokio::task::JoinSet;

use crate::alarm::component;
use crate::context::{Context, KindSpec};
use crate::error::ConsumerError;
use crate::job::Outcome;
use crate::message::{Broken, Sorter};
use crate::observe::Labels;
use crate::pace::Pace;
use crate::partition::Partition;
use crate::tier::Tier;
use reports::Done;

/// How often marks, health and gauges are looked after.
const TICK: Duration = Duration::from_millis(500);
/// How long an error of the group member keeps it from being ready.
const ERROR_AGE: Duration = Duration::from_secs(15);
/// How often held records are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// Bounds of a queue's loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most messages of one batch.
    pub batch_max: usize,
    /// Batches of one tier at once.
    pub workers: usize,
    /// Offsets of one partition that may be under way when a consumer dies.
    pub span: i64,
    pub stop_timeout: Duration,
}

impl Bounds {
    /// Messages that a tier may have in hand beside those under way.
    fn in_hand(&self) -> usize {
        self.batch_max * (self.workers + 1)
    }
}

/// A kind as the loop runs it.
pub(crate) struct RunningKind {
    pub spec: Arc<KindSpec>,
    pub pace: Pace,
    /// One per tier, in the order of the tiers.
    pub labels: Vec<Labels>,
}

/// See the module.
pub(crate) struct QueueLoop {
    pub context: Arc<Context>,
    pub consumer: Consumer,
    pub sorter: Sorter,
    pub kinds: HashMap<Arc<str>, RunningKind>,
    pub tiers: Vec<Tier>,
    pub bounds: Bounds,
    pub pulse: Pulse,
    source: Arc<str>,
    partitions: HashMap<TopicPartition, Partition>,
    broken: VecDeque<(Broken, u64)>,
    burying: usize,
    refreshing: bool,
    jobs: JoinSet<Done>,
    revokes: Vec<(Vec<TopicPartition>, RevokeAck)>,
    assignments: u64,
    turn: usize,
    next_tick: Instant,
    wake: Option<Instant>,
}

impl QueueLoop {
    pub fn new(
        context: Arc<Context>,
        consumer: Consumer,
        sorter: Sorter,
        kinds: HashMap<Arc<str>, RunningKind>,
        tiers: Vec<Tier>,
        bounds: Bounds,
        pulse: Pulse,
    ) -> Self {
        Self {
            source: sorter.instance.source().into(),
            context,
            consumer,
            sorter,
            kinds,
            tiers,
            bounds,
            pulse,
            partitions: HashMap::new(),
            broken: VecDeque::new(),
            burying: 0,
            refreshing: false,
            jobs: JoinSet::new(),
            revokes: Vec::new(),
            assignments: 0,
            turn: 0,
            next_tick: Instant::now(),
            wake: None,
        }
    }

    /// Runs until `stop` is cancelled, then finishes what is under way and leaves the group.
    ///
    /// # Errors
    /// When the member fails, or a job panics.
    pub async fn run(mut self, stop: &CancellationToken) -> Result<(), ConsumerError> {
        loop {
            self.pulse.tick();
            let now = Instant::now();
            self.wake = None;
            if now >= self.next_tick {
                self.next_tick = now + TICK;
                self.tick(now);
            }
            self.fill();
            self.start_jobs(now);
            self.acknowledge_revokes().await;
            let wake = self.wake.map_or(self.next_tick, |wake| wake.min(self.next_tick));
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.consumer.next_event() => self.on_event(event)?,
                Some(done) = self.jobs.join_next() => self.on_done(done)?,
                () = self.consumer.readable() => {}
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
        self.stop().await
    }

    /// What is looked after now and then.
    fn tick(&mut self, now: Instant) {
        self.clear_passed_marks();
        let waits = self.partitions.values().any(|p| p.look_again.is_some_and(|at| at <= now));
        if waits && !self.refreshing {
            self.refresh();
        }
        let queue = &self.context.queue;
        match self.consumer.last_error() {
            // An idle member cannot tell that an error is over: an old one says nothing.
            Some((error, age)) if age < ERROR_AGE => {
                self.context.alarms.raise(component::KAFKA, queue, error.to_string());
            }
            _ if self.assignments > 0 => self.context.alarms.clear(component::KAFKA, queue),
            _ => {}
        }
        #[allow(clippy::cast_precision_loss)]
        metrics::gauge!("dueline_consumer_lag_records", "queue" => queue.clone())
            .set(self.consumer.records_lag() as f64);
        #[allow(clippy::cast_precision_loss)]
        metrics::gauge!("dueline_consumer_in_hand", "queue" => queue.clone())
            .set(self.tiers.iter().map(Tier::len).sum::<usize>() as f64);
    }

    /// Waits for an earlier instant than was planned, if it is one.
    fn wake_at(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |planned| planned.min(at)));
    }

    /// What a batch said of its kind.
    fn judge_kind(&mut self, kind: &str, outcome: Outcome) {
        let Some(running) = self.kinds.get_mut(kind) else { return };
        let alarms = &self.context.alarms;
        let now = Instant::now();
        match outcome {
            Outcome::Worked { tasks, poison } => {
                running.pace.worked(now, tasks, poison);
                if running.pace.is_open() {
                    alarms.clear(component::ENVIRONMENT, kind);
                }
                if running.pace.is_poisoned() {
                    tracing::warn!(kind, "more than a tenth of the tasks fail: one at a time");
                }
            }
            Outcome::Trouble(error) => {
                let pause = running.pace.troubled(now);
                if !pause.is_zero() {
                    tracing::warn!(kind, error, ?pause, "the environment is in trouble: pausing");
                }
                alarms.raise(component::ENVIRONMENT, kind, error);
            }
            Outcome::Contract(reason) => {
                running.pace.stop();
                tracing::error!(
                    kind,
                    reason,
                    "the handler broke its contract and is stopped; nothing is lost: mend it and \
                     start this consumer again"
                );
                alarms.raise(component::HANDLERS, kind, reason);
            }
        }
    }
}
