//! Durations as people write them: `90s`, `1h30m`, or ISO 8601 (`PT5M`, `P1DT0.5S`).

use std::time::Duration;

/// Short units, largest first, in microseconds.
const SHORT: [(&str, u64); 5] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
];
/// ISO 8601's units of the time part, largest first, in microseconds.
const ISO_TIME: [(&str, u64); 3] = [("H", 3_600_000_000), ("M", 60_000_000), ("S", 1_000_000)];
/// ISO 8601's only unit before the `T` that has a fixed length.
const ISO_DATE: [(&str, u64); 1] = [("D", 86_400_000_000)];

/// Reads a duration; whole microseconds, a finer fraction of an ISO second is rounded up. `None`
/// when it is no duration: signs, months, years, a repeated unit, units out of order, an overflow.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let micros = match text.strip_prefix('P') {
        None => amounts(text, &SHORT)?,
        Some(iso) => match iso.split_once('T') {
            None => amounts(iso, &ISO_DATE)?,
            Some(("", time)) => iso_time(time)?,
            Some((date, time)) => amounts(date, &ISO_DATE)?.checked_add(iso_time(time)?)?,
        },
    };
    Some(Duration::from_micros(micros))
}

/// One or more amounts with units, each unit at most once and in the order given.
fn amounts(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (mut rest, mut units, mut sum) = (text, units, 0_u64);
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let at = units.iter().position(|(unit, _)| *unit == &rest[..end])?;
        sum = sum.checked_add(number.checked_mul(units[at].1)?)?;
        (rest, units) = (&rest[end..], &units[at + 1..]);
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

/// The part after the `T`, whose seconds may have a fraction of up to nine digits.
fn iso_time(text: &str) -> Option<u64> {
    let Some((whole, fraction)) = text.split_once('.') else { return amounts(text, &ISO_TIME) };
    let digits = fraction.strip_suffix('S')?;
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: u64 = format!("{digits:0<9}").parse().ok()?;
    // Up, never down: rounding down would make the message early.
    amounts(&format!("{whole}S"), &ISO_TIME)?.checked_add(nanos.div_ceil(1_000))
}
