//! What can be typed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dueline_bench::Scenario;
use dueline_config::{Log, LogFormat, Source};
use dueline_core::Micros;
use dueline_core::letter::Reason;

use crate::exit;
use crate::typed::{When, delay, header, instant, json, reason, table_cursor, when};

/// Standard output, as the name of a file.
pub const STDOUT: &str = "-";

/// Deadlines in PostgreSQL, work in Kafka: the tool of whoever operates them.
#[derive(Parser)]
#[command(name = "dueline", version, after_help = exit::TABLE, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args)]
pub struct Global {
    /// The configuration file [else: DUELINE_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Sets a value of the configuration, such as relay.lease=90s; may be given often
    #[arg(long, global = true, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
    /// The same as --set postgres.url=URL. Better in the environment: arguments can be seen by others
    #[arg(long, global = true, value_name = "URL")]
    pub postgres_url: Option<String>,
    /// The same as --set kafka.brokers=HOST:PORT,…
    #[arg(long, global = true, value_name = "BROKERS")]
    pub brokers: Option<String>,
    /// Prints one JSON document instead of text
    #[arg(long, global = true, num_args = 0, default_missing_value = STDOUT)]
    // A path, because `bench` has an option of this name that takes one: clap fills both from what was typed
    // behind the subcommand.
    pub json: Option<PathBuf>,
    /// Logs on standard error what happens, not only what goes wrong
    #[arg(long, short, global = true)]
    pub verbose: bool,
}

impl Global {
    /// Whether standard output gets one JSON document.
    pub fn json_on_stdout(&self) -> bool {
        self.json.as_deref().is_some_and(|path| path == Path::new(STDOUT))
    }

    /// Where the configuration comes from.
    pub fn source(&self) -> Source {
        let mut overrides = self.set.clone();
        overrides.extend(self.postgres_url.iter().map(|url| format!("postgres.url={url}")));
        overrides.extend(self.brokers.iter().map(|b| format!("kafka.brokers={b}")));
        Source::from_process(self.config.clone(), overrides)
    }

    /// A person reads these logs: text, and little of it.
    pub fn log(&self) -> Log {
        let level = if self.verbose { "info" } else { "warn,librdkafka=error,sqlx::query=error" };
        Log { format: LogFormat::Pretty, level: level.to_owned() }
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Brings the database's schema to this version
    Migrate,
    /// Makes queues, tiers, lanes, kinds (database) and topics (broker) as the configuration says
    Apply(ApplyArgs),
    /// Topics as files
    Topics {
        #[command(subcommand)]
        command: TopicsCommand,
    },
    /// Whose database this is
    Instance {
        #[command(subcommand)]
        command: InstanceCommand,
    },
    /// Schedules a task
    Schedule(ScheduleArgs),
    /// Cancels a task
    Cancel(CancelArgs),
    /// Gives a task a new deadline
    Reschedule(RescheduleArgs),
    /// Shows a task
    Get(KeyArgs),
    /// What is due when: counts, and the earliest unfinished tasks
    List(ListArgs),
    /// Everything about a key, and in words why its task has not run
    Why(WhyArgs),
    /// Dead tasks and letters: look, replay, resolve, discard
    Dlq {
        #[command(subcommand)]
        command: DlqCommand,
    },
    /// One whole relay round, for cron
    Sweep(SweepArgs),
    /// Measures this machine, these services: scenarios beside other ways of doing the same
    ///
    /// Makes databases `dueline_bench_…` and topics `dueline-bench-…` of its own and removes them at the end;
    /// needs the right to create databases. Exit code 1: something happened twice, too early or not at all.
    Bench(BenchArgs),
    /// The configuration itself
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Args)]
pub struct ApplyArgs {
    /// Shows what would be done and does nothing. Exit code 3: there is something to do
    #[arg(long)]
    pub plan: bool,
    /// Only this half
    #[arg(long, value_enum)]
    pub only: Option<Half>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Half {
    /// Queues, tiers, lanes, kinds
    Database,
    /// Topics
    Broker,
}

#[derive(Subcommand)]
pub enum TopicsCommand {
    /// Prints the topics as Strimzi KafkaTopic resources
    Yaml {
        /// Of this queue only
        #[arg(long)]
        queue: Option<String>,
    },
}

#[derive(Clone, Copy, Subcommand)]
pub enum InstanceCommand {
    /// Name, uuid, cluster and timeline, and whether they fit
    Show,
    /// A restored copy takes the original's place; the original must never run again
    Adopt,
    /// A clone becomes an instance of its own, named instance.name
    Renew,
}

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Prints the effective configuration without secrets, or every problem that it has
    Check,
}

#[derive(Args)]
pub struct BenchArgs {
    /// steady, drain, schedule, lateness, pending, pinned, burst, scale [default: all]
    pub scenario: Vec<Scenario>,
    /// Smaller, shorter, and once
    #[arg(long)]
    pub quick: bool,
    /// Writes the JSON document into this file; `-` prints it instead of the table
    #[arg(long, value_name = "FILE", num_args = 1)]
    pub json: Option<PathBuf>,
    /// Measures everything so often [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
    pub repeats: Option<u8>,
    /// Scales counts and times, for tests of the benchmark itself
    #[arg(long, hide = true, default_value_t = 1.0)]
    pub scale: f64,
}

#[derive(Args)]
pub struct SweepArgs {
    /// Does one round and ends (the only way yet; needed, so that nobody expects a daemon)
    #[arg(long, required = true)]
    pub once: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct DeadlineArgs {
    /// Due so long after the event, or after now: 30m, 1h30m, 7d
    #[arg(long = "in", value_name = "DELAY", value_parser = delay)]
    pub delay: Option<Duration>,
    /// Due at an instant: 2026-11-30T23:59:00Z
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub at: Option<Micros>,
}

#[derive(Args)]
pub struct ScheduleArgs {
    pub kind: String,
    pub key: String,
    #[command(flatten)]
    pub deadline: DeadlineArgs,
    /// When the business event was: the delay runs from then
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub event_at: Option<Micros>,
    /// A small JSON value for the handler
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub payload: Option<serde_json::Value>,
    /// A header of the message; may be given often
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,
    /// What to do when the key is taken
    #[arg(long, value_enum, default_value_t = Conflict::Keep)]
    pub on_conflict: Conflict,
    /// Moves the deadline later by a random part of this window
    #[arg(long, value_name = "WINDOW", value_parser = delay)]
    pub jitter: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Conflict {
    /// Leave a live task as it is; open a cancelled or skipped one again
    Keep,
    /// Give it the new deadline
    Reschedule,
    /// Refuse
    Error,
}

#[derive(Args)]
pub struct RescheduleArgs {
    pub kind: String,
    pub key: String,
    #[command(flatten)]
    pub deadline: DeadlineArgs,
    /// When the business event was: the delay runs from then
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub event_at: Option<Micros>,
    /// A new payload; without it the task keeps its own
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub payload: Option<serde_json::Value>,
    /// Why, for the audit table
    #[arg(long)]
    pub reason: Option<String>,
}

#[derive(Args)]
pub struct CancelArgs {
    pub kind: String,
    pub key: String,
    /// Why, for the audit table
    #[arg(long)]
    pub reason: Option<String>,
}

#[derive(Args)]
pub struct KeyArgs {
    pub kind: String,
    pub key: String,
}

#[derive(Args)]
pub struct WhyArgs {
    pub key: String,
    /// Of this kind only
    #[arg(long)]
    pub kind: Option<String>,
}

#[derive(Args)]
pub struct ListArgs {
    /// Of this queue only
    #[arg(long)]
    pub queue: Option<String>,
    /// Of this kind only (the list; counts are by tier)
    #[arg(long)]
    pub kind: Option<String>,
    /// With an alarm at or before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub until: Option<Micros>,
    /// At most so many tasks
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub limit: u32,
    /// Goes on after this cursor, which the last page printed
    #[arg(long, value_name = "CURSOR", value_parser = table_cursor)]
    pub after: Option<(Micros, i64)>,
}

#[derive(Subcommand)]
pub enum DlqCommand {
    /// Lists the dead, oldest first
    List {
        #[command(flatten)]
        select: Selection,
        /// Dead for this reason
        #[arg(long, value_name = "REASON", value_parser = reason)]
        reason: Option<Reason>,
    },
    /// Shows one dead task with its attempts
    Show { id: i64 },
    /// Sends the dead again, under the same dedupe key; undecodable messages (--from topic) as they were
    Replay {
        #[command(flatten)]
        select: Selection,
        /// Dead for this reason
        #[arg(long, value_name = "REASON", value_parser = reason)]
        reason: Option<Reason>,
        #[command(flatten)]
        act: ActArgs,
        /// Also what died longer ago than finished keys are remembered: it may happen twice
        #[arg(long)]
        force: bool,
    },
    /// Says that the effect of dead tasks did happen
    Resolve(VerdictArgs),
    /// Says that dead tasks are not wanted any more
    Discard(VerdictArgs),
}

#[derive(Args)]
pub struct VerdictArgs {
    #[command(flatten)]
    pub select: Selection,
    /// Why, for the audit table
    #[arg(long)]
    pub reason: String,
    /// Dead for this reason
    #[arg(long, value_name = "REASON", value_parser = reason)]
    pub died_of: Option<Reason>,
    #[command(flatten)]
    pub act: ActArgs,
}

/// Which of the dead.
#[derive(Args)]
pub struct Selection {
    /// These tasks
    pub ids: Vec<i64>,
    /// From the stranded table, or from the dead-letter topic
    #[arg(long, value_enum, default_value_t = From::Table)]
    pub from: From,
    /// Of this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Died at or after: an instant, or how long ago (2h)
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub since: Option<When>,
    /// Died before: an instant, or how long ago (2h)
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub until: Option<When>,
    /// With a key like this: * is any text, ? one character
    #[arg(long, value_name = "PATTERN")]
    pub key: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub limit: u32,
    /// Goes on after this cursor, which the last run printed
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
}

impl Selection {
    /// Whether anything narrows it.
    pub fn is_narrowed(&self) -> bool {
        !self.ids.is_empty()
            || self.queue.is_some()
            || self.kind.is_some()
            || self.since.is_some()
            || self.until.is_some()
            || self.key.is_some()
    }
}

#[derive(Args)]
pub struct ActArgs {
    /// Shows what would be done and does nothing
    #[arg(long)]
    pub dry_run: bool,
    /// At most so many a second
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rate: u32,
    /// Who decided it, for the audit table [default: the user's name]
    #[arg(long)]
    pub who: Option<String>,
    /// All of them, when nothing narrows the selection
    #[arg(long)]
    pub all: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum From {
    Table,
    Topic,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_are_consistent_and_the_help_names_the_exit_codes() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        for code in ["3  apply --plan", "4  refused", "78  the configuration"] {
            assert!(help.contains(code), "{help}");
        }
    }

    #[test]
    fn json_goes_to_standard_output_and_that_of_bench_into_a_file() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.global);
        for line in ["dueline --json migrate", "dueline migrate --json", "dueline --json bench"] {
            assert!(parse(line).is_ok_and(|global| global.json_on_stdout()), "{line}");
        }
        for line in ["dueline migrate", "dueline bench steady --json out.json drain"] {
            assert!(parse(line).is_ok_and(|global| !global.json_on_stdout()), "{line}");
        }
        assert!(parse("dueline bench --json -").is_ok_and(|global| global.json_on_stdout()));
        assert!(parse("dueline bench --json").is_err());
        let cli = Cli::try_parse_from(["dueline", "bench", "burst", "--json", "f", "drain"]);
        let Ok(Cli { command: Command::Bench(args), .. }) = cli else { panic!("a bench") };
        assert_eq!(args.scenario, [Scenario::Burst, Scenario::Drain]);
        assert_eq!(args.json.as_deref(), Some(Path::new("f")));
    }

    #[test]
    fn h25_wrong_arguments_are_told_without_control_characters() {
        let words = ["dueline", "get", "\u{1b}[2J", "x", "\u{1b}]0;title\u{7}"].map(Into::into);
        let text = crate::check_arguments(words.to_vec()).expect_err("one word too many");
        assert!(text.contains("unexpected argument"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }

    #[test]
    fn exactly_one_deadline_is_asked_for() {
        let parse = |extra: &[&str]| {
            Cli::try_parse_from(["dueline", "schedule", "k", "1"].iter().chain(extra)).is_ok()
        };
        assert!(parse(&["--in", "30m"]));
        assert!(parse(&["--at", "2026-11-30T23:59:00Z"]));
        assert!(!parse(&[]));
        assert!(!parse(&["--in", "30m", "--at", "2026-11-30T23:59:00Z"]));
        assert!(!parse(&["--in", "half an hour"]));
    }
}
