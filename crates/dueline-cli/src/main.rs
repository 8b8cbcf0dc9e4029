//! The `dueline` command: see the library.

fn main() -> std::process::ExitCode {
    dueline_cli::main()
}
