//! `dueline`: what a person does with a deadline table. Results go to standard output, logs and progress
//! to standard error.

mod apply;
mod args;
mod bench;
mod broker;
mod context;
mod dlq;
mod effective;
mod exit;
mod instance;
mod list;
mod output;
mod progress;
mod sweep;
mod task;
mod typed;
mod why;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command, ConfigCommand, TopicsCommand};
use context::Context;
use output::Reply;

/// Runs the command that this process was started with.
#[must_use]
pub fn main() -> ExitCode {
    dueline_failpoints::set_up();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let json = cli.global.json_on_stdout();
    let outcome = run(cli);
    ExitCode::from(output::show(outcome, json))
}

/// What is wrong with a command line, of which the first argument is the program's name; nothing is run.
///
/// # Errors
/// The text that [`main`] would print before it ends with code 2 (or 0, for `--help` and `--version`).
#[doc(hidden)]
pub fn check_arguments(arguments: Vec<OsString>) -> Result<(), String> {
    Cli::try_parse_from(arguments).map(drop).map_err(|error| output::printable(&error.to_string()))
}

/// Prints what is wrong with the arguments, or the help that was asked for.
fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let clean = output::printable(&text);
    // A closed pipe (`| head`) is no failure of ours.
    let _ = if clean == text {
        error.print()
    } else {
        // The colours would be lost; what a stranger's key says to the terminal must be.
        write!(std::io::stderr(), "{clean}")
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::ARGUMENTS))
}

fn run(cli: Cli) -> anyhow::Result<Reply> {
    dueline_service::logging::init(&cli.global.log())?;
    let context = Context::load(&cli.global)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    runtime.block_on(dispatch(cli.command, &context))
}

async fn dispatch(command: Command, context: &Context) -> anyhow::Result<Reply> {
    match command {
        Command::Migrate => instance::migrate(context).await,
        Command::Apply(args) => apply::apply(context, &args).await,
        Command::Topics { command: TopicsCommand::Yaml { queue } } => {
            broker::yaml(context, queue.as_deref())
        }
        Command::Instance { command } => instance::instance(context, command).await,
        Command::Schedule(args) => task::schedule(context, args).await,
        Command::Cancel(args) => task::cancel(context, &args).await,
        Command::Reschedule(args) => task::reschedule(context, args).await,
        Command::Get(args) => task::get(context, &args).await,
        Command::List(args) => list::list(context, &args).await,
        Command::Why(args) => why::why(context, &args).await,
        Command::Dlq { command } => dlq::dlq(context, command).await,
        Command::Sweep(_) => sweep::once(context).await,
        Command::Bench(args) => bench::bench(context, args).await,
        Command::Config { command: ConfigCommand::Check } => effective::show(context),
    }
}
