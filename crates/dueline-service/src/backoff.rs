//! Pauses between attempts to reach a database or a broker.
//!
//! The `backoff` crate stays behind this module. It is no longer maintained (RUSTSEC-2025-0012,
//! acknowledged in `deny.toml`); what we take from it is arithmetic that needs no upkeep, and replacing
//! it would change this file only.

use std::time::Duration;

use ::backoff::ExponentialBackoffBuilder;
use ::backoff::SystemClock;
use ::backoff::backoff::Backoff as _;
use ::backoff::exponential::ExponentialBackoff;
use tokio_util::sync::CancellationToken;

/// Each pause is drawn from the interval ± this share of it, so that processes that lost the same
/// broker do not come back together.
const JITTER: f64 = 0.5;

/// Pauses that start at a minimum, double, and stay below a maximum; they never end by themselves.
pub struct Pauses {
    inner: ExponentialBackoff<SystemClock>,
    max: Duration,
}

impl Pauses {
    /// Pauses around `min`, growing to at most `max`.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        let inner = ExponentialBackoffBuilder::new()
            .with_initial_interval(min.min(max))
            .with_max_interval(max)
            .with_multiplier(2.0)
            .with_randomization_factor(JITTER)
            .with_max_elapsed_time(None)
            .build();
        Self { inner, max }
    }

    /// The next pause, at most the maximum.
    pub fn next_pause(&mut self) -> Duration {
        self.inner.next_backoff().map_or(self.max, |pause| pause.min(self.max))
    }

    /// Starts again at the minimum: call it after a success.
    pub fn reset(&mut self) {
        self.inner.reset();
    }

    /// Sleeps for the next pause; `false` when `stop` was cancelled meanwhile.
    pub async fn sleep(&mut self, stop: &CancellationToken) -> bool {
        let pause = self.next_pause();
        tokio::select! {
            () = stop.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_stay_bounded_and_start_again() {
        let mut pauses = Pauses::new(MIN, MAX);
        let first = pauses.next_pause();
        assert!(first >= MIN / 2 && first <= MIN * 3 / 2, "{first:?}");
        let later: Vec<_> = (0..50).map(|_| pauses.next_pause()).collect();
        assert!(later.iter().all(|pause| *pause <= MAX));
        assert!(later[10..].iter().all(|pause| *pause >= MAX / 2));
        pauses.reset();
        assert!(pauses.next_pause() <= MIN * 3 / 2);
    }

    #[test]
    fn a_minimum_above_the_maximum_is_the_maximum() {
        assert!(Pauses::new(MAX * 10, MAX).next_pause() <= MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn h32_a_stop_ends_the_pause() {
        let stop = CancellationToken::new();
        stop.cancel();
        let hour = Duration::from_secs(3_600);
        assert!(!Pauses::new(hour, hour).sleep(&stop).await);
        assert!(Pauses::new(MIN, MAX).sleep(&CancellationToken::new()).await);
    }
}
