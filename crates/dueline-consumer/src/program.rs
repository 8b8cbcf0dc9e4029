//! The program around a consumer: command line, configuration, logs, admin port, exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use dueline_config::{Config, Source};
use dueline_service::{CancellationToken, Health, admin, exit, logging};

use crate::{ConsumerBuilder, ConsumerError};

/// The command line of every consumer.
#[derive(Debug, Parser)]
#[command(version, about = "Carries out due tasks: re-check, deduplicate, effect, settle.")]
struct Arguments {
    /// The configuration file; else the variable DUELINE_CONFIG names it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Overrides one value: --set consumer.batch_max=500 (repeatable).
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    overrides: Vec<String>,
    /// Consumes this queue only (repeatable); else every queue that has kinds.
    #[arg(long = "queue", value_name = "NAME")]
    queues: Vec<String>,
}

/// Runs a consumer as this process: `register` adds the handlers that the program links.
///
/// Exit codes: 0 after a clean stop, 1 after a failure, 2 for a wrong command line, 78 when the
/// configuration is refused, 130 when a second signal ended it.
pub fn main_with(register: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder) -> ExitCode {
    dueline_failpoints::set_up();
    let arguments = Arguments::parse();
    let source = Source::from_process(arguments.config, arguments.overrides);
    let config = match Config::load(&source) {
        Ok(config) => config,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = logging::init(&config.log) {
        return refuse(&error);
    }
    let health = Health::new();
    let mut builder = ConsumerBuilder::new(config.clone()).health(health.clone());
    if !arguments.queues.is_empty() {
        builder = builder.queues(arguments.queues);
    }
    let builder = register(builder);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::from(exit::FAILURE);
        }
    };
    let result = runtime.block_on(serve(builder, &config, health));
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match result {
        Ok(()) => ExitCode::from(exit::OK),
        Err(error) => {
            tracing::error!(%error, "the consumer ends");
            let code = if error.is_refusal() { exit::CONFIG } else { exit::FAILURE };
            ExitCode::from(code)
        }
    }
}

async fn serve(
    builder: ConsumerBuilder,
    config: &Config,
    health: Health,
) -> Result<(), ConsumerError> {
    let broken = |error: &dyn std::fmt::Display| ConsumerError::Broken(error.to_string());
    let stop = dueline_service::shutdown::on_signal().map_err(|error| broken(&error))?;
    health.set("consumer", Err("starting"));
    let drained = CancellationToken::new();
    let port = admin::open(&config.admin, "consumer", health.clone(), drained.clone())
        .await
        .map_err(|error| ConsumerError::Refused(error.to_string()))?;
    let result = builder.run_until(stop).await;
    drained.cancel();
    if let Some(port) = port {
        port.closed().await;
    }
    result
}

fn refuse(error: &dyn std::fmt::Display) -> ExitCode {
    // Logs may not be set up yet.
    eprintln!("{error}");
    ExitCode::from(exit::CONFIG)
}
