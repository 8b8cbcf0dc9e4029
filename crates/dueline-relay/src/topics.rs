//! The topics, as they must be: there, with the configured partitions, and with the timestamps that
//! we give.

use std::time::Duration;

use dueline_config::Config;
use dueline_kafka::{Admin, KafkaError, TopicDescription};
use dueline_service::CancellationToken;
use dueline_store::relay;

use crate::error::RelayError;
use crate::shared::Shared;

/// How often the topics are looked at again.
const INTERVAL: Duration = Duration::from_secs(15);
/// How often, and how long apart, a topic is looked for before the start is refused.
const LOOKS: u32 = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Checks every topic of the configuration. A broker of a cluster may learn of a new topic a moment
/// after `dueline apply` made it, so what is wrong is looked at again before it counts.
///
/// # Errors
/// [`RelayError::Refused`] names each topic that is not as it must be, and says what to do.
pub(crate) async fn check(admin: &Admin, config: &Config) -> Result<(), RelayError> {
    let mut problems = deviations(admin, config).await?;
    for _ in 1..LOOKS {
        if problems.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        problems = deviations(admin, config).await?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(RelayError::Refused(format!(
        "the topics are not as configured: {}; `dueline apply` makes them so",
        problems.join("; ")
    )))
}

async fn deviations(admin: &Admin, config: &Config) -> Result<Vec<String>, RelayError> {
    let mut problems = Vec::new();
    for queue in config.queues.values() {
        let mut names = queue.tier_topics();
        let tiers = names.len();
        names.extend(queue.outcome_topic());
        names.push(queue.dead_letter_topic());
        let found = admin.describe(&names).await?;
        let wanted = u32::try_from(queue.partitions).unwrap_or(0);
        for (index, (name, topic)) in names.iter().zip(found).enumerate() {
            problems.extend(problem(name, topic.as_ref(), wanted, index >= tiers));
        }
    }
    Ok(problems)
}

fn problem(
    name: &str,
    topic: Option<&TopicDescription>,
    partitions: u32,
    is_no_tier: bool,
) -> Option<String> {
    let Some(topic) = topic else { return Some(format!("{name} does not exist")) };
    if is_no_tier {
        return None;
    }
    if topic.partitions != partitions {
        let has = topic.partitions;
        return Some(format!("{name} has {has} partitions, configured are {partitions}"));
    }
    let kind = topic.configs.get("message.timestamp.type").map_or("CreateTime", String::as_str);
    (kind != "CreateTime")
        .then(|| format!("{name} has message.timestamp.type={kind}, it must be CreateTime"))
}

/// Writes down the topics as they are now.
///
/// # Errors
/// When the brokers or the database do not answer.
pub(crate) async fn see(shared: &Shared) -> Result<(), RelayError> {
    let names = shared.routes.topics();
    let found = shared.admin.identify(&names).await?;
    for topic in found.into_iter().flatten() {
        relay::topic_seen(&shared.pool, &topic.name, &topic.topic_id, topic.partitions).await?;
        dueline_failpoints::reached("relay.topics.seen");
    }
    Ok(())
}

/// Looks at the topics now and then, until `stop`.
pub(crate) async fn run(shared: &Shared, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        match see(shared).await {
            Ok(()) => {}
            Err(RelayError::Kafka(KafkaError::Timeout { .. })) => {}
            Err(error) => tracing::warn!(%error, "the topics could not be looked at"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn topic(partitions: u32, kind: &str) -> TopicDescription {
        TopicDescription {
            name: "t".into(),
            topic_id: "x".into(),
            partitions,
            replication: 1,
            configs: BTreeMap::from([("message.timestamp.type".to_owned(), kind.to_owned())]),
            overrides: Vec::new(),
        }
    }

    #[test]
    fn a_topic_that_is_not_as_it_must_be_is_named() {
        let check = |topic: Option<&TopicDescription>| problem("t", topic, 4, false);
        assert_eq!(check(Some(&topic(4, "CreateTime"))), None);
        assert!(check(None).expect("missing").contains("does not exist"));
        assert!(check(Some(&topic(3, "CreateTime"))).expect("narrow").contains("3 partitions"));
        assert!(check(Some(&topic(4, "LogAppendTime"))).expect("type").contains("CreateTime"));
    }
}
