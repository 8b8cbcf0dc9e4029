//! H1: a row that commits after the scan has passed its due time is late, never lost.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::Micros;
use dueline_tests::testkit::checker::Answer;
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, Shop};
use sqlx::Connection as _;
use tokio::task::JoinSet;

use super::job_support::{
    CLOSE_AND_NOTE, LEDGER, assert_nobody_paid, await_rest, heard, judge, now,
};

/// How long the scheduling transactions stay open.
const HELD_SECONDS: [u64; 3] = [1, 5, 12];
/// Tasks of each of them.
const TASKS: i64 = 50;
/// `relay.sweep_interval` of these shops.
const SWEEP: Duration = Duration::from_millis(500);
/// What a busy machine may add: sweep, publication, effect.
const MARGIN: Duration = Duration::from_millis(3_500);
/// Ids of the load beside it begin here.
const LOAD: i64 = 100_000;

/// One held transaction: its first id, and when its commit was known.
struct Committed {
    first: i64,
    due: Micros,
    at: Micros,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_what_commits_late_is_found_within_a_sweep() -> Result<()> {
    let builder = Shop::build().await?.sql(LEDGER).await?;
    let shop = builder.kind(KIND, CLOSE_AND_NOTE).start().await?;
    let mut holders = JoinSet::new();
    for seconds in HELD_SECONDS {
        let connection = shop.connect().await?;
        let first = i64::try_from(seconds)? * 1_000;
        holders.spawn(hold(connection, first, Duration::from_secs(seconds)));
    }
    let mut told = Vec::new();
    let mut next = LOAD;
    let mut pace = tokio::time::interval(Duration::from_millis(100));
    while !holders.is_empty() {
        tokio::select! {
            Some(done) = holders.join_next() => {
                let committed = done??;
                assert_in_time(&shop, &committed).await?;
                let ids = committed.first..committed.first + TASKS;
                told.extend(ids.map(|id| heard(KIND, id, Answer::Scheduled(committed.due))));
            }
            _ = pace.tick() => {
                shop.orders(next..=next + 19).await?;
                let new = shop.schedule(KIND, next..=next + 19, Duration::from_millis(200)).await?;
                ensure!(new == 20);
                next += 20;
            }
        }
    }
    await_rest(&shop, PATIENCE).await?;
    let tasks = i64::try_from(HELD_SECONDS.len())? * TASKS + (next - LOAD);
    assert_eq!(shop.count("done").await?, tasks);
    assert_nobody_paid(&shop).await?;
    judge(&shop, told, &[]).await?;
    Ok(())
}

/// Schedules tasks that are due at once, and commits much later.
async fn hold(mut connection: sqlx::PgConnection, first: i64, held: Duration) -> Result<Committed> {
    let mut transaction = connection.begin().await?;
    let orders = "insert into orders (id) select generate_series($1::bigint, $2::bigint)";
    let last = first + TASKS - 1;
    sqlx::query(orders).bind(first).bind(last).execute(&mut *transaction).await?;
    let schedule = "
        select max((extract(epoch from due_at) * 1000000)::bigint)
          from dueline.schedule_many(
                   $1, array(select id::text from generate_series($2::bigint, $3::bigint) as id),
                   delays => array[interval '0'])";
    let due: i64 = sqlx::query_scalar(schedule)
        .bind(KIND)
        .bind(first)
        .bind(last)
        .fetch_one(&mut *transaction)
        .await?;
    // Not for a condition: the open transaction is the hazard itself.
    tokio::time::sleep(held).await;
    transaction.commit().await?;
    let at = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    let at: i64 = sqlx::query_scalar(at).fetch_one(&mut connection).await?;
    Ok(Committed { first, due: Micros(due), at: Micros(at) })
}

/// Waits for the effects of one late transaction, and says how late after its commit the last was.
async fn assert_in_time(shop: &Shop, committed: &Committed) -> Result<()> {
    let passed = "select count(*) from effect where key::bigint >= $1";
    let passed: i64 = sqlx::query_scalar(passed).bind(LOAD).fetch_one(&shop.pool).await?;
    ensure!(passed > 0, "the scan has passed the late tasks' due time");
    let effects = "
        select count(*), (extract(epoch from max(at)) * 1000000)::bigint
          from effect where key::bigint between $1 and $2";
    let what = format!("the tasks from {} on to take effect", committed.first);
    let last = wait::some(&what, SWEEP + MARGIN, async || {
        let (n, last): (i64, Option<i64>) = sqlx::query_as(effects)
            .bind(committed.first)
            .bind(committed.first + TASKS - 1)
            .fetch_one(&shop.pool)
            .await?;
        Ok(last.filter(|_| n == TASKS).map(Micros))
    })
    .await?;
    println!(
        "committed {:?} late: effects {:?} after the commit",
        committed.at.since(committed.due),
        last.since(committed.at)
    );
    ensure!(now(&shop.pool).await? >= last);
    Ok(())
}
