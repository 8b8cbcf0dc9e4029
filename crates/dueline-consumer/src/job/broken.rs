//! Messages that cannot be handled: dead through their row, or lettered before their offset.

use std::sync::Arc;

use dueline_core::letter::Reason;
use dueline_kafka::{Outcome, OwnedRecord};
use dueline_store::StoreError;
use dueline_store::effect::{
    self, Failure, FailureRecord, IdentifiedTask, Task, identify, known_kinds,
};

use dueline_store::operate::now;

use crate::context::Context;
use crate::message::Broken;
use crate::observe;

/// What became of a broken message.
#[derive(Debug)]
pub(crate) enum BrokenReport {
    /// Its offset may be passed.
    Finished(OwnedRecord),
    /// It stays where it is: why.
    Held(OwnedRecord, String),
}

/// Deals with a broken message. What fails is tried again later: the message is held.
pub(crate) async fn bury(context: Arc<Context>, source: Arc<str>, broken: Broken) -> BrokenReport {
    match decide(&context, &source, &broken).await {
        Ok(None) => BrokenReport::Finished(broken.record),
        Ok(Some(why)) => BrokenReport::Held(broken.record, why),
        Err(error) => BrokenReport::Held(broken.record, error.to_string()),
    }
}

/// `Some`: why it must be held.
async fn decide(
    context: &Context,
    source: &str,
    broken: &Broken,
) -> Result<Option<String>, StoreError> {
    if broken.reason == Reason::UnknownKind && is_known(context, broken).await? {
        return Ok(Some(format!(
            "{}, but the database knows the kind: this consumer's configuration is behind",
            broken.error
        )));
    }
    let Some(id) = broken.task_id else { return letter(context, broken).await };
    let row = {
        let _connection = context.connections.acquire().await;
        identify(context.sessions.pool(), id).await?
    };
    let (hash, generation, attempt) = broken.guard();
    let Some(row) = row.filter(|row| hash.is_none_or(|hash| hash == row.key_hash)) else {
        return letter(context, broken).await;
    };
    let current = row.published
        && generation.is_none_or(|generation| generation == row.generation)
        && attempt.is_none_or(|attempt| attempt == row.attempt);
    if current {
        through_row(context, source, broken, id, row).await?;
    }
    Ok(None)
}

async fn is_known(context: &Context, broken: &Broken) -> Result<bool, StoreError> {
    use dueline_core::Headers as _;
    let kind = broken.record.last_value(dueline_core::envelope::header::KIND).unwrap_or_default();
    let _connection = context.connections.acquire().await;
    Ok(known_kinds(context.sessions.pool())
        .await?
        .iter()
        .any(|known| known.name.as_bytes() == kind))
}

/// No row can be told from it: the letter is its only trace.
async fn letter(context: &Context, broken: &Broken) -> Result<Option<String>, StoreError> {
    let record = &broken.record;
    let at = {
        let _connection = context.connections.acquire().await;
        now(context.sessions.pool()).await?
    };
    dueline_failpoints::reached("consumer.broken.found");
    let why = (broken.reason, broken.error.as_str());
    Ok(match context.letters.without_row(record, at, why).await {
        Outcome::Delivered { .. } => {
            dueline_failpoints::reached("consumer.broken.lettered");
            tracing::error!(
                topic = &*record.topic,
                partition = record.partition,
                offset = record.offset,
                reason = broken.reason.as_str(),
                error = broken.error,
                "a message that no task can be told from went to the dead letters"
            );
            None
        }
        Outcome::NotWritten { error } | Outcome::Unknown { error } => {
            Some(format!("its dead letter cannot be written: {error}"))
        }
    })
}

async fn through_row(
    context: &Context,
    source: &str,
    broken: &Broken,
    id: i64,
    row: IdentifiedTask,
) -> Result<(), StoreError> {
    let task = Task {
        id,
        kind: row.kind.into(),
        key: row.key,
        key_hash: row.key_hash,
        generation: row.generation,
        attempt: row.attempt,
        due_at: dueline_core::Micros::default(),
        published_at: dueline_core::Micros(broken.record.timestamp_ms.max(0).saturating_mul(1_000)),
        payload: None,
        traceparent: None,
    };
    let record = FailureRecord {
        task: &task,
        failure: Failure::new(&broken.error, true),
        pause: None,
        reason: broken.reason,
        charge: false,
    };
    let failed = {
        let _connection = context.connections.acquire().await;
        effect::fail(context.sessions.pool(), &context.queue, std::slice::from_ref(&record)).await?
    };
    // Nothing comes back when the row moved meanwhile: then the message is stale.
    for row in &failed {
        observe::buried(&context.queue, &task, row, &broken.error, broken.reason);
        let why = (broken.reason, broken.error.as_str());
        context.letters.of_death(&task, row, source, &broken.record, why);
    }
    Ok(())
}
