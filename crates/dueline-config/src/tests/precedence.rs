//! Flag over environment over file over default; and every message says where a value came from.

use std::time::Duration;

use crate::{Config, ConfigError, Source};

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("writable");
    file
}

fn source(file: &tempfile::NamedTempFile, env: &[(&str, &str)], overrides: &[&str]) -> Source {
    Source {
        file: Some(file.path().to_owned()),
        env: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        overrides: overrides.iter().map(|text| (*text).to_owned()).collect(),
    }
}

fn load(text: &str, env: &[(&str, &str)], overrides: &[&str]) -> Result<Config, ConfigError> {
    Config::load(&source(&file(text), env, overrides))
}

#[test]
fn each_source_beats_the_one_below_it() {
    let text = "[relay]\nlease = \"61s\"";
    let env = [("DUELINE__RELAY__LEASE", "62s")];
    let lease = |env: &[(&str, &str)], flags: &[&str]| {
        load(text, env, flags).expect("valid").relay.lease.as_secs()
    };
    assert_eq!(load("", &[], &[]).expect("valid").relay.lease.as_secs(), 60);
    assert_eq!(lease(&[], &[]), 61);
    assert_eq!(lease(&env, &[]), 62);
    assert_eq!(lease(&env, &["relay.lease=63s"]), 63);
    assert_eq!(lease(&env, &["relay.lease=63s", "relay.lease=64s"]), 64);
}

#[test]
fn text_of_flags_becomes_whatever_the_key_is() {
    let config = load(
        "[queues.orders]",
        &[
            ("DUELINE__QUEUES__ORDERS__SLOTS", "7"),
            ("DUELINE__KAFKA__BROKERS", "a:1, b:2"),
            ("DUELINE__INSTANCE__NAME", "0123"),
            ("DUELINE_OTHER", "not ours"),
        ],
        &[
            "admin.allow_public=true",
            "admin.bind=0.0.0.0:9",
            "queues.orders.tiers=[{ name = \"all\", max_delay = \"90d\" }]",
            "kinds.close.queue=orders",
            "kinds.close.rust=true",
            "kinds.close.backoff=1s,2s",
        ],
    )
    .expect("valid");
    assert_eq!(config.queues["orders"].slots, 7);
    assert_eq!(config.queues["orders"].tiers.len(), 1);
    assert_eq!(config.kafka.bootstrap_servers(), "a:1,b:2");
    assert_eq!(config.instance.name, "0123", "a text stays a text");
    assert_eq!(config.admin.bind.map(|a| a.port()), Some(9));
    assert_eq!(config.kinds["close"].retry.backoff, [1, 2].map(Duration::from_secs));
}

#[test]
fn passed_through_names_keep_their_dots() {
    let text = r#"
        [kafka.properties]
        security.protocol = "SASL_SSL"
        "sasl.password" = "from the file"
        socket.keepalive.enable = true
        fetch.min.bytes = 1
        [postgres.options]
        auto_explain.log_min_duration = "1s"
    "#;
    let env = [("DUELINE__KAFKA__PROPERTIES__SASL__PASSWORD", "hunter2")];
    let config = load(text, &env, &["kafka.properties.ssl.ca.location=/ca"]).expect("valid");
    let properties: Vec<_> =
        config.kafka.properties.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
    assert_eq!(
        properties,
        [
            ("fetch.min.bytes", "1"),
            ("sasl.password", "hunter2"),
            ("security.protocol", "SASL_SSL"),
            ("socket.keepalive.enable", "true"),
            ("ssl.ca.location", "/ca"),
        ]
    );
    assert_eq!(config.postgres.options["auto_explain.log_min_duration"], "1s");
}

#[test]
fn a_message_says_where_the_value_was_typed() {
    let text = "[relay]\nlease = 60\n[consumer]\nbatch_max = \"many\"";
    let env = [("DUELINE__RELAY__POLL_PAUSE", "soon"), ("DUELINE__RELY__LEASE", "1s")];
    let error = load(text, &env, &["log.format=xml"]).expect_err("four problems");
    let text = error.to_string();
    for expected in [
        "relay.lease: expected a length of time such as \"30s\", found 60 (in /",
        "consumer.batch_max: expected a whole number from 1 to 1000, found \"many\" (in /",
        "relay.poll_pause: expected a length of time such as \"30s\", found \"soon\" \
         (from DUELINE__RELAY__POLL_PAUSE)",
        "rely: unknown key; did you mean `relay`? (from DUELINE__RELY__LEASE)",
        "log.format: expected \"json\" or \"pretty\" (from --set log.format)",
        "has 5 problems",
    ] {
        assert!(text.contains(expected), "{expected}\nis not in\n{text}");
    }
}

#[test]
fn what_is_no_assignment_is_refused() {
    let problems =
        load("[relay]\nlease = \"60s\"", &[], &["lease", "lease=1s", "relay.lease.x=1", "a..b=1"])
            .expect_err("four problems")
            .problems();
    assert_eq!(problems.len(), 4, "{problems:#?}");
    assert!(problems[0].contains("--set number 1 has no `=`"), "{problems:#?}");
    assert!(problems[1].contains("`lease` is no path of a key"), "{problems:#?}");
    assert!(problems[2].contains("relay.lease is a single value"), "{problems:#?}");
}

#[test]
fn the_file_is_named_by_flag_or_variable() {
    let other = file("[instance]\nname = \"other\"");
    let path = other.path().display().to_string();
    let mut by_env = source(&other, &[("DUELINE_CONFIG", &path)], &[]);
    by_env.file = None;
    assert_eq!(Config::load(&by_env).expect("valid").instance.name, "other");
    by_env.file = Some(file("").path().join("missing.toml"));
    let error = Config::load(&by_env).expect_err("the flag's file").to_string();
    assert!(error.contains("cannot read") && error.contains("missing.toml"), "{error}");
    assert_eq!(Config::load(&Source::default()).expect("defaults").instance.name, "dueline");
}
