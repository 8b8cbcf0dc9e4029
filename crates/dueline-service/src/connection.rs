//! A listener with bounds: so many connections at once, each for so long.
//!
//! The admin port has no password. Whoever reaches it may not take all of the process's descriptors,
//! nor hold a connection open for ever and keep the supervisor's probe out.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at once; more wait in the kernel's backlog.
pub(crate) const MAX_CONNECTIONS: usize = 32;
/// The pause after a failed accept (no descriptors left, for example).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    max_age: Duration,
}

impl BoundedListener {
    pub fn new(listener: TcpListener, max_age: Duration) -> Self {
        Self { listener, slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)), max_age }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // The semaphore is never closed; if it were, nobody would be let in.
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
                return std::future::pending().await;
            };
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let end = Box::pin(tokio::time::sleep(self.max_age));
                    return (Connection { stream, end, _slot: slot }, peer);
                }
                Err(error) => {
                    tracing::debug!(%error, "the admin port could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its time is over, and then frees its slot.
pub(crate) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _slot: OwnedSemaphorePermit,
}

impl Connection {
    fn check_age(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.check_age(cx))?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.check_age(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
