//! The scan: rounds over the lanes, each a few claims that are committed before anything is
//! produced.
//!
//! Config: `relay.batch_max`, `relay.poll_pause`, `relay.busy_pause_*`, `relay.window_*`. The loop
//! also writes the heartbeat: a scan that hangs is a relay that is dead.

use std::time::{Duration, Instant};

use dueline_core::Micros;
use dueline_service::CancellationToken;
use dueline_service::backoff::Pauses;
use dueline_store::relay::{self, Cursor};

use crate::error::RelayError;
use crate::lanes::Ownership;
use crate::pace::{Pace, Rest};
use crate::publish::locked;
use crate::routes::Route;
use crate::shared::Shared;

/// A claim is not worth its cost for fewer tasks than this; with less room in flight the scan
/// waits.
const MIN_BUDGET: usize = 100;
/// The longest time without a look back, whatever the last one cost.
const LONGEST_REST: Duration = Duration::from_secs(3);
/// Pauses after a database error.
const TROUBLE_MIN: Duration = Duration::from_millis(100);
const TROUBLE_MAX: Duration = Duration::from_secs(5);

/// One scanner; its cursors are in the shared book.
pub(crate) struct Scan {
    pub ownership: Ownership,
    pace: Pace,
    rest: Rest,
    round_began: Instant,
    /// How often in a row something was due and could not be taken: somebody holds its row.
    held_rows: u32,
}

/// What one step brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many tasks were claimed; pause for so long.
    Claimed(usize, Duration),
    /// Nothing is due for so long; then an alarm rings, or it is only time to look again.
    Idle(Duration, Then),
    /// Claiming makes no sense now; look again in so long.
    Held(Duration),
}

/// What an idle scan waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Rings,
    Look,
}

impl Scan {
    pub fn new(shared: &Shared) -> Self {
        let relay = &shared.config.relay;
        Self {
            ownership: Ownership::default(),
            pace: Pace::new(relay.busy_pause_min, relay.busy_pause_max),
            rest: Rest::new(LONGEST_REST),
            round_began: Instant::now(),
            held_rows: 0,
        }
    }

    /// How many lanes are walked.
    pub fn lanes(&self, shared: &Shared) -> usize {
        locked(&shared.book).len()
    }

    /// Runs until `stop`, or until this incarnation is over.
    ///
    /// # Errors
    /// [`RelayError::DeclaredDead`], or a refusal. Trouble with the database is waited out.
    pub async fn run(
        &mut self,
        shared: &Shared,
        stop: &CancellationToken,
    ) -> Result<(), RelayError> {
        let interval = shared.config.relay.heartbeat_interval;
        let pulse = shared.health.watch("scan", Duration::from_secs(60));
        let mut trouble = Pauses::new(TROUBLE_MIN, TROUBLE_MAX);
        let mut skip_look = false;
        while !stop.is_cancelled() {
            pulse.tick();
            match self.turn(shared, interval, skip_look).await {
                Ok(step) => {
                    trouble.reset();
                    shared.health.set("postgres", Ok::<(), String>(()));
                    let pause = match step {
                        Step::Claimed(_, pause) | Step::Idle(pause, _) | Step::Held(pause) => pause,
                    };
                    // After sleeping until an alarm rings there is no need to ask whether it does.
                    skip_look = matches!(step, Step::Claimed(..) | Step::Idle(_, Then::Rings));
                    self.sleep(shared, pause, interval, stop).await;
                }
                Err(RelayError::DeclaredDead) => return Err(RelayError::DeclaredDead),
                Err(error) if error.is_refusal() => return Err(error),
                Err(error) => {
                    shared.health.set("postgres", Err(&error));
                    trouble.sleep(stop).await;
                }
            }
        }
        Ok(())
    }

    async fn turn(
        &mut self,
        shared: &Shared,
        interval: Duration,
        skip_look: bool,
    ) -> Result<Step, RelayError> {
        if self.ownership.is_due(Instant::now(), interval) {
            self.ownership.keep(shared).await?;
            locked(&shared.window).tick(Instant::now());
        }
        self.step(shared, skip_look).await
    }

    async fn sleep(
        &self,
        shared: &Shared,
        pause: Duration,
        interval: Duration,
        stop: &CancellationToken,
    ) {
        let until_beat = self
            .ownership
            .next_beat(interval)
            .map_or(pause, |due| due.saturating_duration_since(Instant::now()));
        let pause = pause.min(until_beat);
        if pause.is_zero() {
            return tokio::task::yield_now().await;
        }
        let may_wake = pause > shared.config.relay.busy_pause_max;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.publisher.wake.notified(), if may_wake => {}
            () = stop.cancelled() => {}
        }
    }

    /// One claim, if something is due and there is room. `skip_look`: claim without asking first.
    ///
    /// # Errors
    /// When the database refuses or cannot be reached.
    pub async fn step(&mut self, shared: &Shared, skip_look: bool) -> Result<Step, RelayError> {
        let relay = &shared.config.relay;
        for (lane, next_at) in shared.publisher.take_returned() {
            locked(&shared.book).go_back(lane, next_at);
        }
        if let Some(why) = shared.publisher.shut() {
            shared.health.set("kafka", Err(why));
            return Ok(Step::Held(relay.poll_pause));
        }
        shared.health.set("kafka", Ok::<(), String>(()));
        let budget = shared.publisher.room().min(relay.batch_max as usize);
        if budget < MIN_BUDGET {
            return Ok(Step::Held(relay.busy_pause_max));
        }
        let back =
            self.rest.allows(Instant::now()) && !dueline_failpoints::planted("watermark-alone");
        let cursors = self.cursors(shared, back);
        if cursors.is_empty() {
            return Ok(Step::Idle(relay.poll_pause, Then::Look));
        }
        if !skip_look && let Some((pause, then)) = look(shared, &cursors).await? {
            return Ok(Step::Idle(pause, then));
        }
        let (rows, more) = self.claim(shared, &cursors, budget, back).await?;
        if rows == 0 {
            if let Some((pause, then)) = look(shared, &self.cursors(shared, false)).await? {
                return Ok(Step::Idle(pause, then));
            }
            self.held_rows = (self.held_rows + 1).min(16);
            let pause = relay.busy_pause_min.max(Duration::from_millis(1)) * (1 << self.held_rows);
            return Ok(Step::Claimed(0, pause.min(relay.poll_pause)));
        }
        self.held_rows = 0;
        Ok(Step::Claimed(rows, self.pace.after(Instant::now(), rows, more)))
    }

    fn cursors(&self, shared: &Shared, back: bool) -> Vec<Cursor> {
        let open = |route: &Route| shared.publisher.open(&route.topic);
        let book = locked(&shared.book);
        if back {
            let window = locked(&shared.window).current();
            book.starts(open, shared.now(), window)
        } else {
            book.heads(open)
        }
    }

    /// Claims, publishes; returns how many, and whether more is due.
    async fn claim(
        &mut self,
        shared: &Shared,
        cursors: &[Cursor],
        budget: usize,
        back: bool,
    ) -> Result<(usize, bool), RelayError> {
        let began = Instant::now();
        if back {
            let round = began.saturating_duration_since(self.round_began);
            metrics::histogram!("dueline_relay_round_seconds").record(round.as_secs_f64());
            self.round_began = began;
        }
        let (epoch, horizon) = (shared.epoch(), shared.horizon());
        let ticket = shared.open_claim();
        let lease = shared.config.relay.lease;
        let sessions = &shared.publisher.sessions;
        let answer = sessions
            .run(async |db| relay::claim(db, epoch, cursors, budget, lease, horizon).await)
            .await;
        if back {
            self.rest.took(Instant::now(), began.elapsed());
        }
        let mut round = match answer {
            Ok(round) => round,
            Err(error) => {
                // What it may have committed is left to its lease.
                shared.claimed(epoch, ticket, Vec::new());
                return Err(error.into());
            }
        };
        let answered = Instant::now();
        metrics::histogram!("dueline_relay_claim_seconds").record(began.elapsed().as_secs_f64());
        metrics::histogram!("dueline_relay_claim_size").record(round.claimed.len() as f64);
        shared.read_clock(round.now, began);
        let applied = locked(&shared.book).apply(cursors, &round, round.now.min(horizon));
        if let Some(lag) = applied.latest_lag {
            locked(&shared.window).late(Instant::now(), lag);
        }
        if !applied.more {
            shared.passed_all();
        }
        let claims = shared.claimed(epoch, ticket, std::mem::take(&mut round.claimed));
        if !claims.is_empty() {
            dueline_failpoints::reached("relay.claimed");
            let bodies = std::mem::take(&mut round.bodies);
            shared.publisher.produce(epoch, &shared.source(), &claims, bodies, answered);
        }
        Ok((claims.len(), applied.more))
    }
}

/// How long nothing is due behind these cursors, at most the poll pause; `None`: something is.
async fn look(shared: &Shared, cursors: &[Cursor]) -> Result<Option<(Duration, Then)>, RelayError> {
    let relay = &shared.config.relay;
    let began = Instant::now();
    let sessions = &shared.publisher.sessions;
    let (next, now) = sessions.run(async |db| relay::next_due(db, cursors).await).await?;
    shared.read_clock(now, began);
    let horizon = shared.horizon();
    let next = next.unwrap_or(Micros(i64::MAX));
    if next > now {
        locked(&shared.book).nothing_before(cursors, now.min(horizon));
        shared.passed_all();
    } else if next <= horizon {
        return Ok(None);
    }
    let pause = next.since(now);
    if pause > relay.poll_pause || next > horizon {
        return Ok(Some((relay.poll_pause, Then::Look)));
    }
    Ok(Some((pause, Then::Rings)))
}
