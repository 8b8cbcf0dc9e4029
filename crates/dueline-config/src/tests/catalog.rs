//! Queues, tiers and kinds.

use std::time::Duration;

use super::{accepted, problem, problems};
use crate::{Effect, Handler, topics};

#[test]
fn a_queue_has_defaults_for_everything() {
    let config = accepted("[queues.orders]");
    let queue = &config.queues["orders"];
    assert_eq!((queue.slots, queue.partitions, queue.replication), (4, 4, 1));
    assert_eq!(queue.group, "dueline.orders");
    assert_eq!(queue.lanes(), 28);
    assert_eq!(queue.tier_topics()[0], "dueline.orders.10s");
    assert_eq!(queue.dead_letter_topic(), "dueline.orders.dlq");
}

#[test]
fn q03_the_rocketmq_levels_are_one_word() {
    assert_eq!(accepted("[queues.a]\ntiers = \"rocketmq\"").queues["a"].tiers.len(), 18);
}

#[test]
fn own_tiers_are_sorted_and_checked() {
    let tiers = |list: &str| format!("[queues.a]\ntiers = [{list}]");
    let config = accepted(&tiers(
        "{ name = \"slow\", max_delay = \"90d\" }, { name = \"fast\", max_delay = \"1m\" }",
    ));
    let names: Vec<_> = config.queues["a"].tiers.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["fast", "slow"]);
    for (list, expected) in [
        ("", "1 to 64 tiers"),
        ("1", "queues.a.tiers[0]: expected { name"),
        ("{ name = \"dlq\", max_delay = \"1m\" }", "`dlq` is kept for another topic"),
        ("{ name = \"x.y\", max_delay = \"1m\" }", "is not allowed"),
        ("{ name = \"x\" }", "queues.a.tiers[0].max_delay: is missing"),
        ("{ max_delay = \"1m\" }", "queues.a.tiers[0].name: is missing"),
        ("{ name = \"x\", max_dela = \"1m\", max_delay = \"1m\" }", "did you mean `max_delay`?"),
        (
            "{ name = \"x\", max_delay = \"1m\" }, { name = \"y\", max_delay = \"60s\" }",
            "x and y have the same max_delay",
        ),
        (
            "{ name = \"x\", max_delay = \"1m\" }, { name = \"x\", max_delay = \"2m\" }",
            "there are two tiers named x",
        ),
    ] {
        let problem = problem(&tiers(list));
        assert!(problem.contains(expected), "{expected}\nis not in\n{problem}");
    }
    assert!(problem("[queues.a]\ntiers = \"rocket\"").contains("\"rocketmq\""));
}

#[test]
fn a_kind_of_the_queue_with_no_name_is_refused() {
    let problem = problem("[queues.orders]\n[kinds.k]\nqueue = \"\"\nrust = true");
    assert!(problem.contains("kinds.k.queue: there is no queue"), "{problem}");
}

#[test]
fn h25_names_that_could_inject_are_refused() {
    for bad in ["A", "a b", "x.y", "é", "x'--"] {
        assert!(problem(&format!("[queues.\"{bad}\"]")).contains("is not allowed"), "{bad}");
        let kind = format!("[queues.q]\n[kinds.\"{bad}\"]\nqueue = \"q\"\nrust = true");
        assert!(problem(&kind).contains("is not allowed"), "{bad}");
    }
    assert!(problem("[postgres]\nhandler_role = \"a; drop\"").contains("role name"));
    assert!(problem("[kafka]\ntopic_prefix = \"a..b\"").contains("topic prefix"));
}

#[test]
fn topics_that_the_broker_cannot_tell_apart_are_refused() {
    let text = "[queues.a_b]\n[queues.a-b]\n";
    assert!(problems(text)[0].contains("differ only in"), "{:#?}", problems(text));
    let long = "x".repeat(63);
    let prefix = [long.as_str(); 3].join(".");
    let text = format!("[kafka]\ntopic_prefix = \"{prefix}\"\n[queues.{long}]");
    assert!(problem(&text).contains("Kafka allows 249"));
}

#[test]
fn the_number_of_lanes_is_bounded() {
    let queues: String = (0..10).map(|n| format!("[queues.q{n}]\nslots = 64\n")).collect();
    assert!(problem(&queues).contains("4480 lanes"));
}

#[test]
fn a_kind_is_complete_or_says_what_is_missing() {
    let kind = |rest: &str| format!("[queues.orders]\n[kinds.close]\n{rest}");
    let config = accepted(&kind("queue = \"orders\"\nsql = \"update …\"\nbackoff = []"));
    let close = &config.kinds["close"];
    assert_eq!((close.handler.effect(), close.retry.max_attempts()), (Effect::Here, 1));
    assert_eq!(close.handler, Handler::Sql("update …".to_owned()));
    assert_eq!(close.age_limit, Duration::from_secs(86_400));
    for (rest, expected) in [
        ("rust = true", "kinds.close.queue: is missing"),
        ("queue = \"oders\"\nrust = true", "did you mean `orders`?"),
        ("queue = \"orders\"", "kinds.close: nothing carries it out"),
        ("queue = \"orders\"\nrust = true\nsql = \"x\"", "exclude each other"),
        ("queue = \"orders\"\nsql = \" \"", "expected one statement"),
        ("queue = \"orders\"\nrust = true\noutcomes = true", "exclude each other"),
        ("queue = \"orders\"\nrust = true\nbegin = true", "belongs to `outcomes = true`"),
        ("queue = \"orders\"\nrust = true\nbackoff = [\"x\"]", "expected pauses such as \"3s\""),
        ("queue = \"orders\"\nrust = true\nbackoff = [\"31d\"]", "at most 30d"),
        ("queue = \"orders\"\nrust = true\nmax_payload_bytes = 0", "must be between 1 and 524288"),
    ] {
        let problem = problem(&kind(rest));
        assert!(problem.contains(expected), "{expected}\nis not in\n{problem}");
    }
}

#[test]
fn topic_resources_have_names_that_kubernetes_takes() {
    let config = accepted("[kafka]\ntopic_prefix = \"my.team_\"\n[queues.a_b]");
    let yaml = topics::strimzi_yaml(&config, "a_b");
    assert!(yaml.contains("name: \"my.team.a-b.10s\"\n"), "{yaml}");
    assert!(yaml.contains("topicName: \"my.team_.a_b.10s\"\n"), "{yaml}");
    assert_eq!(topics::strimzi_yaml(&config, "other"), "");
    assert_eq!(topics::of_config(&config).len(), 8);
}
