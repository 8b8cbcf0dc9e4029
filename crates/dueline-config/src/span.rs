//! Lengths of time as people write them: `250ms`, `30s`, `5m`, `1h30m`, `7d`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a length of time: whole numbers with the units `ms`, `s`, `m`, `h`, `d`, in any mixture
/// (`1h30m`). A bare `0` is allowed; any other number needs its unit.
///
/// Returns `None` when the text is none, or longer than 64 bits of milliseconds can hold.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == &rest[..letters])?;
        total_ms = total_ms.checked_add(number.checked_mul(*unit_ms)?)?;
        rest = rest[letters..].trim_start();
    }
    (!text.trim().is_empty()).then(|| Duration::from_millis(total_ms))
}

/// Writes a length of time as [`parse`] reads it, with the largest units first; what is finer than a
/// millisecond is dropped.
#[must_use]
pub fn format(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (name, unit_ms) in UNITS.iter().rev() {
        if rest >= *unit_ms {
            text.push_str(&format!("{}{name}", rest / unit_ms));
            rest %= unit_ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_and_write_alike() {
        for (text, ms) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(ms)), "{text}");
            assert_eq!(format(Duration::from_millis(ms)), text);
        }
        assert_eq!(parse("1m 30s"), parse("90s"));
        assert_eq!(parse("0"), Some(Duration::ZERO));
        assert_eq!(format(Duration::ZERO), "0s");
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for bad in ["", " ", "5", "s", "-5s", "1.5s", "5 minutes", "5ü", "99999999999999999999d"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(parse(&format!("{}d", u64::MAX)), None);
    }
}
