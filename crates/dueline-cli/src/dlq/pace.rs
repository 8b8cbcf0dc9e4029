//! So many a second, and not more.

use std::time::Duration;

/// Starts are spread evenly: no burst, and no catching up after a pause.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    gap: Duration,
    next: Duration,
}

impl Pace {
    /// At most `per_second` (1 or more) starts a second.
    pub fn new(per_second: u32) -> Self {
        Self { gap: Duration::from_secs(1) / per_second.max(1), next: Duration::ZERO }
    }

    /// Takes the next start; `now` is the time since the beginning. Returns how long to wait for it.
    pub fn take(&mut self, now: Duration) -> Duration {
        let start = self.next.max(now);
        self.next = start + self.gap;
        start.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The starts of a caller that does everything at once.
    fn starts(rate: u32, count: usize, pause_at: Option<(usize, Duration)>) -> Vec<Duration> {
        let mut pace = Pace::new(rate);
        let mut now = Duration::ZERO;
        (0..count)
            .map(|i| {
                now += pause_at.filter(|(at, _)| *at == i).map_or(Duration::ZERO, |(_, p)| p);
                now += pace.take(now);
                now
            })
            .collect()
    }

    #[test]
    fn d06_no_second_has_more_than_the_rate() {
        for pause in [None, Some((40, Duration::from_secs(5)))] {
            let starts = starts(50, 200, pause);
            for first in &starts {
                let second = *first + Duration::from_secs(1);
                let within = starts.iter().filter(|s| *s >= first && **s < second).count();
                assert!(within <= 50, "{within} starts in one second");
            }
        }
    }
}
