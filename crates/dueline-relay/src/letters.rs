//! Dead letters that nobody has written yet: whoever made a task dead writes its letter at once,
//! and what could not be written then is written here, at least once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dueline_core::letter::{DeadLetter, DeadTask};
use dueline_kafka::{HeaderList, Outcome, Record};
use dueline_service::CancellationToken;
use dueline_store::relay::{self, MissingLetter};
use futures_util::future::join_all;

use crate::error::RelayError;
use crate::message::own_headers;
use crate::shared::Shared;

/// How long whoever made the task dead has for its letter.
const GRACE: Duration = Duration::from_secs(2);
/// How often missing letters are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// Letters under way at once.
const BATCH: usize = 100;
/// Batches of one run.
const MAX_BATCHES: usize = 1_000;

/// Writes missing letters until `stop`, where this relay is the one that does.
pub(crate) async fn run(shared: &Shared, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        if shared.leader.load(Ordering::Relaxed)
            && shared.publisher.shut().is_none()
            && let Err(error) = run_once(shared).await
        {
            tracing::warn!(%error, "missing letters could not be written; trying again");
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Writes every missing letter that is due; returns how many were written.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub(crate) async fn run_once(shared: &Shared) -> Result<usize, RelayError> {
    let mut written = 0;
    for _ in 0..MAX_BATCHES {
        let missing = relay::letters_missing(&shared.pool, GRACE, BATCH).await?;
        dueline_failpoints::reached("relay.letters.read");
        let done = join_all(missing.iter().map(|letter| write(shared, letter))).await;
        let stamped = done.into_iter().collect::<Result<Vec<bool>, _>>()?;
        let count = stamped.iter().filter(|stamped| **stamped).count();
        written += count;
        if missing.len() < BATCH || count == 0 {
            break;
        }
    }
    Ok(written)
}

/// One letter, and its stamp once it is delivered.
async fn write(shared: &Shared, missing: &MissingLetter) -> Result<bool, RelayError> {
    let Some(queue) = shared.config.queues.get(&missing.queue) else { return Ok(false) };
    let topic = queue.dead_letter_topic();
    let outcome = shared.publisher.send_and_wait(record(&topic, &shared.source(), missing)).await;
    match outcome {
        Outcome::Delivered { .. } => {
            dueline_failpoints::reached("relay.letters.sent");
            let stamped = relay::lettered(&shared.pool, missing.id, missing.generation).await?;
            dueline_failpoints::reached("relay.letters.noted");
            tracing::info!(
                id = missing.id,
                kind = missing.kind,
                key = missing.key,
                attempt = missing.attempts,
                state = "dead",
                "its dead letter is written"
            );
            metrics::counter!("dueline_relay_letters_total", "queue" => missing.queue.clone())
                .increment(1);
            Ok(stamped)
        }
        Outcome::NotWritten { error } | Outcome::Unknown { error } => {
            tracing::warn!(
                id = missing.id, kind = missing.kind, key = missing.key,
                attempt = missing.attempts, state = "dead", %error, "its dead letter is not written"
            );
            Ok(false)
        }
    }
}

fn record<'a>(topic: &'a str, source: &str, missing: &'a MissingLetter) -> Record<'a> {
    let letter = DeadLetter {
        reason: missing.reason,
        error: missing.error.clone(),
        queue: missing.queue.clone(),
        at: missing.died_at,
        task: Some(DeadTask {
            source: source.to_owned(),
            task_id: missing.id,
            generation: missing.generation,
            kind: missing.kind.clone(),
            key: missing.key.clone(),
            key_hash: missing.key_hash,
            attempts: missing.attempts,
        }),
        origin: None,
    };
    let mut headers = HeaderList::with_capacity(16);
    for (name, value) in &own_headers(missing.headers.as_deref()) {
        headers.push(name, value.as_bytes());
    }
    for (name, value) in letter.headers() {
        headers.push(name, value.as_bytes());
    }
    Record {
        topic,
        key: Some(missing.key.as_bytes()),
        value: missing.payload.as_deref().map(str::as_bytes),
        headers,
        timestamp_ms: Some(missing.died_at.floor_ms()),
    }
}
