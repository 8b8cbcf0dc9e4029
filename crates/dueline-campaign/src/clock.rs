//! The campaign's own clock. PostgreSQL runs on this machine with an honest clock, so the host's is the
//! database's; what a client notes when its connection is gone could not come from anywhere else.

use std::time::UNIX_EPOCH;

use dueline_core::Micros;
use serde::Serializer;

/// Now, as the database would say.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "evidence of what clients saw, also while no database answers; nothing acts on it"
)]
pub fn now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The days since 1970, in UTC.
#[must_use]
pub fn today() -> u64 {
    now().0.unsigned_abs() / 86_400_000_000
}

/// An instant as RFC 3339, for JSON.
///
/// # Errors
/// What the serializer answers.
pub fn as_text<S: Serializer>(at: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}
