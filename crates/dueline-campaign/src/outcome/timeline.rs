//! Everything that is known of one task, from all sources, by time.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use dueline_testkit::checker::{Evidence, Published};
use sqlx::PgPool;

use crate::nemesis::Done;
use crate::role::Role;
use crate::stage::Stage;

/// How much before and after the task's own story faults are shown.
const AROUND: Duration = Duration::from_secs(5);
/// The most log lines of one process: a task that is tried for minutes has many.
const MAX_LINES: usize = 60;
/// The most characters of one line.
const MAX_CHARS: usize = 400;

/// One thing that happened.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Entry {
    /// When, by the clock of whoever noted it.
    #[serde(serialize_with = "crate::clock::as_text")]
    pub at: Micros,
    /// Who noted it.
    pub source: String,
    /// What.
    pub what: String,
}

/// The story of one task.
///
/// # Errors
/// When the database or a log cannot be read.
pub async fn of(
    stage: &Stage,
    evidence: &Evidence,
    faults: &[Done],
    (kind, key): (&str, &str),
) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut add = |at: Micros, source: &str, what: String| {
        let what = what.chars().take(MAX_CHARS).collect();
        entries.push(Entry { at, source: source.to_owned(), what });
    };
    for call in evidence.calls.iter().filter(|call| call.kind == kind && call.key == key) {
        add(call.asked_at, &call.who, format!("asks to {}", call.wish));
        add(call.told_at, &call.who, format!("{}: is told {:?}", call.wish, call.told));
    }
    for effect in evidence.effects.iter().filter(|e| e.kind == kind && e.key == key) {
        add(effect.at, "ledger", "it takes effect".to_owned());
    }
    for record in &evidence.lost {
        message(record, kind, key, "lost topic", &mut add);
    }
    for record in &evidence.published {
        message(record, kind, key, "topic", &mut add);
    }
    let id = rows(stage.pool(), kind, key, &mut add).await?;
    for letter in evidence.letters.iter().filter(|l| l.task.is_some_and(|(of, _)| Some(of) == id)) {
        let (_, generation) = letter.task.unwrap_or_default();
        add(
            Micros(i64::MAX),
            "letters",
            format!("a letter, generation {generation}, time unknown"),
        );
    }
    for role in Role::ALL {
        for (at, line) in lines(&stage.log(role), key, id)? {
            add(at, role.name(), line);
        }
    }
    around(&mut entries, faults);
    entries.sort_by_key(|entry| entry.at);
    Ok(entries)
}

fn message(
    record: &Published,
    kind: &str,
    key: &str,
    source: &str,
    add: &mut impl FnMut(Micros, &str, String),
) {
    let Some(envelope) = &record.envelope else { return };
    if envelope.kind == kind && envelope.key == key {
        let place = format!("{}[{}]@{}", record.topic, record.partition, record.offset);
        let what = format!(
            "{place}: generation {}, attempt {}, delivery {}, due {}",
            envelope.generation, envelope.attempt, envelope.delivery, envelope.due_at
        );
        add(envelope.claimed_at, source, what);
    }
}

/// The database's rows; answers the task's id.
async fn rows(
    pool: &PgPool,
    kind: &str,
    key: &str,
    add: &mut impl FnMut(Micros, &str, String),
) -> Result<Option<i64>> {
    let events: Vec<(i64, String)> = sqlx::query_as(include_str!("../../sql/outcome/events.sql"))
        .bind(kind)
        .bind(key)
        .fetch_all(pool)
        .await?;
    for (at, what) in events {
        add(Micros(at), "database", what);
    }
    let row: Option<(i64, String)> = sqlx::query_as(include_str!("../../sql/outcome/rows.sql"))
        .bind(kind)
        .bind(key)
        .fetch_optional(pool)
        .await?;
    let id = row.as_ref().map(|(id, _)| *id);
    if let Some((_, row)) = row {
        add(crate::clock::now(), "database", format!("in the end: {row}"));
    }
    Ok(id)
}

/// Log lines that mention the key or the id as a number of its own.
fn lines(log: &Path, key: &str, id: Option<i64>) -> Result<Vec<(Micros, String)>> {
    let id = id.map(|id| id.to_string());
    let mut found = Vec::new();
    for line in BufReader::new(std::fs::File::open(log)?).lines() {
        let line = line?;
        let about = mentions(&line, key) || id.as_ref().is_some_and(|id| mentions(&line, id));
        if about && found.len() < MAX_LINES {
            found.push((time_of(&line), line));
        }
    }
    Ok(found)
}

/// Whether a number stands in the text, not as a part of a longer one.
fn mentions(text: &str, number: &str) -> bool {
    text.match_indices(number).any(|(place, _)| {
        let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
        let bytes = text.as_bytes();
        !digit(place.checked_sub(1).and_then(|before| bytes.get(before)))
            && !digit(bytes.get(place + number.len()))
    })
}

/// The `timestamp` of a JSON log line; the beginning of time when there is none.
fn time_of(line: &str) -> Micros {
    let after = line.split_once("\"timestamp\":\"").map(|(_, after)| after);
    let text = after.and_then(|after| after.split_once('"')).map(|(text, _)| text);
    text.and_then(|text| Micros::parse_rfc3339(text).ok()).unwrap_or(Micros(0))
}

/// Adds the faults around the story.
fn around(entries: &mut Vec<Entry>, faults: &[Done]) {
    let honest = |entry: &&Entry| entry.at > Micros(0) && entry.at < Micros(i64::MAX);
    let times: Vec<Micros> = entries.iter().filter(honest).map(|entry| entry.at).collect();
    // The last entry is the row as it stands at the end: not a part of the story.
    let Some(first) = times.iter().min() else { return };
    let Some(last) = times.iter().filter(|at| Some(*at) != times.iter().max()).max() else {
        return;
    };
    let (first, last) = (first.minus(AROUND), last.plus(AROUND));
    for fault in faults {
        let end = fault.healed_at.unwrap_or(Micros(i64::MAX));
        if fault.began_at <= last && end >= first {
            let entry = |at, what| Entry { at, source: "nemesis".to_owned(), what };
            entries.push(entry(fault.began_at, format!("#{} {}", fault.number, fault.fault)));
            entries.push(entry(end, format!("#{} is healed", fault.number)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_found_in_a_longer_one() {
        assert!(mentions(r#"{"task":42}"#, "42") && mentions("42", "42"));
        assert!(!mentions("142 and 421", "42"));
    }

    #[test]
    fn the_time_of_a_log_line_is_read() {
        let line = r#"{"timestamp":"1970-01-01T00:00:01.5Z","level":"WARN"}"#;
        assert_eq!(time_of(line), Micros(1_500_000));
        assert_eq!(time_of("aborting over 7"), Micros(0));
    }
}
