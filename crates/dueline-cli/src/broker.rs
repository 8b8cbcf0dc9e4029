//! The broker's half of `apply`, and `topics yaml`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use dueline_config::topics::{self, Topic};
use dueline_core::name::nearest;
use dueline_kafka::{TopicDescription, TopicSpec};
use dueline_store::operate::plan::{Action, PlanItem};
use serde_json::json;

use crate::context::{BROKER_TIMEOUT, Context};
use crate::exit;
use crate::output::{Reply, fail};

/// How often, and how long apart, the broker is asked whether it shows what it has accepted: ten seconds.
const SETTLE_LOOKS: u32 = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// What is to be done at the broker.
#[derive(Debug, Default)]
pub struct BrokerPlan {
    /// One line a topic.
    pub items: Vec<PlanItem>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Create(TopicSpec),
    Widen { topic: String, partitions: u32 },
    Alter { topic: String, settings: BTreeMap<String, String> },
}

/// Compares the configured topics with the broker's.
pub async fn plan(context: &Context) -> anyhow::Result<BrokerPlan> {
    let wanted = topics::of_config(&context.config);
    let names: Vec<String> = wanted.iter().map(|t| t.name.clone()).collect();
    let actual = context.admin(BROKER_TIMEOUT)?.describe(&names).await?;
    let mut plan = BrokerPlan::default();
    for (topic, actual) in wanted.iter().zip(&actual) {
        let (item, steps) = judge(topic, actual.as_ref());
        plan.items.push(item);
        plan.steps.extend(steps);
    }
    Ok(plan)
}

/// Creates, widens and changes topics.
pub async fn carry_out(context: &Context, plan: &BrokerPlan) -> anyhow::Result<()> {
    if plan.steps.is_empty() {
        return Ok(());
    }
    let admin = context.admin(BROKER_TIMEOUT)?;
    for step in plan.steps.iter().cloned() {
        match step {
            Step::Create(spec) => admin.create(spec).await?,
            Step::Widen { topic, partitions } => admin.add_partitions(&topic, partitions).await?,
            Step::Alter { topic, settings } => admin.alter_config(&topic, settings).await?,
        }
    }
    settle(context).await
}

/// Waits until the broker shows what it has accepted: it answers a create before its metadata has the topic,
/// and a relay that is started right after us would find it missing.
async fn settle(context: &Context) -> anyhow::Result<()> {
    for _ in 0..SETTLE_LOOKS {
        if plan(context).await?.steps.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(SETTLE_PAUSE).await;
    }
    Err(fail(
        exit::FAILURE,
        "the broker accepted the topics but does not show them yet: run `dueline apply` again",
    ))
}

/// One topic: what the plan says, and the steps to it.
fn judge(wanted: &Topic, actual: Option<&TopicDescription>) -> (PlanItem, Vec<Step>) {
    let item = |action, detail: String| PlanItem::new("topic", &wanted.name, action, detail);
    let Some(actual) = actual else {
        let detail =
            format!("{} partitions, replication {}", wanted.partitions, wanted.replication);
        return (item(Action::Create, detail), vec![Step::Create(spec(wanted))]);
    };
    if let Some(why) = refusal(wanted, actual) {
        return (item(Action::Refuse, why), Vec::new());
    }
    let (mut detail, mut steps) = (Vec::new(), Vec::new());
    let partitions = unsigned(wanted.partitions);
    if partitions > actual.partitions {
        detail.push(format!("partitions {} → {partitions}", actual.partitions));
        steps.push(Step::Widen { topic: wanted.name.clone(), partitions });
    }
    let mut settings = BTreeMap::new();
    for (name, value) in &wanted.config {
        let present = actual.configs.get(*name);
        if present != Some(value) {
            let present = present.map_or("?", String::as_str);
            detail.push(format!("{name} {present} → {value}"));
            settings.insert((*name).to_owned(), value.clone());
        }
    }
    if !settings.is_empty() {
        steps.push(Step::Alter { topic: wanted.name.clone(), settings });
    }
    let action = if steps.is_empty() { Action::Keep } else { Action::Change };
    if actual.replication != unsigned(wanted.replication) {
        detail.push(format!(
            "replication stays {} ({} configured): moving replicas is the broker's business",
            actual.replication, wanted.replication
        ));
    }
    (item(action, detail.join(", ")), steps)
}

fn refusal(wanted: &Topic, actual: &TopicDescription) -> Option<String> {
    if unsigned(wanted.partitions) < actual.partitions {
        return Some(format!(
            "it has {} partitions and cannot shrink to {}: set partitions = {}",
            actual.partitions, wanted.partitions, actual.partitions
        ));
    }
    let timestamps = actual.configs.get("message.timestamp.type").map(String::as_str);
    (timestamps.is_some_and(|t| t != "CreateTime")).then(|| {
        format!(
            "its message.timestamp.type is {}, and messages already in it have the broker's time: set \
             message.timestamp.type=CreateTime on the topic yourself, or use another topic_prefix",
            timestamps.unwrap_or_default()
        )
    })
}

fn spec(topic: &Topic) -> TopicSpec {
    TopicSpec {
        name: topic.name.clone(),
        partitions: unsigned(topic.partitions),
        replication: unsigned(topic.replication),
        configs: topic.config.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
    }
}

fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// `dueline topics yaml`.
pub fn yaml(context: &Context, queue: Option<&str>) -> anyhow::Result<Reply> {
    let queues = &context.config.queues;
    if let Some(name) = queue.filter(|name| !queues.contains_key(*name)) {
        let near = nearest(name, queues.keys().map(String::as_str));
        let near = near.map_or(String::new(), |near| format!(": did you mean `{near}`?"));
        return Err(fail(exit::NOT_FOUND, format!("there is no queue {name:?}{near}")));
    }
    let mut text = String::new();
    for name in queues.keys().filter(|name| queue.is_none_or(|q| q == **name)) {
        let _ = write!(text, "{}", topics::strimzi_yaml(&context.config, name));
    }
    Ok(Reply::new(json!({ "yaml": text }), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Topic {
        Topic {
            name: "dueline.orders.fast".into(),
            partitions: 4,
            replication: 1,
            config: vec![
                ("retention.ms", "1000".into()),
                ("message.timestamp.type", "CreateTime".into()),
            ],
        }
    }

    fn actual(change: impl FnOnce(&mut TopicDescription)) -> TopicDescription {
        let mut actual = TopicDescription {
            name: wanted().name,
            topic_id: "x".into(),
            partitions: 4,
            replication: 1,
            configs: spec(&wanted()).configs,
            overrides: Vec::new(),
        };
        change(&mut actual);
        actual
    }

    fn judged(change: impl FnOnce(&mut TopicDescription)) -> (Action, String, usize) {
        let (item, steps) = judge(&wanted(), Some(&actual(change)));
        (item.action, item.detail, steps.len())
    }

    #[test]
    fn a_missing_topic_is_made_and_an_equal_one_kept() {
        let (item, steps) = judge(&wanted(), None);
        assert_eq!((item.action, steps), (Action::Create, vec![Step::Create(spec(&wanted()))]));
        assert_eq!(judged(|_| {}), (Action::Keep, String::new(), 0));
    }

    #[test]
    fn topics_grow_and_settings_follow() {
        let (action, detail, steps) = judged(|a| a.partitions = 2);
        assert_eq!((action, detail.as_str(), steps), (Action::Change, "partitions 2 → 4", 1));
        let (action, detail, _) = judged(|a| {
            a.configs.insert("retention.ms".into(), "5".into());
        });
        assert_eq!((action, detail.as_str()), (Action::Change, "retention.ms 5 → 1000"));
    }

    #[test]
    fn shrinking_and_another_timestamp_type_are_refused_with_what_to_do() {
        let (action, detail, steps) = judged(|a| a.partitions = 8);
        assert_eq!((action, steps), (Action::Refuse, 0));
        assert!(detail.contains("partitions = 8"), "{detail}");
        let (action, detail, steps) = judged(|a| {
            a.configs.insert("message.timestamp.type".into(), "LogAppendTime".into());
        });
        assert_eq!((action, steps), (Action::Refuse, 0));
        assert!(detail.contains("LogAppendTime") && detail.contains("CreateTime"), "{detail}");
    }
}
