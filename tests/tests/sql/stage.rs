//! A database with two queues, two kinds and their lanes, and tasks put into any phase.

use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;
use dueline_store::client::{self, Deadline, Receipt, ScheduleRequest};
use dueline_tests::Bench;
use serde_json::Value;

/// A kind whose effect is in this database.
pub const HERE: &str = "close_order";
/// A kind whose effect is elsewhere.
pub const ELSEWHERE: &str = "refund";
/// A kind that another team handles, which need not begin.
pub const TEAM: &str = "charge";
/// The queue of all three.
pub const QUEUE: &str = "orders";
/// Half an hour.
pub const HALF_HOUR: Duration = Duration::from_secs(1_800);

const CONFIGURED: &str = "
insert into dueline.queue (name, slots, consumer_group) values ('orders', 4, 'orders'), ('mail', 1, 'mail');
insert into dueline.tier (queue, name, rank, max_delay)
select q.name, t.name, t.rank, t.seconds * interval '1 second'
from dueline.queue q,
     (values ('10s', 1, 10), ('1m', 2, 60), ('10m', 3, 600), ('1h', 4, 3600), ('1d', 5, 86400),
             ('7d', 6, 604800), ('90d', 7, 7776000)) t (name, rank, seconds);
insert into dueline.lane (queue, tier, slot)
select t.queue, t.name, s
from dueline.tier t join dueline.queue q on q.name = t.queue, generate_series(0, q.slots - 1) s;
insert into dueline.kind (name, queue, effect, backoff_ms, max_payload_bytes, age_limit)
values ('close_order', 'orders', 'here', '{3000,10000,30000}', 8192, '1 day'),
       ('refund', 'orders', 'elsewhere', '{3000,10000,30000}', 8192, '1 day'),
       ('charge', 'orders', 'team', '{3000,10000,30000}', 8192, '1 day'),
       ('remind', 'mail', 'here', '{3000,10000,30000}', 8192, '1 day');
";

/// Where a task can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its alarm waits.
    Waiting,
    /// Published.
    Leased,
    /// Its alarm waits for the second try.
    Retry,
    /// The effect happened.
    Done,
    /// There was nothing to do.
    Skipped,
    /// Cancelled.
    Cancelled,
    /// Dead and stranded.
    Dead,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Leased,
        Self::Retry,
        Self::Done,
        Self::Skipped,
        Self::Cancelled,
        Self::Dead,
    ];

    /// What relay and consumer would write to a task whose alarm waits.
    fn statement(self) -> &'static str {
        match self {
            Self::Waiting => "select $1::bigint",
            Self::Leased => {
                "update dueline.due
                 set lease_until = clock_timestamp() + interval '1 minute',
                     claimed_at = clock_timestamp(), claim_epoch = 1, claim_no = claim_no + 1,
                     fence = fence + 1
                 where id = $1"
            }
            Self::Retry => {
                "with d as (update dueline.due set attempt = 1, fence = fence + 2, claim_no = 1,
                                   next_at = clock_timestamp() + interval '3 seconds'
                            where id = $1 returning id)
                 update dueline.task t set attempt = 1, last_error = 'timeout' from d where t.id = d.id"
            }
            Self::Done => {
                "with d as (delete from dueline.due where id = $1 returning id)
                 update dueline.task t set state = 'done', finished_at = clock_timestamp()
                 from d where t.id = d.id"
            }
            Self::Skipped => {
                "with d as (delete from dueline.due where id = $1 returning id, fence)
                 update dueline.task t
                 set state = 'skipped', finished_at = clock_timestamp(), fence = d.fence + 1
                 from d where t.id = d.id"
            }
            Self::Cancelled => {
                "with d as (delete from dueline.due where id = $1 returning id, fence)
                 update dueline.task t
                 set state = 'cancelled', finished_at = clock_timestamp(), generation = t.generation + 1,
                     fence = d.fence + 1
                 from d where t.id = d.id"
            }
            Self::Dead => {
                "with d as (delete from dueline.due where id = $1 returning id, fence),
                 t as (update dueline.task t
                       set state = 'dead', generation = t.generation + 1, attempt = 4,
                           finished_at = clock_timestamp(), fence = d.fence + 1, last_error = 'timeout'
                       from d where t.id = d.id returning t.*)
                 insert into dueline.stranded (id, queue, kind, key, generation, attempts, reason, error)
                 select t.id, 'orders', t.kind, t.key, t.generation, t.attempt, 'exhausted', 'timeout'
                 from t"
            }
        }
    }
}

/// The database; it derefs to [`Bench`].
pub struct Stage {
    bench: Bench,
}

impl Deref for Stage {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl Stage {
    /// A new one.
    pub async fn new() -> Result<Self> {
        let bench = Bench::new().await?;
        sqlx::raw_sql(CONFIGURED).execute(&bench.pool).await?;
        Ok(Self { bench })
    }

    /// Schedules a task half an hour from now.
    pub async fn plan(&self, kind: &str, key: &str) -> Result<Receipt> {
        let request = ScheduleRequest::new(kind, key, Deadline::after(HALF_HOUR));
        Ok(client::schedule(&self.pool, &request).await?)
    }

    /// A new task in a phase; its id.
    pub async fn task_in(&self, kind: &str, key: &str, phase: Phase) -> Result<i64> {
        let id = self.plan(kind, key).await?.id.expect("a task");
        self.put(id, phase).await?;
        Ok(id)
    }

    /// Puts a task whose alarm waits into a phase, as relay and consumer would.
    pub async fn put(&self, id: i64, phase: Phase) -> Result<()> {
        sqlx::query(phase.statement()).bind(id).execute(&self.pool).await?;
        Ok(())
    }

    /// Everything that is stored of a task, as JSON: its row, alarm, stranded row and number of events.
    pub async fn picture(&self, id: i64) -> Result<Value> {
        let statement = "
            select jsonb_build_object(
                'task', (select to_jsonb(t) from dueline.task t where t.id = $1),
                'due', (select to_jsonb(d) from dueline.due d where d.id = $1),
                'stranded', (select to_jsonb(s) from dueline.stranded s where s.id = $1),
                'events', (select count(*) from dueline.task_event e where e.task_id = $1))";
        Ok(sqlx::query_scalar(statement).bind(id).fetch_one(&self.pool).await?)
    }

    /// The task's fence, wherever it stands now.
    pub async fn fence(&self, id: i64) -> Result<i32> {
        let statement = "
            select coalesce(d.fence, t.fence)
            from dueline.task t left join dueline.due d using (id) where t.id = $1";
        Ok(sqlx::query_scalar(statement).bind(id).fetch_one(&self.pool).await?)
    }

    /// One value of the database.
    pub async fn ask<T>(&self, statement: &'static str) -> Result<T>
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        Ok(sqlx::query_scalar(statement).fetch_one(&self.pool).await?)
    }
}

/// The SQLSTATE of what must have been refused, and the whole error text.
pub fn refusal<T: std::fmt::Debug>(
    result: Result<T, dueline_store::StoreError>,
) -> (String, String) {
    let error = result.expect_err("must be refused");
    let hint = match &error {
        dueline_store::StoreError::Sqlx(sqlx::Error::Database(e)) => e
            .downcast_ref::<sqlx::postgres::PgDatabaseError>()
            .hint()
            .unwrap_or_default()
            .to_owned(),
        _ => String::new(),
    };
    (error.sqlstate().unwrap_or_default(), format!("{error} {hint}"))
}
