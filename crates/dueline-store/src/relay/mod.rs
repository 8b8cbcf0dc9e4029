//! The relay's statements: ownership of lanes, claims, the sweep, missing letters, the retention
//! patrol.
//!
//! One method-like function per statement, named after the step of the protocol. What to do with
//! the answers is decided by the relay; here they are only bound and read.

mod claim;
mod lanes;
mod letters;
mod outcomes;
mod patrol;
mod sweep;
mod topics;

use std::time::Duration;

use dueline_core::Micros;

use crate::Timestamptz;

pub use claim::{Body, Claimed, Cursor, Round, bodies, claim, next_due, release};
pub use lanes::{
    Heartbeat, Lane, Observed, TakenOver, end, give, heartbeat, lanes, observe, register,
    take_free, take_over,
};
pub use letters::{MissingLetter, lettered, letters_missing};
pub use outcomes::{Settled, count_stops, settle_outcomes};
pub use patrol::{Purge, Purged, Table, purge};
pub use sweep::{
    Again, Alarm, Found, Parked, Parking, Span, Subject, extend, park, republish, stopped,
    subjects, sweep_page,
};
pub use topics::{TopicSeen, topic_seen, topics_seen};

/// An instant before every other: PostgreSQL's `-infinity`.
pub const BEGINNING: Micros = Micros(i64::MIN);

pub(crate) fn interval(duration: Duration) -> sqlx::postgres::types::PgInterval {
    crate::PgInterval(duration).into()
}

pub(crate) fn instants(micros: impl IntoIterator<Item = Micros>) -> Vec<Timestamptz> {
    micros.into_iter().map(Timestamptz).collect()
}

pub(crate) fn whole_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
