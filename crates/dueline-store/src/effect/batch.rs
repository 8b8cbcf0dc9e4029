//! One batch, one transaction: dedupe → business rows → task → due.

use std::collections::{HashMap, HashSet};

use dueline_core::Micros;
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::SqlHandler;
use super::handler::{Effect, Failure, Handling, Task, Trouble, Verdict};
use super::steps::{Answer, Standing, admit, finish, role, settle, split, standings, whole};
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
    pub handler: Handling<'a>,
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
        let result = match self.handler {
            Handling::Statement(handler) => {
                self.one_call(&mut connection, sessions, handler, tasks, already_moved).await
            }
            Handling::Code(effect) => {
                self.transaction(&mut connection, sessions, effect, tasks, already_moved).await
            }
        };
        match &result {
            Ok(_) => sessions.keep(connection),
            // The others of this moment are probably broken too: the next batch asks for a fresh one.
            Err(Trouble::Environment { .. }) => sessions.forget(),
            Err(_) => {}
        }
        result
    }

    /// The server runs it all: while a business row is held, it waits for nobody outside.
    async fn one_call(
        &self,
        connection: &mut PgConnection,
        sessions: &Sessions,
        handler: &SqlHandler,
        tasks: &mut [Task],
        already_moved: usize,
    ) -> Result<Run, Trouble> {
        tasks.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        dueline_failpoints::reached("consumer.statement.next");
        let error = match whole(connection, self, handler.sql(), tasks, already_moved).await {
            Ok(answer) => {
                dueline_failpoints::reached("consumer.statement.done");
                return Ok(Run::Committed(fates(tasks, &answer)));
            }
            Err(error) => error,
        };
        if error.sqlstate().as_deref() == Some("DLM01") {
            return moved_ids(&error).map(Run::Moved).ok_or_else(|| Trouble::ours(&error));
        }
        let Some(standings) = fate_of_commit(sessions.pool(), &error, tasks).await else {
            return Err(Trouble::from_handler(&error));
        };
        let mut fates: HashMap<_, _> = tasks.iter().map(|task| (task.id, Fate::Stale)).collect();
        fates.extend(standings.iter().map(|standing| (standing.id, fate_now(standing))));
        Ok(Run::Committed(fates))
    }

    async fn transaction(
        &self,
        connection: &mut PgConnection,
        sessions: &Sessions,
        effect: &dyn Effect,
        tasks: &mut [Task],
        already_moved: usize,
    ) -> Result<Run, Trouble> {
        let mut tx = connection.begin().await.map_err(|e| Trouble::ours(&e.into()))?;
        let name = Uuid::new_v4().simple().to_string();
        let admitted = admit(&mut tx, tasks, &name, self.role).await;
        let admitted = admitted.map_err(|e| Trouble::ours(&e))?;
        dueline_failpoints::reached("consumer.admitted");
        if dueline_failpoints::planted("dedupe-in-another-transaction") {
            split(&mut tx, &name).await.map_err(|e| Trouble::ours(&e))?;
        }
        let (ready, rest) = tasks.split_at(admitted.ready);
        let dropped = dueline_failpoints::planted("known-dropped-not-settled");
        let (known, rest) = rest.split_at(if dropped { 0 } else { admitted.known });
        let (early, stale) = rest.split_at(admitted.early);

        let verdicts = apply(&mut tx, sessions, effect, ready, &admitted.before).await?;
        if dropped {
            split(&mut tx, &name).await.map_err(|e| Trouble::ours(&e))?;
        }
        dueline_failpoints::reached("consumer.acted");
        let outcomes: Vec<(&Task, &'static str)> = ready
            .iter()
            .zip(&verdicts)
            .map(|(t, v)| (t, if *v == Verdict::Done { "done" } else { "skipped" }))
            .chain(known.iter().map(|t| (t, "known")))
            .collect();
        let settled = settle(&mut tx, &outcomes, &name).await?;
        dueline_failpoints::reached("consumer.settled");
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
        dueline_failpoints::reached("consumer.committing");
        commit(sessions.pool(), tx, ready).await?;
        dueline_failpoints::reached("consumer.committed");

        let mut fates = HashMap::with_capacity(tasks.len());
        for (task, outcome) in &outcomes {
            fates.insert(task.id, fate(outcome, settled.has(task.id).then_some(settled.at)));
        }
        fates.extend(early.iter().map(|t| (t.id, Fate::Early)));
        fates.extend(stale.iter().map(|t| (t.id, Fate::Stale)));
        Ok(Run::Committed(fates))
    }
}

/// Step 3: the handler, as its own role, which step 2 took on; then back to who we were `before`.
async fn apply(
    tx: &mut PgConnection,
    sessions: &Sessions,
    effect: &dyn Effect,
    ready: &[Task],
    before: &str,
) -> Result<Vec<Verdict>, Trouble> {
    if ready.is_empty() {
        return Ok(Vec::new());
    }
    let verdicts = if dueline_failpoints::planted("effect-in-another-transaction") {
        let mut apart = sessions.take().await.map_err(|e| Trouble::ours(&e))?;
        effect.apply(&mut apart, ready).await?
    } else {
        effect.apply(tx, ready).await?
    };
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
    pool: &Pool,
    tx: Transaction<'_, Postgres>,
    settled: &[Task],
) -> Result<(), Trouble> {
    let Err(error) = tx.commit().await else { return Ok(()) };
    let error = StoreError::from(error);
    match fate_of_commit(pool, &error, settled).await {
        Some(_) => Ok(()),
        None => Err(Trouble::from_handler(&error)),
    }
}

/// After this error: how the tasks stand, if it was committed all the same.
async fn fate_of_commit(pool: &Pool, error: &StoreError, tasks: &[Task]) -> Option<Vec<Standing>> {
    if !error.is_connection_lost() || tasks.is_empty() {
        return None;
    }
    dueline_failpoints::reached("consumer.commit.unknown");
    for _ in 0..MAX_LOOKUPS {
        match standings(pool, tasks).await {
            Ok(all) => {
                dueline_failpoints::reached("consumer.commit.looked_up");
                return all.iter().all(|s| s.state != "live").then_some(all);
            }
            Err(look_up) => tracing::warn!(error = %look_up, "a COMMIT cannot be looked up"),
        }
    }
    None
}

/// What a whole batch answered, by task.
fn fates(tasks: &[Task], answer: &Answer) -> HashMap<i64, Fate> {
    let done = Fate::Done(answer.finished_at.map_or(Micros(0), Micros::from));
    let mut fates: HashMap<i64, Fate> = tasks.iter().map(|task| (task.id, done)).collect();
    // The moved are among the known.
    for (ords, fate) in [
        (&answer.skipped, Fate::Skipped),
        (&answer.known, Fate::Known),
        (&answer.early, Fate::Early),
        (&answer.stale, Fate::Stale),
        (&answer.moved, Fate::Moved),
    ] {
        for ord in ords.iter().flatten() {
            let place = usize::try_from(ord - 1).ok();
            if let Some(task) = place.and_then(|place| tasks.get(place)) {
                fates.insert(task.id, fate);
            }
        }
    }
    fates
}

/// The tasks that have moved, as the error's detail names them: `{1,2}`.
fn moved_ids(error: &StoreError) -> Option<Vec<i64>> {
    let list = error.detail()?.strip_prefix('{')?.strip_suffix('}')?;
    list.split(',').map(|id| id.parse().ok()).collect()
}

fn fate_now(standing: &Standing) -> Fate {
    match (standing.state.as_str(), standing.finished_at) {
        ("done", Some(at)) => Fate::Done(at.into()),
        ("skipped", _) => Fate::Skipped,
        _ => Fate::Stale,
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
