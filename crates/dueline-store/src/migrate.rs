//! Applying the migrations that stand in the repository's `migrations` folder.

use sqlx::migrate::Migrator;

use crate::{Pool, StoreError};

/// The migrations, with their table inside our own schema: users share the database.
fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("../../migrations");
    migrator.dangerous_set_table_name("dueline.migration");
    migrator.create_schema("dueline");
    migrator
}

/// Applies every migration that the database does not have yet.
///
/// # Errors
/// When a migration fails, or when the database has one that this binary does not know.
pub async fn migrate(pool: &Pool) -> Result<(), StoreError> {
    Ok(migrator().run(pool).await?)
}
