//! `dueline-services run -- COMMAND`: runs a command beside a private PostgreSQL and Kafka.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use dueline_testkit::child::{Running, bound_to_us, shell_code};
use dueline_testkit::services::{
    KAFKA_ENV, Kafka, KafkaOptions, POSTGRES_ENV, Postgres, PostgresOptions,
};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// How long the command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(10);
/// How often the command is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Private PostgreSQL and Kafka for the time of one command.
#[derive(Parser)]
enum Arguments {
    /// Start both, run the command with their addresses in its environment, stop both.
    ///
    /// Sets DUELINE_TEST_POSTGRES (the superuser's URL), DUELINE_TEST_KAFKA (host:port),
    /// DUELINE_PG_BIN and DUELINE_KAFKA_LIBS. Exits with the command's code.
    Run {
        /// Start PostgreSQL only.
        #[arg(long)]
        no_kafka: bool,
        /// A setting of PostgreSQL, such as shared_buffers=2GB; may be given often.
        #[arg(long, value_name = "NAME=VALUE")]
        postgres_setting: Vec<String>,
        /// An option of Kafka's JVM, such as -Xmx1G, instead of those of a test broker; may be given
        /// often.
        #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
        java_option: Vec<String>,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
}

fn main() -> ExitCode {
    let Arguments::Run { no_kafka, postgres_setting, java_option, command } = Arguments::parse();
    let options = PostgresOptions { settings: postgres_setting, ..PostgresOptions::default() };
    let kafka = KafkaOptions { java: java_option, ..KafkaOptions::default() };
    match run((!no_kafka).then_some(kafka), options, &command) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("dueline-services: {error:#}");
            ExitCode::from(70)
        }
    }
}

fn run(
    kafka: Option<KafkaOptions>,
    postgres: PostgresOptions,
    command: &[std::ffi::OsString],
) -> Result<i32> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Signals are taken from here on, so that one during the start does not leave a server behind.
    let stopped = runtime.block_on(async { StopSignals::new() })?;
    let kafka = std::thread::spawn(move || kafka.map(Kafka::start_with).transpose());
    let postgres = Postgres::start_with(postgres);
    let kafka =
        kafka.join().map_err(|_| anyhow::anyhow!("the thread starting Kafka panicked"))??;
    let postgres = postgres?;

    let (program, arguments) = command.split_first().context("no command was given")?;
    let mut child = bound_to_us(Path::new(program), "TERM");
    child.args(arguments).process_group(0);
    child.env(POSTGRES_ENV, postgres.url()).env("DUELINE_PG_BIN", postgres.bin_directory());
    if let Some(kafka) = &kafka {
        child.env(KAFKA_ENV, kafka.bootstrap()).env("DUELINE_KAFKA_LIBS", kafka.libraries());
    }
    let child = Running::start(child).context("cannot start the command")?;
    runtime.block_on(supervise(child, stopped))
}

/// SIGTERM, SIGINT and SIGHUP.
struct StopSignals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.term.recv() => Signal::TERM,
            _ = self.int.recv() => Signal::INT,
            _ = self.hup.recv() => Signal::HUP,
        }
    }
}

/// Waits for the command; a signal is passed on to its whole group, which then has [`GRACE`] to
/// end.
async fn supervise(mut child: Running, mut signals: StopSignals) -> Result<i32> {
    let mut deadline = None;
    loop {
        if let Some(status) = child.ended() {
            // Whatever the command left behind in its group goes with it.
            child.signal_group(Signal::KILL);
            return Ok(shell_code(status));
        }
        let now = tokio::time::Instant::now();
        if deadline.is_some_and(|end| now >= end) {
            child.signal_group(Signal::KILL);
        }
        tokio::select! {
            signal = signals.next() => {
                child.signal_group(signal);
                deadline.get_or_insert(now + GRACE);
            }
            () = tokio::time::sleep(POLL) => {}
        }
    }
}
