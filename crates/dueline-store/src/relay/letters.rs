//! Dead letters that are still to be written.

use std::time::Duration;

use dueline_core::letter::Reason;
use dueline_core::{KeyHash, Micros};
use sqlx::Row as _;

use super::interval;
use crate::{Pool, StoreError, Timestamptz};

/// A death without a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingLetter {
    /// The task.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// Its key.
    pub key: String,
    /// Hash of the three.
    pub key_hash: KeyHash,
    /// The generation of the dead row.
    pub generation: i32,
    /// Failed attempts.
    pub attempts: i32,
    /// Why it died.
    pub reason: Reason,
    /// The last error.
    pub error: String,
    /// When it died.
    pub died_at: Micros,
    /// The payload as JSON text.
    pub payload: Option<String>,
    /// The task's own headers as JSON text.
    pub headers: Option<String>,
}

/// Up to `limit` deaths older than `grace` whose letter is missing, oldest first.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn letters_missing(
    pool: &Pool,
    grace: Duration,
    limit: usize,
) -> Result<Vec<MissingLetter>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/letters_missing.sql"))
        .bind(interval(grace))
        .bind(i32::try_from(limit).unwrap_or(i32::MAX))
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            let reason: &str = row.try_get("reason")?;
            Ok(MissingLetter {
                id: row.try_get("id")?,
                queue: row.try_get("queue")?,
                kind: row.try_get("kind")?,
                key: row.try_get("key")?,
                key_hash: KeyHash(row.try_get::<uuid::Uuid, _>("key_hash")?.into_bytes()),
                generation: row.try_get("generation")?,
                attempts: row.try_get("attempts")?,
                reason: Reason::parse(reason)
                    .ok_or_else(|| StoreError::Unexpected(format!("reason {reason}")))?,
                error: row.try_get("error")?,
                died_at: row.try_get::<Timestamptz, _>("died_at")?.into(),
                payload: row.try_get("payload")?,
                headers: row.try_get("headers")?,
            })
        })
        .collect()
}

/// Stamps a death as lettered; `false` when it was already, or is no more.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn lettered(pool: &Pool, id: i64, generation: i32) -> Result<bool, StoreError> {
    let done = sqlx::query(include_str!("../../sql/relay/lettered.sql"))
        .bind(id)
        .bind(generation)
        .execute(pool)
        .await?;
    Ok(done.rows_affected() == 1)
}
