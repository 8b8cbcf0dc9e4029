//! Topics, groups, offsets and whole reads.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dueline_kafka::{KafkaError, TopicSpec, read_all, testing};

use crate::support::{LIMIT, admin, create, fill, settings, topic, unique};

#[tokio::test]
async fn a_topic_is_described_with_its_settings_and_a_missing_one_is_none() {
    let name = topic(3, &[("retention.ms", "86400000")]).await;
    let missing = unique("missing");
    let found = admin().describe(&[missing, name.clone()]).await.unwrap();
    assert_eq!(found[0], None);
    let description = found[1].clone().unwrap();
    assert_eq!((description.partitions, description.replication), (3, 1));
    assert_eq!(description.configs["retention.ms"], "86400000");
    assert_eq!(description.configs["message.timestamp.type"], "CreateTime");
    assert_eq!(description.configs["cleanup.policy"], "delete");
    assert!(description.configs.contains_key("max.message.bytes"));
    assert_eq!(description.overrides, ["retention.ms"]);
}

#[tokio::test]
async fn h11_a_topic_that_is_made_again_has_another_id() {
    let name = topic(1, &[]).await;
    let id = async || {
        admin().identify(std::slice::from_ref(&name)).await.unwrap()[0].clone().unwrap().topic_id
    };
    let before = id().await;
    assert_eq!(before, id().await);
    assert!(before.len() >= 20, "{before}");
    testing::delete_topic(&admin(), &name).await.unwrap();
    testing::await_topic(&admin(), &name, false, LIMIT).await.unwrap();
    create(&name, 1, &[]).await;
    assert_ne!(before, id().await);
}

#[tokio::test]
async fn topics_are_widened_and_settings_changed_one_by_one() {
    let name = topic(1, &[("retention.ms", "86400000")]).await;
    admin().add_partitions(&name, 4).await.unwrap();
    assert!(admin().add_partitions(&name, 2).await.is_err(), "a topic never shrinks");
    let settings = BTreeMap::from([("max.message.bytes".to_owned(), "5000".to_owned())]);
    admin().alter_config(&name, settings).await.unwrap();
    let description =
        admin().describe(std::slice::from_ref(&name)).await.unwrap()[0].clone().unwrap();
    assert_eq!(description.partitions, 4);
    assert_eq!(description.configs["max.message.bytes"], "5000");
    assert_eq!(description.configs["retention.ms"], "86400000", "what was not named is kept");
    let wrong = BTreeMap::from([("retention.ms".to_owned(), "soon".to_owned())]);
    assert!(!admin().alter_config(&name, wrong).await.unwrap_err().is_transient());
}

#[tokio::test]
async fn creating_a_topic_twice_is_an_error_that_waiting_does_not_mend() {
    let name = topic(1, &[]).await;
    let spec =
        TopicSpec { name: name.clone(), partitions: 1, replication: 1, configs: BTreeMap::new() };
    let error = admin().create(spec).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(error.to_string().contains(&name), "{error}");
}

#[tokio::test]
async fn ends_and_times_of_partitions() {
    let name = topic(1, &[]).await;
    assert_eq!(admin().offsets_for_times(&name, 0).await.unwrap(), [None]);
    fill(&name, 10).await;
    let ends = admin().watermarks(&name).await.unwrap()[0];
    assert_eq!((ends.low, ends.high), (0, 10));
    assert_eq!(admin().offsets_for_times(&name, 0).await.unwrap(), [Some(0)]);
    assert_eq!(admin().offsets_for_times(&name, i64::MAX / 2).await.unwrap(), [None]);
    testing::delete_records(&admin(), &name, 0, 4).await.unwrap();
    assert_eq!(admin().watermarks(&name).await.unwrap()[0].low, 4);
    assert_eq!(admin().offsets_for_times(&name, 0).await.unwrap(), [Some(4)]);
}

#[tokio::test]
async fn a_group_that_nobody_knows_has_no_members_and_no_offsets() {
    let name = topic(2, &[]).await;
    let view = admin().group_view(&unique("group"), &name).await.unwrap();
    assert_eq!((view.members, view.committed), (0, vec![None, None]));
    let error = admin().group_view("g", &unique("missing")).await.unwrap_err();
    assert!(matches!(error, KafkaError::UnknownTopic(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_topic_is_read_up_to_its_end() {
    let name = topic(3, &[]).await;
    let read = async |stop_after: u64| {
        let name = name.clone();
        let work = move || {
            let mut seen = 0;
            read_all(&settings(), &name, LIMIT, |_| {
                seen += 1;
                if seen == stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        };
        tokio::task::spawn_blocking(work).await.unwrap().unwrap()
    };
    assert_eq!(read(0).await.records, 0, "an empty topic has an end, too");
    fill(&name, 500).await;
    let whole = read(0).await;
    assert_eq!((whole.records, whole.complete), (500, true));
    let part = read(7).await;
    assert_eq!((part.records, part.complete), (7, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_a_missing_topic_says_so() {
    let name = unique("missing");
    let work = move || read_all(&settings(), &name, LIMIT, |_| ControlFlow::Continue(()));
    let error = tokio::task::spawn_blocking(work).await.unwrap().unwrap_err();
    assert!(error.is_unknown_topic(), "{error}");
}
