//! The stage: PostgreSQL, Kafka, two relays and two consumers, with a proxy before every connection.
//!
//! Every process of ours reaches each service by a proxy of its own, so that the network can fail for one
//! of them alone. What is stopped by a fault stays down until the fault starts it again; what ends by
//! itself is started again by [`Stage::supervise`], as any service manager would.

mod armed;
mod set_up;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_config::Config;
use dueline_core::Micros;
use dueline_testkit::checker::Places;
use dueline_testkit::cli::{self, Output};
use dueline_testkit::faketime;
use dueline_testkit::process::{Program, Service};
use dueline_testkit::proxy::TcpProxy;
use dueline_testkit::services::{Kafka, Postgres};
use dueline_testkit::settings::Value;
use sqlx::PgPool;
use tempfile::TempDir;

pub use dueline_testkit::disk::SmallDisk;
pub use set_up::MAX_CONNECTIONS;
pub use settings::{LEASE, MAX_POLL};

use crate::role::Role;

/// How often the supervisor looks, and so the pause before what ended is started again.
const SUPERVISE: Duration = Duration::from_millis(300);

/// What a caller may want different.
#[derive(Clone, Debug)]
pub struct StageOptions {
    /// The relays' binary, looked for beside this one (see [`Program::built`]).
    pub relay_binary: String,
    /// The relay that takes its place while its clock is moved: one that libfaketime can live with.
    pub clock_relay_binary: String,
    /// The consumers' binary; it must handle the kind `ship` (see [`crate::parcels`]).
    pub consumer_binary: String,
    /// Environment of single processes, from their first start on.
    pub environment: Vec<(Role, String, String)>,
    /// Values of the configuration that replace the campaign's, such as `relay.lease`.
    pub settings: Vec<(String, Value)>,
    /// Texts of the database's functions that are replaced: planted bugs.
    pub cuts: Vec<crate::planted::Cut>,
    /// Size of the disk that holds the database's tables, in MiB; 0 leaves them on the usual one.
    pub disk_mib: u32,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self {
            relay_binary: "dueline-relay".to_owned(),
            clock_relay_binary: "dueline-campaign-relay".to_owned(),
            consumer_binary: "dueline-campaign-consumer".to_owned(),
            environment: Vec::new(),
            settings: Vec::new(),
            cuts: Vec::new(),
            disk_mib: 0,
        }
    }
}

/// A process that ended though nobody had stopped it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Ended {
    /// When it was noticed.
    #[serde(serialize_with = "crate::clock::as_text")]
    pub at: Micros,
    /// Which one.
    pub process: String,
    /// How: `exit status: 78`, `signal: 6 (SIGABRT)`.
    pub status: String,
    /// The last thing that it said.
    pub last_line: String,
}

/// A process slot.
struct Slot {
    service: Service,
    /// How it is started unless a fault says otherwise.
    program: Program,
    /// How it is started when its clock is moved.
    clock_program: Program,
    /// A fault has it: the supervisor keeps its hands off.
    held: bool,
}

/// The proxies before one process.
struct Wires {
    postgres: TcpProxy,
    kafka: TcpProxy,
}

/// Everything that a campaign runs on. Our processes are dropped before the services they use.
pub struct Stage {
    slots: Vec<tokio::sync::Mutex<Slot>>,
    ends: Mutex<Vec<Ended>>,
    wires: Vec<Wires>,
    client_wire: TcpProxy,
    pool: PgPool,
    client_url: String,
    config: Config,
    config_path: PathBuf,
    places: Places,
    kafka: Arc<Mutex<Kafka>>,
    postgres: Arc<Mutex<Postgres>>,
    disk: Option<SmallDisk>,
    folder: TempDir,
}

impl Stage {
    /// Starts the services, prepares the database by the public ways, and starts the four processes;
    /// returns when all are ready.
    ///
    /// # Errors
    /// When something does not start; the error shows its log.
    pub async fn start(options: StageOptions) -> Result<Self> {
        set_up::set_up(options).await
    }

    /// A pool of a few superuser's connections that no proxy disturbs, for judges and nemeses.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Where clients of the workload connect: by a proxy of their own, [`Self::client_wire`].
    #[must_use]
    pub fn client_url(&self) -> &str {
        &self.client_url
    }

    /// The proxy between the workload's clients and the database.
    #[must_use]
    pub fn client_wire(&self) -> &TcpProxy {
        &self.client_wire
    }

    /// The proxy between a process and the database.
    #[must_use]
    pub fn postgres_wire(&self, role: Role) -> &TcpProxy {
        &self.wires[role.place()].postgres
    }

    /// The proxy between a process and the broker.
    #[must_use]
    pub fn kafka_wire(&self, role: Role) -> &TcpProxy {
        &self.wires[role.place()].kafka
    }

    /// Topics, groups and the broker's undisturbed address.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The configuration, with the services' undisturbed addresses.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The file that it was read from.
    #[must_use]
    pub fn config_path(&self) -> &Path {
        &self.config_path
    }

    /// The folder of the configuration and of the processes' logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A process's log, of all of its lives.
    #[must_use]
    pub fn log(&self, role: Role) -> PathBuf {
        self.folder.path().join(format!("{role}.log"))
    }

    /// The small disk, if there is one.
    #[must_use]
    pub fn disk(&self) -> Option<&SmallDisk> {
        self.disk.as_ref()
    }

    /// Runs the `dueline` command on the undisturbed addresses.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn dueline(&self, arguments: &[&str]) -> Result<Output> {
        cli::run(&self.config_path, arguments).await
    }

    /// Works with the server on a thread that may block: stop, kill, start again.
    ///
    /// # Errors
    /// What `work` answers.
    pub async fn with_postgres<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Postgres) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let postgres = Arc::clone(&self.postgres);
        tokio::task::spawn_blocking(move || work(&mut locked(&postgres))).await?
    }

    /// Works with the broker on a thread that may block.
    ///
    /// # Errors
    /// What `work` answers.
    pub async fn with_kafka<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Kafka) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let kafka = Arc::clone(&self.kafka);
        tokio::task::spawn_blocking(move || work(&mut locked(&kafka))).await?
    }

    /// SIGKILL; it stays down until [`Self::start_process`].
    pub async fn kill(&self, role: Role) {
        let mut slot = self.slot(role).await;
        slot.held = true;
        slot.service.kill();
    }

    /// SIGTERM, and waits for the end; it stays down until [`Self::start_process`].
    ///
    /// # Errors
    /// When it has not ended within `timeout`; it still runs then.
    pub async fn terminate(
        &self,
        role: Role,
        timeout: Duration,
    ) -> Result<std::process::ExitStatus> {
        let mut slot = self.slot(role).await;
        slot.held = true;
        slot.service.terminate();
        slot.service.wait(timeout).await
    }

    /// SIGSTOP: it stands still, with all of its connections, until [`Self::resume`].
    pub async fn pause(&self, role: Role) {
        let mut slot = self.slot(role).await;
        slot.held = true;
        slot.service.pause();
    }

    /// SIGCONT.
    pub async fn resume(&self, role: Role) {
        let mut slot = self.slot(role).await;
        slot.service.resume();
        slot.held = false;
    }

    /// Starts a process (killing what is left of it) whose wall clock is moved by `offset`, such as
    /// `-10m`.
    ///
    /// # Errors
    /// When there is no libfaketime, or it cannot be started.
    pub async fn start_with_clock(&self, role: Role, offset: &str) -> Result<()> {
        let library = faketime::library(faketime::WITH_THREADS)
            .context("libfaketime is missing (Debian's package `faketime`)")?;
        let mut slot = self.slot(role).await;
        slot.service.kill();
        let program = slot.clock_program.clone().env("LD_PRELOAD", library);
        let program = program.env("FAKETIME", offset);
        // The steady clock of a host does not jump with its wall clock.
        slot.service = program.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").start()?;
        slot.held = false;
        Ok(())
    }

    /// Starts a process (killing what is left of it) with this environment beside the stage's own, and
    /// does not wait until it is ready.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start_process(&self, role: Role, environment: &[(String, String)]) -> Result<()> {
        self.start_as(role, environment, false).await
    }

    /// Waits until a process says that it is ready.
    ///
    /// # Errors
    /// When it does not within half a minute, or it ends.
    pub async fn ready(&self, role: Role) -> Result<()> {
        self.slot(role).await.service.ready().await
    }

    /// How a process ended, if it has.
    pub async fn has_ended(&self, role: Role) -> Option<std::process::ExitStatus> {
        self.slot(role).await.service.ended()
    }

    /// Processes that ended by themselves, so far.
    #[must_use]
    pub fn ends(&self) -> Vec<Ended> {
        locked(&self.ends).clone()
    }

    /// Starts again what ended by itself, for as long as it is polled.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub async fn supervise(&self) -> Result<()> {
        let mut ticks = tokio::time::interval(SUPERVISE);
        loop {
            ticks.tick().await;
            for role in Role::ALL {
                let mut slot = self.slot(role).await;
                if slot.held {
                    continue;
                }
                let Some(status) = slot.service.ended() else { continue };
                let last = slot.service.output().unwrap_or_default();
                locked(&self.ends).push(Ended {
                    at: crate::clock::now(),
                    process: role.to_string(),
                    status: status.to_string(),
                    last_line: last.trim_end().lines().last().unwrap_or_default().to_owned(),
                });
                slot.service = slot.program.start()?;
            }
        }
    }

    /// Stops the four processes cleanly.
    ///
    /// # Errors
    /// When one does not end well within half a minute; the error shows its log.
    pub async fn stop_processes(&self) -> Result<()> {
        for role in Role::ALL {
            let mut slot = self.slot(role).await;
            slot.held = true;
            slot.service.resume();
            let status = slot.service.stop().with_context(|| format!("{role} did not end"))?;
            anyhow::ensure!(status.success(), "{role}: {status}\n{}", slot.service.log_tail());
        }
        Ok(())
    }

    async fn slot(&self, role: Role) -> tokio::sync::MutexGuard<'_, Slot> {
        self.slots[role.place()].lock().await
    }
}

/// The lock, whatever happened to its last holder: what it guards is judged by its effects.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
