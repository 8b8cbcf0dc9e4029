//! Real calls to a real receiver, which behaves or does not.

use std::time::{Duration, Instant};

use dueline_config::{Config, Handler, Http};
use dueline_core::webhook::{Answer, SigningKey, signature};
use dueline_testkit::receiver::{Reaction, Received, Receiver};

use crate::{Call, Caller, CallerError, Reply, Webhook};

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const LONG: Duration = Duration::from_secs(60);

/// What `[http]` and `[kinds.<name>.http]` say.
fn settings(url: &str, http: &str, rest: &str) -> (Http, dueline_config::Webhook) {
    let text = format!(
        "[http]\nallow_networks = [\"127.0.0.0/8\"]\nallow_plaintext = true\n{http}\n[queues.q]\n\
         [kinds.k]\nqueue = \"q\"\n[kinds.k.http]\nurl = {url:?}\nsecrets = [{KEY:?}]\n{rest}"
    );
    let config = Config::from_toml_str(&text).unwrap_or_else(|e| panic!("{e}"));
    let Handler::Http(webhook) = &config.kinds["k"].handler else { panic!("no webhook") };
    (config.http.clone(), (**webhook).clone())
}

fn webhook(url: &str, rest: &str) -> Webhook {
    let (http, webhook) = settings(url, "", rest);
    let caller = Caller::new(&http).unwrap_or_else(|e| panic!("{e}"));
    caller.webhook("k", &webhook).unwrap_or_else(|e| panic!("{e}"))
}

fn call() -> Call {
    Call {
        idempotency_key: "00112233445566778899aabbccddeeff".into(),
        headers: vec![
            ("ce-id".into(), "7-0-0".into()),
            ("content-type".into(), "application/json".into()),
        ],
        body: br#"{"total": 3}"#.to_vec(),
    }
}

async fn receiver(react: impl Fn(&Received) -> Reaction + Send + Sync + 'static) -> Receiver {
    Receiver::start(react).await.unwrap_or_else(|e| panic!("{e}"))
}

/// What is heard of one call to a receiver that reacts so.
async fn heard(reaction: Reaction, rest: &str) -> Reply {
    let receiver = receiver(move |_| reaction.clone()).await;
    webhook(&receiver.url(), rest).call(call(), LONG).await
}

#[tokio::test]
async fn a_call_tells_of_its_task_and_is_signed() {
    let receiver = receiver(|_| Reaction::status(204)).await;
    let webhook = webhook(&receiver.url(), "headers = { Authorization = \"Bearer x\" }");
    let reply = webhook.call(call(), LONG).await;
    assert_eq!((reply.answer, reply.status), (Answer::Done, Some(204)), "{reply:?}");
    let got = receiver.received().remove(0);
    assert_eq!(got.line, "POST /hook HTTP/1.1");
    assert_eq!(got.body, br#"{"total": 3}"#);
    for (name, value) in [
        ("authorization", "Bearer x"),
        ("ce-id", "7-0-0"),
        ("content-type", "application/json"),
        ("idempotency-key", "00112233445566778899aabbccddeeff"),
        ("webhook-id", "00112233445566778899aabbccddeeff"),
    ] {
        assert_eq!(got.header(name), value, "{name}");
    }
    let timestamp: i64 = got.header("webhook-timestamp").parse().expect("seconds");
    let keys = [SigningKey::parse(KEY).expect("a key")];
    let expected = signature(&keys, got.header("webhook-id"), timestamp, &got.body);
    assert_eq!(got.header("webhook-signature"), expected);
}

#[tokio::test]
async fn the_status_is_the_answer_and_the_body_explains_it() {
    let body = Reaction::Answer(404, Vec::new(), "no\r\nsuch\torder".into());
    let reply = heard(body.clone(), "").await;
    assert_eq!((reply.answer, &*reply.reason), (Answer::Permanent, "HTTP 404: no  such order"));
    let reply = heard(body, "statuses = { 404 = \"skipped\" }").await;
    assert_eq!(reply.answer, Answer::Skipped);
    let busy = Reaction::Answer(429, vec![("retry-after", "7".into())], String::new());
    let reply = heard(busy, "").await;
    assert_eq!(
        (reply.answer, reply.retry_after),
        (Answer::Transient, Some(Duration::from_secs(7)))
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = receiver(|_| Reaction::status(200)).await;
    let to = vec![("location", elsewhere.url())];
    let reply = heard(Reaction::Answer(307, to, String::new()), "").await;
    assert_eq!((reply.answer, reply.status), (Answer::Permanent, Some(307)));
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn what_ends_without_an_answer_is_unknown() {
    let began = Instant::now();
    let reply = heard(Reaction::Hang, "timeout = \"300ms\"").await;
    assert_eq!(reply.answer, Answer::Unknown, "{reply:?}");
    assert!(reply.reason.starts_with("no answer in time"), "{reply:?}");
    assert!(began.elapsed() < LONG);
    for bytes in [&b""[..], b"HTTP/1.1 2", b"nonsense\r\n\r\n", b"HTTP/1.1 999999 Yes\r\n\r\n"] {
        let reply = heard(Reaction::Raw(bytes.to_vec()), "").await;
        assert_eq!((reply.answer, reply.status), (Answer::Unknown, None), "{reply:?}");
    }
    let reply = heard(Reaction::Close, "idempotent = true").await;
    assert_eq!(reply.answer, Answer::Unknown, "{reply:?}");
}

#[tokio::test]
async fn an_answer_whose_body_lies_or_never_ends_is_an_answer() {
    let reply = heard(Reaction::Endless, "").await;
    assert_eq!((reply.answer, reply.status), (Answer::Done, Some(200)), "{reply:?}");
    assert!(reply.reason.chars().count() < 400);
    let torn = b"HTTP/1.1 410 Gone\r\ncontent-length: 1000\r\n\r\nhalf".to_vec();
    let reply = heard(Reaction::Raw(torn), "").await;
    assert_eq!((reply.answer, &*reply.reason), (Answer::Skipped, "HTTP 410: half"));
}

#[tokio::test]
async fn what_was_certainly_not_sent_is_transient() {
    let gone = receiver(|_| Reaction::status(200)).await;
    let url = gone.url();
    drop(gone);
    let reply = webhook(&url, "").call(call(), LONG).await;
    assert_eq!(reply.answer, Answer::Transient, "{reply:?}");
    let reply = webhook("https://no-such-host.invalid/", "").call(call(), LONG).await;
    assert_eq!(reply.answer, Answer::Transient, "{reply:?}");
}

#[tokio::test]
async fn no_private_address_is_called_whatever_a_name_resolves_to() {
    let receiver = receiver(|_| Reaction::status(200)).await;
    let port = receiver.address.port();
    let (mut http, mut hook) = settings(&format!("http://localhost:{port}/"), "", "");
    http.allow_networks.clear();
    let caller = Caller::new(&http).unwrap_or_else(|e| panic!("{e}"));
    let named = caller.webhook("k", &hook).unwrap_or_else(|e| panic!("{e}"));
    let reply = named.call(call(), LONG).await;
    assert_eq!(reply.answer, Answer::Transient);
    assert!(reply.reason.contains("is not public"), "{reply:?}");
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]"] {
        hook.url = format!("http://{host}:{port}/");
        let refused = caller.webhook("k", &hook).err();
        assert!(matches!(refused, Some(CallerError::Address { .. })), "{host}");
    }
    assert!(receiver.received().is_empty());
}

#[tokio::test]
async fn certificates_are_verified() {
    let started = Receiver::start_tls(|_| Reaction::status(200)).await;
    let (receiver, pem) = started.unwrap_or_else(|e| panic!("{e}"));
    let file = std::env::temp_dir().join(format!("dueline-ca-{}.pem", receiver.address.port()));
    std::fs::write(&file, pem).expect("to be written");
    let trusting = format!("ca_file = {file:?}");
    let port = receiver.address.port();
    let mut answers = Vec::new();
    for (host, http) in [("localhost", ""), ("127.0.0.1", &*trusting), ("localhost", &*trusting)] {
        let (http, hook) = settings(&format!("https://{host}:{port}/"), http, "");
        let caller = Caller::new(&http).unwrap_or_else(|e| panic!("{e}"));
        let webhook = caller.webhook("k", &hook).unwrap_or_else(|e| panic!("{e}"));
        answers.push(webhook.call(call(), LONG).await.answer);
    }
    std::fs::remove_file(&file).expect("to be removed");
    assert_eq!(answers, [Answer::Transient, Answer::Transient, Answer::Done]);
    assert_eq!(receiver.received().len(), 1);
    let (mut http, _) = settings("https://localhost", "", "");
    http.ca_file = Some("/no/such/file.pem".into());
    assert!(matches!(Caller::new(&http).err(), Some(CallerError::Certificates(_))));
}

#[tokio::test]
async fn a_host_that_fails_again_and_again_ails_until_it_answers() {
    let well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&well);
    let receiver = receiver(move |_| {
        let well = seen.load(std::sync::atomic::Ordering::SeqCst);
        Reaction::status(if well { 404 } else { 500 })
    })
    .await;
    let (http, hook) = settings(&receiver.url(), "breaker_failures = 3", "");
    let caller = Caller::new(&http).unwrap_or_else(|e| panic!("{e}"));
    let webhook = caller.webhook("k", &hook).unwrap_or_else(|e| panic!("{e}"));
    for _ in 0..3 {
        assert!(!webhook.host().is_ailing());
        webhook.call(call(), LONG).await;
    }
    assert!(webhook.host().is_ailing());
    // Another kind of the same host and port sees it too.
    let other = caller.webhook("other", &hook).unwrap_or_else(|e| panic!("{e}"));
    assert!(other.host().is_ailing());
    well.store(true, std::sync::atomic::Ordering::SeqCst);
    webhook.call(call(), LONG).await;
    assert!(!other.host().is_ailing(), "an answer is an answer, whatever it says");
}
