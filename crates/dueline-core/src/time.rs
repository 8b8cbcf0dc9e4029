//! Instants as PostgreSQL keeps them: whole microseconds since the Unix epoch, UTC.

use std::fmt;
use std::time::Duration;

/// An instant in microseconds since 1970-01-01T00:00:00Z.
///
/// PostgreSQL's `timestamptz` has this resolution. Anything finer is rounded **up** on the way in
/// ([`Micros::from_nanos_ceil`]): rounding down would make a task early (invariant V3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub i64);

impl Micros {
    /// The instant at or directly after `nanos` since the Unix epoch.
    #[must_use]
    pub fn from_nanos_ceil(nanos: i128) -> Self {
        let quotient = nanos.div_euclid(1_000);
        let rounded = if nanos.rem_euclid(1_000) == 0 { quotient } else { quotient + 1 };
        Self(i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX }))
    }

    /// Milliseconds since the Unix epoch, rounded down: what a Kafka record timestamp holds.
    #[must_use]
    pub fn floor_ms(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// This instant plus `duration`, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This instant minus `duration`, saturating.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this instant is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses RFC 3339 (`2026-11-30T23:59:00.000001Z`, any offset); finer digits are rounded up.
    ///
    /// # Errors
    /// When the text is not an RFC 3339 instant, or one that is past the last microsecond that RFC 3339 can
    /// write once it was rounded up: what was read can always be written again.
    pub fn parse_rfc3339(text: &str) -> Result<Self, jiff::Error> {
        let instant: jiff::Timestamp = text.parse()?;
        let micros = Self::from_nanos_ceil(instant.as_nanosecond());
        jiff::Timestamp::from_microsecond(micros.0)?;
        Ok(micros)
    }
}

/// RFC 3339 in UTC with six fractional digits, so that texts sort as instants do.
impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(instant) => write!(f, "{instant:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h03_nanoseconds_round_up_never_down() {
        assert_eq!(Micros::from_nanos_ceil(1_000), Micros(1));
        assert_eq!(Micros::from_nanos_ceil(1_001), Micros(2));
        assert_eq!(Micros::from_nanos_ceil(-1), Micros(0));
        assert_eq!(Micros::from_nanos_ceil(-1_001), Micros(-1));
    }

    #[test]
    fn text_round_trips_at_full_resolution() {
        let instant = Micros(1_796_083_199_123_456);
        assert_eq!(Micros::parse_rfc3339(&instant.to_string()).expect("parses"), instant);
        let finer = Micros::parse_rfc3339("2026-11-30T00:00:00.0000001Z").expect("parses");
        assert_eq!(finer.0 % 1_000_000, 1);
    }

    #[test]
    fn h03_what_rounds_up_past_the_last_instant_is_refused() {
        let last = "9999-12-30T22:00:00.000000Z";
        assert_eq!(Micros::parse_rfc3339(last).expect("parses").to_string(), last);
        assert!(Micros::parse_rfc3339("9999-12-30T22:00:00.0000001Z").is_err());
    }
}
