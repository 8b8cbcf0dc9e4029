//! The frame of a program that runs something to a verdict, such as the demo.

use std::process::ExitCode;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Runs `work` until its verdict or a signal; either way what it started is stopped on the way out.
///
/// The exit code is 0 when everything holds, 1 when not, and 70 when `what` itself failed, which is
/// then said on standard error.
pub fn run(what: &str, work: impl Future<Output = Result<bool>>) -> ExitCode {
    match until_a_signal(work) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{what} failed: {error:#}");
            ExitCode::from(70)
        }
    }
}

fn until_a_signal(work: impl Future<Output = Result<bool>>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        tokio::select! {
            held = Box::pin(work) => held,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = term.recv() => anyhow::bail!("terminated"),
        }
    })
}
