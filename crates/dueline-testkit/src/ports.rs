//! Free loopback ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// `count` ports of 127.0.0.1 that nobody listens on now.
///
/// Another process may take one before its user does: whoever starts a server on one must be ready
/// to try again with others.
///
/// # Errors
/// When the machine has none.
pub fn free(count: usize) -> io::Result<Vec<u16>> {
    // All are held until all are known, so that they differ.
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<io::Result<_>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
