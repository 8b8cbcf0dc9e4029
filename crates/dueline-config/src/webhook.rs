//! `[http]` and `[kinds.<name>.http]`: what is called, and what may be.

use std::collections::BTreeMap;
use std::time::Duration;

use dueline_core::webhook::{Answer, KEY_BYTES, SigningKey};
use ipnet::IpNet;
use url::Url;

use crate::catalog::{missing, required};
use crate::model::{Config, Handler, Http, Webhook};
use crate::read::{Report, Section};
use crate::secret::Secret;

/// The most signing keys of one webhook: two while they change, and a few to spare.
const MAX_KEYS: usize = 5;
/// The most bytes of a URL.
const MAX_URL_BYTES: usize = 2_048;
/// Headers that a call has of its own.
const OWN_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "te",
    "transfer-encoding",
    "traceparent",
    "upgrade",
    "user-agent",
];

pub(crate) fn http(section: &mut Section) -> Http {
    let texts = section.texts("allow_networks", &[]);
    let mut allow_networks = Vec::with_capacity(texts.len());
    for text in texts {
        match text.parse::<IpNet>() {
            Ok(network) => allow_networks.push(network.trunc()),
            Err(_) => section.wrong(
                "allow_networks",
                format!(
                    "expected networks such as \"10.1.0.0/16\" or \"::1/128\", found {text:.60?}"
                ),
            ),
        }
    }
    Http {
        allow_networks,
        allow_plaintext: section.flag("allow_plaintext", false),
        concurrency_per_host: section.number("concurrency_per_host", 32, 1..=10_000),
        breaker_failures: section.number("breaker_failures", 10, 1..=10_000),
        connect_timeout: section.span(
            "connect_timeout",
            Duration::from_secs(3),
            Duration::from_millis(10)..=Duration::from_secs(60),
        ),
        max_response_bytes: section.number("max_response_bytes", 65_536, 1_024..=16_777_216),
        ca_file: section.text_opt("ca_file").map(Into::into),
    }
}

/// What holds between `[http]` and the kinds.
pub(crate) fn agree(config: &Config, report: &Report) {
    for kind in config.kinds.values() {
        let Handler::Http(webhook) = &kind.handler else { continue };
        if webhook.url.starts_with("http://") && !config.http.allow_plaintext {
            report.wrong(
                &format!("kinds.{}.http.url", kind.name),
                "it is http://, which anybody on the way can read: use https://, or set \
                 http.allow_plaintext = true",
            );
        }
    }
}

pub(crate) fn kind(section: &mut Section) -> Webhook {
    Webhook {
        url: url(section).unwrap_or_default(),
        secrets: secrets(section),
        timeout: section.span(
            "timeout",
            Duration::from_secs(10),
            Duration::from_millis(100)..=Duration::from_secs(590),
        ),
        idempotent: section.flag("idempotent", false),
        headers: headers(section),
        statuses: statuses(section),
    }
}

fn url(section: &mut Section) -> Option<String> {
    let text = required(section, "url")?;
    match check_url(&text) {
        Ok(url) => Some(url),
        Err(problem) => {
            // The value is not shown: it may hold a password.
            section.wrong("url", problem);
            None
        }
    }
}

fn check_url(text: &str) -> Result<String, &'static str> {
    let url = Url::parse(text).map_err(|_| "expected https://host/path")?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        Err("expected https://host/path")
    } else if !url.username().is_empty() || url.password().is_some() {
        Err("expected no user and no password in it: it is shown; use `headers`")
    } else if url.fragment().is_some() {
        Err("expected no `#`: that part of a URL is never sent")
    } else if text.len() > MAX_URL_BYTES {
        Err("expected at most 2048 bytes")
    } else {
        Ok(url.into())
    }
}

fn secrets(section: &mut Section) -> Vec<SigningKey> {
    let texts = section.texts("secrets", &[]);
    if texts.is_empty() {
        missing(section, "secrets");
    }
    let keys: Vec<SigningKey> = texts.iter().filter_map(|text| SigningKey::parse(text)).collect();
    if keys.len() < texts.len() || keys.len() > MAX_KEYS {
        let (low, high) = (KEY_BYTES.start(), KEY_BYTES.end());
        section.wrong(
            "secrets",
            format!(
                "expected 1 to {MAX_KEYS} keys: \"whsec_\" and {low} to {high} random bytes in base64, such as \
                 `echo whsec_$(openssl rand -base64 32)` prints"
            ),
        );
    }
    keys
}

fn headers(section: &mut Section) -> BTreeMap<String, Secret> {
    let mut headers = BTreeMap::new();
    for (name, value) in section.pass_through("headers") {
        let name = name.to_ascii_lowercase();
        let path = format!("headers.{name}");
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let own = OWN_HEADERS.contains(&name.as_str())
            || ["ce-", "webhook-", "proxy-"].iter().any(|prefix| name.starts_with(prefix));
        if name.is_empty() || !name.bytes().all(token) {
            section.wrong(&path, "expected the name of an HTTP header");
        } else if own {
            section.wrong(&path, "dueline sets this header itself");
        } else if !value.bytes().all(|b| (b' '..0x7f).contains(&b)) {
            section.wrong(&path, "expected a value of visible ASCII characters and spaces");
        } else {
            headers.insert(name, Secret::new(value));
        }
    }
    headers
}

fn statuses(section: &mut Section) -> BTreeMap<u16, Answer> {
    let mut statuses = BTreeMap::new();
    for (status, meaning) in section.pass_through("statuses") {
        let code = status.parse::<u16>().ok().filter(|code| (200..=599).contains(code));
        match (code, Answer::parse(&meaning)) {
            (Some(code), Some(answer)) => {
                statuses.insert(code, answer);
            }
            _ => section.wrong(
                &format!("statuses.{status}"),
                "expected a status from 200 to 599 and what it means: \"done\", \"skipped\", \"transient\", \
                 \"unknown\" or \"permanent\"",
            ),
        }
    }
    statuses
}
