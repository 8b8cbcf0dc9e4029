//! H24: fifty thousand tasks become due within one second, and half of them have keys of one lane and one
//! partition.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::partition::partition_for;
use dueline_core::{KeyHash, Micros};
use dueline_tests::testkit::checker::{Evidence, Published};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, QUEUE, Shop};
use sqlx::PgPool;

use super::job_support::{CLOSE_AND_NOTE, LEDGER, assert_nobody_paid, await_rest, judge, now};

const RUSH: usize = 50_000;
/// Slots of the queue, and partitions of its topics.
const WAYS: u32 = 4;
/// Of these are scheduled in one call.
const CHUNK: usize = 10_000;
/// From the first call to the instant at which the first are due.
const LEAD: Duration = Duration::from_secs(15);
/// The longest that the rush may take: forty times what it takes alone.
const DRAIN: Duration = Duration::from_secs(120);
/// Tasks of another tier that come in the middle of it.
const OTHERS: i64 = 50;
/// How far a message may stand from its place by age: some claims of 1,000, of which several are on their way.
const DISPLACED: usize = 5_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h24_fifty_thousand_in_one_second_half_of_them_in_one_lane() -> Result<()> {
    let mut builder = Shop::build().await?.sql(LEDGER).await?.kind(KIND, CLOSE_AND_NOTE);
    let ways = i64::from(WAYS);
    builder.settings().set("queues.orders.slots", ways).set("queues.orders.partitions", ways);
    let shop = builder.start().await?;
    let ids = skewed();
    let due = now(&shop.pool).await?.plus(LEAD);
    place(&shop.pool, &ids, due).await?;
    ensure!(now(&shop.pool).await? < due, "scheduling took longer than the lead");
    wait::until("the rush to begin", LEAD * 2, async || Ok(shop.count("done").await? > 0)).await?;
    // Another tier, whose tasks come last and need not wait for the rush to pass.
    let first = ids.iter().max().copied().unwrap_or(0) + 1;
    shop.orders(first..=first + OTHERS - 1).await?;
    shop.schedule(KIND, first..=first + OTHERS - 1, Duration::ZERO).await?;
    await_rest(&shop, DRAIN).await?;

    let ends = "select max(finished_at) filter (where tier = 'fast')
                       < max(finished_at) filter (where tier = 'slow') from dueline.task";
    ensure!(sqlx::query_scalar::<_, bool>(ends).fetch_one(&shop.pool).await?, "a tier waited");
    let total = i64::try_from(RUSH)? + OTHERS;
    assert_eq!(shop.count("done").await?, total);
    assert_eq!(shop.count_orders("closed").await?, total);
    assert_nobody_paid(&shop).await?;
    let evidence = judge(&shop, Vec::new(), &[]).await?;
    ensure!(evidence.effects.len() == RUSH + usize::try_from(OTHERS)?);
    oldest_first(&shop, &evidence)
}

/// The ids: each second one has a key of slot 0 and partition 0, the others are as they come.
fn skewed() -> Vec<i64> {
    let hot = |id: &i64| {
        let key = id.to_string();
        KeyHash::new(QUEUE, KIND, &key).slot(WAYS) == 0 && partition_for(key.as_bytes(), WAYS) == 0
    };
    let hot: Vec<i64> = (1..).filter(hot).take(RUSH / 2).collect();
    let last = hot.last().copied().unwrap_or(0);
    // Beyond the hot ones, so that none is taken twice.
    hot.into_iter().zip(last + 1..).flat_map(|(hot, other)| [hot, other]).collect()
}

/// Places the orders and their tasks in tier `slow`, each 20 µs after the one before.
async fn place(pool: &PgPool, ids: &[i64], due: Micros) -> Result<()> {
    sqlx::query("insert into orders (id) select unnest($1::bigint[])")
        .bind(ids)
        .execute(pool)
        .await?;
    let schedule = "
        with asked as (
            select array_agg(id::text order by n) as keys,
                   array_agg(to_timestamp($3::bigint / 1000000) + n * interval '20 us' order by n) as due
              from unnest($2::bigint[]) with ordinality as a (id, n))
        select count(*)
          from asked, dueline.schedule_many(
                   $1, keys, due_at => due,
                   event_at => to_timestamp($3::bigint / 1000000) - interval '1 hour')
         where receipt = 'scheduled' and tier = 'slow'";
    for (chunk, ids) in (0i64..).zip(ids.chunks(CHUNK)) {
        let first = due.0 + chunk * 200_000;
        let new = sqlx::query_scalar(schedule).bind(KIND).bind(ids).bind(first);
        let new: i64 = new.fetch_one(pool).await?;
        ensure!(new == i64::try_from(CHUNK)?, "{new} of {CHUNK} are new, in tier `slow`");
    }
    Ok(())
}

/// The messages of the full lane stand in its partition by their age, but for what is claimed at once.
fn oldest_first(shop: &Shop, evidence: &Evidence) -> Result<()> {
    let topic = shop.settings.config()?.queues[QUEUE].topic("slow");
    let in_lane = |p: &&Published| {
        let key = p.envelope.as_ref().map(|e| e.key_hash.slot(WAYS));
        p.topic == topic && p.partition == 0 && key == Some(0)
    };
    let mut lane: Vec<&Published> = evidence.published.iter().filter(in_lane).collect();
    ensure!(lane.len() >= RUSH / 2, "{} messages in the full lane", lane.len());
    let age = |p: &&Published| p.envelope.as_ref().map(|e| (e.due_at, e.task_id));
    lane.sort_by_key(|p| p.offset);
    let places: HashMap<i64, usize> = lane.iter().zip(0..).map(|(p, n)| (p.offset, n)).collect();
    lane.sort_by_key(age);
    let displaced = lane.iter().zip(0..).map(|(p, n)| places[&p.offset].abs_diff(n)).max();
    ensure!(
        displaced < Some(DISPLACED),
        "a message stands {displaced:?} places from where it belongs"
    );
    Ok(())
}
