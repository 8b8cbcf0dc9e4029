//! A database with lanes and alarms laid out by hand, and a relay that is registered and owns them.

use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use dueline_store::relay::{self, BEGINNING, Claimed, Cursor, Heartbeat, Round, Span};
use dueline_tests::Bench;

/// A lease that does not end within a test.
pub const LEASE: Duration = Duration::from_secs(60);
/// Later than everything.
pub const NO_END: Micros = Micros(i64::MAX);

const CONFIGURED: &str = "
insert into dueline.queue (name, slots, consumer_group) values ('orders', 4, 'orders');
insert into dueline.tier (queue, name, rank, max_delay)
values ('orders', 'fast', 1, '1 minute'), ('orders', 'slow', 2, '90 days');
insert into dueline.lane (queue, tier, slot)
select 'orders', t, s from unnest(array['fast', 'slow']) t, generate_series(0, 3) s;
insert into dueline.kind (name, queue, effect, backoff_ms, max_payload_bytes, age_limit)
values ('close_order', 'orders', 'here', '{3000,10000,30000}', 8192, '1 day');
";

/// It derefs to [`Bench`].
pub struct Ground {
    bench: Bench,
    /// The relay that owns every lane.
    pub epoch: i64,
    /// The lanes: four of tier `fast`, four of tier `slow`.
    pub lanes: Vec<i32>,
}

impl Deref for Ground {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl Ground {
    /// A new one.
    pub async fn new() -> Result<Self> {
        let bench = Bench::new().await?;
        sqlx::raw_sql(CONFIGURED).execute(&bench.pool).await?;
        let epoch = relay::register(&bench.pool, "one", "0").await?;
        let lanes: Vec<i32> =
            relay::lanes(&bench.pool).await?.into_iter().map(|lane| lane.lane).collect();
        let taken = relay::take_free(&bench.pool, epoch, &lanes, lanes.len()).await?;
        assert_eq!(taken.len(), lanes.len());
        Ok(Self { bench, epoch, lanes })
    }

    /// Lays `count` alarms into a lane, the first ringing `ahead_ms` from now, each a millisecond
    /// after the one before. Returns their ids in that order.
    pub async fn lay(&self, lane: i32, count: i64, ahead_ms: i64) -> Result<Vec<i64>> {
        let statement = "
            with t as (
                insert into dueline.task (key_hash, due_at, kind, key, tier, payload)
                select gen_random_uuid(), clock_timestamp() + ($3 + n) * interval '1 millisecond',
                       'close_order', gen_random_uuid()::text, 'fast', '{\"n\": 1}'
                from generate_series(0, $2 - 1) n returning id, due_at)
            insert into dueline.due (id, next_at, lane, generation, attempt)
            select id, due_at, $1, 0, 0 from t returning id";
        let query = sqlx::query_scalar(statement).bind(lane).bind(count).bind(ahead_ms);
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// Cursors at the beginning of these lanes.
    pub fn beginning(&self, lanes: &[i32]) -> Vec<Cursor> {
        lanes.iter().map(|lane| Cursor { lane: *lane, at: BEGINNING, id: i64::MIN }).collect()
    }

    /// A claim over all lanes from their beginning.
    pub async fn claim(&self, budget: usize) -> Result<Round> {
        self.claim_as(self.epoch, budget, LEASE).await
    }

    /// The same as another relay, or with another lease.
    pub async fn claim_as(&self, epoch: i64, budget: usize, lease: Duration) -> Result<Round> {
        let cursors = self.beginning(&self.lanes);
        Ok(relay::claim(&self.pool, epoch, &cursors, budget, lease, NO_END).await?)
    }

    /// Lays one alarm that is due and claims it.
    pub async fn claimed(&self) -> Result<Claimed> {
        self.lay(self.lanes[0], 1, -1_000).await?;
        let round = self.claim(1).await?;
        Ok(round.claimed[0])
    }

    /// Whole lanes, for a sweep.
    pub fn spans(&self) -> Vec<Span> {
        let cursors = self.beginning(&self.lanes);
        cursors.into_iter().map(|cursor| Span { cursor, upto: NO_END }).collect()
    }

    /// Changes an alarm by hand: `set` is the part of an UPDATE after `set`.
    pub async fn change_due(&self, id: i64, set: &'static str) -> Result<()> {
        let statement = format!("update dueline.due set {set} where id = $1");
        let statement = sqlx::AssertSqlSafe(statement);
        let done = sqlx::query(statement).bind(id).execute(&self.pool).await?;
        assert_eq!(done.rows_affected(), 1);
        Ok(())
    }

    /// The business moves a task an hour away.
    pub async fn move_away(&self, id: i64) -> Result<()> {
        let statement = "
            with t as (
                update dueline.task
                set generation = generation + 1, due_at = clock_timestamp() + '1 hour'
                where id = $1 returning id, due_at, generation)
            update dueline.due d
            set next_at = t.due_at, generation = t.generation, lease_until = null,
                claimed_at = null,
                claim_epoch = null, extensions = 0, fence = d.fence + 1
            from t where d.id = t.id";
        sqlx::query(statement).bind(id).execute(&self.pool).await?;
        Ok(())
    }

    /// How many alarms are leased.
    pub async fn leased(&self) -> Result<i64> {
        let statement = "select count(*) from dueline.due where lease_until is not null";
        Ok(sqlx::query_scalar(statement).fetch_one(&self.pool).await?)
    }

    /// The alarm of a task: its fence, and whether it is leased.
    pub async fn alarm(&self, id: i64) -> Result<(i32, bool)> {
        let statement = "select fence, lease_until is not null from dueline.due where id = $1";
        Ok(sqlx::query_as(statement).bind(id).fetch_one(&self.pool).await?)
    }
}

/// A heartbeat with nothing to say.
pub fn beat() -> Heartbeat {
    Heartbeat {
        watermark: BEGINNING,
        confirmed_upto: BEGINNING,
        exceptions: Vec::new(),
        cannot_produce: None,
    }
}
