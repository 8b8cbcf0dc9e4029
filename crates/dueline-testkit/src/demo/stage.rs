//! The services, the configuration and our processes.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use dueline_kafka::mock::{MockBroker, mock_cluster};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};
use tempfile::TempDir;

use super::Options;
use super::progress::Progress;
use crate::checker::Places;
use crate::cli::{self, Output};
use crate::database::url_of;
use crate::process::{Program, Service};
use crate::services::{Kafka, KafkaOptions, Postgres, PostgresOptions};
use crate::settings::Settings;
use crate::topics;

/// The broker that the demo uses.
enum Broker {
    /// A private Apache Kafka.
    Private(Kafka),
    /// One that was there already.
    Given(String),
    /// librdkafka's in-process one.
    Mock(MockBroker),
}

impl Broker {
    fn address(&self) -> String {
        match self {
            Self::Private(kafka) => kafka.bootstrap(),
            Self::Given(address) => address.clone(),
            Self::Mock(broker) => broker.brokers(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Private(_) => "Apache Kafka, private",
            Self::Given(_) => "Apache Kafka, as given by DUELINE_KAFKA_BROKERS",
            Self::Mock(_) => "librdkafka's in-process broker (no Kafka was available)",
        }
    }
}

/// Everything that the demo runs on. Our processes are dropped before the services they use.
pub struct Stage {
    /// The relay.
    pub relay: Service,
    /// The consumer.
    pub consumer: Service,
    /// The shop's database, as its owner.
    pub pool: PgPool,
    /// Where the checker finds its evidence.
    pub places: Places,
    config: PathBuf,
    database_url: String,
    broker: Broker,
    postgres: Postgres,
    folder: TempDir,
}

impl Stage {
    /// Starts the services, prepares the database by the public ways, and starts our processes; see
    /// [`Self::start_services`] for their readiness.
    pub async fn set(options: &Options, progress: &Progress) -> Result<Self> {
        let (postgres, broker) = services(options, progress).await?;
        let folder = tempfile::Builder::new().prefix("dueline-demo-").tempdir()?;
        let database_url = shop_database(&postgres).await?;
        let pool = PgPoolOptions::new().max_connections(24).connect(&database_url).await?;

        let mut settings = settings(&database_url, &broker.address());
        if !matches!(broker, Broker::Given(_)) {
            // Ours allows it: by default a broker waits at least six seconds for a killed member.
            settings.set("consumer.session_timeout", "2s");
        }
        let config = folder.path().join("dueline.toml");
        settings.write(&config)?;
        let checked = settings.config()?;
        if let Broker::Mock(mock) = &broker {
            make_topics(mock, &checked)?;
        }
        progress.say("dueline migrate");
        cli::run(&config, &["migrate"]).await?.ok()?;
        sqlx::raw_sql(include_str!("../../sql/demo/shop.sql")).execute(&pool).await?;
        progress.say("dueline apply");
        // The in-process broker cannot say how its topics are set up, so there is nothing to
        // compare.
        let apply: &[&str] = match &broker {
            Broker::Mock(_) => &["apply", "--only", "database"],
            _ => &["apply"],
        };
        cli::run(&config, apply).await?.ok()?;

        let program = |binary: &str| -> Result<Program> {
            let program = Program::built(binary, binary, folder.path())?;
            Ok(program.args(["--config".to_owned(), config.display().to_string()]))
        };
        let (relay, consumer) =
            (program("dueline-relay")?.start()?, program("dueline-consumer")?.start()?);
        let places = Places::of(&checked);
        Ok(Self { relay, consumer, pool, places, config, database_url, broker, postgres, folder })
    }

    /// Waits until relay and consumer are ready.
    pub async fn start_services(&mut self, progress: &Progress) -> Result<()> {
        self.relay.ready().await?;
        self.consumer.ready().await?;
        progress.say("relay and consumer are ready, each a process of its own");
        Ok(())
    }

    /// Which broker it is, in words.
    pub fn broker_name(&self) -> &'static str {
        self.broker.name()
    }

    /// Runs the command line with the demo's configuration.
    pub async fn dueline(&self, arguments: &[&str]) -> Result<Output> {
        cli::run(&self.config, arguments).await
    }

    /// Leaves the services up, and says how to reach and how to end them.
    pub fn leave(mut self) {
        self.folder.disable_cleanup(true);
        let (mut ids, mut folders) = (Vec::new(), vec![self.folder.path().to_owned()]);
        let address = self.broker.address();
        let (postgres_id, postgres_folder) = self.postgres.leave();
        ids.extend(postgres_id);
        folders.push(postgres_folder);
        if let Broker::Private(kafka) = self.broker {
            let (kafka_id, kafka_folder) = kafka.leave();
            ids.extend(kafka_id);
            folders.push(kafka_folder);
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let folders: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        println!("\nThe services stay up:");
        println!("  PostgreSQL     psql {}", self.database_url);
        println!("  Kafka          {address}");
        println!("  configuration  {}", self.config.display());
        println!("  to end them    kill -INT {} && rm -r {}", ids.join(" "), folders.join(" "));
    }
}

async fn services(options: &Options, progress: &Progress) -> Result<(Postgres, Broker)> {
    let keep = options.keep;
    progress.say("starting the services, private, on loopback");
    let kafka = match (&options.brokers, options.mock_kafka) {
        (Some(brokers), _) => Err(Broker::Given(brokers.clone())),
        (None, true) => Err(Broker::Mock(mock_cluster(1)?)),
        (None, false) => Ok(tokio::task::spawn_blocking(move || {
            Kafka::start_with(KafkaOptions { outlives_us: keep, ..KafkaOptions::default() })
        })),
    };
    if keep && matches!(kafka, Err(Broker::Mock(_))) {
        bail!("--keep needs a real Kafka: the in-process broker ends with the demo");
    }
    let postgres = tokio::task::spawn_blocking(move || {
        Postgres::start_with(PostgresOptions { outlives_us: keep, ..PostgresOptions::default() })
    });
    let broker = match kafka {
        Err(broker) => broker,
        Ok(starting) => Broker::Private(starting.await??),
    };
    let postgres = postgres.await??;
    progress.say(&format!("PostgreSQL on port {}; {}", postgres.port(), broker.name()));
    Ok((postgres, broker))
}

async fn shop_database(postgres: &Postgres) -> Result<String> {
    let mut admin = PgConnection::connect(&postgres.url()).await?;
    sqlx::raw_sql("create database shop").execute(&mut admin).await?;
    admin.close().await?;
    Ok(url_of(&postgres.url(), "shop"))
}

/// Two queues, several tiers. Leases and pauses are short, so that a killed process costs seconds.
fn settings(database_url: &str, brokers: &str) -> Settings {
    let mut settings = Settings::new(database_url, brokers, &topics::unique_prefix());
    settings.set("instance.name", "demo");
    settings.set_toml(
        "queues.orders.tiers",
        r#"[{ name = "3s", max_delay = "3s" }, { name = "7s", max_delay = "7s" },
            { name = "90d", max_delay = "90d" }]"#,
    );
    settings.set_toml(
        "queues.refunds.tiers",
        r#"[{ name = "5s", max_delay = "5s" }, { name = "90d", max_delay = "90d" }]"#,
    );
    settings.sql_kind("close_order", "orders", include_str!("../../sql/demo/close_order.sql"));
    settings.sql_kind("refund", "refunds", include_str!("../../sql/demo/refund.sql"));
    settings.set("kinds.refund.backoff", ["500ms", "1s", "2s", "4s"]);
    settings.set("relay.lease", "15s").set("relay.lease_slack", "1s");
    settings.set("kafka.delivery_timeout", "10s");
    settings.set("relay.takeover_after", "1500ms").set("relay.sweep_interval", "1s");
    settings.set("consumer.handler_timeout", "5s").set("consumer.session_timeout", "6s");
    settings.set("postgres.idle_in_transaction_timeout", "8s");
    settings.set("postgres.statement_timeout", "8s");
    settings
}

fn make_topics(mock: &MockBroker, config: &dueline_config::Config) -> Result<()> {
    for queue in config.queues.values() {
        for name in queue.tier_topics().into_iter().chain([queue.dead_letter_topic()]) {
            let spec = dueline_kafka::TopicSpec {
                name,
                partitions: u32::try_from(queue.partitions)?,
                replication: 1,
                configs: std::collections::BTreeMap::new(),
            };
            mock.create_topic(&spec).context("the in-process broker")?;
        }
    }
    Ok(())
}
