//! From a configuration to running loops.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dueline_config::{Config, Handler as HandlerKind, Queue};
use dueline_kafka::{Consumer, ConsumerConfig, KafkaSettings, Producer, ProducerConfig};
use dueline_service::backoff::Pauses;
use dueline_service::{CancellationToken, Health};
use dueline_store::effect::{CrashMarks, SqlHandler, check_session, known_kinds};
use dueline_store::operate::instance::{self, Instance};
use dueline_store::{Pool, PoolSettings, Sessions, StoreError};
use dueline_webhook::{Caller, Webhook};
use tokio::sync::{RwLock, Semaphore};
use tokio::task::JoinSet;

use crate::alarm::{Alarms, component};
use crate::context::{Context, KindEffect, KindSpec};
use crate::error::ConsumerError;
use crate::handler::{Handler, RustEffect};
use crate::job::TELL_FOR;
use crate::letters::Letters;
use crate::message::Sorter;
use crate::observe::Labels;
use crate::pace::Pace;
use crate::queue::{Bounds, QueueLoop, RunningKind};
use crate::select::{check_handlers, chosen, kinds_of};
use crate::tier::Tier;

/// How long a loop may go without a turn before the process counts as hung.
const PULSE: Duration = Duration::from_secs(30);
/// Pauses between attempts to start while the database or the broker is away.
const START_PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Puts a consumer together.
///
/// ```no_run
/// # async fn example(config: dueline_config::Config, handler: impl dueline_consumer::Handler)
/// # -> Result<(), dueline_consumer::ConsumerError> {
/// dueline_consumer::ConsumerBuilder::new(config).handler("remind_buyer", handler).run().await
/// # }
/// ```
pub struct ConsumerBuilder {
    config: Config,
    handlers: BTreeMap<String, Box<dyn Handler>>,
    queues: Option<Vec<String>>,
    health: Health,
}

impl ConsumerBuilder {
    /// A consumer of every queue of the configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, handlers: BTreeMap::new(), queues: None, health: Health::new() }
    }

    /// Handles a kind that the configuration declares with `rust = true`.
    #[must_use]
    pub fn handler(mut self, kind: impl Into<String>, handler: impl Handler) -> Self {
        self.handlers.insert(kind.into(), Box::new(handler));
        self
    }

    /// Consumes these queues only.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = String>) -> Self {
        self.queues = Some(queues.into_iter().collect());
        self
    }

    /// Reports to this registry.
    #[must_use]
    pub fn health(mut self, health: Health) -> Self {
        self.health = health;
        self
    }

    /// Runs until SIGTERM or SIGINT, then stops cleanly.
    ///
    /// # Errors
    /// [`ConsumerError`]; [`ConsumerError::is_refusal`] says whether somebody must change something first.
    pub async fn run(self) -> Result<(), ConsumerError> {
        let stop = dueline_service::shutdown::on_signal()
            .map_err(|error| ConsumerError::Broken(format!("signals: {error}")))?;
        self.run_until(stop).await
    }

    /// Runs until `stop` is cancelled, then stops cleanly.
    ///
    /// # Errors
    /// As [`ConsumerBuilder::run`].
    pub async fn run_until(self, stop: CancellationToken) -> Result<(), ConsumerError> {
        let Self { config, handlers, queues, health } = self;
        let queues = chosen(&config, queues)?;
        check_handlers(&config, &queues, &handlers)?;
        let webhooks = webhooks(&config, &queues)?;
        let pool = dueline_store::connect_for_batches(&pool_settings(&config))?;
        health.set("postgres", Err("not asked yet"));
        let contact = first_contact(&config, &queues, &pool, &health, &stop).await?;
        let Some((instance, described)) = contact else { return Ok(()) };
        let effects = effects(&config, &queues, handlers, described, webhooks);
        let process = Process {
            connections: Arc::new(Semaphore::new(config.postgres.max_connections as usize)),
            suspicion: Arc::default(),
            sessions: Arc::new(Sessions::new(pool)),
            alarms: Alarms::new(health.clone()),
            config: Arc::new(config),
            health,
            instance,
        };
        process.run(queues, effects, stop).await
    }
}

/// What all queues of the process share.
struct Process {
    config: Arc<Config>,
    connections: Arc<Semaphore>,
    suspicion: Arc<RwLock<()>>,
    sessions: Arc<Sessions>,
    alarms: Alarms,
    health: Health,
    instance: Instance,
}

type Kinds = HashMap<Arc<str>, Arc<KindSpec>>;

impl Process {
    async fn run(
        self,
        queues: Vec<Queue>,
        mut effects: HashMap<String, Kinds>,
        stop: CancellationToken,
    ) -> Result<(), ConsumerError> {
        let process = Arc::new(self);
        let mut loops = JoinSet::new();
        for queue in queues {
            let kinds = effects.remove(&queue.name).unwrap_or_default();
            let (process, stop) = (Arc::clone(&process), stop.clone());
            loops.spawn(async move { process.keep_running(&queue, &kinds, &stop).await });
        }
        let mut result = Ok(());
        while let Some(ended) = loops.join_next().await {
            let ended = ended.unwrap_or_else(|e| Err(ConsumerError::Broken(e.to_string())));
            if ended.is_err() && result.is_ok() {
                result = ended;
            }
            // One queue that cannot go on takes the process down cleanly: a supervisor starts it again.
            stop.cancel();
        }
        process.sessions.close().await;
        result
    }

    /// Runs a queue's loop; a member that failed is made anew, after a pause.
    async fn keep_running(
        &self,
        queue: &Queue,
        kinds: &Kinds,
        stop: &CancellationToken,
    ) -> Result<(), ConsumerError> {
        let mut pauses = Pauses::new(START_PAUSES.0, START_PAUSES.1);
        loop {
            self.alarms.raise(component::KAFKA, &queue.name, "joining the group");
            // `program` says "starting" until there is something better to say.
            self.health.remove("consumer");
            match self.queue_loop(queue, kinds)?.run(stop).await {
                Ok(()) => return Ok(()),
                Err(ConsumerError::Kafka(error)) => {
                    tracing::warn!(queue = queue.name, %error, "the group member failed");
                    self.alarms.raise(component::KAFKA, &queue.name, error.to_string());
                }
                Err(error) => return Err(error),
            }
            if !pauses.sleep(stop).await {
                return Ok(());
            }
        }
    }

    fn queue_loop(&self, queue: &Queue, kinds: &Kinds) -> Result<QueueLoop, ConsumerError> {
        let kafka = kafka_settings(&self.config);
        let letters = ProducerConfig {
            delivery_timeout: self.config.kafka.delivery_timeout,
            max_in_flight: 1_000,
            ..ProducerConfig::default()
        };
        let (producer, _reports) = Producer::new(&kafka, &letters)?;
        let context = Arc::new(Context {
            queue: queue.name.clone(),
            sessions: Arc::clone(&self.sessions),
            connections: Arc::clone(&self.connections),
            role: self.config.postgres.handler_role.clone(),
            marks: CrashMarks::new(self.sessions.pool().clone(), queue.group.clone()),
            letters: Letters::new(
                Arc::new(producer),
                self.sessions.pool().clone(),
                queue.name.clone(),
                queue.dead_letter_topic(),
            ),
            alarms: self.alarms.clone(),
            crash_limit: i32::try_from(self.config.consumer.crash_limit).unwrap_or(i32::MAX),
            suspicion: Arc::clone(&self.suspicion),
        });
        let member = member_config(&self.config, queue);
        let bounds = Bounds {
            batch_max: self.config.consumer.batch_max as usize,
            workers: self.config.consumer.workers_per_tier as usize,
            span: i64::try_from(member.max_outstanding).unwrap_or(i64::MAX),
            stop_timeout: self.config.consumer.stop_timeout,
        };
        let sorter = Sorter {
            queue: queue.name.clone(),
            instance: self.instance.clone(),
            kinds: kinds.iter().map(|(n, spec)| (Arc::clone(n), spec.max_payload)).collect(),
        };
        let tiers: Vec<Tier> = queue
            .tier_topics()
            .into_iter()
            .map(|topic| Tier::new(topic.into(), kinds.keys().cloned()))
            .collect();
        let kinds = kinds.values().map(|spec| self.running_kind(queue, spec)).collect();
        let consumer = Consumer::start(&kafka, member)?;
        let pulse = self.health.watch("consume", PULSE);
        Ok(QueueLoop::new(context, consumer, sorter, kinds, tiers, bounds, pulse))
    }

    fn running_kind(&self, queue: &Queue, spec: &Arc<KindSpec>) -> (Arc<str>, RunningKind) {
        let consumer = &self.config.consumer;
        let pause = (consumer.environment_pause_min, consumer.environment_pause_max);
        let longest = match spec.effect.webhook() {
            Some(webhook) => webhook.hold() + TELL_FOR,
            // A batch's bound: its handler, and as much again for our own statements and a free retry.
            None => consumer.handler_timeout * 4,
        };
        let pace = Pace::new(consumer.batch_max as usize, pause, longest);
        let labels = queue.tiers.iter().map(|t| Labels::new(&queue.name, &t.name, &spec.name));
        let kind = RunningKind { spec: Arc::clone(spec), pace, labels: labels.collect() };
        (Arc::clone(&spec.name), kind)
    }
}

fn pool_settings(config: &Config) -> PoolSettings {
    let postgres = &config.postgres;
    PoolSettings {
        // A handler's statement is bounded by its own timeout; everything else is far shorter.
        statement_timeout: config.consumer.handler_timeout.min(postgres.statement_timeout),
        ..PoolSettings::of(postgres, "dueline-consumer")
    }
}

fn kafka_settings(config: &Config) -> KafkaSettings {
    let mut settings = KafkaSettings::new(config.kafka.bootstrap_servers());
    settings.client_id = "dueline-consumer".to_owned();
    settings.properties = config.kafka.exposed_properties();
    settings
}

fn member_config(config: &Config, queue: &Queue) -> ConsumerConfig {
    let consumer = &config.consumer;
    let buffer = consumer.buffer_per_partition as usize;
    let longest_call = kinds_of(config, std::slice::from_ref(queue))
        .filter_map(|kind| match &kind.handler {
            HandlerKind::Http(webhook) => Some(webhook.hold()),
            _ => None,
        })
        .max();
    let longest = (consumer.handler_timeout * 2).max(longest_call.unwrap_or_default());
    ConsumerConfig {
        session_timeout: consumer.session_timeout,
        max_poll_interval: consumer.max_poll_interval,
        commit_interval: consumer.commit_interval,
        // A rebalance waits as long as a batch may take, and never so long that the member is put out.
        revoke_timeout: longest.min(consumer.max_poll_interval / 2),
        buffer_records: buffer,
        max_outstanding: buffer * 2 + consumer.batch_max as usize * 2,
        ..ConsumerConfig::new(queue.group.clone(), queue.tier_topics())
    }
}

/// Statements that were described, by kind.
type Described = BTreeMap<String, SqlHandler>;

/// Waits for the database, checks that it is ours to work on, and has it describe the handlers: a table that
/// somebody holds at the moment is waited for, too. `None`: stopped meanwhile.
async fn first_contact(
    config: &Config,
    queues: &[Queue],
    pool: &Pool,
    health: &Health,
    stop: &CancellationToken,
) -> Result<Option<(Instance, Described)>, ConsumerError> {
    let mut pauses = Pauses::new(START_PAUSES.0, START_PAUSES.1);
    loop {
        let asked = async {
            let instance = instance::check(pool, &config.instance.name).await?;
            check_session(pool, &config.postgres.handler_role).await?;
            warn_about_unregistered(config, queues, pool).await?;
            Ok((instance, describe(config, queues, pool).await?))
        };
        match asked.await {
            Ok(contact) => {
                health.set("postgres", Ok::<(), String>(()));
                return Ok(Some(contact));
            }
            Err(error @ StoreError::Refused(_)) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "the database does not answer yet");
                health.set("postgres", Err(error.to_string()));
            }
        }
        if !pauses.sleep(stop).await {
            return Ok(None);
        }
    }
}

async fn warn_about_unregistered(
    config: &Config,
    queues: &[Queue],
    pool: &Pool,
) -> Result<(), StoreError> {
    let known = known_kinds(pool).await?;
    for kind in kinds_of(config, queues) {
        if !known.iter().any(|k| k.name == kind.name && k.queue == kind.queue) {
            tracing::warn!(kind = kind.name, "not registered: run `dueline apply`");
        }
    }
    Ok(())
}

async fn describe(config: &Config, queues: &[Queue], pool: &Pool) -> Result<Described, StoreError> {
    let role = &config.postgres.handler_role;
    let mut described = Described::new();
    for kind in kinds_of(config, queues) {
        if let HandlerKind::Sql(sql) = &kind.handler {
            let handler = SqlHandler::describe(pool, &kind.name, role, sql).await?;
            described.insert(kind.name.clone(), handler);
        }
    }
    Ok(described)
}

/// What is called, by kind. Made before the database is asked: what cannot be called is refused at once.
fn webhooks(
    config: &Config,
    queues: &[Queue],
) -> Result<BTreeMap<String, Arc<Webhook>>, ConsumerError> {
    let mut webhooks = BTreeMap::new();
    let mut caller = None;
    let refused = |error: dueline_webhook::CallerError| ConsumerError::Refused(error.to_string());
    for kind in kinds_of(config, queues) {
        let HandlerKind::Http(webhook) = &kind.handler else { continue };
        let caller = match &mut caller {
            Some(caller) => caller,
            none => none.insert(Caller::new(&config.http).map_err(refused)?),
        };
        let webhook = caller.webhook(&kind.name, webhook).map_err(refused)?;
        webhooks.insert(kind.name.clone(), Arc::new(webhook));
    }
    Ok(webhooks)
}

/// Who carries out each kind, by queue.
fn effects(
    config: &Config,
    queues: &[Queue],
    mut handlers: BTreeMap<String, Box<dyn Handler>>,
    mut described: Described,
    mut webhooks: BTreeMap<String, Arc<Webhook>>,
) -> HashMap<String, Kinds> {
    let mut effects: HashMap<String, Kinds> = HashMap::new();
    for kind in kinds_of(config, queues) {
        let timeout = config.consumer.handler_timeout;
        let effect = match &kind.handler {
            HandlerKind::Sql(_) => described.remove(&kind.name).map(KindEffect::Sql),
            HandlerKind::Rust => handlers
                .remove(&kind.name)
                .map(|handler| KindEffect::Rust(RustEffect { handler, timeout })),
            HandlerKind::Http(_) => webhooks.remove(&kind.name).map(KindEffect::Http),
            HandlerKind::Outcomes { .. } => None,
        };
        let Some(effect) = effect else { continue };
        let name: Arc<str> = kind.name.as_str().into();
        let spec = KindSpec {
            name: Arc::clone(&name),
            effect,
            retry: kind.retry.clone(),
            max_payload: kind.max_payload_bytes as usize,
        };
        effects.entry(kind.queue.clone()).or_default().insert(name, Arc::new(spec));
    }
    effects
}
