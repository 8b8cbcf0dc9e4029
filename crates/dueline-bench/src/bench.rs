//! What all scenarios share: the configuration, the progress, and everything that must be removed again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use dueline_config::Config;
use dueline_kafka::{Admin, KafkaSettings, TopicSpec, testing};
use dueline_store::{Pool, PoolSettings};
use sqlx::AssertSqlSafe;

use crate::options::Options;
use crate::progress::Progress;

/// The longest wait for one answer of the brokers.
const BROKER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for the end of everything that is to be removed.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// Something that was made and is not removed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Made {
    Database(String),
    Topic(String),
    Group(String),
}

/// See the module.
pub(crate) struct Bench {
    /// The user's configuration.
    pub config: Config,
    /// What to run.
    pub options: Options,
    /// What is said while it runs.
    pub progress: Progress,
    /// A pool on the configured database, from which databases are made and dropped.
    pub server: Pool,
    /// The brokers.
    pub brokers: Admin,
    steady_rate: Mutex<Option<f64>>,
    seen_rate: Mutex<Option<f64>>,
    made: Mutex<Vec<Made>>,
    /// Held while something is being made.
    making: Arc<tokio::sync::Mutex<()>>,
}

impl Bench {
    /// Nothing is connected yet.
    pub fn new(config: Config, options: Options) -> Result<Self> {
        let server = dueline_store::connect(&PoolSettings {
            max_connections: 2,
            statement_timeout: Duration::ZERO,
            ..PoolSettings::of(&config.postgres, "dueline-bench")
        })?;
        let mut kafka = KafkaSettings::new(config.kafka.bootstrap_servers());
        kafka.client_id = "dueline-bench".to_owned();
        kafka.properties = config.kafka.exposed_properties();
        let brokers = Admin::new(&kafka, BROKER_TIMEOUT)?;
        let progress = Progress::new(options.chosen().len());
        let (steady_rate, seen_rate) = (Mutex::default(), Mutex::default());
        let (made, making) = (Mutex::default(), Arc::default());
        Ok(Self {
            config,
            options,
            progress,
            server,
            brokers,
            steady_rate,
            seen_rate,
            made,
            making,
        })
    }

    /// The rate of `steady` as measured in this run, in tasks per second.
    pub fn steady_rate(&self) -> Option<f64> {
        *self.steady_rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the rate of `steady`.
    pub fn set_steady_rate(&self, rate: f64) {
        *self.steady_rate.lock().unwrap_or_else(PoisonError::into_inner) = Some(rate);
    }

    /// About how fast the product is, once it has run at all.
    pub fn seen_rate(&self) -> Option<f64> {
        *self.seen_rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the rate of a warm-up, which nothing else is reckoned from than what to prepare.
    pub fn set_seen_rate(&self, rate: f64) {
        *self.seen_rate.lock().unwrap_or_else(PoisonError::into_inner) = Some(rate);
    }

    /// An empty database on the configured server.
    pub async fn create_database(&self, name: &str) -> Result<()> {
        self.remember(Made::Database(name.to_owned()));
        let statement = format!("create database {name} encoding 'UTF8' template template0");
        let server = self.server.clone();
        self.make(async move {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&server).await?;
            Ok(())
        })
        .await
    }

    /// Drops a database of ours.
    pub async fn drop_database(&self, name: &str) -> Result<()> {
        self.remove(&Made::Database(name.to_owned())).await
    }

    /// A topic, to be deleted at the end.
    pub async fn create_topic(&self, spec: TopicSpec) -> Result<()> {
        self.remember(Made::Topic(spec.name.clone()));
        let brokers = self.brokers.clone();
        self.make(async move { Ok(brokers.create(spec).await?) }).await
    }

    /// A consumer group that is to be deleted at the end.
    pub fn own_group(&self, name: &str) {
        self.remember(Made::Group(name.to_owned()));
    }

    /// Deletes a topic of ours.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        self.remove(&Made::Topic(name.to_owned())).await
    }

    /// Deletes a group of ours.
    pub async fn delete_group(&self, name: &str) -> Result<()> {
        self.remove(&Made::Group(name.to_owned())).await
    }

    /// Removes whatever is left, within a minute; answers what could not be removed.
    pub async fn clean_up(&self) -> Vec<String> {
        let removal = async {
            let _nothing_is_being_made = self.making.lock().await;
            for made in self.made() {
                if let Err(error) = self.remove(&made).await {
                    tracing::warn!(?made, error = format!("{error:#}"), "not removed");
                }
            }
        };
        if tokio::time::timeout(CLEAN_UP_TIMEOUT, removal).await.is_err() {
            tracing::warn!("what was made for the benchmark could not all be removed in time");
        }
        self.server.close().await;
        let names = self.made().into_iter().map(|made| match made {
            Made::Database(name) => format!("database {name}"),
            Made::Topic(name) => format!("topic {name}"),
            Made::Group(name) => format!("group {name}"),
        });
        names.collect()
    }

    /// Makes something in a task of its own: a run that is interrupted meanwhile waits for it before it
    /// removes everything, for what is still under way could not be found yet.
    async fn make(&self, work: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
        let making = Arc::clone(&self.making).lock_owned().await;
        let work = tokio::spawn(async move {
            let made = work.await;
            drop(making);
            made
        });
        work.await?
    }

    async fn remove(&self, made: &Made) -> Result<()> {
        match made {
            Made::Database(name) => {
                let statement = format!("drop database if exists {name} with (force)");
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.server).await?;
            }
            Made::Topic(name) => {
                let found = self.brokers.identify(std::slice::from_ref(name)).await?;
                if found.iter().any(Option::is_some) {
                    testing::delete_topic(&self.brokers, name).await?;
                }
            }
            Made::Group(name) => {
                // One that a killed member has yet to leave cannot be deleted: the brokers forget an empty
                // group by themselves.
                if let Err(error) = testing::delete_group(&self.brokers, name).await {
                    tracing::debug!(%error, "a group stays for a while");
                }
            }
        }
        self.made.lock().unwrap_or_else(PoisonError::into_inner).retain(|m| m != made);
        Ok(())
    }

    fn remember(&self, made: Made) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
    }

    fn made(&self) -> Vec<Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
