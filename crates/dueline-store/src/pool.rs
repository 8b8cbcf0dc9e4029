//! Connections, and what every session of ours sets.

use std::time::Duration;

use dueline_config::Postgres;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::{Pool, StoreError};

/// How to connect. The url may hold a password, so this type has no `Debug`.
#[derive(Clone)]
pub struct PoolSettings {
    /// `postgres://user:password@host:port/database?sslmode=…`
    pub url: String,
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
    /// The most connections of this process.
    pub max_connections: u32,
    /// A statement that runs longer is cancelled by the server.
    pub statement_timeout: Duration,
    /// A lock that is not granted in this time is given up: below a payer's `deadlock_timeout`, so that in a
    /// deadlock the batch is the victim and never the payer.
    pub lock_timeout: Duration,
    /// A transaction that idles longer is ended by the server: a stopped process must not hold a payer's row.
    pub idle_in_transaction_timeout: Duration,
    /// Waiting for a connection from the pool, and for a new one.
    pub connect_timeout: Duration,
    /// Further server settings, passed through.
    pub options: Vec<(String, String)>,
}

impl PoolSettings {
    /// What the configuration says, for the process that calls itself `application_name`.
    #[must_use]
    pub fn of(postgres: &Postgres, application_name: &str) -> Self {
        Self {
            url: postgres.url.expose().to_owned(),
            application_name: application_name.to_owned(),
            max_connections: postgres.max_connections,
            statement_timeout: postgres.statement_timeout,
            lock_timeout: postgres.lock_timeout,
            idle_in_transaction_timeout: postgres.idle_in_transaction_timeout,
            connect_timeout: postgres.connect_timeout,
            options: postgres.options.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        }
    }
}

/// How relays and consumers have their statements planned. Each names its rows by key, a thousand at
/// most, in tables that grow from nothing to millions within a minute: a plan that was kept from the
/// empty table reads the full one from end to end, a thousand times, until the next `analyze` throws
/// it away. So each execution is planned for the table as it is (some 0.5 ms for a batch), and walks an
/// index in its order: sequential and bitmap scans read a whole backlog for the first hundred rows of
/// it. What a batch reads is in memory or on a fast disk, and no plan is worth compiling.
const PLANS_OF_BATCHES: [(&str, &str); 5] = [
    ("plan_cache_mode", "force_custom_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("random_page_cost", "1.1"),
    ("jit", "off"),
];

/// Opens a pool; connections are made when they are first needed.
///
/// # Errors
/// When the url cannot be read.
pub fn connect(settings: &PoolSettings) -> Result<Pool, StoreError> {
    open(settings, &[])
}

/// [`connect`], for the statements of relays and consumers.
///
/// # Errors
/// When the url cannot be read.
pub fn connect_for_batches(settings: &PoolSettings) -> Result<Pool, StoreError> {
    open(settings, &PLANS_OF_BATCHES)
}

fn open(settings: &PoolSettings, plans: &[(&str, &str)]) -> Result<Pool, StoreError> {
    let ms = |d: Duration| d.as_millis().to_string();
    let mut options: PgConnectOptions = settings
        .url
        .parse()
        .map_err(|_| StoreError::Refused("postgres.url is not a postgres:// URL".to_owned()))?;
    options = options.application_name(&settings.application_name).options([
        ("default_transaction_isolation", "read committed".to_owned()),
        ("statement_timeout", ms(settings.statement_timeout)),
        ("lock_timeout", ms(settings.lock_timeout)),
        ("idle_in_transaction_session_timeout", ms(settings.idle_in_transaction_timeout)),
        ("tcp_keepalives_idle", "5".to_owned()),
        ("tcp_keepalives_interval", "3".to_owned()),
        ("tcp_keepalives_count", "3".to_owned()),
        ("client_connection_check_interval", "5s".to_owned()),
        ("timezone", "UTC".to_owned()),
    ]);
    options = options.options(plans.iter().copied());
    options = options.options(settings.options.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    Ok(PgPoolOptions::new()
        .max_connections(settings.max_connections)
        .acquire_timeout(settings.connect_timeout)
        .connect_lazy_with(options))
}
