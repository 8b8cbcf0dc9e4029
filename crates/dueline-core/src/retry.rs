//! How long a failed task waits before its next attempt, and when it has had enough (D1, D3).

use std::time::Duration;

/// The retry schedule of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The pause after the first, second, … failure. A failure beyond the last entry is the end.
    pub backoff: Vec<Duration>,
}

impl Default for RetryPolicy {
    /// 3 s, 10 s, 30 s, then dead: four tries in all.
    fn default() -> Self {
        Self { backoff: [3, 10, 30].map(Duration::from_secs).to_vec() }
    }
}

impl RetryPolicy {
    /// How many tries a task has in all: one more than there are pauses.
    #[must_use]
    pub fn max_attempts(&self) -> usize {
        self.backoff.len() + 1
    }

    /// The pause before the next try after `failed_attempts` failures (this one included), or `None`
    /// when the task is exhausted.
    ///
    /// `unit` is a random number in `0.0..1.0`: full jitter draws from zero to the whole pause, so
    /// that tasks which failed together do not come back together.
    #[must_use]
    pub fn pause_after(&self, failed_attempts: u32, unit: f64) -> Option<Duration> {
        let index = usize::try_from(failed_attempts.checked_sub(1)?).ok()?;
        self.backoff.get(index).map(|whole| whole.mul_f64(unit.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d01_three_pauses_then_the_end() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.max_attempts(), 4);
        assert_eq!(policy.pause_after(1, 1.0), Some(Duration::from_secs(3)));
        assert_eq!(policy.pause_after(3, 0.5), Some(Duration::from_secs(15)));
        assert_eq!(policy.pause_after(4, 0.5), None);
    }

    #[test]
    fn h24_jitter_is_full() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.pause_after(2, 0.0), Some(Duration::ZERO));
        assert_eq!(policy.pause_after(2, 7.0), Some(Duration::from_secs(10)));
    }
}
