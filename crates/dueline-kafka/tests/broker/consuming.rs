//! Offsets, rebalances and back-pressure of group members.

use std::collections::BTreeSet;

use dueline_kafka::{Consumer, ConsumerConfig, Event, TopicPartition};

use crate::support::{
    LIMIT, admin, assigned, collect, config, event, eventually, fill, finish, member, settings,
    topic, unique,
};

#[tokio::test]
async fn h10_a_restart_resumes_after_the_finished_prefix() {
    let (topic, group) = (topic(1, &[]).await, unique("group"));
    fill(&topic, 100).await;
    let first = member(&group, &topic);
    assert_eq!(assigned(&first).await, [(TopicPartition::new(topic.as_str(), 0), None)]);
    let records = collect(&first, 1_000, |all| all.len() == 100).await;
    assert!(records.windows(2).all(|w| w[0].offset < w[1].offset));
    assert_eq!(records[0].headers, [("kind".to_owned(), b"test".to_vec())]);
    // Record 40 is never finished, whatever is finished behind it.
    let (before, rest) = records.split_at(40);
    finish(&first, before);
    finish(&first, &rest[1..]);
    let partition = TopicPartition::new(topic.as_str(), 0);
    eventually("the commit", || async { first.committed(&partition) == Some(40) }).await;
    first.close(LIMIT).await.unwrap();
    assert_eq!(admin().group_view(&group, &topic).await.unwrap().committed, [Some(40)]);

    let second = member(&group, &topic);
    assert_eq!(assigned(&second).await, [(partition, Some(40))]);
    let again = collect(&second, 1_000, |all| all.len() == 60).await;
    assert_eq!(again[0].offset, 40);
    finish(&second, &again);
    second.close(LIMIT).await.unwrap();
    let view = admin().group_view(&group, &topic).await.unwrap();
    assert_eq!(view.committed, [Some(100)], "closing commits");
    assert_eq!(view.members, 0, "closing leaves the group");
}

#[tokio::test(flavor = "multi_thread")]
async fn h09_a_rebalance_waits_for_work_in_flight_and_commits_it() {
    let (topic, group) = (topic(4, &[]).await, unique("group"));
    fill(&topic, 400).await;
    let first = member(&group, &topic);
    assert_eq!(assigned(&first).await.len(), 4);
    let records = collect(&first, 25, |all| {
        all.iter().map(|r| r.partition).collect::<BTreeSet<_>>().len() == 4
    })
    .await;

    let second = member(&group, &topic);
    let (revoked, ack) = loop {
        if let Event::Revoked(partitions, ack) = event(&first).await {
            break (partitions, ack);
        }
    };
    assert_eq!(revoked.len(), 2, "cooperative: only what moves is taken");
    for partition in &revoked {
        assert!(first.take(partition, 10).is_empty(), "nothing more is handed out");
    }
    // In flight: taken by the first member, and finished only now.
    finish(&first, &records);
    ack.done();

    let moved = assigned(&second).await;
    assert_eq!(moved.len(), 2);
    let mut passed = 0;
    for (partition, committed) in &moved {
        assert!(revoked.contains(partition));
        let in_flight = records.iter().filter(|r| r.partition == partition.partition);
        let expected = in_flight.map(|r| r.offset + 1).max();
        assert_eq!(*committed, expected, "committed on revoke: {partition}");
        passed += committed.unwrap_or_default();
    }
    // Without loss and without repetition: the second member gets exactly the rest.
    let of_moved = |r: &dueline_kafka::Watermarks| r.high;
    let ends = admin().watermarks(&topic).await.unwrap();
    let all: i64 = moved.iter().map(|(p, _)| of_moved(&ends[p.partition as usize])).sum();
    let rest = (all - passed) as usize;
    let got = collect(&second, 1_000, |got| got.len() >= rest).await;
    assert_eq!(got.len(), rest);
    first.close(LIMIT).await.unwrap();
    second.close(LIMIT).await.unwrap();
}

#[tokio::test]
async fn a_dropped_ack_lets_the_rebalance_go_on() {
    let (topic, group) = (topic(2, &[]).await, unique("group"));
    let first = member(&group, &topic);
    assert_eq!(assigned(&first).await.len(), 2);
    let second = member(&group, &topic);
    loop {
        if let Event::Revoked(_, ack) = event(&first).await {
            drop(ack);
            break;
        }
    }
    assert_eq!(assigned(&second).await.len(), 1);
}

#[tokio::test]
async fn a_full_partition_does_not_stop_another() {
    let (topic, group) = (topic(2, &[]).await, unique("group"));
    fill(&topic, 4_000).await;
    let settings = settings();
    let small = ConsumerConfig { buffer_records: 50, ..config(&group, &topic) };
    let consumer = Consumer::start(&settings, small).unwrap();
    assigned(&consumer).await;
    let free = TopicPartition::new(topic.as_str(), 1);
    let end = admin().watermarks(&topic).await.unwrap()[1].high as usize;
    // Partition 0 is never taken from; its buffer fills, and partition 1 is read to its end.
    let mut got = 0;
    let work = async {
        while got < end {
            let taken = consumer.take(&free, 100);
            got += taken.len();
            finish(&consumer, &taken);
            if taken.is_empty() {
                consumer.readable().await;
            }
        }
    };
    assert!(tokio::time::timeout(LIMIT, work).await.is_ok(), "only {got} of {end}");
    let full = TopicPartition::new(topic.as_str(), 0);
    let waiting = || consumer.buffered().iter().find(|(p, _)| *p == full).map_or(0, |(_, n)| *n);
    eventually("a full buffer", || async { waiting() > 50 }).await;
    // One round of the poll thread may come on top of the limit.
    assert!(waiting() <= 50 + 500, "{}", waiting());
    // Once it is taken from, it is read to its end as well.
    let end = admin().watermarks(&topic).await.unwrap()[0].high as usize;
    let rest = collect(&consumer, 100, |all| all.len() == end).await;
    assert!(rest.windows(2).all(|w| w[1].offset == w[0].offset + 1), "no loss, no repeat");
    eventually("the unfinished as lag", || async { consumer.records_lag() >= end as u64 }).await;
    consumer.close(LIMIT).await.unwrap();
}

#[tokio::test]
async fn a_rewound_partition_is_read_again_from_there() {
    let (topic, group) = (topic(1, &[]).await, unique("group"));
    fill(&topic, 300).await;
    let consumer = member(&group, &topic);
    assigned(&consumer).await;
    let partition = TopicPartition::new(topic.as_str(), 0);
    let first = collect(&consumer, 200, |all| all.len() >= 200).await;
    finish(&consumer, &first[..100]);
    assert!(consumer.rewind(&partition, 100));
    let again = collect(&consumer, 1_000, |all| all.len() == 200).await;
    let offsets: Vec<i64> = again.iter().map(|r| r.offset).collect();
    assert_eq!(offsets, (100..300).collect::<Vec<_>>());
    finish(&consumer, &again);
    eventually("the commit", || async { consumer.committed(&partition) == Some(300) }).await;
    assert!(!consumer.rewind(&TopicPartition::new("other", 0), 0), "not assigned");
}

#[tokio::test]
async fn a_paused_partition_is_fetched_again_after_resume() {
    let (topic, group) = (topic(1, &[]).await, unique("group"));
    let consumer = member(&group, &topic);
    let partition = assigned(&consumer).await.remove(0).0;
    consumer.pause(&partition);
    fill(&topic, 10).await;
    consumer.resume(&partition);
    collect(&consumer, 100, |all| all.len() == 10).await;
}

/// H14: any producer may write any bytes into a header's name.
#[tokio::test]
async fn h14_header_names_that_are_no_text_do_not_stop_the_reader() {
    let (topic, group) = (topic(1, &[]).await, unique("group"));
    crate::support::raw_header(&topic, b"caf\xe9", b"\xff\xfe");
    let consumer = member(&group, &topic);
    assigned(&consumer).await;
    let records = collect(&consumer, 10, |all| all.len() == 1).await;
    assert_eq!(records[0].headers, [("caf\u{fffd}".to_owned(), b"\xff\xfe".to_vec())]);
}

/// Once with a full buffer before, so that a pause is left over from the first assignment.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_went_away_paused_is_fetched_when_it_comes_back() {
    let (topic, group) = (topic(2, &[]).await, unique("group"));
    fill(&topic, 2_000).await;
    let small = ConsumerConfig { buffer_records: 10, ..config(&group, &topic) };
    let first = Consumer::start(&settings(), small).unwrap();
    assert_eq!(assigned(&first).await.len(), 2);
    let full = || first.buffered().iter().filter(|(_, n)| *n > 10).count() == 2;
    eventually("both are full", || async { full() }).await;
    let second = member(&group, &topic);
    let moved = loop {
        if let Event::Revoked(moved, ack) = event(&first).await {
            ack.done();
            break moved;
        }
    };
    assert_eq!(assigned(&second).await.len(), 1);
    second.close(LIMIT).await.unwrap();
    assert_eq!(assigned(&first).await[0].0, moved[0], "it comes back");
    let got = async {
        while first.take(&moved[0], 100).is_empty() {
            first.readable().await;
        }
    };
    tokio::time::timeout(LIMIT, got).await.expect("it is fetched again");
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_with_both_numbers() {
    let long = ConsumerConfig {
        revoke_timeout: std::time::Duration::from_secs(61),
        ..ConsumerConfig::new("g", vec!["t".into()])
    };
    let error = Consumer::start(&settings(), long).unwrap_err().to_string();
    assert!(error.contains("61000") && error.contains("60000"), "{error}");
    assert!(Consumer::start(&settings(), ConsumerConfig::new("g", Vec::new())).is_err());
}

/// Times reading, for a look at the numbers: `cargo test -p dueline-kafka -- --ignored
/// reading_speed`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, not a test"]
async fn reading_speed() {
    let (topic, group) = (topic(4, &[]).await, unique("group"));
    let started = std::time::Instant::now();
    fill(&topic, 90_000).await;
    println!("sending took {:?}", started.elapsed());
    let consumer = member(&group, &topic);
    assigned(&consumer).await;
    let started = std::time::Instant::now();
    let mut got = 0;
    while got < 90_000 {
        for (partition, _) in consumer.buffered() {
            let taken = consumer.take(&partition, 1_000);
            got += taken.len();
            consumer.mark_all_finished(&partition, taken.iter().map(|r| r.offset));
        }
        if got < 90_000 && consumer.buffered().is_empty() {
            consumer.readable().await;
        }
    }
    println!("reading took {:?}", started.elapsed());
    consumer.close(LIMIT).await.unwrap();
}
