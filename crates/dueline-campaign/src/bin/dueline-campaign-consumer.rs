//! The campaign's consumer: the product's, with the campaign's handler in Rust.

use std::process::ExitCode;

use dueline_campaign::parcels;

fn main() -> ExitCode {
    dueline_consumer::main_with(|consumer| consumer.handler(parcels::KIND, parcels::Ship))
}
