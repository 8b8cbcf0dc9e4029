//! Scenario `schedule`: scheduling alone, beside plain inserts by the same clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_store::Pool;
use dueline_store::client::{self, Deadline, ScheduleMany, ScheduleRequest};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::Bench;
use crate::judge::Judgement;
use crate::load;
use crate::report::{Bound, Outcome};
use crate::settings::KIND;
use crate::stage::{Setup, Stage};

/// Nothing becomes due while this is measured.
const DELAY: Duration = Duration::from_secs(3_600);

/// What a client calls again and again.
#[derive(Clone, Copy, Debug)]
enum Call {
    One,
    Many,
    PlainOne,
    PlainMany,
}

/// A comparison: its name, how many clients, and the two calls.
const COMPARISONS: [(&str, usize, Call, Call); 3] = [
    ("1", 1, Call::One, Call::PlainOne),
    ("16", 16, Call::One, Call::PlainOne),
    ("many", 2, Call::Many, Call::PlainMany),
];

/// Measures it.
pub(crate) async fn run(bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("schedule");
    let (time, repeats) = (bench.options.seconds(3, 2), bench.options.repeats());
    for repeat in 1..=repeats {
        let stage = Stage::set(bench, Setup::default()).await?;
        sqlx::raw_sql(include_str!("../../sql/plain_table.sql")).execute(&stage.pool).await?;
        let (mut next, mut scheduled) = (1, 0);
        for (name, clients, ours, plain) in COMPARISONS {
            bench
                .progress
                .say(&format!("schedule {repeat} of {repeats}: {clients} clients, {ours:?}"));
            let mut calls = [(ours, "tasks"), (plain, "plain")];
            // Whoever comes second finds other caches: take turns.
            if repeat % 2 == 0 {
                calls.reverse();
            }
            for (call, label) in calls {
                let done = repeat_call(&stage.pool, call, clients, time, &mut next).await?;
                outcome.measure(format!("{label}_{name}_per_s"), "/s", done.per_second());
                if matches!(call, Call::One | Call::Many) {
                    scheduled += done.rows;
                }
            }
        }
        let tasks: i64 =
            sqlx::query_scalar(include_str!("../../sql/tasks.sql")).fetch_one(&stage.pool).await?;
        let losses = (scheduled - tasks).max(0);
        outcome.judged(Judgement { losses, duplicates: (tasks - scheduled).max(0), early: 0 });
        stage.close(bench).await?;
    }
    for name in ["1", "16"] {
        let ratio = outcome.ratio(&format!("tasks_{name}_per_s"), &format!("plain_{name}_per_s"));
        outcome.goal(format!("schedule_vs_insert_{name}"), ratio, Bound::AtLeast(0.6));
    }
    Ok(outcome)
}

/// What some clients did.
struct Done {
    /// All of it.
    rows: i64,
    /// What was done in the measured time.
    timed: i64,
    took: Duration,
}

impl Done {
    #[allow(clippy::cast_precision_loss)]
    fn per_second(&self) -> f64 {
        self.timed as f64 / self.took.as_secs_f64()
    }
}

/// Repeats a call with some clients for a while, each with keys that nobody else has.
async fn repeat_call(
    pool: &Pool,
    call: Call,
    clients: usize,
    time: Duration,
    next: &mut i64,
) -> Result<Done> {
    let keys = Arc::new(AtomicI64::new(*next));
    let mut set = JoinSet::new();
    // Each client prepares its statements before the clock starts.
    let ready = Arc::new(tokio::sync::Barrier::new(clients + 1));
    let step = if matches!(call, Call::One | Call::PlainOne) { 1 } else { load::BATCH };
    let rows = Arc::new(AtomicI64::new(0));
    for _ in 0..clients {
        let (pool, keys) = (pool.clone(), Arc::clone(&keys));
        let (ready, rows) = (Arc::clone(&ready), Arc::clone(&rows));
        set.spawn(async move {
            let mut connection = pool.acquire().await?;
            let mut once = async || {
                let first = keys.fetch_add(step, Ordering::Relaxed);
                perform(&mut connection, call, first).await?;
                rows.fetch_add(step, Ordering::Relaxed);
                anyhow::Ok(())
            };
            once().await?;
            ready.wait().await;
            let end = Instant::now() + time;
            while Instant::now() < end {
                once().await?;
            }
            Ok(())
        });
    }
    ready.wait().await;
    let began = Instant::now();
    load::finish(set).await?;
    let took = began.elapsed();
    *next = keys.load(Ordering::Relaxed);
    let rows = rows.load(Ordering::Relaxed);
    let timed = rows - i64::try_from(clients)? * step;
    ensure!(timed > 0, "no call came to its end within {time:?}");
    Ok(Done { rows, timed, took })
}

async fn perform(connection: &mut sqlx::PgConnection, call: Call, first: i64) -> Result<()> {
    let keys = || (first..first + load::BATCH).map(|id| id.to_string()).collect::<Vec<_>>();
    match call {
        Call::One => {
            let request = ScheduleRequest::new(KIND, first.to_string(), Deadline::after(DELAY));
            client::schedule(connection, &request).await?;
        }
        Call::Many => {
            let (kind, delays) = (KIND.to_owned(), vec![DELAY]);
            let request = ScheduleMany { kind, keys: keys(), delays, ..ScheduleMany::default() };
            client::schedule_many(connection, &request).await?;
        }
        Call::PlainOne => {
            let insert = sqlx::query(include_str!("../../sql/plain_one.sql"));
            insert.bind(first.to_string()).execute(connection).await?;
        }
        Call::PlainMany => {
            let insert = sqlx::query(include_str!("../../sql/plain_many.sql"));
            insert.bind(keys()).execute(connection).await?;
        }
    }
    Ok(())
}
