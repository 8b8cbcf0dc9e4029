//! A receiver of webhooks that can be told to misbehave: it hangs, lies, and dies half-way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The most bytes of a request's head.
const MAX_HEAD: usize = 64 * 1_024;

/// What openssl is asked for: an authority's certificate, its default, is refused as a server's.
const CERTIFICATE: &str = "[req]
prompt = no
distinguished_name = name
x509_extensions = server
[name]
CN = localhost
[server]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:localhost
";

/// A request as it was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// `POST /path HTTP/1.1`
    pub line: String,
    /// Names in small letters, in their order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Received {
    /// The value of a header; empty when it is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }
}

/// What the receiver does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Answers: status, headers, body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// Answers so after a while.
    Late(Duration, u16),
    /// Never answers, and keeps the connection.
    Hang,
    /// Closes the connection without an answer.
    Close,
    /// Sends exactly these bytes and closes.
    Raw(Vec<u8>),
    /// Answers 200 and a body that never ends.
    Endless,
}

impl Reaction {
    /// An answer with nothing but a status.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new(), String::new())
    }
}

type React = dyn Fn(&Received) -> Reaction + Send + Sync;

struct State {
    received: Mutex<Vec<Received>>,
    react: Box<React>,
}

/// A receiver on a free loopback port; gone on drop, with its connections.
pub struct Receiver {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    /// Starts one that reacts so.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(
        react: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::listen(Box::new(react), None).await
    }

    /// Starts one that speaks TLS for `localhost`, with a certificate that it signed itself: the answer's second part,
    /// in PEM.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start_tls(
        react: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
    ) -> Result<(Self, String)> {
        let folder = tempfile::tempdir()?;
        let [key, cert] = ["key.pem", "cert.pem"].map(|name| folder.path().join(name));
        let config = folder.path().join("openssl.cnf");
        std::fs::write(&config, CERTIFICATE)?;
        let made = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-config"])
            .arg(&config)
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&cert)
            .output()
            .await
            .context("openssl, which makes a certificate")?;
        ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
        let pem = std::fs::read_to_string(&cert)?;
        let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes())?];
        let key = PrivateKeyDer::from_pem_file(&key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let tls = TlsAcceptor::from(Arc::new(config));
        Ok((Self::listen(Box::new(react), Some(tls)).await?, pem))
    }

    async fn listen(react: Box<React>, tls: Option<TlsAcceptor>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State { received: Mutex::default(), react });
        let of_task = Arc::clone(&state);
        let task = tokio::spawn(async move {
            // Aborted with its task.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, state) = (tls.clone(), Arc::clone(&of_task));
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, state).await;
                            }
                        }
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, state, task })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Everything that it received so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<State>) {
    while let Ok(Some(request)) = read(&mut stream).await {
        let reaction = (state.react)(&request);
        state.received.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        if !matches!(react(&mut stream, reaction).await, Ok(true)) {
            return;
        }
    }
}

/// Whether the connection goes on.
async fn react(stream: &mut (impl AsyncWrite + Unpin), reaction: Reaction) -> Result<bool> {
    match reaction {
        Reaction::Answer(status, headers, body) => answer(stream, status, &headers, &body).await?,
        Reaction::Late(pause, status) => {
            tokio::time::sleep(pause).await;
            answer(stream, status, &[], "").await?;
        }
        Reaction::Hang => std::future::pending().await,
        Reaction::Close => return Ok(false),
        Reaction::Raw(bytes) => {
            stream.write_all(&bytes).await?;
            return Ok(false);
        }
        Reaction::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").await?;
            // Until the other side has had enough.
            while stream.write_all(&[b'x'; 8_192]).await.is_ok() {}
            return Ok(false);
        }
    }
    Ok(true)
}

async fn answer(
    stream: &mut (impl AsyncWrite + Unpin),
    status: u16,
    headers: &[(&str, String)],
    body: &str,
) -> Result<()> {
    let mut text = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes()).await?;
    Ok(())
}

/// The next request of a connection; `None` at its end.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<Received>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < MAX_HEAD, "the head is too long");
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    let head = String::from_utf8(head)?;
    let mut lines = head.trim_end().lines();
    let line = lines.next().context("a request line")?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut request = Received { line, headers, body: Vec::new() };
    let length: usize = request.header("content-length").parse().unwrap_or(0);
    request.body = vec![0; length];
    stream.read_exact(&mut request.body).await?;
    Ok(Some(request))
}
