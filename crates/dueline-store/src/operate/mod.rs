//! What the command line asks and changes, and what every process checks at its start.
//!
//! * [`instance`]: whose database this is; every process asks before it does anything else.

pub mod instance;
