//! `[http]` and `[kinds.<name>.http]`.

use std::time::Duration;

use dueline_core::webhook::Answer;

use super::{accepted, problem, problems};
use crate::{Config, Effect, Handler, Source};

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A configuration with one webhook.
fn hook(url: &str, rest: &str) -> String {
    format!(
        "[queues.orders]\n[kinds.confirm]\nqueue = \"orders\"\n[kinds.confirm.http]\n\
         url = {url:?}\nsecrets = [{KEY:?}]\n{rest}"
    )
}

#[test]
fn a_webhook_has_defaults_that_are_safe() {
    let config = accepted(&hook("https://shop.example/hooks", ""));
    let kind = &config.kinds["confirm"];
    assert_eq!(kind.handler.effect(), Effect::Elsewhere);
    let Handler::Http(webhook) = &kind.handler else { panic!("{:?}", kind.handler) };
    assert!(!webhook.idempotent && webhook.headers.is_empty() && webhook.statuses.is_empty());
    assert_eq!((webhook.timeout, webhook.secrets.len()), (Duration::from_secs(10), 1));
    assert!(config.http.allow_networks.is_empty() && !config.http.allow_plaintext);
}

#[test]
fn a_webhook_can_say_more() {
    let rest = "timeout = \"2s\"\nidempotent = true\nheaders = { X-Shop = \"7\" }\n\
                statuses = { 404 = \"skipped\", 500 = \"transient\" }";
    let text = format!("{}\n[http]\nallow_plaintext = true", hook("http://h.example", rest));
    let config = accepted(&text);
    let Handler::Http(webhook) = &config.kinds["confirm"].handler else { panic!() };
    assert_eq!(webhook.url, "http://h.example/");
    assert_eq!(webhook.headers["x-shop"].expose(), "7");
    let statuses: Vec<(u16, Answer)> = webhook.statuses.clone().into_iter().collect();
    assert_eq!(statuses, [(404, Answer::Skipped), (500, Answer::Transient)]);
}

#[test]
fn h26_secrets_can_come_from_the_environment_and_never_show() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = hook("https://h.example", "headers = { Authorization = \"hunter2\" }");
    std::fs::write(file.path(), text).expect("to be written");
    let secrets = format!("{KEY},whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX");
    let source = Source {
        file: Some(file.path().to_owned()),
        env: vec![("DUELINE__KINDS__CONFIRM__HTTP__SECRETS".to_owned(), secrets)],
        overrides: Vec::new(),
    };
    let config = Config::load(&source).unwrap_or_else(|e| panic!("{e}"));
    let Handler::Http(webhook) = &config.kinds["confirm"].handler else { panic!() };
    assert_eq!(webhook.secrets.len(), 2);
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("MfKQ"), "{shown}");
}

#[test]
fn what_is_wrong_with_a_webhook_is_said() {
    for (url, rest, expected) in [
        ("shop.example/hooks", "", "expected https://host/path"),
        ("ftp://shop.example", "", "expected https://host/path"),
        ("https://ann:hunter2@shop.example", "", "expected no user"),
        ("https://shop.example/#a", "", "expected no `#`"),
        ("http://shop.example", "", "http.allow_plaintext = true"),
        (
            "https://h.example",
            "timeout = \"50s\"\nidempotent = true",
            "+ 10s for our own part must be below relay.lease",
        ),
        ("https://h.example", "timeout = \"20s\"", "must be below consumer.stop_timeout"),
        ("https://h.example", "statuses = { 404 = \"fine\" }", "expected a status from 200 to 599"),
        ("https://h.example", "statuses = { 99 = \"done\" }", "expected a status from 200 to 599"),
        ("https://h.example", "headers = { Host = \"a\" }", "dueline sets this header itself"),
        (
            "https://h.example",
            "headers = { webhook-id = \"a\" }",
            "dueline sets this header itself",
        ),
        ("https://h.example", "headers = { \"a b\" = \"a\" }", "the name of an HTTP header"),
        ("https://h.example", "headers = { a = \"a\\r\\nb: c\" }", "visible ASCII"),
        ("https://h.example", "retries = 3", "unknown key"),
    ] {
        let problem = problem(&hook(url, rest));
        assert!(problem.contains(expected), "{expected}\nis not in\n{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
    let without = hook("https://h.example", "").replace(&format!("[{KEY:?}]"), "[]");
    assert!(problem(&without).contains("secrets: is missing"));
    let weak = hook("https://h.example", "").replace(KEY, "whsec_hunter2");
    let said = problem(&weak);
    assert!(said.contains("openssl rand") && !said.contains("hunter2"), "{said}");
    let both = hook("https://h.example", "").replace("queue = ", "rust = true\nqueue = ");
    assert!(problem(&both).contains("exclude each other"));
    let text = "[http]\nallow_networks = [\"10.0.0.0/8\", \"localhost\"]\nconcurrency_per_host = 0";
    assert_eq!(problems(text).len(), 2);
}
