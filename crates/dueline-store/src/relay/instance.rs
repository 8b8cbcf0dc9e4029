//! Whose database this is.

use sqlx::Row as _;

use crate::{Pool, StoreError};

/// The `instance` row, beside what the cluster itself says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRow {
    /// The instance's name.
    pub name: String,
    /// Its uuid.
    pub uuid: uuid::Uuid,
    /// The timeline that messages carry.
    pub timeline: i32,
    /// Whether this is the cluster that the row was written in.
    pub same_cluster: bool,
    /// The timeline that the cluster is on.
    pub actual_timeline: i32,
    /// Whether this is a standby.
    pub standby: bool,
}

/// Reads it; `None` before `dueline apply` has made it.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn instance(pool: &Pool) -> Result<Option<InstanceRow>, StoreError> {
    let row =
        sqlx::query(include_str!("../../sql/relay/instance.sql")).fetch_optional(pool).await?;
    row.map(|row| {
        Ok(InstanceRow {
            name: row.try_get("name")?,
            uuid: row.try_get("uuid")?,
            timeline: row.try_get("timeline")?,
            same_cluster: row.try_get("same_cluster")?,
            actual_timeline: row.try_get("actual_timeline")?,
            standby: row.try_get("standby")?,
        })
    })
    .transpose()
}
