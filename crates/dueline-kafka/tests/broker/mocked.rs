//! What works on librdkafka's in-process broker; the documentation of `dueline_kafka::mock` says
//! the same in words.

use std::time::Duration;

use dueline_kafka::mock::{MockBroker, mock_cluster};
use dueline_kafka::{
    Admin, Consumer, KafkaSettings, Outcome, Producer, ProducerConfig, TopicSpec, read_all,
};

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
async fn admin_requests_that_work_and_that_do_not() {
    let (_broker, settings) = start("demo");
    let admin = Admin::new(&settings, Duration::from_secs(5)).unwrap();
    let names = ["demo".to_owned()];
    let found = admin.identify(&names).await.unwrap()[0].clone().unwrap();
    assert_eq!((found.partitions, found.topic_id.is_empty()), (2, false));
    assert!(admin.describe(&names).await.unwrap()[0].clone().unwrap().configs.is_empty());
    assert_eq!(admin.group_view("g", "demo").await.unwrap().committed, [None, None]);

    let (producer, _reports) = Producer::<u64>::new(&settings, &ProducerConfig::default()).unwrap();
    producer.send_and_wait(record("demo", "a", b"{}")).await;
    let ends = admin.watermarks("demo").await.unwrap();
    assert_eq!(ends.iter().map(|end| end.high).sum::<i64>(), 1);
    assert_eq!(admin.offsets_for_times("demo", 1).await.unwrap(), [None, None], "finds nothing");
    let read = tokio::task::spawn_blocking(move || {
        read_all(&settings, "demo", LIMIT, |_| std::ops::ControlFlow::Continue(()))
    });
    assert_eq!(read.await.unwrap().unwrap().records, 1);

    let spec = TopicSpec {
        name: "more".into(),
        partitions: 1,
        replication: 1,
        configs: std::collections::BTreeMap::new(),
    };
    assert!(admin.create(spec).await.unwrap_err().is_unsupported());
}
