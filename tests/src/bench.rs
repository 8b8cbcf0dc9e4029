//! A database with a shop in it.

use std::ops::{Deref, RangeInclusive};
use std::time::Duration;

use anyhow::Result;
use dueline_testkit::database::TestDatabase;
use dueline_testkit::wait;

/// The business tables, and the rights that a handler's role needs on them.
const BUSINESS: &str = "
create table orders (
    id         bigint primary key,
    status     text not null default 'unpaid' check (status in ('unpaid', 'paid', 'closed')),
    closed_at  timestamptz,
    times      integer not null default 0
);
grant select, update on orders to dueline_handler;
";

/// A task's row as tests look at it.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Task {
    /// Its id.
    pub id: i64,
    /// `live`, `done`, `skipped`, `cancelled` or `dead`.
    pub state: String,
    /// Its generation.
    pub generation: i32,
    /// Failed attempts.
    pub attempt: i32,
    /// Its tier.
    pub tier: String,
    /// The last error.
    pub last_error: Option<String>,
    /// Whether its alarm is leased: published.
    pub leased: bool,
}

/// A test's database with a table `orders`; it derefs to [`TestDatabase`].
#[derive(Debug)]
pub struct Bench {
    database: TestDatabase,
}

impl Deref for Bench {
    type Target = TestDatabase;

    fn deref(&self) -> &TestDatabase {
        &self.database
    }
}

impl Bench {
    /// A new database with the migrations and the business tables; no queue or kind is applied yet.
    ///
    /// # Errors
    /// When there is no cluster: see [`TestDatabase::new`].
    pub async fn new() -> Result<Self> {
        Self::on(TestDatabase::new().await?).await
    }

    /// The same in a cluster of the test's own, which it may then stop.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn in_cluster(admin_url: &str) -> Result<Self> {
        Self::on(TestDatabase::create(admin_url).await?).await
    }

    async fn on(database: TestDatabase) -> Result<Self> {
        sqlx::raw_sql(BUSINESS).execute(&database.pool).await?;
        Ok(Self { database })
    }

    /// Inserts unpaid orders.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn orders(&self, ids: RangeInclusive<i64>) -> Result<()> {
        let statement = "insert into orders (id) select generate_series($1::bigint, $2::bigint)";
        sqlx::query(statement).bind(ids.start()).bind(ids.end()).execute(&self.pool).await?;
        Ok(())
    }

    /// Schedules a task for each id, `delay` from now. Returns how many are new.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn schedule(
        &self,
        kind: &str,
        ids: RangeInclusive<i64>,
        delay: Duration,
    ) -> Result<i64> {
        let statement = "
            select count(*)
              from dueline.schedule_many(
                       $1,
                       array(select id::text from generate_series($2::bigint, $3::bigint) as id),
                       delays => array[$4 * interval '1 second'])
             where receipt = 'scheduled'";
        let new = sqlx::query_scalar(statement)
            .bind(kind)
            .bind(ids.start())
            .bind(ids.end())
            .bind(delay.as_secs_f64());
        Ok(new.fetch_one(&self.pool).await?)
    }

    /// Pays an order. `false`: it is closed already.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn pay(&self, id: i64) -> Result<bool> {
        let statement = "update orders set status = 'paid' where id = $1 and status = 'unpaid'";
        Ok(sqlx::query(statement).bind(id).execute(&self.pool).await?.rows_affected() == 1)
    }

    /// Cancels a task, and returns the receipt.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn cancel(&self, kind: &str, id: i64) -> Result<String> {
        let statement = "select (dueline.cancel($1, $2)).receipt";
        let receipt = sqlx::query_scalar(statement).bind(kind).bind(id.to_string());
        Ok(receipt.fetch_one(&self.pool).await?)
    }

    /// Moves a task to `delay` from now, and returns the receipt.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn reschedule(&self, kind: &str, id: i64, delay: Duration) -> Result<String> {
        let statement =
            "select (dueline.reschedule($1, $2, delay => $3 * interval '1 second')).receipt";
        let receipt =
            sqlx::query_scalar(statement).bind(kind).bind(id.to_string()).bind(delay.as_secs_f64());
        Ok(receipt.fetch_one(&self.pool).await?)
    }

    /// A task's row, if there is one.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn task(&self, kind: &str, id: i64) -> Result<Option<Task>> {
        let statement = "
            select t.id, t.state, t.generation, t.attempt, t.tier, t.last_error,
                   d.lease_until is not null as leased
              from dueline.task as t left join dueline.due as d using (id)
             where t.kind = $1 and t.key = $2";
        let task = sqlx::query_as(statement).bind(kind).bind(id.to_string());
        Ok(task.fetch_optional(&self.pool).await?)
    }

    /// How many tasks are in a state.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn count(&self, state: &str) -> Result<i64> {
        let statement = "select count(*) from dueline.task where state = $1";
        Ok(sqlx::query_scalar(statement).bind(state).fetch_one(&self.pool).await?)
    }

    /// How many orders are in a status.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn count_orders(&self, status: &str) -> Result<i64> {
        let statement = "select count(*) from orders where status = $1";
        Ok(sqlx::query_scalar(statement).bind(status).fetch_one(&self.pool).await?)
    }

    /// Waits until so many tasks are in a state.
    ///
    /// # Errors
    /// When they are not within `timeout`.
    pub async fn await_count(&self, state: &str, n: i64, timeout: Duration) -> Result<()> {
        let what = format!("{n} tasks to be {state}");
        wait::until(&what, timeout, async || Ok(self.count(state).await? == n)).await
    }

    /// Waits until one task is in a state.
    ///
    /// # Errors
    /// When it is not within `timeout`.
    pub async fn await_state(
        &self,
        kind: &str,
        id: i64,
        state: &str,
        timeout: Duration,
    ) -> Result<Task> {
        let what = format!("task {kind} of {id} to be {state}");
        wait::some(&what, timeout, async || {
            Ok(self.task(kind, id).await?.filter(|task| task.state == state))
        })
        .await
    }

    /// Waits until no task is live.
    ///
    /// # Errors
    /// When one still is after `timeout`.
    pub async fn await_quiet(&self, timeout: Duration) -> Result<()> {
        self.await_count("live", 0, timeout).await
    }
}
