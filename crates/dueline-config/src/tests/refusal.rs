//! What is refused, and what the message says to do about it.

use super::{accepted, problem, problems};
use crate::{Config, ConfigError};

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    assert_eq!(
        problem("[relay]\nlaese = \"1s\""),
        "relay.laese: unknown key; did you mean `lease`? (in the configuration)"
    );
    assert!(problem("[zzzzzzzz]\na = 1").contains("known here: kafka, relay, queues"));
    let text = "[queues.orders]\n[kinds.a]\nqueue = \"orders\"\nrust = true\nbackof = []";
    assert!(problem(text).contains("kinds.a.backof: unknown key; did you mean `backoff`?"));
}

#[test]
fn all_problems_are_reported_together() {
    let all =
        problems("[instance]\nname = \"A\"\n[relay]\nbatch_max = 5\nx = 1\n[log]\nformat = 1");
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(all.iter().any(|p| p.contains("relay.batch_max: must be between 100 and 1000")));
}

#[test]
fn h26_secrets_stand_in_no_message_and_no_debug_output() {
    let canary = "c4n4ry";
    let valid = format!(
        "[postgres]\nurl = \"postgres://me:{canary}@db:5432/x?sslpassword={canary}\"\n\
         [kafka.properties]\nsasl.password = \"{canary}\""
    );
    let config = accepted(&valid);
    assert!(!format!("{config:?}").contains(canary));
    assert_eq!(config.postgres.redacted_url(), "postgres://db:5432/x");
    for broken in [
        format!("[postgres]\nurl = \"{canary}\""),
        format!("[postgres]\npassword = \"{canary}\""),
        format!("[postgres]\nurl = [\"{canary}\"]"),
        format!("[postgres]\nurl = \"{canary}"),
        format!("[kafka.properties]\nacks = \"{canary}\"\nsasl.password = [\"{canary}\"]"),
        format!("kafka.properties = \"{canary}\""),
    ] {
        let error = Config::from_toml_str(&broken).expect_err("broken");
        let shown = format!("{error} {error:?} {:?}", error.problems());
        assert!(!shown.contains(canary), "{shown}");
    }
}

#[test]
fn h26_a_url_is_shown_without_anything_that_may_be_a_password() {
    for (url, shown) in [
        ("postgres://h/d", "postgres://h/d"),
        ("postgres://u:p@h:1/d", "postgres://h:1/d"),
        ("postgres://u:p/x@h/d", "postgres://h/d"),
        ("postgres://u:p@x@h/d", "<redacted>"),
        ("postgres://u:p?x@h/d", "<redacted>"),
    ] {
        let config = accepted(&format!("[postgres]\nurl = \"{url}\""));
        assert_eq!(config.postgres.redacted_url(), shown);
    }
}

#[test]
fn a_syntax_error_names_the_line_and_does_not_show_it() {
    let error = Config::from_toml_str("[relay]\nlease = \"60s\"\nx = = 1").expect_err("no TOML");
    assert!(matches!(error, ConfigError::Syntax { line: 3, .. }), "{error:?}");
}

#[test]
fn h17_the_inequalities_name_both_numbers_and_what_to_change() {
    assert_eq!(
        problem("[kafka]\ndelivery_timeout = \"45s\"\n[relay]\nlease = \"50s\""),
        "kafka.delivery_timeout (45s) + relay.lease_slack (10s) must be below relay.lease (50s): \
         raise relay.lease or lower kafka.delivery_timeout or relay.lease_slack"
    );
    for (text, expected) in [
        (
            "[consumer]\nhandler_timeout = \"16s\"",
            "consumer.handler_timeout (16s) must be at most \
             postgres.idle_in_transaction_timeout (15s)",
        ),
        (
            "[postgres]\nidle_in_transaction_timeout = \"60s\"",
            "postgres.idle_in_transaction_timeout (1m) must be below relay.lease (1m)",
        ),
        (
            "[consumer]\nmax_poll_interval = \"10s\"",
            "consumer.handler_timeout (10s) must be below consumer.max_poll_interval (10s)",
        ),
        (
            "[retention]\nreplay_window = \"29d\"",
            "relay.age_limit (1d) + retention.replay_window (29d) must be below \
             retention.dedupe (30d)",
        ),
        (
            "[retention]\ndedupe = \"31d\"",
            "retention.dedupe (31d) must be at most retention.task (30d)",
        ),
        (
            "[queues.a]\ntopic_retention = \"30d\"",
            "queues.a.topic_retention (30d) must be below retention.dedupe (30d)",
        ),
        (
            "[queues.a]\ndead_letter_retention = \"31d\"",
            "queues.a.dead_letter_retention (31d) must be below retention.dedupe (30d)",
        ),
        (
            "[queues.a]\n[kinds.k]\nqueue = \"a\"\nrust = true\nage_limit = \"20d\"",
            "kinds.k.age_limit (20d) + retention.replay_window (14d) must be below",
        ),
        (
            "[relay]\nheartbeat_interval = \"2s\"",
            "relay.heartbeat_interval (2s) + relay.heartbeat_interval (2s) must be below \
             relay.takeover_after (3s): raise relay.takeover_after or lower \
             relay.heartbeat_interval",
        ),
        ("[relay]\nwindow_min = \"31s\"", "relay.window_min (31s) must be at most"),
    ] {
        assert!(problem(text).contains(expected), "{expected}\nis not in\n{}", problem(text));
    }
}

#[test]
fn a_rule_is_not_judged_with_a_default_in_place_of_a_wrong_value() {
    let problem = problem("[kafka]\ndelivery_timeout = \"70s\"\n[relay]\nlease = \"2 weeks\"");
    assert!(problem.contains("relay.lease: expected a length of time"), "{problem}");
}

#[test]
fn what_dueline_sets_itself_cannot_be_passed_through() {
    let text =
        "[kafka.properties]\npartitioner = \"random\"\n[postgres.options]\nlock_timeout = \"9s\"";
    let all = problems(text);
    assert!(all[0].contains("kafka.properties.partitioner: dueline sets this itself"), "{all:#?}");
    assert!(all[1].contains("set postgres.lock_timeout"), "{all:#?}");
}

#[test]
fn h29_a_public_admin_port_must_be_wanted() {
    assert!(problem("[admin]\nbind = \"0.0.0.0:80\"").contains("admin.allow_public = true"));
    accepted("[admin]\nbind = \"0.0.0.0:80\"\nallow_public = true");
    accepted("[admin]\nbind = \"[::1]:0\"");
    assert_eq!(accepted("[admin]\nbind = \"off\"").admin.bind, None);
    assert!(problem("[admin]\nbind = \"somewhere\"").contains("expected address:port"));
}

#[test]
fn h18_a_lock_timeout_that_could_outlast_a_payer_is_refused() {
    for bad in ["40ms", "301ms"] {
        let problem = problem(&format!("[postgres]\nlock_timeout = \"{bad}\""));
        assert!(problem.contains("must be between 50ms and 300ms"), "{problem}");
    }
}

#[test]
fn brokers_are_checked() {
    for bad in ["[]", "[\"host\"]", "[\":9\"]", "[\"h:0\"]", "[\"h:99999\"]", "[1]"] {
        assert!(problem(&format!("[kafka]\nbrokers = {bad}")).contains("kafka.brokers: expected"));
    }
}

#[test]
fn h25_a_problem_is_one_bounded_line_with_its_place_and_its_advice() {
    let text = format!("[relay]\n\"{}\\u001b[2J\" = 1", "x".repeat(5_000));
    let problem = problem(&text);
    assert!(problem.starts_with("relay.xxx") && problem.contains("unknown key"), "{problem}");
    assert!(problem.chars().count() <= 1_001 && !problem.chars().any(char::is_control));
}
