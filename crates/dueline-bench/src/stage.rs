//! A database and topics of a scenario's own, with relays and consumers as real processes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_config::{Config, topics};
use dueline_kafka::TopicSpec;
use dueline_store::operate::{apply, instance};
use dueline_store::{Pool, PoolSettings};
use dueline_testkit::database::url_of;
use dueline_testkit::process::{Program, Service};
use dueline_testkit::wait;
use sqlx::AssertSqlSafe;
use tempfile::TempDir;
use uuid::Uuid;

use crate::bench::Bench;
use crate::load;
use crate::settings::{self, KIND, QUEUE};

/// Connections of the bench itself to a stage's database.
const MAX_CONNECTIONS: u32 = 24;
/// How long the brokers may take to show topics that they have accepted.
const TOPICS_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a process of ours may take to stop when its work is over.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// What sets values of the configuration from the environment: our processes go by their file alone.
const CONFIG_ENV: &str = "DUELINE__";

/// What a scenario may want different from the defaults of queue `bench`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Lanes per tier.
    pub slots: Option<u16>,
    /// Another team handles the tasks ([`crate::team`]), and no consumer of ours.
    pub team: bool,
}

/// See the module. [`Stage::close`] removes it; whatever a scenario leaves behind is removed by
/// [`Bench::clean_up`].
pub(crate) struct Stage {
    /// The database, with statements planned as usual and no statement timeout.
    pub pool: Pool,
    /// What relays and consumers run by.
    pub config: Config,
    /// The running relays.
    pub relays: Vec<Service>,
    /// The running consumers.
    pub consumers: Vec<Service>,
    database: String,
    prefix: String,
    started: usize,
    config_path: PathBuf,
    folder: TempDir,
}

impl Stage {
    /// Makes database and topics through the product's own code, and the table `orders`. Nothing runs yet.
    pub async fn set(bench: &Bench, setup: Setup) -> Result<Self> {
        let name = Uuid::new_v4().simple().to_string();
        let (database, prefix) =
            (format!("dueline_bench_{}", &name[..12]), format!("dueline-bench-{}", &name[..12]));
        bench.create_database(&database).await?;
        let url = url_of(bench.config.postgres.url.expose(), &database);
        let mut settings = settings::of_config(&bench.config, &url, &prefix);
        if let Some(slots) = setup.slots {
            settings.set(&format!("queues.{QUEUE}.slots"), i64::from(slots));
        }
        if setup.team {
            settings
                .remove(&format!("kinds.{KIND}.sql"))
                .set(&format!("kinds.{KIND}.outcomes"), true);
        }
        let folder = tempfile::Builder::new().prefix("dueline-bench-").tempdir()?;
        let config_path = folder.path().join("dueline.toml");
        settings.write(&config_path)?;
        let config = settings.config()?;
        let pool = dueline_store::connect(&PoolSettings {
            max_connections: MAX_CONNECTIONS,
            statement_timeout: Duration::ZERO,
            lock_timeout: Duration::ZERO,
            idle_in_transaction_timeout: Duration::ZERO,
            ..PoolSettings::of(&config.postgres, "dueline-bench")
        })?;
        let (relays, consumers, started) = (Vec::new(), Vec::new(), 0);
        let stage = Self {
            pool,
            config,
            relays,
            consumers,
            database,
            prefix,
            started,
            config_path,
            folder,
        };
        stage.prepare(bench).await?;
        Ok(stage)
    }

    async fn prepare(&self, bench: &Bench) -> Result<()> {
        let pool = &self.pool;
        dueline_store::migrate(pool).await?;
        instance::record_schema(pool).await?;
        instance::create(pool, &self.config.instance.name).await?;
        sqlx::raw_sql(include_str!("../sql/stage.sql")).execute(pool).await?;
        let role = self.config.postgres.handler_role.replace('"', "\"\"");
        let grant = format!("grant select, update on orders to \"{role}\"");
        sqlx::raw_sql(AssertSqlSafe(grant)).execute(pool).await?;
        self.create_topics(bench).await?;
        let plan = apply::apply(pool, &self.config).await?;
        let refused: Vec<&str> = plan.refusals().map(|item| item.detail.as_str()).collect();
        ensure!(refused.is_empty(), "dueline apply: {}", refused.join("; "));
        Ok(())
    }

    async fn create_topics(&self, bench: &Bench) -> Result<()> {
        bench.own_group(&self.prefix);
        bench.own_group(&self.config.outcome_group());
        let wanted = topics::of_config(&self.config);
        for topic in &wanted {
            let spec = TopicSpec {
                name: topic.name.clone(),
                partitions: u32::try_from(topic.partitions)?,
                replication: u32::try_from(topic.replication)?,
                configs: topic.config.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
            };
            bench.create_topic(spec).await?;
        }
        let names: Vec<String> = wanted.into_iter().map(|topic| topic.name).collect();
        wait::until("the topics to be shown", TOPICS_TIMEOUT, async || {
            Ok(bench.brokers.identify(&names).await?.iter().all(Option::is_some))
        })
        .await
    }

    /// Inserts unpaid orders, and brings the planner up to date.
    pub async fn orders(&self, first: i64, last: i64) -> Result<()> {
        load::make_orders(&self.pool, first, last).await?;
        sqlx::raw_sql("vacuum (analyze) orders").execute(&self.pool).await?;
        Ok(())
    }

    /// Vacuums, and writes everything to disk now, so that no measurement pays for what went before.
    pub async fn settle_down(&self) -> Result<()> {
        sqlx::raw_sql("vacuum (analyze)").execute(&self.pool).await?;
        // Not everybody who may create databases may do this.
        if let Err(error) = sqlx::raw_sql("checkpoint").execute(&self.pool).await {
            tracing::warn!(%error, "no checkpoint: a measurement may meet one of the server's own");
        }
        Ok(())
    }

    /// Starts a relay, and waits until it is ready.
    pub async fn start_relay(&mut self) -> Result<()> {
        let mut service = self.program("dueline-relay")?.start()?;
        service.ready().await?;
        self.relays.push(service);
        Ok(())
    }

    /// Starts a consumer, and waits until it is ready.
    pub async fn start_consumer(&mut self) -> Result<()> {
        let mut service = self.program("dueline-consumer")?.start()?;
        service.ready().await?;
        self.consumers.push(service);
        Ok(())
    }

    /// Starts a relay and a consumer at once, and waits until both are ready.
    pub async fn start_both(&mut self) -> Result<()> {
        let mut relay = self.program("dueline-relay")?.start()?;
        let mut consumer = self.program("dueline-consumer")?.start()?;
        relay.ready().await?;
        consumer.ready().await?;
        self.relays.push(relay);
        self.consumers.push(consumer);
        Ok(())
    }

    /// A relay or a consumer that goes by this stage's configuration file alone; not started yet.
    pub fn program(&mut self, binary: &str) -> Result<Program> {
        self.started += 1;
        let name = format!("{binary}-{}", self.started);
        let mut program = Program::built(binary, &name, self.folder.path())?;
        let typed = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let unset = typed.filter(|name| name.starts_with(CONFIG_ENV));
        let mut arguments: Vec<String> = unset.flat_map(|name| ["-u".to_owned(), name]).collect();
        arguments.push(program.path.display().to_string());
        arguments.extend(["--config".to_owned(), self.config_path.display().to_string()]);
        program.path = "env".into();
        program.arguments = arguments;
        Ok(program)
    }

    /// Whether our own processes tell how far they are: consumers, or relays that settle a team's outcomes.
    pub fn tells_settled(&self) -> bool {
        !self.consumers.is_empty() || self.is_team()
    }

    fn is_team(&self) -> bool {
        self.config.queues.get(QUEUE).is_some_and(|queue| queue.outcomes)
    }

    /// How many tasks the processes say that they have settled: the cheap way to know while they work. A
    /// count in the database would read what they are busy writing.
    pub async fn settled(&mut self) -> Result<i64> {
        let mut sum = 0.0;
        if self.is_team() {
            for relay in &mut self.relays {
                sum += relay.metric("dueline_relay_outcomes_total", "verdict=\"done\"").await?;
            }
        }
        for consumer in &mut self.consumers {
            sum += consumer.metric("dueline_consumer_tasks_total", "outcome=\"done\"").await?;
        }
        #[allow(clippy::cast_possible_truncation)]
        Ok(sum as i64)
    }

    /// Waits until the consumers have settled so many tasks since they were started.
    pub async fn await_settled(&mut self, n: i64, timeout: Duration) -> Result<()> {
        let what = format!("{n} tasks to be settled");
        let waited = wait::until(&what, timeout, async || Ok(self.settled().await? >= n)).await;
        waited.with_context(|| self.logs())
    }

    /// The ends of the logs of all processes, for an error message.
    pub fn logs(&self) -> String {
        let services = self.relays.iter().chain(&self.consumers);
        let logs = services.map(|s| format!("{}:\n{}", s.program().name, s.log_tail()));
        logs.collect::<Vec<_>>().join("\n")
    }

    /// The database's clock.
    pub async fn now(&self) -> Result<dueline_core::Micros> {
        Ok(dueline_store::operate::now(&self.pool).await?)
    }

    /// Asks all processes to stop, and waits for them; those that do not in time are killed.
    pub async fn stop(&mut self) {
        stop(self.relays.drain(..).chain(self.consumers.drain(..)).collect()).await;
    }

    /// [`Self::stop`] for the relays alone.
    pub async fn stop_relays(&mut self) {
        stop(self.relays.drain(..).collect()).await;
    }

    /// Stops and removes everything.
    pub async fn close(mut self, bench: &Bench) -> Result<()> {
        self.stop().await;
        self.pool.close().await;
        bench.drop_database(&self.database).await?;
        for topic in topics::of_config(&self.config) {
            bench.delete_topic(&topic.name).await?;
        }
        bench.delete_group(&self.config.outcome_group()).await?;
        bench.delete_group(&self.prefix).await
    }
}

async fn stop(mut services: Vec<Service>) {
    services.iter_mut().for_each(Service::terminate);
    for mut service in services {
        // Killed on drop; what it leaves is removed with the database.
        let _ = service.wait(STOP_TIMEOUT).await;
    }
}
