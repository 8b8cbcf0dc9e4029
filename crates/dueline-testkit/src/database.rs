//! One database a test.

use std::str::FromStr as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool};
use uuid::Uuid;

use crate::services::POSTGRES_ENV;

/// The template that has the migrations: made by whichever test comes first.
const TEMPLATE: &str = "dueline_template";
/// The lock under which it is made; any number that nobody else uses.
const TEMPLATE_LOCK: i64 = 0x6475_656c_696e_6501;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Rules of single rows that only the product's own statements could break, as CHECKs: every database of
/// a test has them, and so has the campaign's.
pub const ROW_RULES: &str = include_str!("../sql/row_rules.sql");

/// A database of a test's own, with the migrations applied; dropped at the end.
#[derive(Debug)]
pub struct TestDatabase {
    /// A pool of up to ten connections, as superuser.
    pub pool: PgPool,
    admin_url: String,
    name: String,
}

impl TestDatabase {
    /// Creates a database in the cluster that `dueline-services run` announces.
    ///
    /// # Errors
    /// When there is no cluster, or it does not answer.
    pub async fn new() -> Result<Self> {
        let url = std::env::var(POSTGRES_ENV).with_context(|| {
            format!(
                "{POSTGRES_ENV} is not set: run the tests by ./scripts/test, or by \
                 `dueline-services run -- cargo test …`"
            )
        })?;
        Self::create(&url).await
    }

    /// Creates a database in the cluster of this superuser.
    ///
    /// # Errors
    /// When the cluster does not answer, or a migration fails.
    pub async fn create(admin_url: &str) -> Result<Self> {
        let name = format!("test_{}", Uuid::new_v4().simple());
        let create = async {
            let mut admin = PgConnection::connect(admin_url).await?;
            ensure_template(&mut admin, admin_url).await?;
            execute(&mut admin, format!("create database {name} template {TEMPLATE}")).await?;
            admin.close().await?;
            let options = PgConnectOptions::from_str(admin_url)?.database(&name);
            let pool = PgPoolOptions::new().max_connections(10).connect_with(options).await?;
            anyhow::Ok(pool)
        };
        let pool = tokio::time::timeout(TIMEOUT, create)
            .await
            .context("creating a test database took too long")?
            .context("cannot create a test database")?;
        Ok(Self { pool, admin_url: admin_url.to_owned(), name })
    }

    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL of this database, as superuser.
    #[must_use]
    pub fn url(&self) -> String {
        url_of(&self.admin_url, &self.name)
    }

    /// A new connection outside the pool: its own session, for locks and open transactions.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.url()).await?)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (admin_url, name) = (self.admin_url.clone(), self.name.clone());
        // A thread with its own runtime: the test's one is busy dropping us. Best effort, for the
        // whole cluster is deleted in the end.
        let dropper = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            let work = async {
                let mut admin = PgConnection::connect(&admin_url).await.ok()?;
                execute(&mut admin, format!("drop database {name} with (force)")).await.ok()
            };
            runtime
                .block_on(async { tokio::time::timeout(Duration::from_secs(10), work).await.ok() })
        });
        let _ = dropper.join();
    }
}

/// The same server and user, another database.
#[must_use]
pub fn url_of(admin_url: &str, database: &str) -> String {
    let (base, query) = admin_url.split_once('?').unwrap_or((admin_url, ""));
    let server = base.rsplit_once('/').map_or(base, |(server, _)| server);
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{server}/{database}{mark}{query}")
}

/// Makes the template, unless it is there. The lock is held by `admin`'s session, across test
/// binaries.
async fn ensure_template(admin: &mut PgConnection, admin_url: &str) -> Result<()> {
    sqlx::query("select pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut *admin).await?;
    let made = make_template(admin, admin_url).await;
    sqlx::query("select pg_advisory_unlock($1)").bind(TEMPLATE_LOCK).execute(&mut *admin).await?;
    made
}

async fn make_template(admin: &mut PgConnection, admin_url: &str) -> Result<()> {
    let exists = "select exists (select from pg_database where datname = $1 and datistemplate)";
    if sqlx::query_scalar(exists).bind(TEMPLATE).fetch_one(&mut *admin).await? {
        return Ok(());
    }
    // One that is no template yet was left half made by a process that was killed.
    execute(admin, format!("drop database if exists {TEMPLATE} with (force)")).await?;
    execute(admin, format!("create database {TEMPLATE}")).await?;
    let options = PgConnectOptions::from_str(admin_url)?.database(TEMPLATE);
    let pool = PgPoolOptions::new().max_connections(2).connect_with(options).await?;
    let made = async {
        dueline_store::migrate(&pool).await.context("the migrations failed")?;
        sqlx::raw_sql(ROW_RULES).execute(&pool).await?;
        anyhow::Ok(())
    };
    let made = made.await;
    pool.close().await;
    made?;
    execute(admin, format!("alter database {TEMPLATE} is_template true")).await
}

/// Runs a command that takes no parameters; the names in it are our own.
async fn execute(connection: &mut PgConnection, command: String) -> Result<()> {
    connection.execute(AssertSqlSafe(command)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_a_url_is_exchanged() {
        assert_eq!(url_of("postgres://p@h:1/postgres", "x"), "postgres://p@h:1/x");
        assert_eq!(
            url_of("postgres://p@h:1/a?sslmode=disable", "x"),
            "postgres://p@h:1/x?sslmode=disable"
        );
    }
}
