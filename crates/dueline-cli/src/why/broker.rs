//! Where the message of a published task is.

use std::time::Duration;

use dueline_core::name::tier_topic;
use dueline_core::partition::partition_for;
use dueline_kafka::KafkaError;
use dueline_store::operate::why::Facts;

use super::explain::{InTopic, Message};
use crate::context::Context;

/// An operator waits for this answer: rather none than a late one.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Looks for the message; `None` when the task is not published.
pub async fn look(context: &Context, facts: &Facts) -> Option<InTopic> {
    let claimed_at = facts.claimed_at?;
    let tier = facts.lane_tier.as_deref().unwrap_or(&facts.tier);
    let topic = match context.config.queues.get(&facts.queue) {
        Some(queue) => queue.topic(tier),
        None => tier_topic(&context.config.kafka.topic_prefix, &facts.queue, tier),
    };
    let group = facts.consumer_group.clone();
    let seen = ask(context, facts, &topic, &group, claimed_at.0.floor_ms()).await;
    let message = seen.unwrap_or_else(|error| Message::Unknown { error: format!("{error:#}") });
    let queue = context.config.queues.get(&facts.queue);
    let outcomes = queue.and_then(dueline_config::Queue::outcome_topic);
    Some(InTopic { topic, group, outcomes, message })
}

async fn ask(
    context: &Context,
    facts: &Facts,
    topic: &str,
    group: &str,
    claimed_ms: i64,
) -> anyhow::Result<Message> {
    let admin = context.admin(TIMEOUT)?;
    let view = match admin.group_view(group, topic).await {
        Err(KafkaError::UnknownTopic(_)) => return Ok(Message::NoTopic),
        other => other?,
    };
    let partitions = u32::try_from(view.committed.len())?;
    let partition = partition_for(facts.key.as_bytes(), partitions);
    let index = usize::try_from(partition)?;
    let offsets = admin.offsets_for_times(topic, claimed_ms).await?;
    let ends = admin.watermarks(topic).await?;
    Ok(Message::Seen {
        partition,
        members: view.members,
        committed: view.committed.get(index).copied().flatten(),
        log_start: ends.get(index).map_or(0, |w| w.low),
        offset: offsets.get(index).copied().flatten(),
    })
}
