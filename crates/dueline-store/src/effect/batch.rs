//! One batch, one transaction: dedupe → business rows → task → due.

use std::collections::{HashMap, HashSet};

use dueline_core::Micros;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use uuid::Uuid;

use super::handler::{Effect, Failure, Task, Trouble, Verdict};
use crate::{Pool, StoreError, Timestamptz};

/// How often a batch is run again without the tasks that moved.
const MAX_RUNS: usize = 3;
/// How often the fate of a COMMIT is asked for.
const MAX_LOOKUPS: usize = 3;

/// What became of a task whose batch was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The effect happened now, at this instant of the database's clock.
    Done(Micros),
    /// Its condition did not hold.
    Skipped,
    /// Its key was finished by an earlier effect; the live row is settled from that.
    Known,
    /// The message no longer speaks of the row's present try.
    Stale,
    /// The database's clock says not yet: the alarm is returned.
    Early,
    /// Somebody else holds the row, or changed it meanwhile: look again a little later.
    Moved,
}

/// What a batch of tasks of one kind is run with. At most one task per id.
pub struct Batch<'a> {
    /// The queue, for the count of duplicates.
    pub queue: &'a str,
    /// The role that the handler runs as.
    pub role: &'a str,
    /// The handler.
    pub effect: &'a dyn Effect,
    /// Duplicates that the caller took out of this batch already.
    pub repeated: usize,
}

/// How a run of the transaction ended when nothing was in trouble.
enum Run {
    Committed(HashMap<i64, Fate>),
    /// Rolled back: these must be left out.
    Moved(Vec<i64>),
}

/// What step 1 and 2 said of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Admission {
    Ready,
    Known,
    Early,
    Stale,
}

impl Batch<'_> {
    /// Runs the transaction and answers the fate of every task, by id. `tasks` are put into another order.
    ///
    /// # Errors
    /// [`Trouble`]; then nothing was written, or (a COMMIT of unknown fate) what was written makes the same
    /// tasks stale: running them again is always safe.
    pub async fn run(
        &self,
        pool: &Pool,
        tasks: &mut [Task],
    ) -> Result<HashMap<i64, Fate>, Trouble> {
        let mut moved = HashSet::new();
        for _ in 0..MAX_RUNS {
            tasks.sort_unstable_by_key(|task| moved.contains(&task.id));
            let staying = tasks.len() - moved.len();
            match self.run_once(pool, &mut tasks[..staying], moved.len()).await? {
                Run::Committed(mut fates) => {
                    fates.extend(moved.iter().map(|id| (*id, Fate::Moved)));
                    return Ok(fates);
                }
                Run::Moved(ids) => moved.extend(ids),
            }
        }
        Ok(tasks.iter().map(|task| (task.id, Fate::Moved)).collect())
    }

    async fn run_once(
        &self,
        pool: &Pool,
        tasks: &mut [Task],
        already_moved: usize,
    ) -> Result<Run, Trouble> {
        let mut tx = pool.begin().await.map_err(|e| Trouble::ours(&e.into()))?;
        let name = Uuid::new_v4().simple().to_string();
        let counts = admit(&mut tx, tasks, &name).await.map_err(|e| Trouble::ours(&e))?;
        let (ready, rest) = tasks.split_at(counts.ready);
        let (known, rest) = rest.split_at(counts.known);
        let (early, stale) = rest.split_at(counts.early);

        let verdicts = self.apply(&mut tx, ready).await?;
        let outcomes: Vec<(&Task, &'static str)> = ready
            .iter()
            .zip(&verdicts)
            .map(|(t, v)| (t, if *v == Verdict::Done { "done" } else { "skipped" }))
            .chain(known.iter().map(|t| (t, "known")))
            .collect();
        let settled = settle(&mut tx, &outcomes, &name).await?;
        let moved: Vec<i64> =
            ready.iter().map(|t| t.id).filter(|id| !settled.contains_key(id)).collect();
        if !moved.is_empty() {
            tx.rollback().await.map_err(|e| Trouble::ours(&e.into()))?;
            return Ok(Run::Moved(moved));
        }
        let stops = [
            ("batch", self.repeated),
            ("guard", stale.len()),
            ("dedupe", known.len()),
            ("settle", already_moved),
        ];
        finish(&mut tx, self.queue, early, stops).await.map_err(|e| Trouble::ours(&e))?;
        self.commit(pool, tx, ready).await?;

        let mut fates = HashMap::with_capacity(tasks.len());
        for (task, outcome) in &outcomes {
            fates.insert(task.id, fate(outcome, settled.get(&task.id).copied()));
        }
        fates.extend(early.iter().map(|t| (t.id, Fate::Early)));
        fates.extend(stale.iter().map(|t| (t.id, Fate::Stale)));
        Ok(Run::Committed(fates))
    }

    /// Step 3: the handler, as its own role.
    async fn apply(&self, tx: &mut PgConnection, ready: &[Task]) -> Result<Vec<Verdict>, Trouble> {
        if ready.is_empty() {
            return Ok(Vec::new());
        }
        let before = role(tx, self.role, "on").await.map_err(|e| Trouble::ours(&e))?;
        let verdicts = self.effect.apply(tx, ready).await?;
        if verdicts.len() != ready.len() {
            return Err(Trouble::Contract(format!(
                "the handler answered {} verdicts for {} tasks",
                verdicts.len(),
                ready.len()
            )));
        }
        let failures: Vec<_> =
            ready.iter().zip(&verdicts).filter_map(|(t, v)| Some((t.id, failure(v)?))).collect();
        if !failures.is_empty() {
            return Err(Trouble::Items(failures));
        }
        role(tx, &before, "off").await.map_err(|e| Trouble::from_handler(&e))?;
        Ok(verdicts)
    }

    /// Step 5. A constraint that was deferred by the handler speaks here; and when the connection breaks,
    /// another one is asked.
    async fn commit(
        &self,
        pool: &Pool,
        tx: Transaction<'static, Postgres>,
        settled: &[Task],
    ) -> Result<(), Trouble> {
        let Err(error) = tx.commit().await else { return Ok(()) };
        let error = StoreError::from(error);
        if !error.is_connection_lost() || settled.is_empty() {
            return Err(Trouble::from_handler(&error));
        }
        for _ in 0..MAX_LOOKUPS {
            match still_live(pool, settled).await {
                Ok(0) => return Ok(()),
                Ok(_) => break,
                Err(look_up) => tracing::warn!(error = %look_up, "a COMMIT cannot be looked up"),
            }
        }
        Err(Trouble::ours(&error))
    }
}

fn failure(verdict: &Verdict) -> Option<Failure> {
    match verdict {
        Verdict::Done | Verdict::Skipped => None,
        Verdict::Transient(error) => Some(Failure::new(error, false)),
        Verdict::Permanent(error) => Some(Failure::new(error, true)),
    }
}

fn fate(outcome: &str, settled: Option<Micros>) -> Fate {
    match (outcome, settled) {
        (_, None) => Fate::Moved,
        ("done", Some(at)) => Fate::Done(at),
        ("skipped", Some(_)) => Fate::Skipped,
        (_, Some(_)) => Fate::Known,
    }
}

/// The guards of some tasks, as columns.
pub(super) struct Guards {
    pub ids: Vec<i64>,
    pub hashes: Vec<Uuid>,
    pub generations: Vec<i32>,
    pub attempts: Vec<i32>,
    pub published: Vec<Timestamptz>,
}

impl Guards {
    pub(super) fn of<'a>(tasks: impl Iterator<Item = &'a Task> + Clone) -> Self {
        Self {
            ids: tasks.clone().map(|t| t.id).collect(),
            hashes: tasks.clone().map(|t| t.key_hash.as_uuid()).collect(),
            generations: tasks.clone().map(|t| t.generation).collect(),
            attempts: tasks.clone().map(|t| t.attempt).collect(),
            published: tasks.map(|t| t.published_at.into()).collect(),
        }
    }
}

struct Counts {
    ready: usize,
    known: usize,
    early: usize,
}

/// Steps 1 and 2. Puts the tasks into the order of [`Admission`], the ready ones sorted by key.
async fn admit(
    tx: &mut PgConnection,
    tasks: &mut [Task],
    name: &str,
) -> Result<Counts, StoreError> {
    let guards = Guards::of(tasks.iter());
    let rows: Vec<(String, String)> = sqlx::query_as(include_str!("../../sql/effect/admit.sql"))
        .bind(&guards.ids)
        .bind(&guards.hashes)
        .bind(&guards.generations)
        .bind(&guards.attempts)
        .bind(name)
        .fetch_all(tx)
        .await?;
    if rows.len() != tasks.len() {
        let (expected, actual) = (tasks.len(), rows.len());
        return Err(StoreError::Count { step: "admit", expected, actual });
    }
    let mut admissions = HashMap::with_capacity(tasks.len());
    let mut counts = Counts { ready: 0, known: 0, early: 0 };
    for ((verdict, _), id) in rows.iter().zip(&guards.ids) {
        let admission = match verdict.as_str() {
            "ready" => Admission::Ready,
            "known" => Admission::Known,
            "early" => Admission::Early,
            "stale" => Admission::Stale,
            other => return Err(StoreError::Unexpected(format!("admission {other}"))),
        };
        counts.ready += usize::from(admission == Admission::Ready);
        counts.known += usize::from(admission == Admission::Known);
        counts.early += usize::from(admission == Admission::Early);
        admissions.insert(*id, admission);
    }
    tasks.sort_unstable_by(|a, b| (admissions[&a.id], &a.key).cmp(&(admissions[&b.id], &b.key)));
    Ok(counts)
}

async fn role(tx: &mut PgConnection, role: &str, scans: &str) -> Result<String, StoreError> {
    let become_it = sqlx::query(include_str!("../../sql/effect/role.sql")).bind(role).bind(scans);
    Ok(become_it.fetch_one(tx).await?.try_get("before")?)
}

/// Step 4. Answers when each task was settled; one that is missing has moved.
async fn settle(
    tx: &mut PgConnection,
    outcomes: &[(&Task, &'static str)],
    name: &str,
) -> Result<HashMap<i64, Micros>, Trouble> {
    if outcomes.is_empty() {
        return Ok(HashMap::new());
    }
    let guards = Guards::of(outcomes.iter().map(|(task, _)| *task));
    let names: Vec<&str> = outcomes.iter().map(|(_, outcome)| *outcome).collect();
    type Settled = (i64, bool, Option<Timestamptz>);
    let rows: Vec<Settled> = sqlx::query_as(include_str!("../../sql/effect/settle.sql"))
        .bind(&guards.ids)
        .bind(&guards.hashes)
        .bind(&guards.generations)
        .bind(&guards.attempts)
        .bind(&guards.published)
        .bind(&names)
        .bind(name)
        .fetch_all(&mut *tx)
        .await
        .map_err(|e| Trouble::ours(&e.into()))?;
    if rows.is_empty() {
        same_transaction(tx, name).await?;
    }
    let mut settled = HashMap::with_capacity(rows.len());
    for (id, complete, finished_at) in rows {
        let (true, Some(at)) = (complete, finished_at) else {
            let error = StoreError::Count { step: "settle", expected: 1, actual: 0 };
            tracing::error!(id, %error, "task, alarm and key do not agree");
            return Err(Trouble::ours(&error));
        };
        settled.insert(id, at.0);
    }
    Ok(settled)
}

/// A handler that ends our transaction settles nothing: its effect stands in the dedupe table, and the
/// contract is broken.
async fn same_transaction(tx: &mut PgConnection, name: &str) -> Result<(), Trouble> {
    let same: bool = sqlx::query_scalar(include_str!("../../sql/effect/same_transaction.sql"))
        .bind(name)
        .fetch_one(tx)
        .await
        .map_err(|e| Trouble::ours(&e.into()))?;
    if same {
        return Ok(());
    }
    Err(Trouble::Contract("the handler ended the transaction it was given".to_owned()))
}

/// Returns the alarms of what came early, and counts what was stopped.
async fn finish(
    tx: &mut PgConnection,
    queue: &str,
    early: &[Task],
    stops: [(&str, usize); 4],
) -> Result<(), StoreError> {
    if !early.is_empty() {
        let guards = Guards::of(early.iter());
        sqlx::query(include_str!("../../sql/effect/early.sql"))
            .bind(&guards.ids)
            .bind(&guards.generations)
            .bind(&guards.attempts)
            .execute(&mut *tx)
            .await?;
    }
    let counted: Vec<_> = stops.into_iter().filter(|(_, n)| *n > 0).collect();
    if !counted.is_empty() {
        let layers: Vec<&str> = counted.iter().map(|(layer, _)| *layer).collect();
        let counts: Vec<i64> =
            counted.iter().map(|(_, n)| i64::try_from(*n).unwrap_or(i64::MAX)).collect();
        sqlx::query(include_str!("../../sql/effect/duplicates.sql"))
            .bind(queue)
            .bind(layers)
            .bind(counts)
            .execute(tx)
            .await?;
    }
    Ok(())
}

/// How many of the tasks stand as they stood before the COMMIT.
async fn still_live(pool: &Pool, tasks: &[Task]) -> Result<usize, StoreError> {
    let guards = Guards::of(tasks.iter());
    let rows = sqlx::query(include_str!("../../sql/effect/still_live.sql"))
        .bind(&guards.ids)
        .bind(&guards.hashes)
        .bind(&guards.generations)
        .bind(&guards.attempts)
        .fetch_all(pool)
        .await?;
    Ok(rows.len())
}
