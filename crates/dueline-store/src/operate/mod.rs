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
