//! The steps of the batch's transaction, one statement each.

use std::collections::{HashMap, HashSet};

use dueline_core::Micros;
use serde_json::value::RawValue;
use sqlx::types::Json;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::batch::Batch;
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

/// Commits what was done so far and goes on in another transaction of the same name: for planted bugs.
pub(super) async fn split(tx: &mut PgConnection, name: &str) -> Result<(), StoreError> {
    sqlx::raw_sql("commit; begin").execute(&mut *tx).await?;
    sqlx::query("select set_config('dueline.effect', $1, true)").bind(name).execute(tx).await?;
    Ok(())
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
    let guards = Guards::of(outcomes.iter().map(|(task, _)| *task));
    let names: Vec<&str> = outcomes.iter().map(|(_, outcome)| *outcome).collect();
    let answer: Option<(Option<Timestamptz>, Option<Vec<i64>>)> =
        sqlx::query_as(include_str!("../../sql/effect/settle.sql"))
            .bind(&guards.ids)
            .bind(&guards.hashes)
            .bind(&guards.generations)
            .bind(&guards.attempts)
            .bind(&guards.published)
            .bind(&names)
            .bind(name)
            .fetch_optional(tx)
            .await
            .map_err(|e| Trouble::ours(&e.into()))?;
    // The effect stands in the dedupe table, and the contract is broken.
    let Some((at, only)) = answer else {
        let text = "the handler ended the transaction it was given";
        return Err(Trouble::Contract(text.to_owned()));
    };
    let only = only.map(|ids| ids.into_iter().collect());
    Ok(Settled { at: at.map_or(Micros(0), Micros::from), only })
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
    if stops.iter().any(|(_, n)| *n > 0) {
        let layers = stops.map(|(layer, _)| layer);
        let counts = stops.map(|(_, n)| count(n));
        sqlx::query(include_str!("../../sql/effect/duplicates.sql"))
            .bind(queue)
            .bind(layers)
            .bind(counts)
            .execute(tx)
            .await?;
    }
    Ok(())
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// What a whole batch answered: ordinals, from 1.
#[derive(sqlx::FromRow)]
pub(super) struct Answer {
    pub known: Option<Vec<i64>>,
    pub early: Option<Vec<i64>>,
    pub stale: Option<Vec<i64>>,
    pub moved: Option<Vec<i64>>,
    pub skipped: Option<Vec<i64>>,
    pub finished_at: Option<Timestamptz>,
}

/// All steps at once, for a handler that is a statement.
pub(super) async fn whole(
    connection: &mut PgConnection,
    batch: &Batch<'_>,
    statement: &str,
    tasks: &[Task],
    already_moved: usize,
) -> Result<Answer, StoreError> {
    let ords: Vec<i32> = (1..).take(tasks.len()).collect();
    let guards = Guards::of(tasks.iter());
    let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
    let payloads: Vec<Option<Json<&RawValue>>> =
        tasks.iter().map(|task| task.payload.as_deref().map(Json)).collect();
    Ok(sqlx::query_as(include_str!("../../sql/effect/effect.sql"))
        .bind(batch.queue)
        .bind(ords)
        .bind(&guards.ids)
        .bind(&guards.hashes)
        .bind(&guards.generations)
        .bind(&guards.attempts)
        .bind(&guards.published)
        .bind(keys)
        .bind(payloads)
        .bind(statement)
        .bind(batch.role)
        .bind(count(batch.repeated))
        .bind(count(already_moved))
        .fetch_one(connection)
        .await?)
}

/// How a task stands whose row is still of the message's try.
#[derive(sqlx::FromRow)]
pub(super) struct Standing {
    pub id: i64,
    pub state: String,
    pub finished_at: Option<Timestamptz>,
}

/// How the tasks stand after a COMMIT whose fate is unknown.
pub(super) async fn standings(pool: &Pool, tasks: &[Task]) -> Result<Vec<Standing>, StoreError> {
    let guards = Guards::of(tasks.iter());
    Ok(sqlx::query_as(include_str!("../../sql/effect/fates.sql"))
        .bind(&guards.ids)
        .bind(&guards.hashes)
        .bind(&guards.generations)
        .bind(&guards.attempts)
        .fetch_all(pool)
        .await?)
}
