//! Q1, L2: a flood in one tier does not hold up another tier of the same queue.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::Micros;
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, Shop};
use sqlx::PgPool;
use tokio::time::{Instant, MissedTickBehavior};

use super::job_support::{CLOSE_AND_NOTE, LEDGER, assert_nobody_paid, await_lag, now};

/// Tasks of the flood: all due at the same instant, in tier `slow`.
const FLOOD: i64 = 200_000;
/// Of these are scheduled in one call.
const CHUNK: i64 = 10_000;
/// From the first of them to the instant at which all are due.
const LEAD: Duration = Duration::from_secs(20);
/// Tasks of the trickle in tier `fast`: one every 50 ms, each due 200 ms later.
const TRICKLE_PACE: Duration = Duration::from_millis(50);
const TRICKLE_DELAY: Duration = Duration::from_millis(200);
/// The trickle before the flood, as many during it at least.
const CALM: usize = 100;
const DURING: usize = 300;
/// By how much the flood may move the trickle's p99.
const PROMISE: Duration = Duration::from_millis(250);
/// Others use this machine, too, and that only ever adds: one round that keeps the promise will do.
const ROUNDS: i64 = 3;
/// The longest that a flood may take.
const DRAIN: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q01_l02_a_flood_in_one_tier_does_not_move_another() -> Result<()> {
    let builder = Shop::build().await?.sql(LEDGER).await?.kind(KIND, CLOSE_AND_NOTE);
    let shop = builder.start().await?;
    let mut moved = Duration::MAX;
    let mut total = 0;
    for round in 0..ROUNDS {
        let (tasks, by) = flood(&shop, 1 + round * 1_000_000).await?;
        (total, moved) = (total + tasks, moved.min(by));
        // Nothing is lost, nothing happened twice.
        assert_eq!(shop.count("done").await?, total);
        let ledger = "select count(*), count(distinct key) from effect";
        let counts: (i64, i64) = sqlx::query_as(ledger).fetch_one(&shop.pool).await?;
        assert_eq!(counts, (total, total));
        assert_eq!(shop.count_orders("closed").await?, total);
        await_lag(&shop, 0, PATIENCE).await?;
        assert_nobody_paid(&shop).await?;
        if moved <= PROMISE {
            return Ok(());
        }
    }
    panic!("the flood moved the trickle's p99 by {moved:?}, in the best of {ROUNDS} rounds");
}

/// One flood, with ids from `first` on. Returns how many tasks there were in all, and by how much
/// the trickle's p99 moved.
async fn flood(shop: &Shop, first: i64) -> Result<(i64, Duration)> {
    let mut trickle = Trickle::new(first + FLOOD);
    for _ in 0..CALM {
        trickle.next(shop).await?;
    }
    let calm = trickle.ids();
    let due = now(&shop.pool).await?.plus(LEAD);
    let began = Instant::now();
    place_flood(&shop.pool, first, due).await?;
    println!("flood scheduled in {:.1?}", began.elapsed());
    wait::until("the flood to come", LEAD, async || Ok(now(&shop.pool).await? >= due)).await?;
    let end = Instant::now() + DRAIN;
    let mut during = 0;
    while during < DURING || is_live(&shop.pool, first).await? {
        ensure!(Instant::now() < end, "the flood does not drain");
        // Between two looks, for a look costs time of the machine that is measured.
        for _ in 0..20 {
            trickle.next(shop).await?;
            during += 1;
        }
    }
    let drained = now(&shop.pool).await?.since(due);
    shop.await_quiet(PATIENCE).await?;
    let before = lateness(&shop.pool, calm.clone()).await?;
    let after = lateness(&shop.pool, calm.end() + 1..=trickle.id - 1).await?;
    println!(
        "trickle before: {before}\ntrickle during: {after}\nflood drained within {drained:.1?}"
    );
    Ok((trickle.id - first, after.p99.saturating_sub(before.p99)))
}

/// Places the orders of the flood, with tasks of tier `slow`: their delay is an hour, from an event
/// in the past.
async fn place_flood(pool: &PgPool, first: i64, due: Micros) -> Result<()> {
    let orders = "insert into orders (id) select generate_series($1::bigint, $2::bigint)";
    sqlx::query(orders).bind(first).bind(first + FLOOD - 1).execute(pool).await?;
    let schedule = "
        select count(*)
          from dueline.schedule_many(
                   $1, array(select id::text from generate_series($2::bigint, $3::bigint) as id),
                   delays => array[interval '1 hour'],
                   event_at => to_timestamp($4::bigint / 1000000) - interval '1 hour')
         where receipt = 'scheduled' and tier = 'slow'";
    for first in (first..first + FLOOD).step_by(usize::try_from(CHUNK)?) {
        let chunk = sqlx::query_scalar(schedule).bind(KIND).bind(first).bind(first + CHUNK - 1);
        let new: i64 = chunk.bind(due.0).fetch_one(pool).await?;
        ensure!(new == CHUNK);
    }
    Ok(())
}

/// The trickle, one order after the other.
struct Trickle {
    first: i64,
    id: i64,
    pace: tokio::time::Interval,
}

impl Trickle {
    fn new(first: i64) -> Self {
        let mut pace = tokio::time::interval(TRICKLE_PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { first, id: first, pace }
    }

    async fn next(&mut self, shop: &Shop) -> Result<()> {
        self.pace.tick().await;
        shop.orders(self.id..=self.id).await?;
        ensure!(shop.schedule(KIND, self.id..=self.id, TRICKLE_DELAY).await? == 1);
        self.id += 1;
        Ok(())
    }

    fn ids(&self) -> std::ops::RangeInclusive<i64> {
        self.first..=self.id - 1
    }
}

/// Whether a task of this flood lives.
async fn is_live(pool: &PgPool, first: i64) -> Result<bool> {
    let live = "select exists (select from dueline.task
                                where state = 'live' and key::bigint between $1 and $2)";
    Ok(sqlx::query_scalar(live).bind(first).bind(first + FLOOD - 1).fetch_one(pool).await?)
}

/// From deadline to effect, by the database's clock, and to the claim alone.
#[derive(Debug)]
struct Lateness {
    p50: Duration,
    p99: Duration,
    max: Duration,
    claim_p50: Duration,
    claim_p99: Duration,
}

async fn lateness(pool: &PgPool, ids: std::ops::RangeInclusive<i64>) -> Result<Lateness> {
    let quantiles = "
        select percentile_disc(array[0.5, 0.99, 1.0]) within group (
                   order by (extract(epoch from e.at - t.due_at) * 1000000)::bigint)
               || percentile_disc(array[0.5, 0.99]) within group (
                   order by (extract(epoch from t.published_at - t.due_at) * 1000000)::bigint)
          from effect as e join dueline.task as t on t.kind = e.kind and t.key = e.key
         where e.key::bigint between $1 and $2";
    let late: Vec<i64> =
        sqlx::query_scalar(quantiles).bind(ids.start()).bind(ids.end()).fetch_one(pool).await?;
    let of = |i: usize| Micros(late[i]).since(Micros(0));
    Ok(Lateness { p50: of(0), p99: of(1), max: of(2), claim_p50: of(3), claim_p99: of(4) })
}

impl std::fmt::Display for Lateness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p50, p99, max, claim_p50, claim_p99 } = self;
        write!(f, "p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?}; ")?;
        write!(f, "until the claim p50 {claim_p50:.1?}, p99 {claim_p99:.1?}")
    }
}
