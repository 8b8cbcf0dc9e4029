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

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command, ConfigCommand, TopicsCommand};
use context::Context;
use output::Reply;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.global.json_on_stdout();
    let outcome = run(cli);
    ExitCode::from(output::show(outcome, json))
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
