//! Payers against the effect (H18, I4, V5): users pay and then cancel, in one transaction of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use dueline_store::effect::{Fate, SqlHandler, Task, Trouble};
use dueline_tests::KIND;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use sqlx::Connection as _;

use super::effect::{LOCK_TIMEOUT, Lab};

const PAYERS: usize = 6;
/// What a payer may wait beyond the batch's lock timeout: two cores run everything.
const SLACK: Duration = Duration::from_secs(2);

/// How a payer behaves.
#[derive(Clone, Copy)]
struct Habits {
    /// Orders of one payment.
    cart: usize,
    /// Pause between paying and cancelling.
    slowness: Duration,
    /// The share of payments that are slow.
    slow: f64,
}

/// Pays carts of orders: pay, then cancel, each order in the order of its key, as a careful user does.
/// Returns the longest wait for one statement.
async fn pay_all(
    lab: Arc<Lab>,
    carts: Vec<Vec<i64>>,
    habits: Habits,
    seed: u64,
) -> Result<Duration> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut connection = lab.connect().await?;
    let mut longest = Duration::ZERO;
    for cart in carts {
        let mut tx = connection.begin().await?;
        let began = Instant::now();
        let paid: Vec<i64> = sqlx::query_scalar(
            "with mine as (select id from orders where id = any($1) order by id::text for update)
             update orders o set status = 'paid' from mine where o.id = mine.id and o.status = 'unpaid'
             returning o.id",
        )
        .bind(&cart)
        .fetch_all(&mut *tx)
        .await
        .context("paying")?;
        longest = longest.max(began.elapsed());
        if rng.random_bool(habits.slow) {
            tokio::time::sleep(habits.slowness).await;
        }
        let mut keys: Vec<String> = paid.iter().map(ToString::to_string).collect();
        keys.sort();
        let began = Instant::now();
        sqlx::query("select * from dueline.cancel_many($1, $2)")
            .bind(KIND)
            .bind(&keys)
            .fetch_all(&mut *tx)
            .await
            .context("cancelling")?;
        longest = longest.max(began.elapsed());
        tx.commit().await?;
    }
    Ok(longest)
}

/// Runs the messages to their end as a consumer does: what moved again later, and after trouble of the
/// environment a lone task first, then ever larger batches.
async fn consume(lab: Arc<Lab>, handler: Arc<SqlHandler>, mut waiting: Vec<Task>) -> Result<usize> {
    let mut troubles = 0;
    let mut size = 100;
    let end = Instant::now() + Duration::from_secs(120);
    while !waiting.is_empty() {
        anyhow::ensure!(Instant::now() < end, "{} tasks never settled", waiting.len());
        let rest = waiting.split_off(size.min(waiting.len()));
        let mut batch = std::mem::replace(&mut waiting, rest);
        match lab.run(&*handler, &mut batch).await {
            Ok(fates) => {
                size = (size * 2).min(100);
                batch.retain(|task| fates[&task.id] == Fate::Moved);
            }
            Err(Trouble::Environment { .. }) => {
                troubles += 1;
                size = 1;
            }
            Err(other) => anyhow::bail!("{other:?}"),
        }
        waiting.extend(batch);
    }
    Ok(troubles)
}

async fn race(orders: i64, habits: Habits) -> Result<()> {
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let lab = Arc::new(Lab::new().await?);
    lab.orders(1..=orders).await?;
    let mut tasks = lab.publish(1..=orders).await?;
    tasks.shuffle(&mut rng);
    let handler = Arc::new(lab.close_order().await?);
    let mut ids: Vec<i64> = (1..=orders).collect();
    ids.shuffle(&mut rng);
    let carts: Vec<Vec<i64>> = ids.chunks(habits.cart).map(<[i64]>::to_vec).collect();
    let payers: Vec<_> = carts
        .chunks(carts.len().div_ceil(PAYERS))
        .map(|share| tokio::spawn(pay_all(lab.clone(), share.to_vec(), habits, rng.random())))
        .collect();
    let half = tasks.split_off(tasks.len() / 2);
    let consumers = [
        tokio::spawn(consume(lab.clone(), handler.clone(), tasks)),
        tokio::spawn(consume(lab.clone(), handler, half)),
    ];
    for payer in payers {
        let longest = payer.await?.context("no error may reach a payer")?;
        assert!(longest <= LOCK_TIMEOUT + SLACK, "a payer waited {longest:?}");
    }
    for consumer in consumers {
        eprintln!("troubles of the environment: {}", consumer.await??);
    }
    both_won_nowhere(&lab, orders).await
}

/// V2, V5, and that task and order agree.
async fn both_won_nowhere(lab: &Lab, orders: i64) -> Result<()> {
    let closed = lab.count_orders("closed").await?;
    let paid = lab.count_orders("paid").await?;
    eprintln!("{closed} closed, {paid} paid");
    assert_eq!((closed + paid, lab.count_orders("unpaid").await?), (orders, 0));
    assert_eq!(lab.number("select count(*) from orders where times > 1").await?, 0);
    let agree = "select count(*) from orders o join dueline.task t on t.key = o.id::text
                 where (o.status = 'closed' and t.state = 'done' and o.times = 1)
                    or (o.status = 'paid' and t.state in ('cancelled', 'skipped') and o.times = 0)";
    assert_eq!(lab.number(agree).await?, orders);
    assert_eq!(lab.number("select count(*) from dueline.due").await?, 0);
    assert_eq!(lab.number("select count(*) from dueline.dedupe").await?, closed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h18_ten_thousand_payments_race_their_deadline() -> Result<()> {
    race(10_000, Habits { cart: 1, slowness: Duration::from_millis(2), slow: 0.2 }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h18_carts_of_several_orders_race_their_deadlines() -> Result<()> {
    race(3_000, Habits { cart: 5, slowness: Duration::from_millis(5), slow: 0.3 }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h18_slow_payers_hold_up_their_own_order_only() -> Result<()> {
    race(300, Habits { cart: 1, slowness: Duration::from_millis(400), slow: 0.1 }).await
}
