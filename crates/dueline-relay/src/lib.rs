//! The relay: walks the deadline table and publishes what is due, to one topic per delay tier.
//!
//! One service per file, each with its configuration named on top, a loop and a `run_once`:
//!
//! * `lanes`: heartbeat, fair shares, takeover, hand-over;
//! * `scan`: rounds of claims by keyset, with a watermark and a window;
//! * `publish`: producing, delivery reports, releases; `gate` decides whether claiming makes sense;
//! * `sweep`: the walk without a watermark: missed, orphaned, lost, unanswered, too old;
//! * `letters`: dead letters that nobody has written yet;
//! * `outcomes`: what other teams say of their tasks;
//! * `patrol`: retention;
//! * `topics`: what the topics must be, and since when they are what they are.
//!
//! Pure parts: `book` (cursors of the lanes), `pace` (pauses, window, rates), `tracker` (what is
//! confirmed), `decide` (leases that are over), `clock` (the database's clock against our steady
//! one).

mod book;
mod clock;
mod decide;
mod error;
mod gate;
mod lanes;
mod letters;
mod message;
mod outcomes;
mod pace;
mod patrol;
mod program;
mod publish;
mod relay;
mod release;
mod routes;
mod scan;
mod shared;
mod sweep;
mod topics;
mod tracker;

pub use error::RelayError;
pub use program::main;
pub use relay::{Once, Relay};
pub use sweep::Swept;
