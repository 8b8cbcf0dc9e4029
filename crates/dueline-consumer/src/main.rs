//! `dueline-consumer`: the consumer for kinds whose handlers are SQL statements in the configuration.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_consumer::main_with(|consumer| consumer)
}
