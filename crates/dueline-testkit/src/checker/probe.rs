//! V7 while work goes on: after everything has come to rest there is nothing left to break it.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use dueline_core::Micros;
use sqlx::PgPool;

use super::evidence::{Offset, Published};
use super::gather::{self, Places};

/// The record timestamp is the claim's in whole milliseconds, rounded down.
const ROUNDING: i64 = 1_000;

/// A claim that nobody has answered: id, generation, attempt, number.
type Claim = (i64, i32, i32, i32);

/// What one look found.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// How many messages of unanswered claims were looked at.
    pub checked: usize,
    /// Those that a committed offset has passed.
    pub passed: Vec<Passed>,
}

impl Probe {
    /// Adds what another look found.
    pub fn add(&mut self, other: Self) {
        self.checked += other.checked;
        self.passed.extend(other.passed);
    }
}

/// A message that was passed without an answer.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The message.
    pub record: Published,
    /// The group's committed offset at the look.
    pub committed: i64,
}

/// Looks once: first at the committed offsets, then at the claims that are open, then for their messages.
/// What is still open after an offset was committed, and lies below that offset, was passed unanswered.
///
/// Offsets that somebody moved by hand, and topics that were made again meanwhile, are for the caller to
/// leave out.
///
/// # Errors
/// When the database or the broker does not answer.
pub async fn probe(pool: &PgPool, places: &Places) -> Result<Probe> {
    let mut committed = HashMap::new();
    for queue in &places.queues {
        for topic in &queue.topics {
            for offset in gather::offsets(&places.kafka, &queue.group, topic).await? {
                let Offset { topic, partition, committed: Some(at), .. } = offset else { continue };
                committed.insert((topic, partition), at);
            }
        }
    }
    let open: Vec<(i64, i32, i32, i32, i64)> =
        sqlx::query_as(include_str!("../../sql/checker/open_claims.sql")).fetch_all(pool).await?;
    let Some(since) = open.iter().map(|(.., claimed_at)| *claimed_at).min() else {
        return Ok(Probe::default());
    };
    let open: HashSet<Claim> = open
        .into_iter()
        .map(|(id, generation, attempt, no, _)| (id, generation, attempt, no))
        .collect();
    let since_ms = Micros(since - ROUNDING).floor_ms();
    let mut found = Probe::default();
    for topic in places.queues.iter().flat_map(|queue| &queue.topics) {
        for record in gather::read(&places.kafka, topic, Some(since_ms), gather::published).await? {
            let Some(e) = &record.envelope else { continue };
            if !open.contains(&(e.task_id, e.generation, e.attempt, e.delivery)) {
                continue;
            }
            found.checked += 1;
            let at = committed.get(&(record.topic.clone(), record.partition)).copied();
            if let Some(committed) = at.filter(|committed| record.offset < *committed) {
                found.passed.push(Passed { record, committed });
            }
        }
    }
    Ok(found)
}
