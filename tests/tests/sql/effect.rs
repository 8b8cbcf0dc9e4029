//! The effect's transaction, step by step, as a consumer runs it.

use std::collections::HashMap;
use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_core::{KeyHash, Micros};
use dueline_store::effect::{Batch, Effect, Fate, Handling, SqlHandler, Task, Trouble, Verdict};
use dueline_store::{Pool, PoolSettings, Timestamptz};
use dueline_tests::testkit::settings::Settings;
use dueline_tests::{Bench, CLOSE_ORDER, KIND, QUEUE};
use sqlx::Row as _;

/// The role of handlers.
pub const ROLE: &str = "dueline_handler";
/// The lock timeout of a consumer's sessions.
pub const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// A consumer's session settings.
pub fn settings(url: &str) -> PoolSettings {
    PoolSettings {
        url: url.to_owned(),
        application_name: "effect-test".to_owned(),
        max_connections: 8,
        statement_timeout: Duration::from_secs(10),
        lock_timeout: LOCK_TIMEOUT,
        idle_in_transaction_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        options: Vec::new(),
    }
}

/// A bench with the shop's kind registered, and sessions set as a consumer sets them.
pub struct Lab {
    bench: Bench,
    /// A consumer's pool.
    pub pool: Pool,
}

impl Deref for Lab {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl Lab {
    pub async fn new() -> Result<Self> {
        let bench = Bench::new().await?;
        let mut settings = Settings::new(&bench.url(), "127.0.0.1:1", "lab");
        settings.sql_kind(KIND, QUEUE, CLOSE_ORDER);
        settings.set("queues.orders.slots", 2);
        dueline_store::operate::apply::apply(&bench.pool, &settings.config()?).await?;
        let pool = Self::connect(&bench.url())?;
        Ok(Self { bench, pool })
    }

    /// A pool with a consumer's session settings.
    pub fn connect(url: &str) -> Result<Pool> {
        Ok(dueline_store::connect(&settings(url))?)
    }

    /// The shop's handler.
    pub async fn close_order(&self) -> Result<SqlHandler> {
        self.handler(CLOSE_ORDER).await
    }

    pub async fn handler(&self, statement: &str) -> Result<SqlHandler> {
        Ok(SqlHandler::describe(&self.pool, KIND, ROLE, statement).await?)
    }

    /// Schedules a due task per order, and claims them all as a relay would: their messages.
    pub async fn publish(&self, orders: std::ops::RangeInclusive<i64>) -> Result<Vec<Task>> {
        self.schedule(KIND, orders, Duration::ZERO).await?;
        self.claim().await
    }

    /// Claims what waits, due or not (the guards must hold for a relay with a wrong clock, too).
    pub async fn claim(&self) -> Result<Vec<Task>> {
        let rows = sqlx::query(
            "with claimed as (
                 update dueline.due set lease_until = clock_timestamp() + interval '1 minute',
                        claimed_at = clock_timestamp(), claim_epoch = 1, claim_no = claim_no + 1,
                        fence = fence + 1
                 where lease_until is null
                 returning id, generation, attempt, claimed_at)
             select t.id, t.key, t.key_hash, t.due_at, c.generation, c.attempt, c.claimed_at
             from claimed c join dueline.task t using (id) order by t.id",
        )
        .fetch_all(&self.bench.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Task {
                    id: row.try_get("id")?,
                    kind: KIND.into(),
                    key: row.try_get("key")?,
                    key_hash: KeyHash(row.try_get::<uuid::Uuid, _>("key_hash")?.into_bytes()),
                    generation: row.try_get("generation")?,
                    attempt: row.try_get("attempt")?,
                    due_at: row.try_get::<Timestamptz, _>("due_at")?.0,
                    published_at: row.try_get::<Timestamptz, _>("claimed_at")?.0,
                    payload: None,
                    traceparent: None,
                })
            })
            .collect()
    }

    pub async fn run(
        &self,
        handler: impl Into<Handling<'_>>,
        tasks: &mut [Task],
    ) -> Result<HashMap<i64, Fate>, Trouble> {
        run_on(&self.pool, handler, tasks).await
    }

    /// One number that a query answers.
    pub async fn number(&self, query: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(query).fetch_one(&self.bench.pool).await?)
    }

    /// Everything that a transaction of ours could have touched, as text.
    pub async fn snapshot(&self) -> Result<String> {
        Ok(sqlx::query_scalar(
            "select (select coalesce(jsonb_agg(to_jsonb(t) order by id), '[]') from dueline.task t)::text
                 || (select coalesce(jsonb_agg(to_jsonb(d) order by id), '[]') from dueline.due d)::text
                 || (select coalesce(jsonb_agg(to_jsonb(d) order by key_hash), '[]') from dueline.dedupe d)::text
                 || (select coalesce(jsonb_agg(to_jsonb(o) order by id), '[]') from orders o)::text
                 || (select count(*) from dueline.task_event)::text",
        )
        .fetch_one(&self.bench.pool)
        .await?)
    }
}

/// One batch on a pool of the caller's.
pub async fn run_on(
    pool: &Pool,
    handler: impl Into<Handling<'_>>,
    tasks: &mut [Task],
) -> Result<HashMap<i64, Fate>, Trouble> {
    let batch = Batch { queue: QUEUE, role: ROLE, handler: handler.into(), repeated: 0 };
    batch.run(pool, tasks).await
}

fn count(fates: &HashMap<i64, Fate>, of: impl Fn(Fate) -> bool) -> usize {
    fates.values().filter(|fate| of(**fate)).count()
}

pub fn is_done(fate: Fate) -> bool {
    matches!(fate, Fate::Done(_))
}

#[tokio::test]
async fn i04_a_batch_closes_what_is_unpaid_and_settles_every_task() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=10).await?;
    let mut tasks = lab.publish(1..=10).await?;
    for paid in [2, 5, 9] {
        assert!(lab.pay(paid).await?);
    }
    let fates = lab.run(&lab.close_order().await?, &mut tasks).await.expect("no trouble");
    assert_eq!((count(&fates, is_done), count(&fates, |f| f == Fate::Skipped)), (7, 3));
    assert_eq!((lab.count("done").await?, lab.count("skipped").await?), (7, 3));
    assert_eq!((lab.count_orders("closed").await?, lab.count_orders("paid").await?), (7, 3));
    assert_eq!(lab.number("select count(*) from dueline.due").await?, 0);
    assert_eq!(
        lab.number("select count(*) from dueline.dedupe").await?,
        7,
        "skipped keys are free"
    );
    let kept = "select count(*) from dueline.task where (state = 'skipped') = (fence is not null)";
    assert_eq!(lab.number(kept).await?, 10, "only a skipped task may open again");
    let stamped =
        "select count(*) from dueline.task where published_at is not null and attempt = 0";
    assert_eq!(lab.number(stamped).await?, 10);
    assert_eq!(
        lab.number("select count(*) from dueline.task_event where step <> 'schedule'").await?,
        0
    );
    Ok(())
}

#[tokio::test]
async fn i02_the_same_messages_again_change_nothing() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=10).await?;
    let mut tasks = lab.publish(1..=10).await?;
    let handler = lab.close_order().await?;
    lab.run(&handler, &mut tasks).await.expect("no trouble");
    let before = lab.snapshot().await?;
    let fates = lab.run(&handler, &mut tasks).await.expect("no trouble");
    assert_eq!(count(&fates, |fate| fate == Fate::Stale), 10);
    assert_eq!(lab.snapshot().await?, before);
    let stopped = "select sum(n)::bigint from dueline.duplicate_stop where layer = 'guard'";
    assert_eq!(lab.number(stopped).await?, 10);
    Ok(())
}

#[tokio::test]
async fn v09_every_part_of_the_guard_is_needed() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let good = lab.publish(1..=1).await?.remove(0);
    let handler = lab.close_order().await?;
    let before = lab.snapshot().await?;
    type Change = fn(&mut Task);
    let wrong: [(&str, Change); 4] = [
        ("id", |task| task.id += 1),
        ("key hash", |task| task.key_hash = KeyHash::new(QUEUE, KIND, "other")),
        ("generation", |task| task.generation -= 1),
        ("attempt", |task| task.attempt += 1),
    ];
    for (part, change) in wrong {
        let mut task = good.clone();
        change(&mut task);
        let mut tasks = [task];
        let fates = lab.run(&handler, &mut tasks).await.expect("no trouble");
        assert_eq!(fates[&tasks[0].id], Fate::Stale, "{part}");
        assert_eq!(lab.snapshot().await?, before, "{part}");
    }
    lab.cancel(KIND, 1).await?;
    let fates = lab.run(&handler, &mut [good.clone()]).await.expect("no trouble");
    assert_eq!(fates[&good.id], Fate::Stale, "state");
    assert_eq!(lab.count_orders("unpaid").await?, 1);
    Ok(())
}

#[tokio::test]
async fn v04_a_message_from_before_a_reschedule_does_nothing() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let mut tasks = lab.publish(1..=1).await?;
    lab.reschedule(KIND, 1, Duration::from_secs(3_600)).await?;
    let fates = lab.run(&lab.close_order().await?, &mut tasks).await.expect("no trouble");
    assert_eq!(fates[&tasks[0].id], Fate::Stale);
    assert_eq!(lab.count_orders("unpaid").await?, 1);
    Ok(())
}

#[tokio::test]
async fn v03_an_early_message_returns_its_alarm_and_costs_nothing() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    lab.schedule(KIND, 1..=1, Duration::from_secs(60)).await?;
    let mut tasks = lab.claim().await?;
    let fence = lab.number("select fence::bigint from dueline.due").await?;
    let fates = lab.run(&lab.close_order().await?, &mut tasks).await.expect("no trouble");
    assert_eq!(fates[&tasks[0].id], Fate::Early);
    let task = lab.task(KIND, 1).await?.context("the task")?;
    assert_eq!((task.state.as_str(), task.attempt, task.leased), ("live", 0, false));
    assert_eq!(lab.number("select fence::bigint from dueline.due").await?, fence + 1);
    let not_early =
        "select count(*) from dueline.due join dueline.task t using (id) where next_at >= t.due_at";
    assert_eq!(lab.number(not_early).await?, 1);
    assert_eq!(lab.number("select count(*) from dueline.dedupe").await?, 0);
    assert_eq!(lab.count_orders("unpaid").await?, 1);
    Ok(())
}

#[tokio::test]
async fn h37_a_key_that_is_finished_settles_its_live_task_without_an_effect() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=2).await?;
    let mut tasks = lab.publish(1..=2).await?;
    sqlx::query(
        "insert into dueline.dedupe (key_hash, finished_at, generation, attempt, outcome)
         values ($1, clock_timestamp(), 0, 0, 'done')",
    )
    .bind(tasks[0].key_hash.as_uuid())
    .execute(&lab.bench.pool)
    .await?;
    let known = tasks[0].id;
    let fates = lab.run(&lab.close_order().await?, &mut tasks).await.expect("no trouble");
    assert_eq!(fates[&known], Fate::Known);
    assert_eq!((lab.count("done").await?, lab.count_orders("closed").await?), (2, 1));
    assert_eq!(lab.number("select count(*) from dueline.due").await?, 0);
    assert_eq!(
        lab.number("select count(*) from dueline.task_event where step = 'settle'").await?,
        1
    );
    Ok(())
}

#[tokio::test]
async fn s05_a_locked_task_counts_as_moved_and_holds_up_no_other() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=5).await?;
    let mut tasks = lab.publish(1..=5).await?;
    let locked = tasks[2].id;
    let mut other = lab.bench.pool.begin().await?;
    sqlx::query("select from dueline.task where id = $1 for update")
        .bind(locked)
        .execute(&mut *other)
        .await?;
    let handler = lab.close_order().await?;
    let fates = lab.run(&handler, &mut tasks).await.expect("no trouble");
    assert_eq!((count(&fates, is_done), fates[&locked]), (4, Fate::Moved));
    assert_eq!(
        lab.count_orders("closed").await?,
        4,
        "its effect was rolled back with the first run"
    );
    other.rollback().await?;
    let fates = lab.run(&handler, &mut tasks).await.expect("no trouble");
    assert!(is_done(fates[&locked]));
    assert_eq!((lab.count("done").await?, lab.count_orders("closed").await?), (5, 5));
    Ok(())
}

#[tokio::test]
async fn h19_a_cancel_between_effect_and_settle_undoes_the_effect() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=3).await?;
    let mut tasks = lab.publish(1..=3).await?;
    let cancelled = tasks.iter().find(|task| task.key == "2").context("its message")?.id;
    // The handler's own statement lets the cancel in: it commits after the effect, before the settle.
    let handler = CancelMeanwhile { pool: lab.bench.pool.clone() };
    let fates = lab.run(&handler, &mut tasks).await.expect("no trouble");
    assert_eq!((count(&fates, is_done), fates[&cancelled]), (2, Fate::Moved));
    assert_eq!((lab.count("cancelled").await?, lab.count_orders("closed").await?), (1, 2));
    Ok(())
}

/// The effect of a handler in Rust: closes the orders of these tasks.
pub async fn close_in_code(connection: &mut sqlx::PgConnection, tasks: &[Task]) {
    let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
    let close = "update orders set status = 'closed', times = times + 1 where id::text = any ($1)";
    sqlx::query(close).bind(keys).execute(connection).await.expect("they can be closed");
}

/// Cancels the task of order 2 after the effect.
struct CancelMeanwhile {
    pool: Pool,
}

#[async_trait::async_trait]
impl Effect for CancelMeanwhile {
    async fn apply(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, Trouble> {
        close_in_code(connection, tasks).await;
        sqlx::query("select dueline.cancel($1, '2')")
            .bind(KIND)
            .execute(&self.pool)
            .await
            .expect("a cancel waits for nobody here");
        Ok(vec![Verdict::Done; tasks.len()])
    }
}

#[tokio::test]
async fn h09_two_consumers_with_the_same_messages_act_once() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=500).await?;
    let tasks = lab.publish(1..=500).await?;
    let handler = lab.close_order().await?;
    let (ours, mut theirs, again) = (tasks.clone(), tasks.clone(), tasks);
    theirs.reverse();
    let (a, b) = tokio::join!(persist(&lab, &handler, ours), persist(&lab, &handler, theirs));
    let (a, b) = (a?, b?);
    assert_eq!(count(&a, is_done) + count(&b, is_done), 500);
    assert_eq!(lab.count("done").await?, 500);
    assert_eq!(lab.number("select count(*) from orders where times = 1").await?, 500);
    // Who came second found the keys taken and the rows settled: the next look says stale.
    let again = persist(&lab, &handler, again).await?;
    assert_eq!(count(&again, |fate| fate == Fate::Stale), 500);
    Ok(())
}

/// Runs a batch again while the other one makes it wait for longer than its lock timeout.
async fn persist(
    lab: &Lab,
    handler: &SqlHandler,
    mut tasks: Vec<Task>,
) -> Result<HashMap<i64, Fate>> {
    for _ in 0..100 {
        match lab.run(handler, &mut tasks).await {
            Ok(fates) => return Ok(fates),
            Err(Trouble::Environment { .. }) => {}
            Err(other) => anyhow::bail!("{other:?}"),
        }
    }
    anyhow::bail!("the other batch never ends")
}

#[tokio::test]
async fn t01_lateness_is_measured_by_the_databases_clock() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let mut tasks = lab.publish(1..=1).await?;
    let fates = lab.run(&lab.close_order().await?, &mut tasks).await.expect("no trouble");
    let Fate::Done(at) = fates[&tasks[0].id] else { panic!("done expected") };
    let stored: Timestamptz = sqlx::query_scalar("select finished_at from dueline.task")
        .fetch_one(&lab.bench.pool)
        .await?;
    assert_eq!(at, stored.0);
    assert!(at > tasks[0].due_at && at > Micros(0));
    Ok(())
}
