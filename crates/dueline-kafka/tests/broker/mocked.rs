//! What works on librdkafka's in-process broker. The module's documentation repeats the findings.

use std::time::Duration;

use dueline_kafka::mock::{MockBroker, mock_cluster};
use dueline_kafka::{Admin, Consumer, KafkaSettings, Outcome, Producer, ProducerConfig, TopicSpec};

use crate::support::{LIMIT, assigned, collect, config, finish, record};

fn start(topic: &str) -> (MockBroker, KafkaSettings) {
    let broker = mock_cluster(1).unwrap();
    let spec = TopicSpec {
        name: topic.to_owned(),
        partitions: 2,
        replication: 1,
        configs: std::collections::BTreeMap::new(),
    };
    broker.create_topic(&spec).unwrap();
    let settings = KafkaSettings::new(broker.brokers());
    (broker, settings)
}

#[tokio::test(flavor = "multi_thread")]
async fn producing_and_consuming_in_a_group_work() {
    let (_broker, settings) = start("demo");
    let (producer, _reports) = Producer::<u64>::new(&settings, &ProducerConfig::default()).unwrap();
    for key in ["a", "b", "c"] {
        let outcome = producer.send_and_wait(record("demo", key, b"{}")).await;
        assert!(matches!(outcome, Outcome::Delivered { .. }), "{outcome:?}");
    }
    let consumer = Consumer::start(&settings, config("g", "demo")).unwrap();
    assigned(&consumer).await;
    let records = collect(&consumer, 10, |all| all.len() == 3).await;
    finish(&consumer, &records);
    consumer.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn which_admin_requests_work() {
    let (_broker, settings) = start("demo");
    let admin = Admin::new(&settings, Duration::from_secs(2)).unwrap();
    println!("identify {:?}", admin.identify(&["demo".to_owned()]).await);
    println!("describe {:?}", admin.describe(&["demo".to_owned()]).await);
    println!("watermarks {:?}", admin.watermarks("demo").await);
    println!("times {:?}", admin.offsets_for_times("demo", 1).await);
    println!("group {:?}", admin.group_view("g", "demo").await);
}
