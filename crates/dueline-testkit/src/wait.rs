//! Waiting for a condition instead of sleeping.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Waits until `condition` holds.
///
/// ```
/// # use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let mut looks = 0;
/// dueline_testkit::wait::until("the third look", Duration::from_secs(5), async || {
///     looks += 1;
///     Ok(looks == 3)
/// })
/// .await
/// # })?;
/// # Ok::<(), anyhow::Error>(())
/// ```
///
/// # Errors
/// When it does not hold within `timeout`, naming what was waited for, or when it cannot be judged.
pub async fn until(
    what: &str,
    timeout: Duration,
    mut condition: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    some(what, timeout, async || Ok(condition().await?.then_some(()))).await
}

/// Waits until `probe` has an answer, and returns it.
///
/// # Errors
/// As [`until`].
pub async fn some<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + timeout;
    loop {
        // A probe that hangs must not outlast the bound either.
        match tokio::time::timeout_at(end, probe()).await {
            Ok(Ok(Some(answer))) => return Ok(answer),
            Ok(Ok(None)) if Instant::now() < end => tokio::time::sleep(POLL).await,
            Ok(Err(error)) => return Err(error.context(format!("while waiting for {what}"))),
            Ok(Ok(None)) | Err(_) => bail!("{what}: not within {timeout:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_says_what_was_waited_for() {
        let short = Duration::from_millis(30);
        let error = until("the moon", short, async || Ok(false)).await.expect_err("never");
        assert!(error.to_string().contains("the moon"), "{error}");
        let hangs = until("an answer", short, async || std::future::pending().await);
        assert!(hangs.await.is_err());
    }
}
