//! The fault campaign, started by `./scripts/campaign`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use dueline_campaign::campaign::{self, Options};
use dueline_campaign::nemesis::points::PointPlan;
use dueline_campaign::{clock, planted};
use dueline_testkit::verdict;

/// Real processes under real faults, and the judgement of what came of it: a private PostgreSQL and
/// Kafka, two relays, two consumers, clients that remember what they were told, and a nemesis. Ends with
/// the faults, the recovery from each kind, and the invariants V1 to V9; exit code 0 only if all hold.
#[derive(Parser)]
#[command(name = "campaign")]
struct Arguments {
    /// Faults and clients are drawn from this number; else from the date.
    #[arg(long)]
    seed: Option<u64>,
    /// How long there are faults.
    #[arg(long, default_value_t = 120)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// How many tasks are scheduled in that time; else 80 a second.
    #[arg(long)]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=5_000_000))]
    tasks: Option<u32>,
    /// How many faults; else one in two and a half seconds.
    #[arg(long)]
    faults: Option<usize>,
    /// Only faults whose kind, as the table names it, contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Instead of drawn faults: kills a process at each fail point once, `all` of them or those whose names
    /// begin so (several: with commas). Takes as long as it takes; --seconds and --tasks give the clients' pace.
    #[arg(long, value_name = "NAMES", conflicts_with_all = ["faults", "only"])]
    fail_points: Option<String>,
    /// Then also delays each beyond lease and poll interval, and kills at so many pairs of them.
    #[arg(long, value_name = "N", requires = "fail_points")]
    pairs: Option<usize>,
    /// Instead: plants bugs in the product, `all`, those of `today` or the one of this name. Each must be
    /// caught by the judgement, within a minute or so.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["faults", "only", "fail_points"])]
    planted: Option<String>,
    /// Writes the outcome to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seconds = arguments.seconds;
    let plan = |which: &String| PointPlan::new(which, arguments.pairs);
    let fail_points = match arguments.fail_points.as_ref().map(plan).transpose() {
        Ok(fail_points) => fail_points,
        Err(error) => Arguments::command().error(ErrorKind::ValueValidation, error).exit(),
    };
    // A day's number: everybody who runs it today runs the same.
    let seed = arguments.seed.unwrap_or(clock::today());
    if let Some(which) = arguments.planted {
        return verdict::run("the campaign", async move { planted::run(&which, seed).await });
    }
    let options = Options {
        seed,
        seconds,
        tasks: arguments.tasks.unwrap_or(u32::try_from(seconds * 80).unwrap_or(u32::MAX)),
        faults: arguments.faults.unwrap_or(usize::try_from(seconds * 2 / 5).unwrap_or(usize::MAX)),
        only: arguments.only,
        fail_points,
        planted: None,
        json: arguments.json,
    };
    verdict::run("the campaign", campaign::run(options))
}
