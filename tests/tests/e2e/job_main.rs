//! The main job, whole: two queues, several tiers, customers who pay, cancel and ask for more time,
//! some at the very instant of the deadline; failures of both sorts; relay and consumer killed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_core::{Micros, TaskState};
use dueline_tests::testkit::checker::{Answer, Heard};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, Shop};
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::job_support::{CLOSE_AND_NOTE, LEDGER, await_rest, heard, judge, now};

const ORDERS: i64 = 600;
const REFUNDS: i64 = 200;
const REFUND: &str = "refund";
/// How long the drain may take: a killed consumer's partitions alone are missed for six seconds.
const DRAIN: Duration = Duration::from_secs(90);

/// Refunds go through a gateway that is down for a while for some (transient), for ever for others
/// (exhausted), and that cannot read some amounts (permanent).
const REFUNDS_TABLE: &str = "
create table refunds (
    id          bigint primary key,
    amount      text not null default '12.50',
    down_until  timestamptz not null default '-infinity',
    status      text not null default 'pending'
);
grant select, update on refunds to dueline_handler;
create function wire_money(amount text, down_until timestamptz) returns text
language plpgsql volatile as $$
begin
    if clock_timestamp() < down_until then
        raise exception 'the gateway did not answer' using errcode = 'DLT01';
    end if;
    return 'refunded ' || amount::numeric(12, 2);
end $$;";

const REFUND_AND_NOTE: &str = "
with refunded as (
    update refunds
       set status = wire_money(refunds.amount, refunds.down_until)
      from batch
     where refunds.id = batch.key::bigint and refunds.status = 'pending'
    returning batch.ord, batch.key
), noted as (
    insert into effect (kind, key) select 'refund', key from refunded
)
select ord from refunded";

#[derive(Clone, Copy, Debug)]
enum Deed {
    Pay,
    PayAndCancel,
    Cancel,
    Reschedule,
}

/// What somebody does about an order, and how many ms from its deadline (`None`: at once).
fn deed(id: i64) -> Option<(Deed, Option<i64>)> {
    let race = Some((id * 7) % 81 - 20);
    Some(match id % 12 {
        0 => (Deed::Pay, None),
        1 | 2 => (Deed::Pay, race),
        3 => (Deed::PayAndCancel, race),
        4 => (Deed::Cancel, None),
        5 => (Deed::Cancel, race),
        6 => (Deed::Reschedule, None),
        7 => (Deed::Reschedule, race),
        _ => return None,
    })
}

/// The database's clock as a local instant.
#[derive(Clone, Copy)]
struct Clock(Instant, Micros);

impl Clock {
    fn instant(self, at: Micros, offset_ms: i64) -> Instant {
        let offset = Duration::from_millis(offset_ms.unsigned_abs());
        let at = if offset_ms < 0 { at.minus(offset) } else { at.plus(offset) };
        self.0 + at.since(self.1)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v1_to_v9_hold_through_races_failures_and_kills() -> Result<()> {
    let mut shop = open().await?;
    let (mut told, due) = place(&shop).await?;
    let clock = Clock(Instant::now(), now(&shop.pool).await?);
    let mut deeds = JoinSet::new();
    for (id, due) in due {
        if let Some((deed, offset)) = deed(id) {
            let at = offset.map_or(clock.0, |offset| clock.instant(due, offset));
            deeds.spawn(act(shop.pool.clone(), at, id, deed));
        }
    }
    await_finished(&shop, 150).await?;
    shop.relay().kill();
    shop.start_relay().await?;
    await_finished(&shop, 400).await?;
    shop.consumer().kill();
    shop.start_consumer().await?;

    let mut paid = Vec::new();
    while let Some(done) = deeds.join_next().await {
        let (id, was_paid, answer) = done??;
        paid.extend(was_paid.then_some(id));
        told.extend(answer.map(|answer| heard(KIND, id, answer)));
    }
    await_rest(&shop, DRAIN).await?;
    let evidence = judge(&shop, told, &paid).await?;

    let dead: Vec<_> = evidence.tasks.iter().filter(|t| t.state == TaskState::Dead).collect();
    let attempts = dead.iter().map(|task| (task.key.parse::<i64>().unwrap_or(0), task.attempt));
    let expected: BTreeMap<i64, i32> = (1..=REFUNDS)
        .filter_map(|id| match id % 40 {
            1 => Some((id, 1)),
            2 => Some((id, 4)),
            _ => None,
        })
        .collect();
    assert_eq!(attempts.collect::<BTreeMap<_, _>>(), expected, "permanent: one try; else four");
    let lettered: BTreeSet<i64> =
        evidence.letters.iter().filter_map(|letter| Some(letter.task?.0)).collect();
    assert_eq!(lettered, dead.iter().map(|task| task.id).collect());
    let tiers: BTreeSet<_> = evidence.tasks.iter().map(|t| (&t.queue, &t.tier)).collect();
    assert_eq!(tiers.len(), 5, "every tier of both queues was used: {tiers:?}");
    Ok(())
}

async fn open() -> Result<Shop> {
    let mut builder = Shop::build().await?.sql(LEDGER).await?.sql(REFUNDS_TABLE).await?;
    let settings = builder.settings();
    settings.set_toml(
        "queues.orders.tiers",
        r#"[{ name = "1s", max_delay = "1s" }, { name = "3s", max_delay = "3s" },
            { name = "90d", max_delay = "90d" }]"#,
    );
    settings.set("queues.refunds.partitions", 2).set("queues.refunds.slots", 2);
    settings.set_toml(
        "queues.refunds.tiers",
        r#"[{ name = "2s", max_delay = "2s" }, { name = "90d", max_delay = "90d" }]"#,
    );
    settings.sql_kind(REFUND, "refunds", REFUND_AND_NOTE);
    settings.set("kinds.refund.backoff", ["200ms", "400ms", "800ms"]);
    builder.kind(KIND, CLOSE_AND_NOTE).start().await
}

/// Places all orders and refunds; what was heard, and the deadlines of the orders.
async fn place(shop: &Shop) -> Result<(Vec<Heard>, Vec<(i64, Micros)>)> {
    shop.orders(1..=ORDERS).await?;
    let refunds = "
        insert into refunds (id, amount, down_until)
        select id,
               case id % 40 when 1 then 'twelve fifty' else '12.50' end,
               case id % 40 when 2 then 'infinity'
                            when 3 then clock_timestamp() + interval '4.3 seconds'
                            else '-infinity' end
          from generate_series(1, $1::bigint) as id";
    sqlx::query(refunds).bind(REFUNDS).execute(&shop.pool).await?;
    let schedule = "
        select key::bigint, receipt, (extract(epoch from due_at) * 1000000)::bigint
          from dueline.schedule_many(
                   $1, array(select id::text from generate_series(1, $2::bigint) as id),
                   delays => array(select (id * 37 % 4000) * interval '1 millisecond'
                                     from generate_series(1, $2::bigint) as id))";
    let (mut told, mut due) = (Vec::new(), Vec::new());
    for (kind, n) in [(KIND, ORDERS), (REFUND, REFUNDS)] {
        let rows: Vec<(i64, String, i64)> =
            sqlx::query_as(schedule).bind(kind).bind(n).fetch_all(&shop.pool).await?;
        ensure!(rows.iter().all(|(_, receipt, _)| receipt == "scheduled"));
        for (id, _, at) in rows {
            told.push(heard(kind, id, Answer::Scheduled(Micros(at))));
            due.extend((kind == KIND).then_some((id, Micros(at))));
        }
    }
    Ok((told, due))
}

async fn await_finished(shop: &Shop, n: i64) -> Result<()> {
    let finished = "select count(*) from dueline.task where state <> 'live'";
    wait::until("more tasks to be finished", PATIENCE, async || {
        Ok(sqlx::query_scalar::<_, i64>(finished).fetch_one(&shop.pool).await? >= n)
    })
    .await
}

/// One customer: the order, whether it was paid, what was answered.
async fn act(
    pool: PgPool,
    at: Instant,
    id: i64,
    deed: Deed,
) -> Result<(i64, bool, Option<Answer>)> {
    tokio::time::sleep_until(at).await;
    let (paid, answer) = match deed {
        Deed::Pay => (pay(&pool, id, false).await?.0, None),
        Deed::PayAndCancel => pay(&pool, id, true).await?,
        Deed::Cancel => (false, ask(&pool, id, None).await?),
        Deed::Reschedule => (false, ask(&pool, id, Some(1_500)).await?),
    };
    Ok((id, paid, answer))
}

/// Pays first, then cancels: the order in which the consumer takes its locks, too.
async fn pay(pool: &PgPool, id: i64, and_cancel: bool) -> Result<(bool, Option<Answer>)> {
    let mut transaction = pool.begin().await?;
    let update = "update orders set status = 'paid' where id = $1 and status = 'unpaid'";
    if sqlx::query(update).bind(id).execute(&mut *transaction).await?.rows_affected() == 0 {
        return Ok((false, None));
    }
    let answer = if and_cancel { ask(&mut *transaction, id, None).await? } else { None };
    transaction.commit().await?;
    Ok((true, answer))
}

/// Cancels, or moves the deadline by so many milliseconds from now.
async fn ask<'c>(
    executor: impl sqlx::PgExecutor<'c>,
    id: i64,
    delay_ms: Option<i64>,
) -> Result<Option<Answer>> {
    let statement = match delay_ms {
        None => "select receipt, 0::bigint from dueline.cancel($1, $2) where $3::bigint is null",
        Some(_) => {
            "select receipt, (extract(epoch from due_at) * 1000000)::bigint
               from dueline.reschedule($1, $2, delay => $3 * interval '1 millisecond')"
        }
    };
    let asked = sqlx::query_as(statement).bind(KIND).bind(id.to_string()).bind(delay_ms);
    let (receipt, due_at): (String, i64) = asked.fetch_one(executor).await?;
    let granted = match delay_ms {
        None => Answer::Cancelled,
        Some(_) => Answer::Rescheduled(Micros(due_at)),
    };
    match receipt.as_str() {
        "cancelled" | "rescheduled" | "published_will_be_dropped" => Ok(Some(granted)),
        "finished" => Ok(None),
        other => anyhow::bail!("unexpected receipt {other}"),
    }
}
