//! A topic that is deleted and made again under a member that reads it (H11; found by the campaign, seed 5).

use std::time::Duration;

use dueline_kafka::{Consumer, Event, OwnedRecord, TopicPartition, testing};

use crate::support::*;

/// How long the new topic's records may take: the member joins anew on the way.
const LIMIT_ANEW: Duration = Duration::from_secs(60);

/// Takes and finishes what comes, through all rebalances, until there are `count` records.
async fn read_on(
    consumer: &Consumer,
    partition: &TopicPartition,
    count: usize,
) -> Vec<OwnedRecord> {
    let mut all = Vec::new();
    let work = async {
        while all.len() < count {
            let event = tokio::time::timeout(Duration::from_millis(50), consumer.next_event());
            if let Ok(Some(Event::Revoked(_, ack))) = event.await {
                ack.done();
            }
            let taken = consumer.take(partition, 100);
            finish(consumer, &taken);
            all.extend(taken);
        }
    };
    if tokio::time::timeout(LIMIT_ANEW, work).await.is_err() {
        panic!("only {} of {count} records came", all.len());
    }
    all
}

async fn made_anew(topic: &str) {
    testing::delete_topic(&admin(), topic).await.unwrap();
    testing::await_topic(&admin(), topic, false, LIMIT).await.unwrap();
}

async fn committed(group: &str, topic: &str) -> Option<i64> {
    admin().group_view(group, topic).await.unwrap().committed[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn h11_a_topic_that_was_made_anew_is_read_by_a_member_that_had_read_all_of_the_old_one() {
    let (topic, group) = (topic(1, &[]).await, unique("group"));
    let partition = TopicPartition::new(topic.as_str(), 0);
    fill(&topic, 20).await;
    let consumer = member(&group, &topic);
    read_on(&consumer, &partition, 20).await;
    eventually("the commit", || async { committed(&group, &topic).await == Some(20) }).await;
    made_anew(&topic).await;
    create(&topic, 1, &[]).await;
    fill(&topic, 3).await;
    let records = read_on(&consumer, &partition, 3).await;
    assert_eq!(records.iter().map(|r| r.offset).collect::<Vec<_>>(), [0, 1, 2]);
    eventually("the new commit", || async { committed(&group, &topic).await == Some(3) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h11_a_commit_of_the_old_topic_is_not_repeated_on_the_new_one() {
    let (topic, group) = (topic(1, &[]).await, unique("group"));
    let partition = TopicPartition::new(topic.as_str(), 0);
    fill(&topic, 20).await;
    let consumer = member(&group, &topic);
    assigned(&consumer).await;
    let records = collect(&consumer, 1_000, |all| all.len() == 20).await;
    made_anew(&topic).await;
    // Its commit meets no topic.
    finish(&consumer, &records);
    eventually("an error", || async { consumer.last_error().is_some() }).await;
    create(&topic, 1, &[]).await;
    fill(&topic, 3).await;
    read_on(&consumer, &partition, 3).await;
    eventually("the new commit", || async { committed(&group, &topic).await == Some(3) }).await;
}
