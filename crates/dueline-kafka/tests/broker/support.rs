//! What the tests have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use dueline_kafka::{
    Admin, Consumer, ConsumerConfig, Event, HeaderList, KafkaSettings, OwnedRecord, Producer,
    ProducerConfig, Record, Reports, TopicPartition, TopicSpec,
};

/// The longest that anything here may take.
pub const LIMIT: Duration = Duration::from_secs(30);

pub fn settings() -> KafkaSettings {
    // Shown for tests that fail; the first test of the process sets it up.
    let _ = tracing_subscriber::fmt().with_test_writer().try_init();
    let brokers = std::env::var("DUELINE_TEST_KAFKA").expect(
        "DUELINE_TEST_KAFKA is not set: give host:port of a Kafka broker that tests may use, or run \
         `./scripts/test`",
    );
    KafkaSettings::new(brokers)
}

pub fn admin() -> Admin {
    Admin::new(&settings(), Duration::from_secs(10)).unwrap()
}

/// A name that no other test and no earlier run has.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::new_v4().simple())
}

pub async fn topic(partitions: u32, configs: &[(&str, &str)]) -> String {
    let name = unique("topic");
    create(&name, partitions, configs).await;
    name
}

pub async fn create(name: &str, partitions: u32, configs: &[(&str, &str)]) {
    let configs: BTreeMap<String, String> =
        configs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let spec = TopicSpec { name: name.to_owned(), partitions, replication: 1, configs };
    admin().create(spec).await.unwrap();
    dueline_kafka::testing::await_topic(&admin(), name, true, LIMIT).await.unwrap();
}

pub fn producer() -> (Producer<u64>, Reports<u64>) {
    Producer::new(&settings(), &ProducerConfig::default()).unwrap()
}

pub fn record<'a>(topic: &'a str, key: &'a str, value: &'a [u8]) -> Record<'a> {
    Record {
        topic,
        key: Some(key.as_bytes()),
        value: Some(value),
        headers: HeaderList::from_iter([("kind", b"test".as_slice())]),
        timestamp_ms: None,
    }
}

/// Sends `count` records with keys `key-0`, … and waits for all reports.
pub async fn fill(topic: &str, count: u64) {
    let (producer, mut reports) = producer();
    for ticket in 0..count {
        let key = format!("key-{ticket}");
        let mut refused = producer.send(record(topic, &key, b"{}"), ticket);
        while let Err(full) = refused {
            assert!(full.queue_full, "{:?}", full.error);
            producer.flush(LIMIT).await.unwrap();
            refused = producer.send(record(topic, &key, b"{}"), ticket);
        }
    }
    let mut all = Vec::new();
    while all.len() < count as usize {
        let more = reports.recv_many(&mut all, 1_000);
        assert!(tokio::time::timeout(LIMIT, more).await.expect("reports come") > 0);
    }
    assert!(all.iter().all(|r| matches!(r.outcome, dueline_kafka::Outcome::Delivered { .. })));
}

pub fn config(group: &str, topic: &str) -> ConsumerConfig {
    ConsumerConfig {
        session_timeout: Duration::from_secs(6),
        commit_interval: Duration::from_millis(50),
        revoke_timeout: Duration::from_secs(10),
        ..ConsumerConfig::new(group, vec![topic.to_owned()])
    }
}

pub fn member(group: &str, topic: &str) -> Consumer {
    Consumer::start(&settings(), config(group, topic)).unwrap()
}

pub async fn event(consumer: &Consumer) -> Event {
    tokio::time::timeout(LIMIT, consumer.next_event()).await.expect("an event").expect("alive")
}

/// Waits until the member has partitions, and returns them with their committed offsets.
pub async fn assigned(consumer: &Consumer) -> Vec<(TopicPartition, Option<i64>)> {
    loop {
        if let Event::Assigned(list) = event(consumer).await
            && !list.is_empty()
        {
            return list.into_iter().map(|a| (a.partition, a.committed)).collect();
        }
    }
}

/// Takes what there is of all partitions, at most `max` each, until `enough` says so.
pub async fn collect(
    consumer: &Consumer,
    max: usize,
    mut enough: impl FnMut(&[OwnedRecord]) -> bool,
) -> Vec<OwnedRecord> {
    let mut all = Vec::new();
    let work = async {
        while !enough(&all) {
            let readable = consumer.buffered();
            if readable.is_empty() {
                consumer.readable().await;
            }
            for (partition, _) in readable {
                all.extend(consumer.take(&partition, max));
            }
        }
    };
    if tokio::time::timeout(LIMIT, work).await.is_err() {
        panic!("only {} records came", all.len());
    }
    all
}

pub fn finish(consumer: &Consumer, records: &[OwnedRecord]) {
    for record in records {
        consumer.mark_finished(&record.topic_partition(), record.offset);
    }
}

/// Asks again and again, every 20 ms, until the condition holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let work = async {
        while !holds().await {
            ticks.tick().await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, work).await.is_ok(), "never: {what}");
}

/// Writes one record whose header has these bytes as its name, which no safe API does.
#[allow(unsafe_code)]
pub fn raw_header(topic: &str, name: &[u8], value: &[u8]) {
    use rdkafka::bindings as sys;
    use rdkafka::producer::{BaseProducer, Producer as _};

    let mut config = rdkafka::ClientConfig::new();
    config.set("bootstrap.servers", settings().brokers);
    let producer: BaseProducer = config.create().unwrap();
    let topic = std::ffi::CString::new(topic).unwrap();
    // SAFETY: lengths are those of the slices, the strings outlive the call, and `producev` takes
    // the headers over when it succeeds.
    let error = unsafe {
        let headers = sys::rd_kafka_headers_new(1);
        sys::rd_kafka_header_add(
            headers,
            name.as_ptr().cast(),
            name.len() as isize,
            value.as_ptr().cast(),
            value.len() as isize,
        );
        sys::rd_kafka_producev(
            producer.client().native_ptr(),
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC,
            topic.as_ptr(),
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS,
            headers,
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
        )
    };
    assert_eq!(error, sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
    producer.flush(LIMIT).unwrap();
}
