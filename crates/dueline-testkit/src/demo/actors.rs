//! The customers: they order, pay, cancel and ask for more time, and remember what they were told.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::Micros;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::plan::{Deed, Plan};
use super::progress::Progress;
use crate::checker::{Answer, Heard};

/// How many orders are placed in one transaction.
const PLACED_AT_ONCE: usize = 500;

/// What the customers were told.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By the SQL functions.
    pub heard: Vec<Heard>,
    /// Orders whose payer was told "paid".
    pub paid: Vec<i64>,
    /// How many payers came too late: the order was closed.
    pub too_late: u64,
    /// How many asked for a new deadline and got one.
    pub rescheduled: u64,
    /// When the last order was placed, by the database's clock.
    pub all_placed_at: Micros,
    /// The first deadline of each order and refund, by kind and id.
    due: HashMap<(&'static str, i64), Micros>,
}

/// The database's clock, as a local instant.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Instant,
    base_at: Micros,
}

impl Clock {
    async fn read(pool: &PgPool) -> Result<Self> {
        let at = sqlx::query_scalar(include_str!("../../sql/demo/now.sql")).fetch_one(pool).await?;
        Ok(Self { base: Instant::now(), base_at: Micros(at) })
    }

    /// When that is, here; the past is now.
    fn instant(self, at: Micros) -> Instant {
        self.base + at.since(self.base_at)
    }
}

/// One placed task: key, receipt, tier, deadline.
type Placed = (String, String, String, i64);

/// Places all orders and refunds, each batch with its tasks in one transaction.
pub async fn place(pool: &PgPool, plan: &Plan, progress: &Progress) -> Result<(Ledger, Clock)> {
    let mut ledger = Ledger::default();
    for orders in plan.orders.chunks(PLACED_AT_ONCE) {
        let placed: Vec<Placed> = sqlx::query_as(include_str!("../../sql/demo/place_orders.sql"))
            .bind(orders.iter().map(|order| order.id).collect::<Vec<_>>())
            .bind(orders.iter().map(|order| order.delay_ms).collect::<Vec<_>>())
            .fetch_all(pool)
            .await?;
        ledger.note_placed("close_order", placed)?;
    }
    for refunds in plan.refunds.chunks(PLACED_AT_ONCE) {
        let placed: Vec<Placed> = sqlx::query_as(include_str!("../../sql/demo/place_refunds.sql"))
            .bind(refunds.iter().map(|refund| refund.id).collect::<Vec<_>>())
            .bind(refunds.iter().map(|refund| refund.delay_ms).collect::<Vec<_>>())
            .bind(refunds.iter().map(|refund| refund.down_ms).collect::<Vec<_>>())
            .bind(refunds.iter().map(|refund| refund.amount).collect::<Vec<_>>())
            .fetch_all(pool)
            .await?;
        ledger.note_placed("refund", placed)?;
    }
    ensure!(ledger.due.len() == plan.len(), "not every task was scheduled");
    progress.say(&format!("{} tasks are scheduled, due in 1 to 11 seconds", plan.len()));
    let clock = Clock::read(pool).await?;
    ledger.all_placed_at = clock.base_at;
    Ok((ledger, clock))
}

impl Ledger {
    fn note_placed(&mut self, kind: &'static str, placed: Vec<Placed>) -> Result<()> {
        for (key, receipt, _, due_at) in placed {
            ensure!(receipt == "scheduled", "{kind} of {key} was answered {receipt}");
            let due = Micros(due_at);
            self.due.insert((kind, key.parse()?), due);
            self.heard.push(Heard { kind: kind.into(), key, answer: Answer::Scheduled(due) });
        }
        Ok(())
    }
}

/// Everybody does what the plan says, at its time.
pub async fn play(pool: &PgPool, plan: &Plan, mut ledger: Ledger, clock: Clock) -> Result<Ledger> {
    let orders = plan.orders.iter().map(|o| ("close_order", o.id, o.deed));
    let refunds = plan.refunds.iter().map(|r| ("refund", r.id, r.deed));
    let mut deeds = JoinSet::new();
    for (kind, id, deed) in orders.chain(refunds) {
        let (Some((deed, after_ms)), Some(due)) = (deed, ledger.due.get(&(kind, id))) else {
            continue;
        };
        let after = Duration::from_millis(after_ms.unsigned_abs());
        let at = if after_ms < 0 { due.minus(after) } else { due.plus(after) };
        deeds.spawn(act(pool.clone(), clock.instant(at), kind, id, deed));
    }
    while let Some(done) = deeds.join_next().await {
        let (kind, id, told) = done?;
        let mut hear = |answer| {
            ledger.heard.push(Heard { kind: kind.to_owned(), key: id.to_string(), answer });
        };
        match told? {
            Told::Paid => ledger.paid.push(id),
            Told::PaidAndCancelled => {
                hear(Answer::Cancelled);
                ledger.paid.push(id);
            }
            Told::TooLate => ledger.too_late += 1,
            Told::Cancelled => hear(Answer::Cancelled),
            Told::Rescheduled(due) => {
                hear(Answer::Rescheduled(due));
                ledger.rescheduled += 1;
            }
            Told::Finished => {}
        }
    }
    Ok(ledger)
}

/// What somebody was told, after the commit.
enum Told {
    Paid,
    PaidAndCancelled,
    TooLate,
    Cancelled,
    Rescheduled(Micros),
    Finished,
}

async fn act(
    pool: PgPool,
    at: Instant,
    kind: &'static str,
    id: i64,
    deed: Deed,
) -> (&'static str, i64, Result<Told>) {
    tokio::time::sleep_until(at).await;
    let told = match deed {
        Deed::Pay => pay(&pool, id, false).await,
        Deed::PayAndCancel => pay(&pool, id, true).await,
        Deed::Cancel => cancel(&pool, kind, id).await,
        Deed::Reschedule(delay_ms) => reschedule(&pool, kind, id, delay_ms).await,
    };
    (kind, id, told)
}

/// Pays first, then cancels: the order in which the consumer takes its locks, too.
async fn pay(pool: &PgPool, id: i64, and_cancel: bool) -> Result<Told> {
    let mut transaction = pool.begin().await?;
    let update = sqlx::query(include_str!("../../sql/demo/pay.sql")).bind(id);
    if update.execute(&mut *transaction).await?.rows_affected() == 0 {
        return Ok(Told::TooLate);
    }
    let mut told = Told::Paid;
    if and_cancel {
        let receipt: String = sqlx::query_scalar(include_str!("../../sql/demo/cancel.sql"))
            .bind("close_order")
            .bind(id.to_string())
            .fetch_one(&mut *transaction)
            .await?;
        if is_granted(&receipt)? {
            told = Told::PaidAndCancelled;
        }
    }
    transaction.commit().await?;
    Ok(told)
}

async fn cancel(pool: &PgPool, kind: &str, id: i64) -> Result<Told> {
    let receipt: String = sqlx::query_scalar(include_str!("../../sql/demo/cancel.sql"))
        .bind(kind)
        .bind(id.to_string())
        .fetch_one(pool)
        .await?;
    Ok(if is_granted(&receipt)? { Told::Cancelled } else { Told::Finished })
}

async fn reschedule(pool: &PgPool, kind: &str, id: i64, delay_ms: i64) -> Result<Told> {
    let (receipt, due_at): (String, i64) =
        sqlx::query_as(include_str!("../../sql/demo/reschedule.sql"))
            .bind(kind)
            .bind(id.to_string())
            .bind(delay_ms)
            .fetch_one(pool)
            .await?;
    Ok(if is_granted(&receipt)? { Told::Rescheduled(Micros(due_at)) } else { Told::Finished })
}

/// Whether the wish was granted; a receipt that this kind of task cannot get is an error.
fn is_granted(receipt: &str) -> Result<bool> {
    let granted = ["cancelled", "rescheduled", "published_will_be_dropped"].contains(&receipt);
    ensure!(granted || receipt == "finished", "unexpected receipt {receipt}");
    Ok(granted)
}
