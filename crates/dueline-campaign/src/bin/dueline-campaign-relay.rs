//! The product's relay with the system's allocator: libfaketime and the relay's own one need each other to
//! be there first, so that the two end in a crash. It runs in the relay's place while its clock is moved.

use std::process::ExitCode;

fn main() -> ExitCode {
    dueline_relay::main()
}
