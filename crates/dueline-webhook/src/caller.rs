//! One call, and what was heard of it.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dueline_config as config;
use dueline_core::webhook::{Answer, SigningKey, call, retry_after, signature};
use reqwest::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};
use url::{Host as UrlHost, Url};

use crate::address::{Guard, refusal};
use crate::host::Host;

/// How long a connection may be idle before it is closed: less than servers wait, so that a call rarely meets one that
/// is being closed.
const IDLE: Duration = Duration::from_secs(10);
/// The most characters of an answer's body that a reason repeats.
const QUOTED_CHARS: usize = 300;
/// The most links of an error's chain that a reason repeats.
const MAX_CAUSES: usize = 8;

/// Why a webhook cannot be called at all.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    /// Its host is an address that may not be called.
    #[error("kinds.{kind}.http.url: {problem}")]
    Address {
        /// The kind.
        kind: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The certificates cannot be used.
    #[error("http.ca_file: {0}")]
    Certificates(String),
    /// The client cannot be made.
    #[error("HTTP cannot be used: {0}")]
    Client(String),
}

/// Calls webhooks; one for a process.
pub struct Caller {
    settings: config::Http,
    guard: Guard,
    /// Keeps connections for the next call.
    kept: Client,
    /// A connection for each call: one that is kept may be closed by its server in the instant in which it is used,
    /// and then nobody knows whether the call was read.
    fresh: Client,
    hosts: Mutex<BTreeMap<String, Arc<Host>>>,
}

impl Caller {
    /// Reads the certificates and makes the clients.
    ///
    /// # Errors
    /// [`CallerError`] says what to do.
    pub fn new(settings: &config::Http) -> Result<Self, CallerError> {
        let guard = Guard::new(&settings.allow_networks);
        let client = |idle: usize| {
            let builder = Client::builder()
                .user_agent(concat!("dueline/", env!("CARGO_PKG_VERSION")))
                .redirect(Policy::none())
                .no_proxy()
                .https_only(!settings.allow_plaintext)
                .connect_timeout(settings.connect_timeout)
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(idle)
                .dns_resolver(Arc::new(guard.clone()));
            let builder = with_certificates(builder, settings)?;
            builder.build().map_err(|e| CallerError::Client(causes(&e)))
        };
        Ok(Self {
            kept: client(settings.concurrency_per_host as usize)?,
            fresh: client(0)?,
            hosts: Mutex::default(),
            settings: settings.clone(),
            guard,
        })
    }

    /// The webhook of a kind.
    ///
    /// # Errors
    /// When its host is an address that may not be called. (Where a name leads is looked at with every connection.)
    pub fn webhook(&self, kind: &str, config: &config::Webhook) -> Result<Webhook, CallerError> {
        let refused = |problem: String| CallerError::Address { kind: kind.to_owned(), problem };
        let url = Url::parse(&config.url).map_err(|e| refused(e.to_string()))?;
        let literal = match url.host() {
            Some(UrlHost::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(UrlHost::Ipv6(address)) => Some(IpAddr::V6(address)),
            _ => None,
        };
        if let Some(address) = literal.filter(|address| !self.guard.lets_pass(*address)) {
            return Err(refused(refusal(address)));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let name = HeaderName::try_from(name).map_err(|e| refused(e.to_string()))?;
            let value = HeaderValue::try_from(value.expose());
            // The value is not shown.
            let mut value = value.map_err(|_| refused(format!("header {name} cannot be sent")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Webhook {
            client: if config.idempotent { self.kept.clone() } else { self.fresh.clone() },
            host: self.host(&url),
            url,
            headers,
            keys: config.secrets.clone(),
            statuses: config.statuses.clone(),
            timeout: config.timeout,
            hold: config.hold(),
            idempotent: config.idempotent,
            max_response_bytes: self.settings.max_response_bytes as usize,
        })
    }

    fn host(&self, url: &Url) -> Arc<Host> {
        let port = url.port_or_known_default().unwrap_or_default();
        let name = format!("{}:{port}", url.host_str().unwrap_or_default());
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = &self.settings;
        Arc::clone(hosts.entry(name.clone()).or_insert_with(|| {
            let concurrency = settings.concurrency_per_host as usize;
            Arc::new(Host::new(name, concurrency, settings.breaker_failures))
        }))
    }
}

fn with_certificates(
    mut builder: ClientBuilder,
    settings: &config::Http,
) -> Result<ClientBuilder, CallerError> {
    let Some(file) = &settings.ca_file else { return Ok(builder) };
    let wrong = |what: String| CallerError::Certificates(format!("{}: {what}", file.display()));
    let pem = std::fs::read(file).map_err(|e| wrong(e.to_string()))?;
    let found = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| wrong(causes(&e)))?;
    if found.is_empty() {
        return Err(wrong("expected certificates in PEM, found none".to_owned()));
    }
    for certificate in found {
        builder = builder.add_root_certificate(certificate);
    }
    Ok(builder)
}

/// What is told to the receiver.
#[derive(Clone, Debug)]
pub struct Call {
    /// The same for every call of one key.
    pub idempotency_key: String,
    /// Headers that tell of the task.
    pub headers: Vec<(String, String)>,
    /// JSON, or empty.
    pub body: Vec<u8>,
}

/// What was heard of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it says of the effect.
    pub answer: Answer,
    /// Why, for people.
    pub reason: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// How long the receiver asked us to wait.
    pub retry_after: Option<Duration>,
}

/// The webhook of one kind.
pub struct Webhook {
    client: Client,
    url: Url,
    headers: HeaderMap,
    keys: Vec<SigningKey>,
    statuses: BTreeMap<u16, Answer>,
    timeout: Duration,
    hold: Duration,
    idempotent: bool,
    max_response_bytes: usize,
    host: Arc<Host>,
}

impl Webhook {
    /// Where it is; calls need a slot of it.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// How long a call may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long a key is held for a call.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.hold
    }

    /// Whether a second call with the same key certainly has no second effect.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Makes one call, within its timeout and `limit`.
    pub async fn call(&self, call: Call, limit: Duration) -> Reply {
        let reply = self.send(call, limit.min(self.timeout)).await;
        self.host.note(reply.status.is_none_or(|status| status >= 500));
        reply
    }

    async fn send(&self, call: Call, limit: Duration) -> Reply {
        let mut headers = self.headers.clone();
        for (name, value) in &call.headers {
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                headers.insert(name, value);
            }
        }
        let sign = seconds_since_epoch();
        let id = call.idempotency_key;
        for (name, value) in [
            (call::SIGNATURE, signature(&self.keys, &id, sign, &call.body)),
            (call::TIMESTAMP, sign.to_string()),
            (call::ID, id.clone()),
            (call::IDEMPOTENCY_KEY, id),
        ] {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        let request =
            self.client.post(self.url.clone()).headers(headers).body(call.body).timeout(limit);
        match request.send().await {
            Ok(response) => self.heard(response).await,
            Err(error) => unheard(&error),
        }
    }

    /// The status is the answer; whatever becomes of the body, it only explains.
    async fn heard(&self, response: Response) -> Reply {
        let status = response.status().as_u16();
        let header =
            |name| response.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
        let pause = header(RETRY_AFTER).and_then(|value| retry_after(value, header(DATE)));
        let answer = self.statuses.get(&status).copied();
        let answer = answer.unwrap_or_else(|| Answer::of_status(status));
        let body = self.beginning(response).await;
        let quoted: String = String::from_utf8_lossy(&body)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(QUOTED_CHARS)
            .collect();
        let reason = match quoted.trim() {
            "" => format!("HTTP {status}"),
            quoted => format!("HTTP {status}: {quoted}"),
        };
        Reply { answer, reason, status: Some(status), retry_after: pause }
    }

    /// Reads the body up to the bound: read to its end, its connection can be used again.
    async fn beginning(&self, mut response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = self.max_response_bytes - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() >= room {
                break;
            }
        }
        body
    }
}

/// A receiver compares it with its own clock, and nothing here is decided by it.
#[expect(
    clippy::disallowed_methods,
    reason = "the database's clock is no better for somebody elsewhere"
)]
fn seconds_since_epoch() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// No answer. A connection that was not made carried nothing; anything later may have been read.
fn unheard(error: &reqwest::Error) -> Reply {
    let not_sent = error.is_connect() || error.is_builder();
    let answer = if not_sent { Answer::Transient } else { Answer::Unknown };
    let what = match (error.is_timeout(), not_sent) {
        (true, true) => "no connection in time",
        (true, false) => "no answer in time",
        (false, true) => "no connection",
        (false, false) => "no answer",
    };
    let reason = format!("{what}: {}", causes(error));
    Reply { answer, reason, status: None, retry_after: None }
}

/// What lies behind an error: reqwest itself only says that something went wrong.
fn causes(error: &reqwest::Error) -> String {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(inner) = cause.filter(|_| texts.len() < MAX_CAUSES) {
        texts.push(inner.to_string());
        cause = inner.source();
    }
    texts.dedup();
    if texts.is_empty() { "the request failed".to_owned() } else { texts.join(": ") }
}
