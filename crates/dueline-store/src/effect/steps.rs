//! The steps of the batch's transaction, one statement each.

use std::collections::{HashMap, HashSet};

use dueline_core::Micros;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::handler::{Task, Trouble};
use crate::{Pool, StoreError, Timestamptz};

/// What step 1 and 2 said of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Admission {
    Ready,
    Known,
    Early,
    Stale,
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

/// What step 1 and 2 said: how many tasks are ready, known and early; the rest is stale.
pub(super) struct Admitted {
    pub ready: usize,
    pub known: usize,
    pub early: usize,
    /// Who the session was before it became the handlers' role.
    pub before: String,
}

/// Steps 1 and 2, and the way into the handlers' role. Puts the tasks into the order of
/// [`Admission`], the ready ones sorted by key.
pub(super) async fn admit(
    tx: &mut PgConnection,
    tasks: &mut [Task],
    name: &str,
    role: &str,
) -> Result<Admitted, StoreError> {
    let guards = Guards::of(tasks.iter());
    let row = sqlx::query(include_str!("../../sql/effect/admit.sql"))
        .bind(&guards.ids)
        .bind(&guards.hashes)
        .bind(&guards.generations)
        .bind(&guards.attempts)
        .bind(name)
        .bind(role)
        .fetch_one(tx)
        .await?;
    let mut exceptions = HashMap::new();
    let mut exception = |column: &str, admission: Admission| {
        let ords: Vec<i64> = row.try_get::<Option<_>, _>(column)?.unwrap_or_default();
        for ord in &ords {
            let place = usize::try_from(ord - 1).ok();
            let id = place
                .and_then(|place| guards.ids.get(place))
                .ok_or_else(|| StoreError::Unexpected(format!("the admission of message {ord}")))?;
            exceptions.insert(*id, admission);
        }
        Ok::<_, StoreError>(ords.len())
    };
    let known = exception("known", Admission::Known)?;
    let early = exception("early", Admission::Early)?;
    let stale = exception("stale", Admission::Stale)?;
    let ready = tasks.len().saturating_sub(known + early + stale);
    let of = |task: &Task| exceptions.get(&task.id).copied().unwrap_or(Admission::Ready);
    tasks.sort_unstable_by(|a, b| (of(a), &a.key).cmp(&(of(b), &b.key)));
    Ok(Admitted { ready, known, early, before: row.try_get("before")? })
}

/// Back from the handlers' role.
pub(super) async fn role(tx: &mut PgConnection, role: &str) -> Result<(), StoreError> {
    let back = sqlx::query(include_str!("../../sql/effect/role.sql")).bind(role).bind("off");
    back.execute(tx).await?;
    Ok(())
}

/// Which tasks step 4 settled, and when.
pub(super) struct Settled {
    pub at: Micros,
    /// None: all of them.
    only: Option<HashSet<i64>>,
}

impl Settled {
    pub fn has(&self, id: i64) -> bool {
        self.only.as_ref().is_none_or(|ids| ids.contains(&id))
    }
}

/// Step 4. A task that it does not name has moved.
pub(super) async fn settle(
    tx: &mut PgConnection,
    outcomes: &[(&Task, &'static str)],
    name: &str,
) -> Result<Settled, Trouble> {
    if outcomes.is_empty() {
        return Ok(Settled { at: Micros(0), only: None });
    }
    let answer = settle_row(tx, outcomes, name).await.map_err(|e| Trouble::ours(&e))?;
    if answer.settled == 0 {
        same_transaction(tx, name).await?;
    }
    for (expected, actual) in [(answer.locked, answer.silenced), (answer.skipped, answer.forgotten)]
    {
        if expected != actual {
            let count = |n: i64| usize::try_from(n).unwrap_or(0);
            let (expected, actual) = (count(expected), count(actual));
            let error = StoreError::Count { step: "settle", expected, actual };
            tracing::error!(%error, "task, alarm and key do not agree");
            return Err(Trouble::ours(&error));
        }
    }
    let all = usize::try_from(answer.settled).is_ok_and(|n| n == outcomes.len());
    let only = (!all).then(|| answer.ids.unwrap_or_default().into_iter().collect());
    Ok(Settled { at: answer.finished_at.map_or(Micros(0), Micros::from), only })
}

/// What the statement of step 4 says.
#[derive(sqlx::FromRow)]
struct SettleRow {
    locked: i64,
    skipped: i64,
    silenced: i64,
    forgotten: i64,
    settled: i64,
    ids: Option<Vec<i64>>,
    finished_at: Option<Timestamptz>,
}

async fn settle_row(
    tx: &mut PgConnection,
    outcomes: &[(&Task, &'static str)],
    name: &str,
) -> Result<SettleRow, StoreError> {
    let guards = Guards::of(outcomes.iter().map(|(task, _)| *task));
    let names: Vec<&str> = outcomes.iter().map(|(_, outcome)| *outcome).collect();
    Ok(sqlx::query_as(include_str!("../../sql/effect/settle.sql"))
        .bind(&guards.ids)
        .bind(&guards.hashes)
        .bind(&guards.generations)
        .bind(&guards.attempts)
        .bind(&guards.published)
        .bind(&names)
        .bind(name)
        .fetch_one(tx)
        .await?)
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
pub(super) async fn finish(
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
pub(super) async fn still_live(pool: &Pool, tasks: &[Task]) -> Result<usize, StoreError> {
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
