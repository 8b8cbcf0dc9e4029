//! What the command line asks and changes, and what every process checks at its start.
//!
//! * [`instance`]: whose database this is; every process asks before it does anything else;
//! * [`apply`]: queues, tiers, lanes and kinds as the configuration says, and the [`plan`] of it;
//! * [`why`]: everything about one key;
//! * [`pending`]: what is due when;
//! * [`dead`]: what is stranded.

pub mod apply;
pub mod dead;
pub mod instance;
pub mod pending;
pub mod plan;
pub mod why;

use crate::StoreError;

/// SQLSTATEs of a missing table and a missing schema.
const MISSING: [&str; 2] = ["42P01", "3F000"];

fn explain_missing_schema(error: sqlx::Error) -> StoreError {
    let error = StoreError::from(error);
    match error.sqlstate() {
        Some(state) if MISSING.contains(&state.as_str()) => StoreError::Refused(
            "this database has no dueline schema yet: run `dueline migrate`, then `dueline apply`"
                .to_owned(),
        ),
        _ => error,
    }
}

/// The database's clock.
///
/// # Errors
/// When the database does not answer.
pub async fn now(pool: &crate::Pool) -> Result<dueline_core::Micros, StoreError> {
    let now: crate::Timestamptz =
        sqlx::query_scalar(include_str!("../../sql/operate/clock.sql")).fetch_one(pool).await?;
    Ok(now.0)
}

/// An error as a person should read it: what PostgreSQL said, with the hint of our SQL functions, which says
/// what to do.
#[must_use]
pub fn explain(error: &StoreError) -> String {
    match error {
        StoreError::Sqlx(sqlx::Error::Database(error)) => {
            let hint = error
                .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
                .and_then(|error| error.hint())
                .map_or(String::new(), |hint| format!("\n  {hint}"));
            format!("{}{hint}", error.message())
        }
        StoreError::Sqlx(sqlx::Error::PoolTimedOut) => {
            "the database does not answer: check postgres.url, and that the server runs and lets us in"
                .to_owned()
        }
        other => other.to_string(),
    }
}
