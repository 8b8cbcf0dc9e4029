//! `dueline-relay`: publishes what is due.

use std::process::ExitCode;

/// Messages are many small allocations that are freed on another thread: this allocator is made for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    dueline_relay::main()
}
