//! The demo, started by `./scripts/demo`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use dueline_testkit::demo::{self, Options};
use dueline_testkit::verdict;

/// A small shop on a private PostgreSQL and a real Kafka: thousands of deadlines, payments in the
/// same instant, cancels, failures, and a SIGKILL for each process. Ends with what happened and
/// with the invariants V1 to V9; exit code 0 only if all of them hold.
#[derive(Parser)]
#[command(name = "demo")]
struct Arguments {
    /// How many orders and refunds, together.
    #[arg(long, default_value_t = 6_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=200_000))]
    orders: u32,
    /// What customers do is drawn from this number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the outcome to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leaves PostgreSQL and Kafka up, and prints how to reach them.
    #[arg(long)]
    keep: bool,
    /// Uses librdkafka's in-process broker instead of Kafka.
    #[arg(long)]
    mock_kafka: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = Options {
        orders: arguments.orders,
        seed: arguments.seed,
        json: arguments.json,
        keep: arguments.keep,
        mock_kafka: arguments.mock_kafka,
        brokers: std::env::var("DUELINE_KAFKA_BROKERS").ok().filter(|text| !text.is_empty()),
    };
    verdict::run("the demo", demo::run(options))
}
