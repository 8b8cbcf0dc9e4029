//! The nemesis: draws faults from a seed, does them, some at once, and writes down when each began, was
//! healed, and was recovered from.

mod broker;
mod database;
mod fault;
mod hands;
pub mod points;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;
use tokio::time::Instant;

pub use fault::{Fault, Missing, Service, Touches, Trouble};
pub use hands::carry_out;

use crate::clock;
use crate::evidence::Archive;
use crate::stage::Stage;

/// How many faults there are at once at most.
const AT_ONCE: usize = 3;
/// How many drawn faults wait: the first that touches nothing that another is at goes first.
const WAITING: usize = 8;
/// How often a fault is drawn again until it is of a kind that was asked for.
const MAX_DRAWS: usize = 100_000;
/// How long a fault lasts, where it lasts, in milliseconds.
const HOLD_MS: std::ops::Range<u64> = 300..2_500;

/// One fault that was done.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// Its number, from 1.
    pub number: usize,
    /// The kind's name.
    pub kind: String,
    /// All of it.
    pub fault: String,
    /// When it began.
    #[serde(serialize_with = "clock::as_text")]
    pub began_at: Micros,
    /// When it was healed; `None` while it lasts.
    #[serde(serialize_with = "as_text_or_null")]
    pub healed_at: Option<Micros>,
    /// When everything that was due before it was healed was finished.
    #[serde(serialize_with = "as_text_or_null")]
    pub recovered_at: Option<Micros>,
    /// Why it could not be done as planned.
    pub trouble: Option<String>,
}

fn as_text_or_null<S: serde::Serializer>(at: &Option<Micros>, to: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => clock::as_text(at, to),
        None => to.serialize_none(),
    }
}

impl Done {
    /// Seconds from the healing to the recovery.
    #[must_use]
    pub fn recovery(&self) -> Option<Duration> {
        Some(self.recovered_at?.since(self.healed_at?))
    }
}

/// The faults so far, shared with the monitor.
#[derive(Debug, Default)]
pub struct FaultLog(Mutex<Vec<Done>>);

impl FaultLog {
    /// All of them, in the order of their beginnings.
    #[must_use]
    pub fn all(&self) -> Vec<Done> {
        self.with(|faults| faults.clone())
    }

    /// How many were healed, and how many last.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.with(|faults| {
            let healed = faults.iter().filter(|fault| fault.healed_at.is_some()).count();
            (healed, faults.len() - healed)
        })
    }

    /// Whether a fault that works on topics or offsets was there at any time since `since`.
    #[must_use]
    pub fn disturbed_offsets(&self, since: Micros) -> bool {
        self.lasted_until(since, &["topic", "records", "offsets"])
    }

    /// Whether a topic was made anew at any time since `since`.
    #[must_use]
    pub fn remade_topics(&self, since: Micros) -> bool {
        self.lasted_until(since, &["topic"])
    }

    fn lasted_until(&self, since: Micros, kinds: &[&str]) -> bool {
        let is_one = |fault: &&Done| kinds.iter().any(|kind| fault.kind.starts_with(kind));
        let lasted = |fault: &Done| fault.healed_at.is_none_or(|healed| healed > since);
        self.with(|faults| faults.iter().filter(is_one).any(lasted))
    }

    /// Notes at `now` that everything due before `oldest_open` is finished.
    pub fn note_progress(&self, oldest_open: Option<Micros>, now: Micros) {
        self.with(|faults| {
            for fault in faults.iter_mut().filter(|fault| fault.recovered_at.is_none()) {
                let over = fault.healed_at.is_some_and(|healed| {
                    now > healed && oldest_open.is_none_or(|oldest| oldest > healed)
                });
                fault.recovered_at = over.then_some(now);
            }
        });
    }

    fn begin(&self, fault: Fault) -> usize {
        self.begin_named(fault.kind(), format!("{fault:?}"))
    }

    fn begin_named(&self, kind: String, fault: String) -> usize {
        self.with(|faults| {
            let number = faults.len() + 1;
            faults.push(Done {
                number,
                kind,
                fault,
                began_at: clock::now(),
                healed_at: None,
                recovered_at: None,
                trouble: None,
            });
            number
        })
    }

    fn heal(&self, number: usize, result: &Result<()>) {
        self.with(|faults| {
            if let Some(fault) = faults.get_mut(number - 1) {
                fault.healed_at = Some(clock::now());
                fault.trouble = result.as_ref().err().map(|error| format!("{error:#}"));
            }
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Done>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the nemesis is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the draws come from.
    pub seed: u64,
    /// How many faults.
    pub faults: usize,
    /// Over which time; the last may end later.
    pub time: Duration,
    /// What cannot be done here.
    pub missing: Missing,
    /// Only faults whose kind contains this text.
    pub only: Option<String>,
}

impl Plan {
    fn draw(&self, rng: &mut StdRng) -> Fault {
        let mut fault = fault::draw(rng, self.missing);
        if let Some(only) = &self.only {
            for _ in 0..MAX_DRAWS {
                if fault.kind().contains(only.as_str()) {
                    break;
                }
                fault = fault::draw(rng, self.missing);
            }
        }
        fault
    }
}

/// Does the plan's faults, and returns when all are healed.
pub async fn run(plan: Plan, stage: &Stage, archive: &Archive, log: &FaultLog) {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let began = Instant::now();
    let mut waiting: VecDeque<(Fault, Duration)> = VecDeque::new();
    let mut running: FuturesUnordered<LocalBoxFuture<'_, Touches>> = FuturesUnordered::new();
    let mut touched: Touches = 0;
    for number in 0..plan.faults {
        while waiting.len() < WAITING {
            let hold = Duration::from_millis(rng.random_range(HOLD_MS));
            waiting.push_back((plan.draw(&mut rng), hold));
        }
        let planned = began + plan.time.mul_f64(number as f64 / plan.faults.max(1) as f64);
        let (fault, hold) = loop {
            let free = |(fault, _): &(Fault, Duration)| fault.touches() & touched == 0;
            let may_begin = Instant::now() >= planned && running.len() < AT_ONCE;
            let place = waiting.iter().position(free).filter(|_| may_begin);
            if let Some(next) = place.and_then(|place| waiting.remove(place)) {
                break next;
            }
            // What runs goes on only while it is polled; it ends the wait for others.
            tokio::select! {
                Some(released) = running.next() => touched &= !released,
                () = tokio::time::sleep_until(planned), if Instant::now() < planned => {}
                else => {}
            }
        };
        touched |= fault.touches();
        // Boxed: the sum of all faults is a large future.
        running.push(Box::pin(one(fault, hold, stage, archive, log)));
    }
    while running.next().await.is_some() {}
}

async fn one(
    fault: Fault,
    hold: Duration,
    stage: &Stage,
    archive: &Archive,
    log: &FaultLog,
) -> Touches {
    let number = log.begin(fault);
    let result = Box::pin(carry_out(stage, archive, fault, hold)).await;
    log.heal(number, &result);
    fault.touches()
}
