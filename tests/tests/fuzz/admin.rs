//! Bytes sent to the admin port: malformed, slow, huge, cut, one request behind the other.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dueline_config::Admin;
use dueline_service::{CancellationToken, Health};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::dice::Dice;
use super::harness::{ADMIN, Run};

/// How long an answer may take. The bound of the whole case is the harness's.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most of an answer that is read: many requests have many answers.
const MAX_ANSWER: usize = 4 << 20;
/// Connections that say next to nothing, while others are served. The port lets in 32.
const SLOW: usize = 24;

const GOOD: [&str; 5] = [
    "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n",
    "GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    "GET /metrics HTTP/1.0\r\n\r\n",
    "HEAD /livez HTTP/1.1\r\nhost: x\r\naccept: */*\r\n\r\n",
    "POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc",
];

/// A request, or what somebody takes for one.
pub fn request(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = dice.pick(&GOOD).as_bytes().to_vec();
    match dice.below(10) {
        0 => dice.bytes(2_000),
        1 => bytes.repeat(1 + dice.length(300)),
        2 => {
            let header = format!("x: {}\r\n\r\n", "y".repeat(dice.length(1 << 20)));
            bytes.truncate(bytes.len() - 2);
            [bytes, header.into_bytes()].concat()
        }
        3 => {
            let many: String = (0..dice.length(3_000)).map(|n| format!("h{n}: v\r\n")).collect();
            format!("GET /metrics HTTP/1.1\r\n{many}\r\n").into_bytes()
        }
        4 => format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", dice.text()).into_bytes(),
        5 => {
            let lengths = ["-1", "18446744073709551616", "0x10", "1, 2", "99999999999"];
            let length = *dice.pick(&lengths);
            format!("POST /livez HTTP/1.1\r\ncontent-length: {length}\r\n\r\n").into_bytes()
        }
        6 => {
            let sizes = ["ffffffffffffffffff", "-1", "5\r\nab", "0\r\n", "zz"];
            let size = *dice.pick(&sizes);
            let head = "POST /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
            format!("{head}{size}\r\n").into_bytes()
        }
        _ => {
            dice.bend(&mut bytes);
            bytes
        }
    }
}

/// Whether a client says that no more comes from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It does, and may be cut off for that.
    Told,
    /// It waits for the server to close.
    Awaited,
}

/// Sends bytes and reads the answer up to its end. Whoever is cut off was answered, too.
pub async fn exchange(address: &str, bytes: &[u8], end: End) -> Result<Vec<u8>> {
    let talk = async {
        let mut stream = TcpStream::connect(address).await?;
        let (mut from, mut to) = stream.split();
        // Both at once: a server that answers many requests stops reading when nobody takes the answers.
        let send = async {
            to.write_all(bytes).await?;
            if end == End::Told { to.shutdown().await } else { Ok(()) }
        };
        let mut answer = Vec::new();
        let mut bounded = (&mut from).take(MAX_ANSWER as u64);
        let read = bounded.read_to_end(&mut answer);
        let (sent, read) = tokio::join!(send, read);
        match sent.and(read.map(drop)) {
            Err(error) if !is_cut(&error) => Err(error),
            _ => Ok(answer),
        }
    };
    Ok(tokio::time::timeout(PATIENCE, talk).await.context("no answer and no end")??)
}

fn is_cut(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected)
}

/// What an answer begins with: a status that HTTP knows, or nothing.
pub fn judge(answer: &[u8]) -> Result<&'static str> {
    if answer.is_empty() {
        return Ok("cut off");
    }
    let head = String::from_utf8_lossy(&answer[..answer.len().min(16)]).into_owned();
    let code = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
    let code: u16 = code.and_then(|code| code.parse().ok()).with_context(|| head.clone())?;
    Ok(match code {
        200..=299 => "answered",
        // Nothing that comes in from outside is our fault; 503 is `not ready`.
        400..=499 => "refused",
        503 => "not ready",
        _ => anyhow::bail!("status {code}"),
    })
}

/// Whether a probe is answered.
pub async fn is_well(address: &str) -> Result<()> {
    let answer = exchange(address, GOOD[1].as_bytes(), End::Awaited).await?;
    ensure!(judge(&answer)? != "cut off", "a probe is not answered any more");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_are_answered_or_cut_off_and_probes_go_on() -> Result<()> {
    let (health, stop) = (Health::new(), CancellationToken::new());
    let config = Admin { bind: Some("127.0.0.1:0".parse()?) };
    let port = dueline_service::admin::open(&config, "fuzz", health, stop.clone()).await?;
    let port = port.context("it is on")?;
    let address = port.address.to_string();
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        let mut stream = TcpStream::connect(&address).await?;
        stream.write_all(b"GET /livez HT").await?;
        slow.push(stream);
    }
    let mut run = Run::begin(ADMIN);
    while let Some(dice) = run.next() {
        let mut dice = dice.showing();
        let bytes = request(&mut dice);
        dice.show(|| bytes.escape_ascii().to_string());
        let start = Instant::now();
        if dice.one_in(8) {
            // One more byte of a request that never ends; who was cut off for its age comes again.
            let at = dice.below(SLOW);
            if slow[at].write_all(b"x").await.is_err() {
                slow[at] = TcpStream::connect(&address).await?;
            }
        }
        let verdict = match exchange(&address, &bytes, End::Told).await {
            Ok(answer) => judge(&answer),
            Err(error) => Err(error),
        };
        let verdict = match verdict {
            Ok(label) if dice.one_in(16) => is_well(&address).await.map(|()| label),
            other => other,
        };
        run.judge(verdict.with_context(|| dice.shown()), start.elapsed())?;
    }
    drop(slow);
    is_well(&address).await?;
    stop.cancel();
    port.closed().await;
    run.end(&["answered", "refused", "cut off"])
}
