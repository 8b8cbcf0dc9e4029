//! What schedules.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::Micros;
use dueline_store::Pool;
use dueline_store::client::{self, ScheduleMany};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::settings::KIND;

/// How many tasks one statement schedules.
pub(crate) const BATCH: i64 = 1_000;
/// Connections that schedule at once.
pub(crate) const CLIENTS: usize = 2;
/// How many tasks are unfinished in a closed loop.
pub(crate) const BACKLOG: i64 = 20_000;
/// How often a client looks whether there is room again.
const LOOK: Duration = Duration::from_millis(1);

/// Inserts unpaid orders.
pub(crate) async fn make_orders(pool: &Pool, first: i64, last: i64) -> Result<()> {
    let insert = sqlx::query(include_str!("../sql/orders.sql")).bind(first).bind(last);
    insert.execute(pool).await?;
    Ok(())
}

/// Schedules a task for each of these orders, due now.
pub(crate) async fn schedule_now(pool: &Pool, orders: RangeInclusive<i64>) -> Result<()> {
    let delays = vec![Duration::ZERO];
    schedule(pool, ScheduleMany { delays, ..request(orders) }).await
}

/// Schedules a task for each of these orders, each due at its own instant.
pub(crate) async fn schedule_at(
    pool: &Pool,
    orders: RangeInclusive<i64>,
    due_at: Vec<Micros>,
) -> Result<()> {
    schedule(pool, ScheduleMany { due_at, ..request(orders) }).await
}

fn request(orders: RangeInclusive<i64>) -> ScheduleMany {
    let keys = orders.map(|id| id.to_string()).collect();
    ScheduleMany { kind: KIND.to_owned(), keys, ..ScheduleMany::default() }
}

async fn schedule(pool: &Pool, request: ScheduleMany) -> Result<()> {
    let receipts = client::schedule_many(pool, &request).await?;
    ensure!(receipts.len() == request.keys.len(), "a receipt is missing");
    Ok(())
}

/// Schedules a task for each of these orders, due now, from several connections.
pub(crate) async fn schedule_all(pool: &Pool, orders: RangeInclusive<i64>) -> Result<()> {
    let pool = pool.clone();
    in_parallel(orders, BATCH, move |orders| {
        let pool = pool.clone();
        async move { schedule_now(&pool, orders).await }
    })
    .await
}

/// Calls with `batch` of these orders after another, from several clients at once.
pub(crate) async fn in_parallel<C, F>(
    orders: RangeInclusive<i64>,
    batch: i64,
    call: C,
) -> Result<()>
where
    C: Fn(RangeInclusive<i64>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let next = Arc::new(AtomicI64::new(*orders.start()));
    let last = *orders.end();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (next, call) = (Arc::clone(&next), call.clone());
        clients.spawn(async move {
            loop {
                let first = next.fetch_add(batch, Ordering::Relaxed);
                if first > last {
                    return anyhow::Ok(());
                }
                call(first..=(first + batch - 1).min(last)).await?;
            }
        });
    }
    finish(clients).await
}

/// Waits for the end of all clients; the first error is the answer.
pub(crate) async fn finish(mut clients: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

/// How a closed loop schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// By the product.
    Dueline,
    /// Into the single table of the obvious design.
    Obvious,
}

/// A closed loop at constant backlog: whoever settles tells how many, and the clients schedule as many.
pub(crate) struct Feed {
    /// How many tasks are settled by now.
    pub settled: AtomicI64,
    into: Target,
    pool: Pool,
    next: AtomicI64,
    end: i64,
    stop: CancellationToken,
}

impl Feed {
    /// A loop over the orders 1 to `orders`, which must exist, and over further ones, which it makes: what
    /// was prepared is a guess, and a machine that is faster costs a little of its speed.
    pub fn new(into: Target, pool: Pool, orders: i64) -> Arc<Self> {
        let (settled, next) = (AtomicI64::new(0), AtomicI64::new(1));
        Arc::new(Self { settled, into, pool, next, end: orders, stop: CancellationToken::new() })
    }

    /// Starts the clients.
    pub fn start(self: &Arc<Self>) -> JoinSet<Result<()>> {
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let feed = Arc::clone(self);
            clients.spawn(async move { feed.client().await });
        }
        clients
    }

    /// Asks the clients to stop after their present statement.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// So many more are settled.
    pub fn done(&self, n: i64) {
        self.settled.fetch_add(n, Ordering::Relaxed);
    }

    /// How many tasks were scheduled; exact once the clients have ended.
    pub fn scheduled(&self) -> i64 {
        self.next.load(Ordering::Relaxed) - 1
    }

    async fn client(&self) -> Result<()> {
        while !self.stop.is_cancelled() {
            if self.scheduled() - self.settled.load(Ordering::Relaxed) >= BACKLOG {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let first = self.next.fetch_add(BATCH, Ordering::Relaxed);
            let orders = first..=first + BATCH - 1;
            if *orders.end() > self.end {
                make_orders(&self.pool, first.max(self.end + 1), *orders.end()).await?;
            }
            match self.into {
                Target::Dueline => schedule_now(&self.pool, orders).await?,
                Target::Obvious => crate::baseline::obvious::schedule(&self.pool, orders).await?,
            }
        }
        Ok(())
    }
}
