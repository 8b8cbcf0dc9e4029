//! What a consumer asks the database before it starts.

use crate::{Pool, StoreError};

/// A kind as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct KnownKind {
    /// Its name.
    pub name: String,
    /// Its queue.
    pub queue: String,
    /// `here` or `elsewhere`.
    pub effect: String,
}

/// Every kind that was registered with `dueline apply`.
///
/// # Errors
/// When the database fails.
pub async fn known_kinds(pool: &Pool) -> Result<Vec<KnownKind>, StoreError> {
    Ok(sqlx::query_as(include_str!("../../sql/effect/kinds.sql")).fetch_all(pool).await?)
}

/// Checks that handlers can run as `role`, that this role cannot write our tables, and that this is no
/// standby.
///
/// # Errors
/// [`StoreError::Refused`] says what to do.
pub async fn check_session(pool: &Pool, role: &str) -> Result<(), StoreError> {
    let (exists, member, writes, standby): (bool, bool, bool, bool) =
        sqlx::query_as(include_str!("../../sql/effect/handler_role.sql"))
            .bind(role)
            .fetch_one(pool)
            .await?;
    let problem = if standby {
        "this database is a standby: point postgres.url at the primary".to_owned()
    } else if !exists {
        format!("the role `{role}` (postgres.handler_role) does not exist: `create role` it")
    } else if !member {
        format!("this user may not become the handlers' role: grant \"{role}\" to it")
    } else if writes {
        format!(
            "the handlers' role `{role}` can write dueline's tables: a handler's mistake could change \
             tasks; take those rights away or set postgres.handler_role to another role"
        )
    } else {
        return Ok(());
    };
    Err(StoreError::Refused(problem))
}
