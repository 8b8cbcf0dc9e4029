//! H19, C1: cancel and reschedule at every phase of a task, with honest receipts; a message that
//! comes late changes nothing.

use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use dueline_tests::testkit::checker::{Answer, Heard};
use dueline_tests::testkit::services::Kafka;
use dueline_tests::testkit::wait;
use dueline_tests::{Bench, KIND, PATIENCE, Shop, Task};

use super::job_support::{CLOSE_AND_NOTE, LEDGER, await_lag, await_rest, effects_of, heard, judge};

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_millis(500);
const HOUR: Duration = Duration::from_secs(3_600);

/// A shop, and what its customers were told.
struct Stage {
    shop: Shop,
    told: Vec<Heard>,
}

impl Stage {
    fn new(shop: Shop) -> Self {
        Self { shop, told: Vec::new() }
    }

    /// Orders with a task each.
    async fn place(
        &self,
        kind: &str,
        ids: std::ops::RangeInclusive<i64>,
        delay: Duration,
    ) -> Result<()> {
        self.shop.orders(ids.clone()).await?;
        let wanted = ids.end() - ids.start() + 1;
        assert_eq!(self.shop.schedule(kind, ids, delay).await?, wanted);
        Ok(())
    }

    async fn task(&self, kind: &str, id: i64) -> Result<Task> {
        Ok(self.shop.task(kind, id).await?.expect("the task is there"))
    }

    /// Cancels, twice: the receipt, the row, the audit trail.
    async fn cancel(&mut self, kind: &str, id: i64, receipt: &str) -> Result<()> {
        let before = self.task(kind, id).await?;
        assert_eq!(self.shop.cancel(kind, id).await?, receipt, "{before:?}");
        let after = self.task(kind, id).await?;
        if receipt == "finished" {
            assert_eq!(after, before, "nothing is changed");
            return Ok(());
        }
        assert_eq!((after.state.as_str(), after.generation), ("cancelled", before.generation + 1));
        assert_eq!(
            self.last_event(id).await?,
            ("cancel".into(), "cancelled".into(), receipt.into())
        );
        assert_eq!(self.shop.cancel(kind, id).await?, receipt, "asking again answers the same");
        assert_eq!(self.task(kind, id).await?, after, "asking again changes nothing");
        self.told.push(heard(kind, id, Answer::Cancelled));
        Ok(())
    }

    /// Gives a new deadline, which is returned: the receipt, the row, the audit trail.
    async fn reschedule(
        &mut self,
        kind: &str,
        id: i64,
        delay: Duration,
        receipt: &str,
    ) -> Result<Micros> {
        let before = self.task(kind, id).await?;
        assert_eq!(self.shop.reschedule(kind, id, delay).await?, receipt, "{before:?}");
        let after = self.task(kind, id).await?;
        let due =
            "select (extract(epoch from due_at) * 1000000)::bigint from dueline.task where id = $1";
        let due = Micros(sqlx::query_scalar(due).bind(before.id).fetch_one(&self.shop.pool).await?);
        if receipt == "finished" {
            assert_eq!(after, before, "nothing is changed");
            return Ok(due);
        }
        assert_eq!((after.generation, after.attempt), (before.generation + 1, 0));
        assert_eq!(
            self.last_event(id).await?,
            ("reschedule".into(), "live".into(), receipt.into())
        );
        self.told.push(heard(kind, id, Answer::Rescheduled(due)));
        Ok(due)
    }

    /// Step, state after and receipt of the last event of an order's task.
    async fn last_event(&self, id: i64) -> Result<(String, String, String)> {
        let event = "
            select e.step, e.to_state, coalesce(e.detail ->> 'receipt', '')
              from dueline.task_event as e join dueline.task as t on t.id = e.task_id
             where t.key = $1
             order by e.event desc limit 1";
        Ok(sqlx::query_as(event).bind(id.to_string()).fetch_one(&self.shop.pool).await?)
    }

    /// The task ended so, with so many effects, all of them at `due` or later.
    async fn assert_end(
        &self,
        id: i64,
        state: &str,
        effects: usize,
        due: Option<Micros>,
    ) -> Result<()> {
        let task = self.task(KIND, id).await?;
        let at = effects_of(&self.shop.pool, KIND, id).await?;
        assert_eq!((task.state.as_str(), at.len()), (state, effects), "{task:?}");
        assert!(due.is_none_or(|due| at.iter().all(|at| *at >= due)), "V4: {at:?} before {due:?}");
        Ok(())
    }

    async fn await_published(&self, id: i64) -> Result<()> {
        let what = format!("task {id} to be published");
        wait::until(&what, PATIENCE, async || Ok(self.task(KIND, id).await?.leased)).await
    }

    /// Everything comes to rest, and all invariants hold over what was told.
    async fn close(self) -> Result<()> {
        await_rest(&self.shop, PATIENCE * 2).await?;
        judge(&self.shop, self.told, &[]).await?;
        Ok(())
    }
}

/// Two kinds whose handlers always fail: transiently, and for good.
const REFUSE: &str = "
create function refuse(code text, ord integer) returns integer
language plpgsql volatile as $$
begin
    raise exception 'the gateway refuses' using errcode = code;
end $$;";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h19_c1_waiting_in_backoff_done_skipped_and_dead() -> Result<()> {
    let mut builder = Shop::build().await?.sql(LEDGER).await?.sql(REFUSE).await?;
    builder.settings().set("kinds.flaky.backoff", ["20h"]);
    let shop = builder
        .kind(KIND, CLOSE_AND_NOTE)
        .kind("flaky", "select refuse('DLT01', ord) from batch")
        .kind("broken", "select refuse('DLP01', ord) from batch")
        .start()
        .await?;
    let mut stage = Stage::new(shop);
    stage.place(KIND, 1..=2, HOUR).await?;
    stage.place(KIND, 11..=14, SOON).await?;
    stage.place("flaky", 21..=22, NOW).await?;
    stage.place("broken", 31..=32, NOW).await?;
    for id in [13, 14] {
        assert!(stage.shop.pay(id).await?);
    }

    // Waiting for its due time.
    stage.cancel(KIND, 1, "cancelled").await?;
    let due_2 = stage.reschedule(KIND, 2, SOON, "rescheduled").await?;
    // Done.
    for id in [11, 12] {
        stage.shop.await_state(KIND, id, "done", PATIENCE).await?;
    }
    stage.cancel(KIND, 11, "finished").await?;
    stage.reschedule(KIND, 12, NOW, "finished").await?;
    // Skipped: cancel has nothing to do; a new deadline looks again at the order, still paid.
    for id in [13, 14] {
        stage.shop.await_state(KIND, id, "skipped", PATIENCE).await?;
    }
    stage.cancel(KIND, 13, "finished").await?;
    stage.reschedule(KIND, 14, NOW, "rescheduled").await?;
    in_backoff(&mut stage).await?;
    dead(&mut stage).await?;

    stage.shop.await_state(KIND, 2, "done", PATIENCE).await?;
    stage.shop.await_state(KIND, 14, "skipped", PATIENCE).await?;
    stage.assert_end(1, "cancelled", 0, None).await?;
    stage.assert_end(2, "done", 1, Some(due_2)).await?;
    for (id, state, effects) in
        [(11, "done", 1), (12, "done", 1), (13, "skipped", 0), (14, "skipped", 0)]
    {
        stage.assert_end(id, state, effects, None).await?;
    }
    stage.close().await
}

async fn in_backoff(stage: &mut Stage) -> Result<()> {
    for id in [21, 22] {
        wait::until("the first failure", PATIENCE, async || {
            let task = stage.task("flaky", id).await?;
            Ok(task.attempt == 1 && !task.leased)
        })
        .await?;
    }
    stage.cancel("flaky", 21, "cancelled").await?;
    stage.reschedule("flaky", 22, HOUR, "rescheduled").await?;
    stage.cancel("flaky", 22, "cancelled").await
}

async fn dead(stage: &mut Stage) -> Result<()> {
    for id in [31, 32] {
        stage.shop.await_state("broken", id, "dead", PATIENCE).await?;
    }
    // Its letter may be under way or written: both are fine, and nobody acts on it.
    stage.cancel("broken", 31, "cancelled").await?;
    stage.reschedule("broken", 32, HOUR, "rescheduled").await?;
    let stranded = "select count(*) from dueline.stranded";
    assert_eq!(sqlx::query_scalar::<_, i64>(stranded).fetch_one(&stage.shop.pool).await?, 0);
    stage.cancel("broken", 32, "cancelled").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h19_published_and_not_consumed_then_the_message_comes_late() -> Result<()> {
    let builder = Shop::build().await?.sql(LEDGER).await?.kind(KIND, CLOSE_AND_NOTE);
    let mut stage = Stage::new(builder.without_consumer().start().await?);
    stage.place(KIND, 1..=4, NOW).await?;
    await_lag(&stage.shop, 4, PATIENCE).await?;
    let dropped = "published_will_be_dropped";
    stage.cancel(KIND, 1, dropped).await?;
    let due_2 = stage.reschedule(KIND, 2, SOON, dropped).await?;
    stage.reschedule(KIND, 3, HOUR, dropped).await?;
    let cancelled = stage.task(KIND, 1).await?;

    stage.shop.start_consumer().await?;
    for id in [2, 4] {
        stage.shop.await_state(KIND, id, "done", PATIENCE).await?;
    }
    await_lag(&stage.shop, 0, PATIENCE).await?;
    assert_eq!(stage.task(KIND, 1).await?, cancelled, "the late message changed nothing");
    let moved = stage.task(KIND, 3).await?;
    assert_eq!((moved.state.as_str(), moved.generation, moved.leased), ("live", 1, false));
    stage.assert_end(1, "cancelled", 0, None).await?;
    stage.assert_end(2, "done", 1, Some(due_2)).await?;
    stage.assert_end(4, "done", 1, None).await?;
    stage.cancel(KIND, 3, "cancelled").await?;
    stage.close().await
}

/// Effects that wait in the middle: after the update of the order (lock class 1), or in the COMMIT
/// (2), until the test opens the gate. The advisory lock shows the test that they are there.
const GATE: &str = "
create table gate (key text primary key);
grant select on gate to dueline_handler;
create function pass_gate(class integer, key text) returns boolean
language plpgsql volatile as $$
begin
    perform pg_advisory_xact_lock(class, key::integer);
    for tries in 1 .. 300 loop
        exit when exists (select from gate as g where g.key = pass_gate.key);
        perform pg_sleep(0.01);
    end loop;
    return true;
end $$;
create function pass_late_gate() returns trigger
language plpgsql as $$
begin
    perform pass_gate(2, new.key);
    return null;
end $$;
create constraint trigger late_gate after insert on effect
    deferrable initially deferred
    for each row when (new.key::bigint >= 100) execute function pass_late_gate();";

const CLOSE_AT_THE_GATE: &str = "
with closed as (
    update orders
       set status = 'closed', closed_at = clock_timestamp(), times = orders.times + 1
      from batch
     where orders.id = batch.key::bigint and orders.status = 'unpaid'
    returning batch.ord, batch.key
), noted as (
    insert into effect (kind, key) select 'close_order', key from closed
)
select ord from closed where key::bigint >= 100 or pass_gate(1, key)";

/// Waits until the effect of this order stands at a gate.
async fn await_at_gate(shop: &Shop, class: i64, id: i64) -> Result<()> {
    let held = "
        select exists (select from pg_locks as l join pg_database as d on d.oid = l.database
                        where l.locktype = 'advisory' and l.granted
                          and d.datname = current_database()
                          and l.classid::bigint = $1 and l.objid::bigint = $2)";
    wait::until("the effect to be under way", PATIENCE, async || {
        Ok(sqlx::query_scalar(held).bind(class).bind(id).fetch_one(&shop.pool).await?)
    })
    .await
}

async fn open_gate(shop: &Shop, id: i64) -> Result<()> {
    sqlx::query("insert into gate values ($1)").bind(id.to_string()).execute(&shop.pool).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h19_v4_in_the_middle_of_the_effect() -> Result<()> {
    let builder = Shop::build().await?.sql(LEDGER).await?.sql(GATE).await?;
    let mut stage = Stage::new(builder.kind(KIND, CLOSE_AT_THE_GATE).start().await?);
    let dropped = "published_will_be_dropped";

    // The order is closed already, uncommitted; the cancel does not wait for it, and wins.
    stage.place(KIND, 1..=1, NOW).await?;
    await_at_gate(&stage.shop, 1, 1).await?;
    stage.cancel(KIND, 1, dropped).await?;
    open_gate(&stage.shop, 1).await?;
    // So does the reschedule: the first effect is taken back, the second one is kept.
    stage.place(KIND, 2..=2, NOW).await?;
    await_at_gate(&stage.shop, 1, 2).await?;
    let due_2 = stage.reschedule(KIND, 2, SOON, dropped).await?;
    open_gate(&stage.shop, 2).await?;
    // In the COMMIT the task is settled: a cancel waits for it, and is told that it came too late.
    stage.place(KIND, 100..=100, NOW).await?;
    await_at_gate(&stage.shop, 2, 100).await?;
    let mut late = Box::pin(stage.shop.cancel(KIND, 100));
    let waits = "
        select exists (select from pg_stat_activity
                        where datname = current_database() and wait_event_type = 'Lock'
                          and query like '%dueline.cancel(%')";
    wait::until("the cancel to wait", PATIENCE, async || {
        tokio::select! {
            receipt = &mut late => anyhow::bail!("it did not wait: {receipt:?}"),
            waiting = sqlx::query_scalar(waits).fetch_one(&stage.shop.pool) => Ok(waiting?),
        }
    })
    .await?;
    open_gate(&stage.shop, 100).await?;
    assert_eq!(late.await?, "finished");

    stage.shop.await_state(KIND, 2, "done", PATIENCE).await?;
    stage.assert_end(1, "cancelled", 0, None).await?;
    stage.assert_end(2, "done", 1, Some(due_2)).await?;
    stage.assert_end(100, "done", 1, None).await?;
    assert_eq!(stage.shop.count_orders("unpaid").await?, 1, "the cancelled one");
    stage.close().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h19_claimed_and_not_produced() -> Result<()> {
    let mut kafka = tokio::task::spawn_blocking(Kafka::start).await??;
    let mut builder = Shop::build_on(Bench::new().await?, &kafka.bootstrap()).sql(LEDGER).await?;
    builder.settings().set("kafka.delivery_timeout", "8s");
    let mut stage = Stage::new(builder.kind(KIND, CLOSE_AND_NOTE).start().await?);
    stage.place(KIND, 10..=10, NOW).await?;
    stage.shop.await_state(KIND, 10, "done", PATIENCE).await?;

    // The broker answers nobody: claims are committed, their messages wait in the relay.
    kafka.pause();
    stage.place(KIND, 1..=3, NOW).await?;
    for id in 1..=3 {
        stage.await_published(id).await?;
    }
    let dropped = "published_will_be_dropped";
    stage.cancel(KIND, 1, dropped).await?;
    let due_2 = stage.reschedule(KIND, 2, SOON, dropped).await?;
    kafka.resume();

    stage.shop.await_quiet(PATIENCE * 2).await?;
    stage.assert_end(1, "cancelled", 0, None).await?;
    stage.assert_end(2, "done", 1, Some(due_2)).await?;
    stage.assert_end(3, "done", 1, None).await?;
    await_rest(&stage.shop, PATIENCE).await?;
    let evidence = judge(&stage.shop, stage.told, &[]).await?;
    for id in [1, 2] {
        let late = evidence.published.iter().filter_map(|record| record.envelope.as_ref());
        let late = late.filter(|e| e.key == id.to_string() && e.generation == 0).count();
        assert_eq!(late, 1, "the message of the old generation of {id} came, and was dropped");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h19_after_the_relay_was_killed() -> Result<()> {
    let builder = Shop::build().await?.sql(LEDGER).await?.kind(KIND, CLOSE_AND_NOTE);
    let mut stage = Stage::new(builder.without_consumer().start().await?);
    stage.place(KIND, 1..=3, NOW).await?;
    await_lag(&stage.shop, 3, PATIENCE).await?;
    stage.shop.relay().kill();
    stage.place(KIND, 4..=6, NOW).await?;
    let dropped = "published_will_be_dropped";
    stage.cancel(KIND, 1, dropped).await?;
    let due_2 = stage.reschedule(KIND, 2, SOON, dropped).await?;
    stage.cancel(KIND, 4, "cancelled").await?;
    let due_5 = stage.reschedule(KIND, 5, SOON, "rescheduled").await?;

    stage.shop.start_relay().await?;
    stage.shop.start_consumer().await?;
    stage.shop.await_quiet(PATIENCE).await?;
    for id in [1, 4] {
        stage.assert_end(id, "cancelled", 0, None).await?;
    }
    for (id, due) in [(2, Some(due_2)), (3, None), (5, Some(due_5)), (6, None)] {
        stage.assert_end(id, "done", 1, due).await?;
    }
    stage.close().await
}
