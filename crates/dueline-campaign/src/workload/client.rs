//! One client: schedules, pays, cancels, moves, and remembers what it was told.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use dueline_core::Micros;
use dueline_testkit::checker::{Call, Told};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio::time::Instant;

use super::deed::{self, Deed, Kind};
use super::pace::Pace;
use super::session::{Outcome, Receipt, Session, told};
use crate::clock;
use crate::parcels::Label;

/// How many keys each client has: the next one's begin behind them.
const KEYS: i64 = 100_000_000;
/// The most tasks of one transaction.
const AT_ONCE: i64 = 25;
/// How often a placement of unknown outcome is asked for again.
const TRIES: u32 = 5;
/// How long a cancelled task stays so before it is scheduled again, in milliseconds.
const REOPEN_MS: i64 = 400;

/// Something to be done later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Later {
    at: Instant,
    kind: Kind,
    id: i64,
    deed: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Deed(Deed),
    Reopen,
}

impl Ord for Later {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.id).cmp(&(other.at, other.id))
    }
}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// See the module.
pub struct Client {
    name: String,
    rng: StdRng,
    session: Session,
    next_id: i64,
    later: BinaryHeap<Reverse<Later>>,
    calls: Vec<Call>,
}

impl Client {
    /// The `number`th client (from 1) of a seed.
    pub fn new(number: u32, seed: u64, options: PgConnectOptions) -> Self {
        let name = format!("client{number}");
        let options = options.application_name(&name);
        Self {
            name,
            rng: StdRng::seed_from_u64(seed ^ (u64::from(number) << 32)),
            session: Session::new(options),
            next_id: i64::from(number) * KEYS,
            later: BinaryHeap::new(),
            calls: Vec::new(),
        }
    }

    /// Works at the given pace until it ends, and returns what it was told.
    pub async fn run(mut self, pace: Pace) -> Vec<Call> {
        let mut ticks = tokio::time::interval(Duration::from_millis(40));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut placed = 0;
        while !pace.is_over() {
            ticks.tick().await;
            let wanted = pace.wanted() - placed;
            let n = self.rng.random_range(1..=AT_ONCE);
            if wanted >= n {
                placed += n;
                self.place(n).await;
            }
            for _ in 0..AT_ONCE {
                let now = Instant::now();
                let Some(Reverse(later)) = self.later.peek().copied() else { break };
                if later.at > now {
                    break;
                }
                self.later.pop();
                self.act(later).await;
            }
        }
        self.calls
    }

    /// Schedules `n` tasks of one kind; when the outcome is unknown, again.
    async fn place(&mut self, n: i64) {
        let kind = Kind::draw(&mut self.rng);
        let n = if kind == Kind::Curse { 1 } else { n };
        let batch = Batch::draw(&mut self.rng, kind, self.next_id, n);
        self.next_id += n;
        for _ in 0..TRIES {
            let asked_at = clock::now();
            let outcome = self.session.transact(async |c| batch.place(c).await).await;
            match outcome {
                Outcome::Done(placed) => {
                    for (key, receipt, due_at) in placed {
                        let told = Told::Receipt(receipt, Some(Micros(due_at)));
                        self.note(kind, key, "schedule", asked_at, told);
                    }
                    self.plan_deeds(&batch);
                    return;
                }
                Outcome::Failed(why) => {
                    self.note_all(&batch, asked_at, &Told::Failed(why));
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Outcome::Unknown(why) => self.note_all(&batch, asked_at, &Told::Unknown(why)),
            }
        }
    }

    fn plan_deeds(&mut self, batch: &Batch) {
        let now = Instant::now();
        for (id, delay_ms) in batch.ids.iter().zip(&batch.delays) {
            let Some((deed, after_ms)) = deed::draw(&mut self.rng, batch.kind) else { continue };
            let wait = Duration::from_millis((delay_ms + after_ms).max(0).unsigned_abs());
            let later = Later { at: now + wait, kind: batch.kind, id: *id, deed: Step::Deed(deed) };
            self.later.push(Reverse(later));
        }
    }

    async fn act(&mut self, later: Later) {
        let Later { kind, id, .. } = later;
        match later.deed {
            Step::Deed(Deed::Pay) => self.pay(id, false).await,
            Step::Deed(Deed::PayAndCancel) => self.pay(id, true).await,
            Step::Deed(Deed::Cancel) => self.ask(kind, id, "cancel", 0).await,
            Step::Deed(Deed::CancelAndReopen) => {
                self.ask(kind, id, "cancel", 0).await;
                let at = Instant::now() + Duration::from_millis(REOPEN_MS.unsigned_abs());
                self.later.push(Reverse(Later { at, kind, id, deed: Step::Reopen }));
            }
            Step::Deed(Deed::Reschedule(ms)) => self.ask(kind, id, "reschedule", ms).await,
            Step::Reopen => self.ask(kind, id, "schedule", REOPEN_MS).await,
        }
    }

    /// Pays first, then cancels: the order in which the consumer takes its locks, too.
    async fn pay(&mut self, id: i64, and_cancel: bool) {
        let asked_at = clock::now();
        let outcome = self.session.transact(async |c| {
            let update = sqlx::query(include_str!("../../sql/workload/pay.sql")).bind(id);
            let paid = update.execute(&mut *c).await?.rows_affected() > 0;
            let cancelled = if paid && and_cancel {
                Some(ask(c, Kind::CloseOrder, id, "cancel", 0).await?)
            } else {
                None
            };
            Ok((paid, cancelled))
        });
        let (paid, cancelled) = match outcome.await {
            Outcome::Done((true, cancelled)) => (Told::Did, cancelled.map(told)),
            Outcome::Done((false, _)) => (Told::TooLate, None),
            Outcome::Failed(why) => (Told::Failed(why.clone()), Some(Told::Failed(why))),
            Outcome::Unknown(why) => (Told::Unknown(why.clone()), Some(Told::Unknown(why))),
        };
        self.note(Kind::CloseOrder, id.to_string(), "pay", asked_at, paid);
        if let Some(cancelled) = cancelled.filter(|_| and_cancel) {
            self.note(Kind::CloseOrder, id.to_string(), "cancel", asked_at, cancelled);
        }
    }

    async fn ask(&mut self, kind: Kind, id: i64, wish: &'static str, ms: i64) {
        let asked_at = clock::now();
        let outcome = self.session.transact(async |c| ask(c, kind, id, wish, ms).await).await;
        self.note(kind, id.to_string(), wish, asked_at, outcome.told());
    }

    fn note_all(&mut self, batch: &Batch, asked_at: Micros, told: &Told) {
        for id in &batch.ids {
            self.note(batch.kind, id.to_string(), "schedule", asked_at, told.clone());
        }
    }

    fn note(&mut self, kind: Kind, key: String, wish: &'static str, asked_at: Micros, told: Told) {
        let (kind, who) = (kind.name().to_owned(), self.name.clone());
        self.calls.push(Call { kind, key, who, wish, asked_at, told_at: clock::now(), told });
    }
}

async fn ask(
    connection: &mut PgConnection,
    kind: Kind,
    id: i64,
    wish: &str,
    ms: i64,
) -> Result<Receipt, sqlx::Error> {
    let statement = match wish {
        "cancel" => include_str!("../../sql/workload/cancel.sql"),
        "reschedule" => include_str!("../../sql/workload/reschedule.sql"),
        _ => include_str!("../../sql/workload/schedule.sql"),
    };
    let mut query = sqlx::query_as(statement).bind(kind.name()).bind(id.to_string());
    if wish != "cancel" {
        query = query.bind(ms);
    }
    query.fetch_one(connection).await
}

/// Tasks of one kind that are scheduled together with their business objects.
struct Batch {
    kind: Kind,
    ids: Vec<i64>,
    delays: Vec<i64>,
    refunds: Vec<(&'static str, Option<i64>)>,
    payloads: Vec<String>,
}

impl Batch {
    fn draw(rng: &mut StdRng, kind: Kind, first: i64, n: i64) -> Self {
        let label = |rng: &mut StdRng| {
            // A label of ours can always be written.
            serde_json::to_string(&Label { flaw: deed::flaw(rng) }).unwrap_or_default()
        };
        Self {
            kind,
            ids: (first..first + n).collect(),
            delays: (0..n).map(|_| deed::delay_ms(rng)).collect(),
            refunds: (0..n).map(|_| deed::refund(rng)).collect(),
            payloads: (0..n).map(|_| label(rng)).collect(),
        }
    }

    async fn place(&self, c: &mut PgConnection) -> Result<Vec<(String, String, i64)>, sqlx::Error> {
        let statement = match self.kind {
            Kind::CloseOrder => include_str!("../../sql/workload/place_orders.sql"),
            Kind::Refund => include_str!("../../sql/workload/place_refunds.sql"),
            Kind::Ship => include_str!("../../sql/workload/place_parcels.sql"),
            Kind::Curse => {
                let (receipt, due_at) =
                    ask(c, Kind::Curse, self.ids[0], "schedule", self.delays[0]).await?;
                return Ok(vec![(self.ids[0].to_string(), receipt, due_at.unwrap_or_default())]);
            }
        };
        let mut query = sqlx::query_as(statement).bind(&self.ids).bind(&self.delays);
        if self.kind == Kind::Refund {
            query = query
                .bind(self.refunds.iter().map(|(_, down)| *down).collect::<Vec<_>>())
                .bind(self.refunds.iter().map(|(amount, _)| *amount).collect::<Vec<_>>());
        } else if self.kind == Kind::Ship {
            query = query.bind(&self.payloads);
        }
        query.fetch_all(c).await
    }
}
