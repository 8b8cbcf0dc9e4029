//! The SQL functions: whatever is called, the answer is a receipt that is true, or an error that says what to
//! do; and the tables hold together.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use sqlx::postgres::{PgConnection, PgDatabaseError, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use super::dice::Dice;
use super::harness::{Run, SQL};
use super::sql_calls::{Call, literal};
use super::sql_rules;
use super::stage::{Phase, Stage};

/// After so many calls the tables are looked at.
const BATCH: u64 = 50;
/// Errors that our functions raise: bad argument, not in a state for it, taken, too late, try again.
const OURS: [&str; 5] = ["22023", "55000", "23505", "P0001", "40001"];
const RECEIPTS: [&str; 17] = [
    "scheduled",
    "kept",
    "reopened",
    "rescheduled",
    "cancelled",
    "published_will_be_dropped",
    "may_have_run",
    "running",
    "finished",
    "not_found",
    "replayed",
    "resolved",
    "discarded",
    "stale",
    "gone",
    "refused",
    "",
];

/// An error is fine when our function raised it with a hint, or when PostgreSQL refused the argument before
/// it came to us.
fn is_clear(error: &sqlx::Error) -> Result<&'static str> {
    let sqlx::Error::Database(database) = error else { bail!("{error}") };
    let error = database.downcast_ref::<PgDatabaseError>();
    let state = error.code();
    let within = error.r#where().unwrap_or_default();
    let text = format!("{state}: {}; in {within}", error.message());
    if !within.contains("function ") {
        ensure!(matches!(&state[..2], "22" | "54"), "refused before the call: {text}");
        return Ok("no argument");
    }
    ensure!(OURS.contains(&state), "an error that we did not mean: {text}");
    ensure!(error.hint().is_some_and(|hint| !hint.is_empty()), "no hint: {text}");
    ensure!(error.message().len() < 1_000, "{} bytes: {text}", error.message().len());
    Ok("refused")
}

/// What a call answered agrees with the tables.
async fn is_true(connection: &mut PgConnection, call: &Call, rows: &[PgRow]) -> Result<()> {
    if ["get", "key_hash"].contains(&call.function) {
        return Ok(());
    }
    for row in rows {
        let receipt: String = row.try_get("receipt")?;
        ensure!(RECEIPTS.contains(&receipt.as_str()), "the receipt is {receipt:?}");
        let Some(id) = row.try_get::<Option<i64>, _>("id")? else {
            ensure!(receipt == "not_found", "{receipt} of no task");
            continue;
        };
        // A key that is given twice is answered twice, the second time after it has moved on.
        if !call.function.ends_with("_many") {
            let (state, generation): (String, i32) =
                sqlx::query_as("select state, generation from dueline.task where id = $1")
                    .bind(id)
                    .fetch_one(&mut *connection)
                    .await?;
            let told = (row.try_get("state")?, row.try_get("generation")?);
            ensure!((state, generation) == told, "the receipt says {told:?}");
        }
    }
    if call.function.ends_with("_many") {
        let mut ords: Vec<i32> = rows.iter().map(|r| r.try_get("ord")).collect::<Result<_, _>>()?;
        ords.sort_unstable();
        ensure!((1..).take(ords.len()).eq(ords.iter().copied()), "ords {ords:?}");
        let keys = call.argument("keys").unwrap_or("null");
        let count = format!("select coalesce(cardinality({keys}), 0)");
        let count: i32 =
            sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&mut *connection).await?;
        ensure!(usize::try_from(count)? == rows.len(), "{} answers for {count} keys", rows.len());
    }
    stored_as_given(connection, call, rows).await
}

/// New tasks have the payload, headers and deadline that they were given.
async fn stored_as_given(connection: &mut PgConnection, call: &Call, rows: &[PgRow]) -> Result<()> {
    let many = call.function == "schedule_many";
    let (mut ids, mut ords) = (Vec::new(), Vec::new());
    let all: Vec<Option<i64>> =
        rows.iter().map(|row| row.try_get("id")).collect::<Result<_, _>>()?;
    for row in rows {
        let id: Option<i64> = row.try_get("id")?;
        // A key that is given again may be moved in the same call.
        let once = all.iter().filter(|other| **other == id).count() == 1;
        if once && row.try_get::<String, _>("receipt")? == "scheduled" {
            ids.push(id);
            ords.push(if many { row.try_get("ord")? } else { 1_i32 });
        }
    }
    let names = [("payload", "payloads"), ("headers", "headers"), ("due_at", "due_at")];
    for (column, plural) in names {
        let given = call.argument(if many { plural } else { column });
        let Some(given) = given.filter(|given| column != "due_at" || is_fixed(call, given)) else {
            continue;
        };
        let wanted = if many {
            format!(
                "(select u.x from unnest({given}) with ordinality u (x, ord)
                  where u.ord = case when cardinality({given}) = 1 then 1 else o.ord end)"
            )
        } else {
            format!("({given})")
        };
        let differ = format!(
            "select count(*) from unnest($1::bigint[], $2::integer[]) o (id, ord)
             join dueline.task t using (id) where t.{column} is distinct from {wanted}"
        );
        let differ: i64 = sqlx::query_scalar(AssertSqlSafe(differ))
            .bind(&ids)
            .bind(&ords)
            .fetch_one(&mut *connection)
            .await?;
        ensure!(differ == 0, "{differ} tasks have another {column} than was given");
    }
    Ok(())
}

/// Whether an instant is the same each time it is worked out, and nothing is added to it.
fn is_fixed(call: &Call, given: &str) -> bool {
    let moving = given.contains("clock_timestamp") || given.contains("today");
    let keys_once = call.function == "schedule";
    !moving && keys_once && call.argument("jitter").is_none() && !given.starts_with("null")
}

/// A person's verdict on a task that may be dead, with a generation that may be its own.
async fn verdict(
    stage: &Stage,
    connection: &mut PgConnection,
    dice: &mut Dice,
) -> Result<&'static str> {
    let id: Option<i64> = match dice.below(12) {
        0 => None,
        1 => Some(*dice.pick(&[i64::MAX, i64::MIN, 0, -1])),
        _ => any_dead(stage, dice).await?,
    };
    let row: Option<(String, i32, uuid::Uuid)> =
        sqlx::query_as("select state, generation, key_hash from dueline.task where id = $1")
            .bind(id)
            .fetch_optional(&stage.pool)
            .await?;
    let own = row.as_ref().map_or(0, |(_, generation, _)| *generation);
    let generation: Option<i32> = match dice.below(6) {
        0 => None,
        1 => Some(*dice.pick(&[own.wrapping_sub(1), own + 1, i32::MAX, i32::MIN])),
        _ => Some(own),
    };
    let function = *dice.pick(&["replay", "resolve", "discard"]);
    let hash = match (&row, dice.below(4)) {
        (Some((_, _, hash)), 0 | 1) => Some(*hash),
        (_, 2) => Some(uuid::Uuid::from_u64_pair(dice.bits(), dice.bits())),
        _ => None,
    };
    let force = *dice.pick(&[None, Some(false), Some(true)]);
    let text = match function {
        "replay" => format!(
            "select receipt from dueline.replay({}, {}, {}, {}, {}, {})",
            sql(id),
            sql(generation),
            hash.map_or("null".to_owned(), |hash| format!("'{hash}'")),
            literal(&dice.text()),
            sql(force),
            *dice.pick(&["null", "interval '30 days'", "interval '0'", "interval '-1 year'"]),
        ),
        _ => format!(
            "select receipt from dueline.{function}({}, {}, {}, {})",
            sql(id),
            sql(generation),
            literal(&dice.text()),
            *dice.pick(&["null", "''", "repeat('x', 100000)", "'seen'"]),
        ),
    };
    dice.show(|| text.clone());
    let found = sqlx::query_scalar::<_, String>(AssertSqlSafe(text)).fetch_one(connection).await;
    let receipt = match found {
        Ok(receipt) => receipt,
        Err(error) => return is_clear(&error),
    };
    let replays = function == "replay";
    let forced = replays && force == Some(true);
    let wanted = match row {
        None => "gone",
        Some((_, _, own)) if replays && hash.is_some_and(|hash| hash != own) => "gone",
        Some((state, _, _)) if state != "dead" => "stale",
        Some((_, own, _)) if generation != Some(own) && !forced => "stale",
        Some(_) => "acted",
    };
    let acted = ["replayed", "resolved", "discarded", "refused"].contains(&receipt.as_str());
    let came = if acted { "acted" } else { receipt.as_str() };
    ensure!(came == wanted, "{receipt} where {wanted} was expected (its generation is {own})");
    Ok(if acted { "verdict" } else { "no verdict" })
}

fn sql<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or("null".to_owned(), |value| format!("({value})"))
}

async fn any_dead(stage: &Stage, dice: &mut Dice) -> Result<Option<i64>> {
    let statement = "select id from dueline.task where $1 or state = 'dead' order by md5(id::text || $2) limit 1";
    let any = dice.one_in(4);
    let salt = dice.bits().to_string();
    Ok(sqlx::query_scalar(statement).bind(any).bind(salt).fetch_optional(&stage.pool).await?)
}

/// What relay and consumer would do meanwhile: some live task is published, fails, finishes or dies.
async fn life_goes_on(stage: &Stage, dice: &mut Dice) -> Result<()> {
    let waiting = "select t.id from dueline.task t join dueline.due d using (id)
                   where d.lease_until is null and d.claim_no = 0 order by md5(t.id::text || $1) limit 1";
    let salt = dice.bits().to_string();
    let id: Option<i64> =
        sqlx::query_scalar(waiting).bind(salt).fetch_optional(&stage.pool).await?;
    let Some(id) = id else { return Ok(()) };
    let phase = *dice.pick(&[Phase::Leased, Phase::Done, Phase::Skipped, Phase::Dead, Phase::Dead]);
    stage.put(id, phase).await?;
    if phase == Phase::Done {
        let remember =
            "insert into dueline.dedupe (key_hash, outcome, generation, attempt, finished_at)
                        select key_hash, 'done', generation, attempt, clock_timestamp()
                        from dueline.task where id = $1";
        sqlx::query(remember).bind(id).execute(&stage.pool).await?;
    }
    Ok(())
}

async fn one(
    stage: &Stage,
    connection: &mut PgConnection,
    dice: &mut Dice,
) -> Result<&'static str> {
    if dice.one_in(6) {
        life_goes_on(stage, dice).await?;
    }
    if dice.one_in(6) {
        return verdict(stage, connection, dice).await;
    }
    let call = Call::of(dice);
    dice.show(|| call.statement());
    match sqlx::query(AssertSqlSafe(call.statement())).fetch_all(&mut *connection).await {
        Ok(rows) => {
            is_true(connection, &call, &rows).await?;
            Ok("answered")
        }
        Err(error) => is_clear(&error),
    }
}

#[tokio::test]
async fn any_call_is_answered_truly_or_refused_with_a_hint() -> Result<()> {
    let stage = Stage::new().await?;
    let mut connection = stage.connect().await?;
    sqlx::raw_sql("set role dueline_operate; set statement_timeout = '60 s'")
        .execute(&mut connection)
        .await?;
    let mut run = Run::begin(SQL);
    let mut calls = 0;
    while let Some(dice) = run.next() {
        let mut dice = dice.showing();
        let start = Instant::now();
        let verdict = one(&stage, &mut connection, &mut dice).await;
        run.judge(verdict.with_context(|| dice.shown()), start.elapsed())?;
        calls += 1;
        if calls % BATCH == 0 {
            sql_rules::hold(&stage.pool).await.with_context(|| {
                format!("within the last {BATCH} calls, the last of which was {}", dice.shown())
            })?;
        }
        if calls % 5_000 == 0 {
            // Most keys are taken by then, and most tasks finished.
            forget(&stage).await?;
        }
    }
    sql_rules::hold(&stage.pool).await?;
    connection.close().await?;
    run.end(&["answered", "refused", "no argument", "verdict", "no verdict"])
}

async fn forget(stage: &Stage) -> Result<()> {
    let tables =
        "truncate dueline.task, dueline.due, dueline.dedupe, dueline.stranded, dueline.task_event";
    sqlx::raw_sql(tables).execute(&stage.pool).await?;
    Ok(())
}
