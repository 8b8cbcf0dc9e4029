//! Whether published tasks still wait, on real topics.

use dueline_core::Micros;
use dueline_kafka::{Claim, Outcome, Verdict, WaitingQuery, testing};

use crate::support::{
    LIMIT, admin, assigned, collect, create, finish, member, producer, record, topic, unique,
};

/// Claim times, one millisecond apart; old enough to be anybody's past.
const BASE_MS: i64 = 1_750_000_000_000;

/// Retention goes by the records' timestamps, and these are old.
const KEEP: &[(&str, &str)] = &[("retention.ms", "-1")];

fn claim(index: i64) -> Claim {
    Claim { key: b"key".to_vec(), claimed_at: Micros((BASE_MS + index) * 1_000 + 999) }
}

async fn publish(topic: &str, indices: std::ops::Range<i64>) {
    let (producer, _reports) = producer();
    for index in indices {
        let mut message = record(topic, "key", b"{}");
        message.timestamp_ms = Some(claim(index).claimed_at.floor_ms());
        let outcome = producer.send_and_wait(message).await;
        assert!(matches!(outcome, Outcome::Delivered { .. }), "{outcome:?}");
    }
}

async fn query(topic: &str, group: &str, indices: std::ops::Range<i64>) -> WaitingQuery {
    let found = admin().identify(&[topic.to_owned()]).await.unwrap()[0].clone().unwrap();
    WaitingQuery {
        topic: topic.to_owned(),
        topic_id: found.topic_id,
        partitions: found.partitions,
        group: group.to_owned(),
        claims: indices.map(claim).collect(),
    }
}

fn waits(verdicts: &[Verdict]) -> Vec<bool> {
    verdicts.iter().map(|v| matches!(v, Verdict::Waiting { .. })).collect()
}

#[tokio::test]
async fn h12_consumed_waiting_and_lost_are_told_apart() {
    let (topic, group) = (topic(1, KEEP).await, unique("group"));
    publish(&topic, 0..20).await;
    let ask = async || admin().still_waiting(query(&topic, &group, 0..25).await).await;
    // Nobody has ever read it.
    assert!(ask().await.iter().all(|v| matches!(v, Verdict::Gone(_))));

    let consumer = member(&group, &topic);
    assigned(&consumer).await;
    let records = collect(&consumer, 100, |all| all.len() == 20).await;
    let verdicts = ask().await;
    assert_eq!(verdicts[0], Verdict::Waiting { committed: false }, "a member, nothing committed");
    finish(&consumer, &records[..8]);
    consumer.close(LIMIT).await.unwrap();

    // Consumers are down, and 8 of 20 are consumed; 20 to 24 were claimed and never written.
    let verdicts = ask().await;
    let expected: Vec<bool> = (0..25).map(|i| (8..20).contains(&i)).collect();
    assert_eq!(waits(&verdicts), expected, "{verdicts:?}");
    assert_eq!(verdicts[8], Verdict::Waiting { committed: true });

    // H11: retention takes unread records; of the first that is left it is not known whether a
    // deleted one was meant.
    testing::delete_records(&admin(), &topic, 0, 12).await.unwrap();
    let expected: Vec<bool> = (0..25).map(|i| (13..20).contains(&i)).collect();
    assert_eq!(waits(&ask().await), expected);
}

#[tokio::test]
async fn h11_a_topic_that_was_made_again_or_widened_is_not_believed() {
    let (topic, group) = (topic(1, KEEP).await, unique("group"));
    publish(&topic, 0..2).await;
    let consumer = member(&group, &topic);
    assigned(&consumer).await;
    let records = collect(&consumer, 100, |all| all.len() == 2).await;
    finish(&consumer, &records[..1]);
    consumer.close(LIMIT).await.unwrap();
    let before = query(&topic, &group, 1..2).await;
    assert_eq!(waits(&admin().still_waiting(before.clone()).await), [true]);

    admin().add_partitions(&topic, 2).await.unwrap();
    assert_eq!(waits(&admin().still_waiting(before.clone()).await), [false]);

    testing::delete_topic(&admin(), &topic).await.unwrap();
    testing::await_topic(&admin(), &topic, false, LIMIT).await.unwrap();
    assert!(matches!(admin().still_waiting(before.clone()).await[..], [Verdict::Gone(_)]));
    create(&topic, 1, KEEP).await;
    assert!(matches!(admin().still_waiting(before).await[..], [Verdict::Gone(_)]));
}

#[tokio::test]
async fn without_a_broker_nothing_is_known() {
    let settings = dueline_kafka::KafkaSettings::new("127.0.0.1:1");
    let admin =
        dueline_kafka::Admin::new(&settings, std::time::Duration::from_millis(300)).unwrap();
    let query = WaitingQuery {
        topic: "t".into(),
        topic_id: "id".into(),
        partitions: 1,
        group: "g".into(),
        claims: vec![claim(0), claim(1)],
    };
    let verdicts = admin.still_waiting(query).await;
    assert_eq!(verdicts.len(), 2);
    assert!(verdicts.iter().all(|v| matches!(v, Verdict::Unknown(e) if e.is_transient())));
}
