//! Connections, and what every session of ours sets.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dueline_config::Postgres;
use sqlx::Connection as _;
use sqlx::pool::PoolConnection;
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
/// most, in tables that grow from nothing to millions within a minute. Planning anew each time costs
/// more than a small batch takes to run; and a plan that was kept from the empty table, chosen by its
/// cost, would read the full one from end to end until the next `analyze` throws it away. So plans are
/// kept, and only one shape is allowed: walk an index in its order, and look each row up by key. That
/// is the right plan at every size, so it cannot become stale. A test plans on empty tables and fills
/// them.
const PLANS_OF_BATCHES: [(&str, &str); 7] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
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

/// A connection that was idle for longer is asked whether it still lives before it is used.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Connections that stay with those who need one all the time.
///
/// The pool asks a connection whether it lives before and after each use: two round trips, which a
/// small batch would wait for longer than for its first statement. What is kept here is trusted for
/// a second. At most half of the pool is kept, so that everybody else finds a connection.
#[derive(Debug)]
pub struct Sessions {
    pool: Pool,
    kept: Mutex<Vec<(PoolConnection<sqlx::Postgres>, Instant)>>,
}

impl Sessions {
    /// Keeps connections of this pool.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self { pool, kept: Mutex::new(Vec::new()) }
    }

    /// The pool behind.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A connection: a kept one, else one of the pool. Dropping it gives it back to the pool, which
    /// closes it when it is broken.
    ///
    /// # Errors
    /// When the pool has none in time.
    pub async fn take(&self) -> Result<PoolConnection<sqlx::Postgres>, StoreError> {
        // Bounded: each turn takes one out, and nothing is put in here.
        while let Some((mut connection, since)) = self.pop() {
            if since.elapsed() < TRUSTED_FOR || connection.ping().await.is_ok() {
                return Ok(connection);
            }
        }
        Ok(self.pool.acquire().await?)
    }

    /// Runs `work` on a connection, which is kept when it ended well.
    ///
    /// # Errors
    /// When the pool has none in time, or what `work` answers.
    pub async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&mut sqlx::PgConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connection = self.take().await?;
        let result = work(&mut connection).await;
        match &result {
            Ok(_) => self.keep(connection),
            Err(_) => self.forget(),
        }
        result
    }

    /// Keeps a connection that ended its work well, and is in no transaction.
    pub fn keep(&self, connection: PoolConnection<sqlx::Postgres>) {
        if self.pool.is_closed() {
            return;
        }
        let most = (self.pool.options().get_max_connections() / 2).max(1) as usize;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < most {
            kept.push((connection, Instant::now()));
        }
    }

    /// One connection broke: the others are probably of no use either.
    pub fn forget(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Closes everything. The pool alone would wait for what is kept here.
    pub async fn close(&self) {
        let closing = self.pool.close();
        self.forget();
        closing.await;
    }

    fn pop(&self) -> Option<(PoolConnection<sqlx::Postgres>, Instant)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}
