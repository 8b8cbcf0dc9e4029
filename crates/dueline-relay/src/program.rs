//! The program around a relay: command line, configuration, logs, admin port, exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use dueline_config::{Config, Source};
use dueline_service::{CancellationToken, Health, admin, exit, logging, shutdown};

use crate::{Relay, RelayError};

/// Publishes what is due to one topic per delay tier, until it is told to stop (SIGTERM, SIGINT).
///
/// Exit codes: 0 after a clean stop, 1 failure, 2 wrong arguments, 78 when the configuration is
/// refused or contradicts the database or the broker, 130 after a second signal.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The configuration file; also DUELINE_CONFIG.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sets one value over file and environment, such as --set relay.lease=90s.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Runs a relay as this process.
///
/// Exit codes: 0 after a clean stop, 1 after a failure, 2 for a wrong command line, 78 when the
/// configuration is refused or contradicts the database or the broker, 130 after a second signal.
#[must_use]
pub fn main() -> ExitCode {
    dueline_failpoints::set_up();
    let arguments = Arguments::parse();
    let source = Source::from_process(arguments.config, arguments.overrides);
    let config = match Config::load(&source) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(exit::CONFIG);
        }
    };
    if let Err(error) = logging::init(&config.log) {
        eprintln!("{error}");
        return ExitCode::from(exit::CONFIG);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be built");
            return ExitCode::from(exit::FAILURE);
        }
    };
    ExitCode::from(runtime.block_on(run(config)))
}

async fn run(config: Config) -> u8 {
    match serve(config).await {
        Ok(()) => exit::OK,
        Err(error) => {
            tracing::error!("{error:#}");
            let refused = error.downcast_ref::<RelayError>().is_some_and(RelayError::is_refusal);
            if refused { exit::CONFIG } else { exit::FAILURE }
        }
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let stop = shutdown::on_signal()?;
    let health = Health::new();
    health.set("start", Err("starting"));
    let closing = CancellationToken::new();
    let port = admin::open(&config.admin, "relay", health.clone(), closing.clone()).await?;
    tracing::info!(
        database = config.postgres.redacted_url(),
        brokers = config.kafka.bootstrap_servers(),
        instance = config.instance.name,
        "relay"
    );
    let result = match Relay::connect_patiently(&config, &health, &stop).await {
        Ok(relay) => relay.run(stop).await,
        Err(RelayError::Stopped) => Ok(()),
        Err(error) => Err(error),
    };
    closing.cancel();
    if let Some(port) = port {
        port.closed().await;
    }
    Ok(result?)
}
