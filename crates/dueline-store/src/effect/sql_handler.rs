//! A user's statement as the effect.
//!
//! The user writes one statement over a relation `batch(ord integer, key text, payload jsonb)` and returns
//! the `ord`s that it changed. That statement *is* the re-check of the business state.

use std::sync::Arc;

use sqlx::postgres::PgStatement;
use sqlx::{AssertSqlSafe, Column as _, Connection as _, Executor as _, PgConnection};
use sqlx::{SqlSafeStr as _, Statement as _, TypeInfo as _};

use crate::{Pool, StoreError};

/// What the user's statement stands on.
const BATCH: &str = include_str!("../../sql/effect/batch_relation.sql");

/// A statement that was described: one statement, one integer column.
#[derive(Clone, Debug)]
pub struct SqlHandler {
    sql: Arc<str>,
}

impl SqlHandler {
    /// Puts the batch before the user's statement and has the server describe and plan it, as the role that
    /// it will run as. Runs nothing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] says what is wrong with the statement of `kind` and what to write instead.
    pub async fn describe(
        pool: &Pool,
        kind: &str,
        role: &str,
        statement: &str,
    ) -> Result<Self, StoreError> {
        let sql: Arc<str> = compose(statement).into();
        let refused = |why: String| StoreError::Refused(format!("kinds.{kind}.sql: {why}"));
        let mut connection = pool.acquire().await?;
        let described = (*connection)
            .prepare(AssertSqlSafe(Arc::clone(&sql)).into_sql_str())
            .await
            .map_err(|error| explain(kind, error.into()))?;
        check_result(&described).map_err(refused)?;
        let mut tx = connection.begin().await?;
        let planned = plan(&mut tx, role, &sql).await;
        tx.rollback().await?;
        // The name outlives the transaction. When PostgreSQL refused to parse, there is none.
        let name_is_gone = sqlx::raw_sql("deallocate dueline_described").execute(&mut *connection);
        drop(name_is_gone.await);
        planned.map_err(|error| explain(kind, error))?;
        Ok(Self { sql })
    }

    /// The statement, over the relation `batch`: `$1` ordinals, `$2` keys, `$3` payloads.
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }
}

/// Plans the statement as `role`, which also checks the rights that it needs.
async fn plan(tx: &mut PgConnection, role: &str, sql: &str) -> Result<(), StoreError> {
    sqlx::query(include_str!("../../sql/effect/role.sql"))
        .bind(role)
        .bind("on")
        .execute(&mut *tx)
        .await?;
    let prepare = format!("prepare dueline_described as {sql}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *tx).await?;
    sqlx::raw_sql(include_str!("../../sql/effect/explain_described.sql")).execute(tx).await?;
    Ok(())
}

/// The result must be one integer column.
fn check_result(described: &PgStatement) -> Result<(), String> {
    if let Some(sqlx::Either::Left(parameters)) = described.parameters()
        && parameters.len() != 3
    {
        return Err("it has parameters of its own; what it needs stands in `batch`".to_owned());
    }
    match described.columns() {
        [column] => match column.type_info().name() {
            "INT4" | "INT8" => Ok(()),
            other => {
                Err(format!("its result is of type {other}; it must be the changed `batch.ord`"))
            }
        },
        [] => {
            Err("it returns nothing; end it with `returning` and the `ord` of `batch`".to_owned())
        }
        many => Err(format!(
            "it returns {} columns; it must return exactly one, the changed `batch.ord`",
            many.len()
        )),
    }
}

/// An error of the description: the statement's fault is refused, everything else stays what it is.
fn explain(kind: &str, error: StoreError) -> StoreError {
    let state = error.sqlstate().unwrap_or_default();
    let advice = match state.as_str() {
        "42501" => "grant the handlers' role what the statement needs",
        "42601" => "write one statement, without `;` between parts",
        "42P01" | "42703" | "42883" => {
            "does the business schema exist, and is it in the search path?"
        }
        _ if state.starts_with("42") || state.starts_with("22") => {
            "PostgreSQL refuses the statement"
        }
        _ => return error,
    };
    StoreError::Refused(format!("kinds.{kind}.sql: {error} (SQLSTATE {state}): {advice}"))
}

/// The user's statement with `batch` before it, also when it begins with comments or `with`.
fn compose(statement: &str) -> String {
    let body = after_comments(statement);
    let (recursive, rest) = match word(body) {
        ("with", rest) => match word(after_comments(rest)) {
            ("recursive", rest) => (" recursive", Some(rest)),
            _ => ("", Some(rest)),
        },
        _ => ("", None),
    };
    match rest {
        Some(rest) => format!("with{recursive} {BATCH},\n{rest}"),
        None => format!("with {BATCH}\n{body}"),
    }
}

/// The text without the white space and comments that it begins with. Block comments nest.
fn after_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        if let Some(line) = rest.strip_prefix("--") {
            rest = line.split_once('\n').map_or("", |(_, after)| after).trim_start();
        } else if rest.starts_with("/*") {
            rest = after_block(rest).trim_start();
        } else {
            return rest;
        }
    }
}

fn after_block(text: &str) -> &str {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return &text[at..];
                }
            }
            _ => at += 1,
        }
    }
    ""
}

/// The first word in lower case, if it is `with` or `recursive`, and what follows it.
fn word(text: &str) -> (&'static str, &str) {
    for keyword in ["with", "recursive"] {
        let Some(head) = text.get(..keyword.len()) else { continue };
        let rest = &text[keyword.len()..];
        let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        if head.eq_ignore_ascii_case(keyword) && ends {
            return (keyword, rest);
        }
    }
    ("", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_goes_before_every_kind_of_beginning() {
        let plain = compose("update orders set a = 1 from batch b returning b.ord");
        assert!(plain.starts_with("with batch") && plain.contains("\nupdate orders"));
        for with in ["WITH x as (select 1) select 1", "-- why\n/* a /* b */ c */ with/**/x as ()"] {
            let text = compose(with);
            assert_eq!(text.matches("with").count() + text.matches("WITH").count(), 1, "{text}");
            assert!(text.contains("),\n"), "{text}");
        }
        let recursive = compose("with /* deep */ Recursive t as (select 1) select 1");
        assert!(recursive.starts_with("with recursive batch"), "{recursive}");
        assert!(
            compose("within_time()").contains("\nwithin_time()"),
            "a longer word is not `with`"
        );
        assert!(compose("/* never closed").ends_with('\n'), "nothing is left of it");
    }
}
