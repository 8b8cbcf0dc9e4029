//! A whole relay: its start, its loops, its end.

use std::sync::Arc;
use std::time::Duration;

use dueline_config::Config;
use dueline_kafka::{Admin, KafkaSettings, Reports};
use dueline_service::backoff::Pauses;
use dueline_service::{CancellationToken, Health};
use dueline_store::operate::instance;
use dueline_store::{Pool, PoolSettings, relay as store};

use crate::error::RelayError;
use crate::lanes::Ownership;
use crate::publish::{Publisher, Settings, Ticket};
use crate::routes::Routes;
use crate::scan::{Scan, Step};
use crate::shared::Shared;
use crate::sweep::{Sweep, Swept};
use crate::{letters, outcomes, patrol, topics};

/// The longest wait for one answer of the broker.
const BROKER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is checked that the database is still the one it was.
const INSTANCE_INTERVAL: Duration = Duration::from_secs(15);
/// What of the time for a clean stop is kept for giving the lanes back.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses between attempts to start.
const START_MIN: Duration = Duration::from_millis(200);
const START_MAX: Duration = Duration::from_secs(5);
/// Steps of one `run_once`: a thousand million tasks.
const MAX_STEPS: usize = 1_000_000;

/// What one whole round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Once {
    /// Lanes that nobody owned, or whose owner was dead.
    pub lanes: usize,
    /// Tasks claimed and published by the scan.
    pub claimed: usize,
    /// What the sweep did.
    pub swept: Swept,
    /// Missing dead letters written.
    pub letters: usize,
}

/// A relay that has passed its start-up checks.
pub struct Relay {
    shared: Arc<Shared>,
    reports: Reports<Ticket>,
}

impl Relay {
    /// Connects and checks: the database is ours and no standby, the topics are as configured.
    ///
    /// # Errors
    /// What is not as it must be, or cannot be reached.
    pub async fn connect(config: Config, health: Health) -> Result<Self, RelayError> {
        let pool = pool(&config)?;
        let instance = instance::check(&pool, &config.instance.name).await?;
        let kafka = kafka(&config);
        let admin = Admin::new(&kafka, BROKER_TIMEOUT)?;
        topics::check(&admin, &config).await?;
        let routes = Routes::new(&config);
        let settings = Settings {
            kafka,
            delivery_timeout: config.kafka.delivery_timeout,
            max_in_flight: config.relay.max_in_flight as usize,
            lease: config.relay.lease,
            probe_topic: routes.topics().into_iter().next().unwrap_or_default(),
        };
        let (publisher, reports) = Publisher::new(settings, pool.clone(), admin.clone())?;
        let source = instance.source();
        let publisher = Arc::new(publisher);
        let shared = Shared::new(config, pool, admin, publisher, routes, health, &source);
        topics::see(&shared).await?;
        Ok(Self { shared: Arc::new(shared), reports })
    }

    /// [`Relay::connect`] until it succeeds, is refused, or `stop`: a database or broker that is
    /// not there yet is waited for.
    ///
    /// # Errors
    /// A refusal, or [`RelayError::Stopped`].
    pub async fn connect_patiently(
        config: &Config,
        health: &Health,
        stop: &CancellationToken,
    ) -> Result<Self, RelayError> {
        let mut pauses = Pauses::new(START_MIN, START_MAX);
        loop {
            match Self::connect(config.clone(), health.clone()).await {
                Ok(relay) => {
                    health.remove("start");
                    return Ok(relay);
                }
                Err(error) if error.is_refusal() => return Err(error),
                Err(error) => health.set("start", Err(error)),
            }
            if !pauses.sleep(stop).await {
                return Err(RelayError::Stopped);
            }
        }
    }

    /// Runs until `stop`, then drains: no more claims, what is under way is waited for, the lanes
    /// are given back.
    ///
    /// # Errors
    /// A refusal that came up meanwhile. Trouble with database or broker is waited out.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RelayError> {
        let Self { shared, reports } = self;
        let quit = CancellationToken::new();
        let publisher = Arc::clone(&shared.publisher);
        let reports = tokio::spawn(publisher.run(reports, quit.clone()));
        let helpers = stop.child_token();
        let side = {
            let (shared, stop) = (Arc::clone(&shared), helpers.clone());
            tokio::spawn(async move {
                tokio::join!(
                    letters::run(&shared, &stop),
                    patrol::run(&shared, &stop),
                    topics::run(&shared, &stop),
                    outcomes::run(&shared, &stop),
                );
            })
        };
        let result = tokio::select! {
            result = incarnations(&shared, &stop) => result,
            error = watch_instance(&shared) => Err(error),
        };
        helpers.cancel();
        drain(&shared, "stopped").await;
        quit.cancel();
        for task in [reports, side] {
            if let Err(error) = task.await {
                tracing::error!(%error, "a loop of the relay ended badly");
            }
        }
        result
    }

    /// One whole round over the lanes that no living relay owns: scan until nothing is due, sweep,
    /// missing letters (L5). Lanes of living relays are left to them (S6).
    ///
    /// # Errors
    /// When the database or the broker refuses or cannot be reached.
    pub async fn run_once(self, stop: CancellationToken) -> Result<Once, RelayError> {
        let Self { shared, reports } = self;
        let quit = CancellationToken::new();
        let publisher = Arc::clone(&shared.publisher);
        let reports = tokio::spawn(publisher.run(reports, quit.clone()));
        let result = once(&shared, &stop).await;
        drain(&shared, "one round was asked for").await;
        quit.cancel();
        if let Err(error) = reports.await {
            tracing::error!(%error, "a loop of the relay ended badly");
        }
        result
    }
}

/// One incarnation after the other: a relay that was declared dead comes back as another one.
async fn incarnations(shared: &Arc<Shared>, stop: &CancellationToken) -> Result<(), RelayError> {
    let mut pauses = Pauses::new(START_MIN, START_MAX);
    while !stop.is_cancelled() {
        match register(shared).await {
            Ok(()) => pauses.reset(),
            Err(error) => {
                shared.health.set("postgres", Err(error));
                pauses.sleep(stop).await;
                continue;
            }
        }
        let over = stop.child_token();
        let sweep = {
            let (shared, over) = (Arc::clone(shared), over.clone());
            tokio::spawn(async move { Sweep::new(&shared).run(&shared, &over).await })
        };
        let result = Scan::new(shared).run(shared, stop).await;
        over.cancel();
        if let Err(error) = sweep.await {
            tracing::error!(%error, "the sweep ended badly");
        }
        match result {
            Err(RelayError::DeclaredDead) => {
                tracing::warn!(epoch = shared.epoch(), "{}", RelayError::DeclaredDead);
            }
            other => return other,
        }
    }
    Ok(())
}

async fn register(shared: &Shared) -> Result<(), RelayError> {
    let name = format!("{}:{}", host(), std::process::id());
    let epoch = store::register(&shared.pool, &name, env!("CARGO_PKG_VERSION")).await?;
    dueline_failpoints::reached("relay.registered");
    tracing::info!(epoch, name, "a new incarnation of this relay");
    shared.begin(epoch);
    Ok(())
}

fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().take(100).collect();
    if host.is_empty() { "relay".to_owned() } else { host }
}

async fn once(shared: &Arc<Shared>, stop: &CancellationToken) -> Result<Once, RelayError> {
    register(shared).await?;
    let mut scan = Scan::new(shared);
    scan.ownership.keep(shared).await?;
    if scan.ownership.suspects(shared).await? {
        // To declare a relay dead takes as long a look at it.
        tokio::time::sleep(shared.config.relay.takeover_after).await;
        scan.ownership.keep(shared).await?;
    }
    let mut done = Once { lanes: scan.lanes(shared), ..Once::default() };
    let interval = shared.config.relay.heartbeat_interval;
    for _ in 0..MAX_STEPS {
        if stop.is_cancelled() {
            return Ok(done);
        }
        keep_when_due(&mut scan.ownership, shared, interval).await?;
        match scan.step(shared, false).await? {
            Step::Idle(..) => break,
            Step::Claimed(count, pause) => {
                done.claimed += count;
                tokio::time::sleep(pause).await;
            }
            Step::Held(pause) => tokio::time::sleep(pause).await,
        }
    }
    done.swept = Sweep::new(shared).run_once(shared, stop).await?;
    done.letters = letters::run_once(shared).await?;
    Ok(done)
}

async fn keep_when_due(
    ownership: &mut Ownership,
    shared: &Shared,
    interval: Duration,
) -> Result<(), RelayError> {
    if ownership.is_due(std::time::Instant::now(), interval) {
        ownership.keep(shared).await?;
    }
    Ok(())
}

/// Ends when the database is not, or no more, the one that this relay may work on.
async fn watch_instance(shared: &Shared) -> RelayError {
    loop {
        tokio::time::sleep(INSTANCE_INTERVAL).await;
        match instance::check(&shared.pool, &shared.config.instance.name).await {
            Ok(instance) => shared.set_source(&instance.source()),
            Err(error) => {
                let error = RelayError::from(error);
                if error.is_refusal() {
                    return error;
                }
                tracing::warn!(%error, "the instance could not be checked");
            }
        }
    }
}

/// Waits for what is under way, writes down what is confirmed, gives the lanes back: all within the
/// time for a clean stop.
async fn drain(shared: &Shared, why: &str) {
    let timeout = shared.config.relay.stop_timeout.saturating_sub(END_TIMEOUT);
    shared.publisher.flush(timeout.max(Duration::from_millis(500))).await;
    dueline_failpoints::reached("relay.flushed");
    let last = shared.heartbeat(None);
    let end = store::end(&shared.pool, shared.epoch(), why, &last);
    match tokio::time::timeout(END_TIMEOUT, end).await {
        Ok(Ok(lanes)) => {
            dueline_failpoints::reached("relay.ended");
            tracing::info!(lanes, "the lanes are given back");
        }
        Ok(Err(error)) => tracing::warn!(%error, "the lanes could not be given back"),
        Err(_) => tracing::warn!("the lanes could not be given back in time"),
    }
}

fn pool(config: &Config) -> Result<Pool, RelayError> {
    let settings = PoolSettings::of(&config.postgres, "dueline-relay");
    Ok(dueline_store::connect_for_batches(&settings)?)
}

fn kafka(config: &Config) -> KafkaSettings {
    let kafka = &config.kafka;
    let mut settings = KafkaSettings::new(kafka.bootstrap_servers());
    settings.client_id = "dueline-relay".to_owned();
    settings.properties = kafka.exposed_properties();
    settings
}
