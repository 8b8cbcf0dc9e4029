//! A TCP proxy that loses things on request: the network between our processes and theirs.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What happens to the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They pass.
    #[default]
    Pass,
    /// Each read waits so long before it is passed on, in both directions.
    Delay(Duration),
    /// What the client says passes, what the server answers is thrown away.
    DropAnswers,
    /// Connections stay open and nothing passes: a half-open peer, a black hole.
    Stall,
    /// New connections are closed at once; those that exist are cut.
    Refuse,
}

struct Shared {
    /// Where new connections lead.
    upstream: SocketAddr,
    /// Counts the cuts: a connection ends when it changes.
    cuts: u64,
    mode: Mode,
}

struct State {
    shared: watch::Sender<Shared>,
    /// One shot: the connection whose client says this is cut before any answer.
    needle: Mutex<Option<Vec<u8>>>,
}

impl State {
    fn needle(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.needle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the needle if `bytes` contain it.
    fn needle_hit(&self, bytes: &[u8]) -> bool {
        let mut needle = self.needle();
        let hit = needle.as_ref().is_some_and(|n| bytes.windows(n.len()).any(|w| w == n));
        if hit {
            *needle = None;
        }
        hit
    }
}

/// A proxy in front of one address; gone on drop, with all of its connections.
pub struct TcpProxy {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl TcpProxy {
    /// Listens on a free loopback port and connects everyone to `upstream`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        Self::start_on(0, upstream).await
    }

    /// [`Self::start`] on a port that was chosen before, such as the one that a broker advertises.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start_on(port: u16, upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let (shared, _) = watch::channel(Shared { upstream, cuts: 0, mode: Mode::default() });
        let state = Arc::new(State { shared, needle: Mutex::default() });
        let task = tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state, task })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens from now on.
    pub fn set(&self, mode: Mode) {
        self.state.shared.send_modify(|shared| {
            shared.mode = mode;
            shared.cuts += u64::from(mode == Mode::Refuse);
        });
    }

    /// Closes every present connection; new ones lead to another server, as after a failover.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.state.shared.send_modify(|shared| {
            shared.upstream = upstream;
            shared.cuts += 1;
        });
    }

    /// Closes every present connection; new ones are welcome.
    pub fn cut(&self) {
        self.state.shared.send_modify(|shared| shared.cuts += 1);
    }

    /// Once: when a client says `bytes`, that is passed on, and its connection is cut before it
    /// hears an answer. `COMMIT` whose outcome is unknown is made so.
    pub fn cut_after(&self, bytes: impl Into<Vec<u8>>) {
        *self.state.needle() = Some(bytes.into());
    }

    /// Takes a [`Self::cut_after`] back that has not struck.
    pub fn disarm(&self) {
        *self.state.needle() = None;
    }

    /// Whether [`Self::cut_after`] has struck.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        self.state.needle().is_none()
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(connect(client, Arc::clone(&state)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connect(client: TcpStream, state: Arc<State>) {
    let mut changes = state.shared.subscribe();
    let (upstream, cuts) = {
        let shared = changes.borrow_and_update();
        if shared.mode == Mode::Refuse {
            return;
        }
        (shared.upstream, shared.cuts)
    };
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    // The proxy is to add no delay of its own.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        () = pass_on(client_read, server_write, &state, true) => {}
        () = pass_on(server_read, client_write, &state, false) => {}
        _ = changes.wait_for(|shared| shared.cuts != cuts) => {}
    }
}

/// Passes bytes on until one side closes.
async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State, to_server: bool) {
    let mut modes = state.shared.subscribe();
    let mut buffer = vec![0; 64 * 1_024];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        let bytes = &buffer[..length];
        // What was read before a stall waits for its end.
        let Ok(mode) = modes.wait_for(|shared| shared.mode != Mode::Stall).await.map(|s| s.mode)
        else {
            return;
        };
        if let Mode::Delay(pause) = mode {
            tokio::time::sleep(pause).await;
        }
        if mode == Mode::DropAnswers && !to_server {
            continue;
        }
        if to.write_all(bytes).await.is_err() || (to_server && state.needle_hit(bytes)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that repeats what it hears.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("listens");
        let address = listener.local_addr().expect("has an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    async fn say(stream: &mut TcpStream, text: &[u8]) -> Option<Vec<u8>> {
        stream.write_all(text).await.ok()?;
        let mut answer = vec![0; text.len()];
        let heard = stream.read_exact(&mut answer);
        tokio::time::timeout(Duration::from_millis(300), heard).await.ok()?.ok()?;
        Some(answer)
    }

    #[tokio::test]
    async fn bytes_pass_until_they_are_lost() {
        let proxy = TcpProxy::start(echo().await).await.expect("listens");
        let mut stream = TcpStream::connect(proxy.address()).await.expect("connects");
        assert_eq!(say(&mut stream, b"one").await.as_deref(), Some(&b"one"[..]));
        proxy.set(Mode::DropAnswers);
        assert_eq!(say(&mut stream, b"two").await, None);
        proxy.set(Mode::Pass);
        assert_eq!(say(&mut stream, b"three").await.as_deref(), Some(&b"three"[..]));
        proxy.cut();
        assert_eq!(say(&mut stream, b"four").await, None);
    }

    #[tokio::test]
    async fn a_connection_is_cut_after_what_it_says() {
        let proxy = TcpProxy::start(echo().await).await.expect("listens");
        proxy.cut_after(*b"COMMIT");
        let mut stream = TcpStream::connect(proxy.address()).await.expect("connects");
        assert_eq!(say(&mut stream, b"BEGIN").await.as_deref(), Some(&b"BEGIN"[..]));
        assert_eq!(say(&mut stream, b"COMMIT").await, None);
        assert!(proxy.has_cut());
        let mut again = TcpStream::connect(proxy.address()).await.expect("connects");
        assert_eq!(say(&mut again, b"COMMIT").await.as_deref(), Some(&b"COMMIT"[..]));
    }

    #[tokio::test]
    async fn a_stalled_connection_goes_on_later() {
        let proxy = TcpProxy::start(echo().await).await.expect("listens");
        let mut stream = TcpStream::connect(proxy.address()).await.expect("connects");
        proxy.set(Mode::Stall);
        assert_eq!(say(&mut stream, b"x").await, None);
        proxy.set(Mode::Pass);
        let mut answer = [0];
        stream.read_exact(&mut answer).await.expect("the byte arrives after all");
        assert_eq!(&answer, b"x");
    }
}
