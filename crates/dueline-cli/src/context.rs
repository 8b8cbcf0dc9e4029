//! What every command works with: configuration, database, broker.

use std::time::Duration;

use dueline_config::Config;
use dueline_kafka::{Admin, KafkaSettings};
use dueline_store::operate::instance::{self, Instance};
use dueline_store::{Pool, PoolSettings};

use crate::args::Global;

/// The longest wait for one answer of the broker.
pub const BROKER_TIMEOUT: Duration = Duration::from_secs(10);
/// A command does one thing after another.
const MAX_CONNECTIONS: u32 = 2;
/// How long a statement that a person asked for may take: counting millions of alarms takes seconds.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a command waits for a row that somebody has locked.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// See the module.
pub struct Context {
    /// The checked configuration.
    pub config: Config,
}

impl Context {
    /// Reads the configuration.
    pub fn load(global: &Global) -> anyhow::Result<Self> {
        Ok(Self { config: Config::load(&global.source())? })
    }

    /// A pool without any question to the database.
    pub fn pool_with(
        &self,
        statement_timeout: Duration,
        lock_timeout: Duration,
    ) -> anyhow::Result<Pool> {
        Ok(dueline_store::connect(&PoolSettings {
            max_connections: MAX_CONNECTIONS,
            statement_timeout,
            lock_timeout,
            ..PoolSettings::of(&self.config.postgres, "dueline")
        })?)
    }

    /// A pool for a person's questions and changes.
    pub fn pool(&self) -> anyhow::Result<Pool> {
        self.pool_with(STATEMENT_TIMEOUT, LOCK_TIMEOUT)
    }

    /// A pool on a database that is ours, and whose it is.
    pub async fn checked(&self) -> anyhow::Result<(Pool, Instance)> {
        let pool = self.pool()?;
        let instance = instance::check(&pool, &self.config.instance.name).await?;
        Ok((pool, instance))
    }

    /// How to reach the broker.
    pub fn kafka(&self) -> KafkaSettings {
        let kafka = &self.config.kafka;
        let mut settings = KafkaSettings::new(kafka.bootstrap_servers());
        settings.client_id = "dueline-cli".to_owned();
        settings.properties = kafka.exposed_properties();
        settings
    }

    /// Asks the broker; each request is bounded by `timeout`.
    pub fn admin(&self, timeout: Duration) -> anyhow::Result<Admin> {
        Ok(Admin::new(&self.kafka(), timeout)?)
    }
}
