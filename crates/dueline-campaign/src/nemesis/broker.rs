//! Faults that a broker's administrator makes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_kafka::testing;
use dueline_kafka::{Admin, Consumer, ConsumerConfig, Event, TopicSpec};
use dueline_testkit::checker::{self, Queue};
use dueline_testkit::wait;
use tokio::time::{Instant, sleep, timeout};

use crate::evidence::Archive;
use crate::role::Role;
use crate::stage::Stage;

const ASK: Duration = Duration::from_secs(10);
/// How long a group may take to be without members: dead ones are dropped after their session.
const EMPTY_PATIENCE: Duration = Duration::from_secs(20);
/// How long a topic may take to go, or to come.
const TOPIC_PATIENCE: Duration = Duration::from_secs(20);
const TERM_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a guest of the group stays.
const VISIT: Duration = Duration::from_millis(700);

fn admin(stage: &Stage) -> Result<Admin> {
    Ok(Admin::new(&stage.places().kafka, ASK)?)
}

/// One of the tier topics, each in its turn.
fn a_topic(stage: &Stage, archive: &Archive) -> String {
    let topics: Vec<&String> = stage.places().queues.iter().flat_map(|q| &q.topics).collect();
    topics[archive.next_turn() % topics.len()].clone()
}

fn a_queue<'s>(stage: &'s Stage, archive: &Archive) -> &'s Queue {
    let queues = &stage.places().queues;
    &queues[archive.next_turn() % queues.len()]
}

pub async fn recreate_topic(stage: &Stage, archive: &Archive, hold: Duration) -> Result<()> {
    let (admin, topic) = (admin(stage)?, a_topic(stage, archive));
    let described = admin.describe(std::slice::from_ref(&topic)).await?.pop().flatten();
    let described = described.with_context(|| format!("{topic} does not exist"))?;
    archive.keep(checker::read_published(stage.places(), &topic).await?);
    let own = |name: &String| Some((name.clone(), described.configs.get(name)?.clone()));
    let spec = TopicSpec {
        name: topic.clone(),
        partitions: described.partitions,
        replication: described.replication,
        configs: described.overrides.iter().filter_map(own).collect::<BTreeMap<_, _>>(),
    };
    testing::delete_topic(&admin, &topic).await?;
    testing::await_topic(&admin, &topic, false, TOPIC_PATIENCE).await?;
    sleep(hold / 2).await;
    // The name may stay taken for a moment, while the old one's files go.
    wait::until("the topic to be made again", TOPIC_PATIENCE, async || {
        Ok(admin.create(spec.clone()).await.is_ok())
    })
    .await?;
    testing::await_topic(&admin, &topic, true, TOPIC_PATIENCE).await?;
    // The group keeps the old topic's offsets until a consumer sees the new one, whose records begin
    // below them.
    let group = stage.places().queues.iter().find(|queue| queue.topics.contains(&topic));
    let group = group.map(|queue| queue.group.as_str()).unwrap_or_default();
    let committed = admin.group_view(group, &topic).await?.committed;
    archive.forget_moved(&topic);
    archive.note_moved(&topic, &committed.iter().map(|c| c.unwrap_or(0)).collect::<Vec<_>>());
    Ok(())
}

pub async fn delete_records(stage: &Stage, archive: &Archive) -> Result<()> {
    let (admin, topic) = (admin(stage)?, a_topic(stage, archive));
    archive.keep(checker::read_published(stage.places(), &topic).await?);
    for (partition, ends) in (0..).zip(admin.watermarks(&topic).await?) {
        if ends.high > ends.low {
            testing::delete_records(&admin, &topic, partition, ends.high).await?;
        }
    }
    Ok(())
}

/// Both consumers leave, the group is worked on, both come back.
async fn without_members(
    stage: &Stage,
    work: impl AsyncFnOnce(&Admin) -> Result<()>,
) -> Result<()> {
    let admin = admin(stage)?;
    let (one, two) = tokio::join!(
        stage.terminate(Role::Consumer1, TERM_TIMEOUT),
        stage.terminate(Role::Consumer2, TERM_TIMEOUT)
    );
    let done = async {
        one?;
        two?;
        work(&admin).await
    }
    .await;
    for role in Role::CONSUMERS {
        stage.start_process(role, &[]).await?;
    }
    done
}

async fn await_empty(admin: &Admin, queue: &Queue) -> Result<()> {
    wait::until("the group to be without members", EMPTY_PATIENCE, async || {
        Ok(admin.group_view(&queue.group, &queue.topics[0]).await?.members == 0)
    })
    .await
}

pub async fn delete_offsets(stage: &Stage) -> Result<()> {
    without_members(stage, async |admin| {
        for queue in &stage.places().queues {
            await_empty(admin, queue).await?;
            testing::delete_group(admin, &queue.group).await?;
        }
        Ok(())
    })
    .await
}

pub async fn set_offsets(stage: &Stage, archive: &Archive, ahead: bool) -> Result<()> {
    let queue = a_queue(stage, archive);
    without_members(stage, async |admin| {
        await_empty(admin, queue).await?;
        for topic in &queue.topics {
            let ends = admin.watermarks(topic).await?;
            let offsets: Vec<i64> =
                ends.iter().map(|end| if ahead { end.high } else { end.low }).collect();
            if ahead {
                archive.note_moved(topic, &offsets);
            }
            testing::set_offsets(admin, &queue.group, topic, &offsets).await?;
        }
        Ok(())
    })
    .await
}

/// A guest joins and leaves, again and again. It takes no record and commits nothing.
pub async fn rebalance(stage: &Stage, hold: Duration) -> Result<()> {
    let end = Instant::now() + hold * 2;
    let mut turn = 0;
    while Instant::now() < end {
        let queues = &stage.places().queues;
        let queue = &queues[turn % queues.len()];
        let mut config = ConsumerConfig::new(&queue.group, queue.topics.clone());
        config.session_timeout = Duration::from_secs(2);
        config.max_poll_interval = Duration::from_secs(6);
        config.revoke_timeout = Duration::from_secs(1);
        let guest = Consumer::start(&stage.places().kafka, config)?;
        let joined = async {
            while let Some(event) = guest.next_event().await {
                if matches!(event, Event::Assigned(_)) {
                    break;
                }
            }
        };
        // A guest that is not let in in time leaves all the same.
        let _ = timeout(VISIT, joined).await;
        let _ = guest.close(ASK).await;
        turn += 1;
    }
    Ok(())
}
