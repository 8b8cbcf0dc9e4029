//! `dueline-consumer`: the consumer for kinds whose handlers are SQL statements in the configuration.

use std::process::ExitCode;

/// Messages are many small allocations that are freed on another thread: this allocator is made for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    dueline_consumer::main_with(|consumer| consumer)
}
