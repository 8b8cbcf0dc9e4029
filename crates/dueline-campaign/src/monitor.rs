//! Watches the backlog while the campaign runs: progress for people, recovery for each fault.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use sqlx::PgPool;
use tokio::time::{Instant, timeout};

use crate::clock;
use crate::nemesis::FaultLog;

/// How often it looks: the resolution of recovery times.
const LOOK: Duration = Duration::from_millis(200);
/// How often it tells.
const TELL: Duration = Duration::from_secs(5);
/// The most that a look may take: a database that is away is looked at again.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a look shows.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
pub struct Backlog {
    /// Live tasks.
    pub live: i64,
    /// Live tasks whose deadline is over.
    pub overdue: i64,
    /// The deadline of the oldest live task that has not failed yet.
    pub oldest: Option<i64>,
}

/// Looks once.
///
/// # Errors
/// When the database does not answer in time.
pub async fn look(pool: &PgPool) -> Result<Backlog> {
    let look = sqlx::query_as(include_str!("../sql/outcome/oldest.sql")).fetch_one(pool);
    Ok(timeout(PATIENCE, look).await??)
}

/// Looks and tells until it is dropped.
pub async fn watch(pool: PgPool, log: Arc<FaultLog>, began: Instant) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next_line = Instant::now() + TELL;
    loop {
        ticks.tick().await;
        let at = clock::now();
        let backlog = look(&pool).await.ok();
        if let Some(backlog) = backlog {
            // As of the question: what was finished later was open then, at worst.
            log.note_progress(backlog.oldest.map(Micros), at);
        }
        if Instant::now() >= next_line {
            tell(backlog, &log, began);
            next_line = Instant::now() + TELL;
        }
    }
}

fn tell(backlog: Option<Backlog>, log: &FaultLog, began: Instant) {
    let (healed, running) = log.counts();
    let tasks = match backlog {
        Some(b) => format!("{} live, {} overdue", b.live, b.overdue),
        None => "the database is away".to_owned(),
    };
    let seconds = began.elapsed().as_secs();
    eprintln!("[{seconds:4} s] faults: {healed} healed, {running} now; tasks: {tasks}");
}
