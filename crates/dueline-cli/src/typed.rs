//! How single values are typed.

use std::time::Duration;

use dueline_config::span;
use dueline_core::Micros;
use dueline_core::letter::Reason;

/// An instant, or how long before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    At(Micros),
    Ago(Duration),
}

impl When {
    /// The instant, by the database's `now`.
    pub fn instant(self, now: Micros) -> Micros {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.minus(ago),
        }
    }
}

pub fn delay(text: &str) -> Result<Duration, String> {
    span::parse(text).ok_or_else(|| "write 30s, 5m, 1h30m, 7d".to_owned())
}

pub fn instant(text: &str) -> Result<Micros, String> {
    Micros::parse_rfc3339(text).map_err(|_| "write 2026-11-30T23:59:00Z".to_owned())
}

pub fn when(text: &str) -> Result<When, String> {
    if let Some(ago) = span::parse(text) {
        return Ok(When::Ago(ago));
    }
    instant(text).map(When::At).map_err(|_| "write 2h, or 2026-11-30T23:59:00Z".to_owned())
}

pub fn json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|e| format!("this is no JSON: {e}"))
}

pub fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub fn reason(text: &str) -> Result<Reason, String> {
    Reason::parse(text).ok_or_else(|| {
        let all: Vec<&str> = Reason::ALL.iter().map(|r| r.as_str()).collect();
        format!("the reasons are {}", all.join(", "))
    })
}

/// `INSTANT/ID`, as pages of the table print it.
pub fn table_cursor(text: &str) -> Result<(Micros, i64), String> {
    let read = || {
        let (at, id) = text.rsplit_once('/')?;
        Some((Micros::parse_rfc3339(at).ok()?, id.parse().ok()?))
    };
    read().ok_or_else(|| "write the cursor as it was printed: INSTANT/ID".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_and_spans_ago_are_told_apart() {
        assert_eq!(when("2h"), Ok(When::Ago(Duration::from_secs(7_200))));
        assert_eq!(when("1970-01-01T00:00:01Z"), Ok(When::At(Micros(1_000_000))));
        assert!(when("yesterday").is_err());
        assert_eq!(When::Ago(Duration::from_secs(1)).instant(Micros(5_000_000)), Micros(4_000_000));
    }

    #[test]
    fn cursors_read_as_they_are_printed() {
        let at = Micros(1_796_083_199_000_001);
        assert_eq!(table_cursor(&format!("{at}/42")), Ok((at, 42)));
        assert!(table_cursor("42").is_err());
    }
}
