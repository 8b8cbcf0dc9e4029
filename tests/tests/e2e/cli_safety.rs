//! Wrong configuration says what to do; nothing injects; no secret is ever printed.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use dueline_tests::cli::{self, Output};
use dueline_tests::testkit::settings::Settings;
use dueline_tests::{KIND, PATIENCE, Shop};

const CANARY: &str = "canary-8f2b";

fn both(output: &Output) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

async fn with_settings(change: impl FnOnce(&mut Settings), arguments: &[&str]) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("dueline.toml");
    let mut settings = Settings::new("postgres://127.0.0.1:1/x", "127.0.0.1:1", "t");
    settings.set("postgres.connect_timeout", "200ms");
    change(&mut settings);
    settings.write(&file)?;
    cli::run(&file, arguments).await
}

#[tokio::test]
async fn a_wrong_configuration_names_key_value_and_remedy() -> Result<()> {
    type Change = fn(&mut Settings);
    let cases: [(Change, &[&str]); 5] = [
        (|s| _ = s.set("relay.leese", "5s"), &["relay.leese", "lease"]),
        (|s| _ = s.set("relay.lease", "soon"), &["relay.lease", "soon", "30s"]),
        (|s| _ = s.set("kafka.delivery_timeout", "60s"), &["delivery_timeout (1m)", "relay.lease"]),
        (|s| _ = s.set("queues.BadName.slots", 1), &["queue name", "BadName"]),
        (|s| _ = s.sql_kind("k", "nowhere", "select 1"), &["kinds.k", "nowhere"]),
    ];
    for (change, parts) in cases {
        for arguments in [["config", "check"].as_slice(), &["apply"], &["list"]] {
            let output = with_settings(change, arguments).await?;
            assert_eq!(output.code, 78, "{arguments:?}: {}", both(&output));
            for part in parts {
                assert!(output.stderr.contains(part), "{part:?} in {}", output.stderr);
            }
        }
    }
    let missing = cli::run(Path::new("/nowhere/dueline.toml"), &["list"]).await?;
    assert_eq!(missing.code, 78);
    assert!(missing.stderr.contains("/nowhere/dueline.toml"), "{}", missing.stderr);
    let away = with_settings(|_| {}, &["list"]).await?;
    assert_eq!(away.code, 1);
    assert!(away.stderr.contains("postgres.url"), "{}", away.stderr);
    Ok(())
}

#[tokio::test]
async fn a_fresh_start_says_what_to_run_next() -> Result<()> {
    let shop = Shop::build().await?.without_relay().without_consumer().start().await?;
    let empty = format!("{}_empty", shop.name());
    let create = sqlx::AssertSqlSafe(format!("create database {empty}"));
    sqlx::raw_sql(create).execute(&shop.pool).await?;
    let url = format!("postgres.url={}", shop.url().replace(shop.name(), &empty));
    let run =
        async |arguments: &[&str]| shop.dueline(&[&["--set", &url], arguments].concat()).await;
    let before = run(&["list"]).await?;
    assert_eq!(before.code, 78);
    assert!(before.stderr.contains("dueline migrate"), "{}", before.stderr);
    run(&["migrate"]).await?.ok()?;
    run(&["migrate"]).await?.ok()?;
    let kindless = run(&["schedule", KIND, "1", "--in", "1h"]).await?;
    assert_eq!(kindless.code, 4);
    assert!(kindless.stderr.contains("dueline apply"), "{}", kindless.stderr);
    run(&["apply"]).await?.ok()?;
    run(&["schedule", KIND, "1", "--in", "1h"]).await?.ok()?;
    let mistyped = run(&["schedule", "close_oder", "1", "--in", "1h"]).await?;
    assert_eq!(mistyped.code, 4);
    assert!(mistyped.stderr.contains(KIND), "{}", mistyped.stderr);
    let drop_it = sqlx::AssertSqlSafe(format!("drop database {empty} with (force)"));
    sqlx::raw_sql(drop_it).execute(&shop.pool).await?;
    Ok(())
}

const INJECTIONS: [&str; 8] = [
    "'; drop table dueline.task; --",
    "x' or '1'='1",
    "../../etc/passwd",
    "a\u{1b}[2Jb",
    "line\nbreak",
    "$(reboot)",
    "%s%n%p",
    "\u{202e}ü\\\"",
];

#[tokio::test]
async fn h25_arguments_inject_nothing() -> Result<()> {
    let shop = Shop::build().await?.without_relay().without_consumer().start().await?;
    for text in INJECTIONS {
        shop.dueline(&["schedule", KIND, text, "--in", "1h", "--json"]).await?.json()?;
        let found = shop.dueline(&["why", text, "--json"]).await?.json()?;
        assert_eq!(found["tasks"][0]["key"], text);
        for arguments in [
            ["why", text].as_slice(),
            &["get", KIND, text],
            &["list"],
            &["cancel", KIND, text, "--reason", text],
            &["why", text],
        ] {
            let output = shop.dueline(arguments).await?;
            assert_eq!(output.code, 0, "{}", both(&output));
            assert!(!both(&output).contains('\u{1b}'), "{arguments:?}");
        }
        for arguments in [
            ["schedule", text, "1", "--in", "1h"].as_slice(),
            &["cancel", text, "1"],
            &["topics", "yaml", "--queue", text],
            &["why", "1", "--kind", text],
            &["dlq", "list", "--from", "topic", "--queue", text],
        ] {
            let output = shop.dueline(arguments).await?;
            assert!(output.code == 4 || output.code == 5, "{arguments:?}: {}", both(&output));
            assert!(!both(&output).contains('\u{1b}'), "{arguments:?}");
        }
        for filter in ["--queue", "--kind", "--key"] {
            let list = ["dlq", "list", filter, text, "--json"];
            assert_eq!(
                shop.dueline(&list).await?.json()?["dead"].as_array().map(Vec::len),
                Some(0)
            );
        }
        let queue = format!("queues.{text}.slots=1");
        let prefix = format!("kafka.topic_prefix={text}");
        for set in [&queue, &prefix] {
            assert_eq!(shop.dueline(&["--set", set, "apply"]).await?.code, 78, "{set:?}");
        }
    }
    assert_eq!(shop.count("cancelled").await?, INJECTIONS.len() as i64, "the tables are there");
    Ok(())
}

#[tokio::test]
async fn h26_no_command_prints_a_secret() -> Result<()> {
    let shop = Shop::build().await?.start().await?;
    shop.orders(1..=1).await?;
    shop.schedule(KIND, 1..=1, Duration::ZERO).await?;
    shop.await_count("done", 1, PATIENCE).await?;
    let secret =
        format!("postgres.url={}", shop.url().replace("postgres@", &format!("postgres:{CANARY}@")));
    let property = format!("kafka.properties.sasl.password={CANARY}");
    let good = ["--set", &secret, "--set", &property];
    let commands: [&[&str]; 17] = [
        &["migrate"],
        &["apply", "--plan"],
        &["apply"],
        &["topics", "yaml"],
        &["instance", "show"],
        &["schedule", KIND, "2", "--in", "1h"],
        &["schedule", "nope", "2", "--in", "1h"],
        &["reschedule", KIND, "2", "--in", "2h"],
        &["get", KIND, "2"],
        &["cancel", KIND, "2"],
        &["list"],
        &["why", "1"],
        &["why", "nothing"],
        &["dlq", "list"],
        &["dlq", "list", "--from", "topic"],
        &["sweep", "--once"],
        &["config", "check"],
    ];
    let check = async |arguments: Vec<&str>| -> Result<()> {
        for more in [["--verbose"].as_slice(), &["--json"]] {
            let output = shop.dueline(&[&arguments, more].concat()).await?;
            assert!(!both(&output).contains(CANARY), "{arguments:?}: {}", both(&output));
        }
        Ok(())
    };
    for command in commands {
        check([good.as_slice(), command].concat()).await?;
    }
    let nobody = format!("postgres.url=postgres://ann:{CANARY}@127.0.0.1:1/x");
    let no_url = format!("postgres.url=mysql://ann:{CANARY}@h/x");
    let no_port = format!("postgres.url=postgres://ann:{CANARY}@h:port/x");
    let no_set = format!("postgres.url postgres://ann:{CANARY}@h/x");
    let no_property = format!("kafka.properties.sasl.pasword={CANARY}");
    let no_value = format!("kafka.properties.security.protocol={CANARY}");
    for set in [&nobody, &no_url, &no_port, &no_set, &no_property, &no_value] {
        for command in [["list"].as_slice(), &["apply", "--only", "broker"], &["config", "check"]] {
            let quick = ["--set", set, "--set", "postgres.connect_timeout=200ms"];
            check([quick.as_slice(), command].concat()).await?;
        }
    }
    Ok(())
}
