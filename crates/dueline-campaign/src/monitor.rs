//! Watches while the campaign runs: the backlog, for people and for each fault's recovery, and V7, which
//! nothing can break any more once everything is at rest.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use dueline_testkit::checker::{self, Places};
use sqlx::PgPool;
use tokio::time::{Instant, timeout};

use crate::clock;
use crate::evidence::Archive;
use crate::nemesis::FaultLog;

/// How often it looks: the resolution of recovery times.
const LOOK: Duration = Duration::from_millis(200);
/// How often it tells.
const TELL: Duration = Duration::from_secs(5);
/// The most that a look may take: a database that is away is looked at again.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two looks at V7.
const PROBE: Duration = Duration::from_secs(4);
/// The most that a look at V7 may take.
const PROBE_PATIENCE: Duration = Duration::from_secs(15);

/// How long a group may need to notice that a topic was made anew, and to set its offsets to the new start.
const NOTICED: Duration = Duration::from_secs(10);

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

/// Looks at V7 until it is dropped. A look that fails, or during which topics or offsets are worked on by
/// hand, shows nothing.
pub async fn probe(pool: PgPool, places: Places, archive: Arc<Archive>, log: Arc<FaultLog>) {
    let mut former = checker::FormerOffsets::default();
    loop {
        tokio::time::sleep(PROBE).await;
        let began = clock::now();
        if log.disturbed_offsets(began) {
            continue;
        }
        former.remade = log.remade_topics(began.minus(NOTICED));
        let look = checker::probe(&pool, &places, &mut former);
        let found = timeout(PROBE_PATIENCE, look).await;
        if let Ok(Ok(found)) = found
            && !log.disturbed_offsets(began)
        {
            archive.note_probe(found);
        }
    }
}
