//! Signals: the first one asks for a clean stop, the second one does not wait for it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit;

/// A token that SIGTERM or SIGINT cancels. A second signal ends the process at once with
/// [`exit::FORCED`]: leases and offsets were made for that.
///
/// # Errors
/// When the handlers cannot be installed.
///
/// # Panics
/// Outside a Tokio runtime.
#[expect(clippy::disallowed_methods, reason = "a second signal asks for exactly that")]
pub fn on_signal() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let name = next(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = name, "stopping; a second signal ends the process at once");
        stop.cancel();
        let name = next(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = name, "ended at once; what was in flight is left to its leases");
        std::process::exit(i32::from(exit::FORCED));
    });
    Ok(token)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
