//! A shop that runs: database, topics, a relay and a consumer.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use dueline_testkit::process::{Program, Service};
use dueline_testkit::services::KAFKA_ENV;
use dueline_testkit::settings::{Settings, Value};
use dueline_testkit::topics;
use tempfile::TempDir;

use crate::Bench;
use crate::cli::{self, Output};

/// The shop's queue.
pub const QUEUE: &str = "orders";
/// The shop's kind.
pub const KIND: &str = "close_order";
/// The shop's handler: closes what is unpaid, and counts how often it did.
pub const CLOSE_ORDER: &str = "
update orders
   set status = 'closed', closed_at = clock_timestamp(), times = orders.times + 1
  from batch
 where orders.id = batch.key::bigint and orders.status = 'unpaid'
returning batch.ord";

/// What a test may want different before the shop opens.
#[derive(Debug)]
pub struct ShopBuilder {
    bench: Bench,
    settings: Settings,
    relay: bool,
    consumer: bool,
    consumer_binary: &'static str,
}

impl ShopBuilder {
    /// Sets a value of the configuration, such as `relay.lease`.
    #[must_use]
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        self.settings.set(path, value);
        self
    }

    /// Adds a kind of queue [`QUEUE`], or gives [`KIND`] another statement.
    #[must_use]
    pub fn kind(mut self, kind: &str, statement: &str) -> Self {
        self.settings.sql_kind(kind, QUEUE, statement);
        self
    }

    /// All settings, for what the shorthands do not cover.
    pub fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Runs this SQL on the new database: more tables, and the handler's rights on them.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn sql(self, script: &'static str) -> Result<Self> {
        sqlx::raw_sql(script).execute(&self.bench.pool).await?;
        Ok(self)
    }

    /// Starts no relay; [`Shop::start_relay`] does later.
    #[must_use]
    pub fn without_relay(mut self) -> Self {
        self.relay = false;
        self
    }

    /// Starts no consumer; [`Shop::start_consumer`] does later.
    #[must_use]
    pub fn without_consumer(mut self) -> Self {
        self.consumer = false;
        self
    }

    /// Another binary as the consumer, such as an example with a handler in Rust.
    #[must_use]
    pub fn consumer_binary(mut self, name: &'static str) -> Self {
        self.consumer_binary = name;
        self
    }

    /// Applies the configuration and starts what is to run; waits until it is ready.
    ///
    /// # Errors
    /// When something does not start; the error shows its log.
    pub async fn start(self) -> Result<Shop> {
        let folder = tempfile::Builder::new().prefix("dueline-test-").tempdir()?;
        let config = folder.path().join("dueline.toml");
        self.settings.write(&config)?;
        let mut shop = Shop {
            relays: Vec::new(),
            consumers: Vec::new(),
            settings: self.settings,
            config,
            consumer_binary: self.consumer_binary,
            bench: self.bench,
            folder,
        };
        shop.dueline(&["apply"]).await?.ok().context("dueline apply")?;
        if self.relay {
            shop.start_relay().await?;
        }
        if self.consumer {
            shop.start_consumer().await?;
        }
        Ok(shop)
    }
}

/// A running shop; it derefs to [`Bench`], which has the tables and the tasks.
#[derive(Debug)]
pub struct Shop {
    /// The relays, in the order of their start.
    pub relays: Vec<Service>,
    /// The consumers, in the order of their start.
    pub consumers: Vec<Service>,
    /// The configuration that everything runs by.
    pub settings: Settings,
    config: PathBuf,
    consumer_binary: &'static str,
    bench: Bench,
    folder: TempDir,
}

impl Deref for Shop {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl Shop {
    /// A shop with one relay and one consumer.
    ///
    /// # Errors
    /// When the services are missing or something does not start.
    pub async fn start() -> Result<Self> {
        Self::build().await?.start().await
    }

    /// A shop to be changed before it starts. Leases and pauses are shortened, so that a test sees
    /// in seconds what takes a minute by default.
    ///
    /// # Errors
    /// When the services are missing.
    pub async fn build() -> Result<ShopBuilder> {
        Ok(Self::build_on(Bench::new().await?, &shared_brokers()?))
    }

    /// [`Shop::build`] in this database and on these brokers, for tests that break their own.
    #[must_use]
    pub fn build_on(bench: Bench, brokers: &str) -> ShopBuilder {
        let mut settings = Settings::new(&bench.url(), brokers, &topics::unique_prefix());
        settings.set("queues.orders.slots", 2).set("queues.orders.partitions", 2);
        settings.set_toml(
            "queues.orders.tiers",
            r#"[{ name = "fast", max_delay = "1m" }, { name = "slow", max_delay = "90d" }]"#,
        );
        settings.sql_kind(KIND, QUEUE, CLOSE_ORDER);
        settings.set("relay.lease", "10s").set("relay.lease_slack", "1s");
        settings.set("kafka.delivery_timeout", "5s");
        settings.set("relay.sweep_interval", "500ms").set("relay.takeover_after", "2s");
        settings.set("consumer.handler_timeout", "4s");
        settings.set("postgres.idle_in_transaction_timeout", "5s");
        settings.set("postgres.statement_timeout", "8s");
        settings.set("consumer.session_timeout", "6s").set("log.level", "info,dueline=debug");
        ShopBuilder {
            bench,
            settings,
            relay: true,
            consumer: true,
            consumer_binary: "dueline-consumer",
        }
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// A folder of the test's own; the logs of its processes stand in it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `dueline` with this configuration.
    ///
    /// # Errors
    /// When it cannot be run; a failure of the command is in its [`Output`].
    pub async fn dueline(&self, arguments: &[&str]) -> Result<Output> {
        cli::run(&self.config, arguments).await
    }

    /// Starts a relay and waits until it is ready.
    ///
    /// # Errors
    /// When it is not ready in time; the error shows its log.
    pub async fn start_relay(&mut self) -> Result<()> {
        let name = format!("relay{}", self.relays.len() + 1);
        let mut service = self.program("dueline-relay", &name)?.start()?;
        service.ready().await?;
        self.relays.push(service);
        Ok(())
    }

    /// Starts a consumer and waits until it is ready.
    ///
    /// # Errors
    /// When it is not ready in time; the error shows its log.
    pub async fn start_consumer(&mut self) -> Result<()> {
        let name = format!("consumer{}", self.consumers.len() + 1);
        let mut service = self.program(self.consumer_binary, &name)?.start()?;
        service.ready().await?;
        self.consumers.push(service);
        Ok(())
    }

    /// A program of ours with this configuration, not started yet: to add environment first.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn program(&self, binary: &str, name: &str) -> Result<Program> {
        let program = Program::built(binary, name, self.folder.path())?;
        Ok(program.args(["--config".to_owned(), self.config.display().to_string()]))
    }

    /// The first relay.
    ///
    /// # Panics
    /// When there is none.
    pub fn relay(&mut self) -> &mut Service {
        &mut self.relays[0]
    }

    /// The first consumer.
    ///
    /// # Panics
    /// When there is none.
    pub fn consumer(&mut self) -> &mut Service {
        &mut self.consumers[0]
    }
}

/// The broker that all tests share.
///
/// # Errors
/// When there is none.
pub fn shared_brokers() -> Result<String> {
    std::env::var(KAFKA_ENV).with_context(|| {
        format!(
            "{KAFKA_ENV} is not set: run the tests by ./scripts/test, or by \
             `dueline-services run -- cargo test …`"
        )
    })
}
