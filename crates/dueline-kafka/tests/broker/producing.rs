//! What a delivery report says of a record.

use std::time::Duration;

use dueline_core::partition::partition_for;
use dueline_kafka::{KafkaSettings, Outcome, Producer, ProducerConfig};

use crate::support::{LIMIT, admin, producer, record, settings, topic, unique};

async fn next(reports: &mut dueline_kafka::Reports<u64>) -> dueline_kafka::Report<u64> {
    tokio::time::timeout(LIMIT, reports.recv()).await.expect("a report").expect("open")
}

#[tokio::test]
async fn a_delivered_record_tells_partition_and_offset_and_keys_go_where_the_core_says() {
    let topic = topic(7, &[]).await;
    let (producer, mut reports) = producer();
    let keys: Vec<String> = (0..200).map(|i| format!("order-{i}")).collect();
    for (ticket, key) in (0_u64..).zip(&keys) {
        producer.send(record(&topic, key, b"{}"), ticket).unwrap();
    }
    producer.flush(LIMIT).await.unwrap();
    assert_eq!(producer.in_flight(), 0);
    for _ in &keys {
        let report = next(&mut reports).await;
        let Outcome::Delivered { partition, offset } = report.outcome else {
            panic!("{:?}", report.outcome)
        };
        let key = &keys[report.ticket as usize];
        assert_eq!(partition as u32, partition_for(key.as_bytes(), 7), "{key}");
        assert!(offset >= 0);
    }
    assert_eq!(producer.fatal(), None);
}

#[tokio::test]
async fn h15_too_large_for_the_topic_is_not_written_and_the_next_record_is() {
    let topic = topic(1, &[("max.message.bytes", "2000")]).await;
    let (producer, mut reports) = producer();
    // Random bytes: compression must not make it fit.
    let large: Vec<u8> = (0..300).flat_map(|_| *uuid::Uuid::new_v4().as_bytes()).collect();
    producer.send(record(&topic, "a", &large), 1).unwrap();
    let report = next(&mut reports).await;
    assert!(matches!(&report.outcome, Outcome::NotWritten { error } if !error.is_transient()));
    let outcome = producer.send_and_wait(record(&topic, "a", b"{}")).await;
    assert!(matches!(outcome, Outcome::Delivered { .. }), "{outcome:?}");
    assert_eq!(admin().watermarks(&topic).await.unwrap()[0].high, 1);
}

#[tokio::test]
async fn too_large_for_the_client_is_refused_with_the_ticket() {
    let topic = topic(1, &[]).await;
    let (producer, _reports) = producer();
    let refused = producer.send(record(&topic, "a", &vec![0; 2 << 20]), 42).unwrap_err();
    assert_eq!(refused.ticket, 42);
    assert!(!refused.queue_full);
    assert!(!refused.error.is_transient());
}

#[tokio::test]
async fn an_unknown_topic_is_not_written() {
    let config =
        ProducerConfig { delivery_timeout: Duration::from_secs(3), ..ProducerConfig::default() };
    let (producer, _reports) = Producer::<u64>::new(&settings(), &config).unwrap();
    let outcome = producer.send_and_wait(record(&unique("missing"), "a", b"{}")).await;
    assert!(matches!(outcome, Outcome::NotWritten { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_full_queue_gives_the_ticket_back_and_says_so() {
    let config = ProducerConfig { max_in_flight: 10, ..ProducerConfig::default() };
    let nowhere = KafkaSettings::new("127.0.0.1:1");
    let (producer, mut reports) = Producer::<u64>::new(&nowhere, &config).unwrap();
    for ticket in 0..10 {
        producer.send(record("t", "a", b"{}"), ticket).unwrap();
    }
    let refused = producer.send(record("t", "a", b"{}"), 10).unwrap_err();
    assert!(refused.queue_full);
    assert_eq!(refused.ticket, 10);
    // What was never sent is purged when the producer closes, and is reported as not written.
    producer.close(Duration::ZERO).await;
    for _ in 0..10 {
        assert!(matches!(next(&mut reports).await.outcome, Outcome::NotWritten { .. }));
    }
    assert!(reports.recv().await.is_none(), "the stream ends with the producer");
}

#[tokio::test]
async fn h07_a_record_that_was_never_sent_is_not_written_after_the_delivery_timeout() {
    let config =
        ProducerConfig { delivery_timeout: Duration::from_secs(1), ..ProducerConfig::default() };
    let nowhere = KafkaSettings::new("127.0.0.1:1");
    let (producer, _reports) = Producer::<u64>::new(&nowhere, &config).unwrap();
    let outcome = producer.send_and_wait(record("t", "a", b"{}")).await;
    assert!(
        matches!(&outcome, Outcome::NotWritten { error } if error.is_transient()),
        "{outcome:?}"
    );
}

/// The in-process broker writes the record, and answers after the delivery timeout.
#[tokio::test(flavor = "multi_thread")]
async fn h07_a_record_whose_answer_does_not_come_is_unknown() {
    let cluster = rdkafka::mocking::MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let config =
        ProducerConfig { delivery_timeout: Duration::from_secs(2), ..ProducerConfig::default() };
    let settings = KafkaSettings::new(cluster.bootstrap_servers());
    let (producer, _reports) = Producer::<u64>::new(&settings, &config).unwrap();
    let first = producer.send_and_wait(record("t", "a", b"1")).await;
    assert!(matches!(first, Outcome::Delivered { .. }), "{first:?}");
    cluster.broker_round_trip_time(1, Duration::from_secs(20)).unwrap();
    let second = producer.send_and_wait(record("t", "a", b"2")).await;
    assert!(matches!(second, Outcome::Unknown { .. }), "{second:?}");
}

/// Of a producer that was connected, too.
#[tokio::test(flavor = "multi_thread")]
async fn h07_a_record_sent_while_the_broker_is_gone_is_not_written() {
    let cluster = rdkafka::mocking::MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    let config =
        ProducerConfig { delivery_timeout: Duration::from_secs(2), ..ProducerConfig::default() };
    let settings = KafkaSettings::new(cluster.bootstrap_servers());
    let (producer, _reports) = Producer::<u64>::new(&settings, &config).unwrap();
    let first = producer.send_and_wait(record("t", "a", b"1")).await;
    assert!(matches!(first, Outcome::Delivered { .. }), "{first:?}");
    cluster.broker_down(1).unwrap();
    let second = producer.send_and_wait(record("t", "a", b"2")).await;
    assert!(matches!(second, Outcome::NotWritten { .. }), "{second:?}");
    // The same producer goes on when the broker is back.
    cluster.broker_up(1).unwrap();
    let third = producer.send_and_wait(record("t", "a", b"3")).await;
    assert!(matches!(third, Outcome::Delivered { .. }), "{third:?}");
    assert_eq!(producer.fatal(), None);
}
