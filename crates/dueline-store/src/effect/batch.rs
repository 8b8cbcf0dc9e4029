//! One batch, one transaction: dedupe → business rows → task → due.

use std::collections::{HashMap, HashSet};

use dueline_core::Micros;
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::handler::{Effect, Failure, Task, Trouble, Verdict};
use super::steps::{admit, finish, role, settle, still_live};
use crate::{Pool, Sessions, StoreError};

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
        self.run_in(&Sessions::new(pool.clone()), tasks).await
    }

    /// [`Batch::run`] for a caller with many batches, whose connections are kept.
    ///
    /// # Errors
    /// As [`Batch::run`].
    pub async fn run_in(
        &self,
        sessions: &Sessions,
        tasks: &mut [Task],
    ) -> Result<HashMap<i64, Fate>, Trouble> {
        let mut moved = HashSet::new();
        for _ in 0..MAX_RUNS {
            tasks.sort_unstable_by_key(|task| moved.contains(&task.id));
            let staying = tasks.len() - moved.len();
            match self.run_once(sessions, &mut tasks[..staying], moved.len()).await? {
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
        sessions: &Sessions,
        tasks: &mut [Task],
        already_moved: usize,
    ) -> Result<Run, Trouble> {
        let mut connection = sessions.take().await.map_err(|e| Trouble::ours(&e))?;
        let result = self.transaction(&mut connection, sessions, tasks, already_moved).await;
        match &result {
            Ok(_) => sessions.keep(connection),
            // The others of this moment are probably broken too: the next batch asks for a fresh one.
            Err(Trouble::Environment { .. }) => sessions.forget(),
            Err(_) => {}
        }
        result
    }

    async fn transaction(
        &self,
        connection: &mut PgConnection,
        sessions: &Sessions,
        tasks: &mut [Task],
        already_moved: usize,
    ) -> Result<Run, Trouble> {
        let mut tx = connection.begin().await.map_err(|e| Trouble::ours(&e.into()))?;
        let name = Uuid::new_v4().simple().to_string();
        let admitted = admit(&mut tx, tasks, &name, self.role).await;
        let admitted = admitted.map_err(|e| Trouble::ours(&e))?;
        let (ready, rest) = tasks.split_at(admitted.ready);
        let (known, rest) = rest.split_at(admitted.known);
        let (early, stale) = rest.split_at(admitted.early);

        let verdicts = self.apply(&mut tx, ready, &admitted.before).await?;
        let outcomes: Vec<(&Task, &'static str)> = ready
            .iter()
            .zip(&verdicts)
            .map(|(t, v)| (t, if *v == Verdict::Done { "done" } else { "skipped" }))
            .chain(known.iter().map(|t| (t, "known")))
            .collect();
        let settled = settle(&mut tx, &outcomes, &name).await?;
        let moved: Vec<i64> = ready.iter().map(|t| t.id).filter(|id| !settled.has(*id)).collect();
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
        self.commit(sessions.pool(), tx, ready).await?;

        let mut fates = HashMap::with_capacity(tasks.len());
        for (task, outcome) in &outcomes {
            fates.insert(task.id, fate(outcome, settled.has(task.id).then_some(settled.at)));
        }
        fates.extend(early.iter().map(|t| (t.id, Fate::Early)));
        fates.extend(stale.iter().map(|t| (t.id, Fate::Stale)));
        Ok(Run::Committed(fates))
    }

    /// Step 3: the handler, as its own role, which step 2 took on; then back to who we were `before`.
    async fn apply(
        &self,
        tx: &mut PgConnection,
        ready: &[Task],
        before: &str,
    ) -> Result<Vec<Verdict>, Trouble> {
        if ready.is_empty() {
            return Ok(Vec::new());
        }
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
        role(tx, before).await.map_err(|e| Trouble::from_handler(&e))?;
        Ok(verdicts)
    }

    /// Step 5. A constraint that was deferred by the handler speaks here; and when the connection breaks,
    /// another one is asked.
    async fn commit(
        &self,
        pool: &Pool,
        tx: Transaction<'_, Postgres>,
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
