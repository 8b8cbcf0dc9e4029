//! Whether it makes sense to claim: a relay that cannot produce stops claiming, with backoff.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dueline_service::backoff::Pauses;

/// The first pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause after failures.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Messages under way without any report for so long: the broker is probably away, claim no more.
const STALLED: Duration = Duration::from_secs(2);
/// So many answers of the broker in a row, without a failed message between them, end the trouble
/// even when there was nothing to send.
const QUIET: u32 = 20;

struct Blocked {
    until: Instant,
    pauses: Pauses,
}

/// What is known about producing.
pub(crate) struct Gate {
    /// Topics whose last message failed.
    blocked: BTreeMap<String, Blocked>,
    /// Since when nothing could be produced at all, and why.
    failing: Option<(Instant, String)>,
    /// How often the broker answered since the last failure.
    answers: u32,
    last_progress: Instant,
}

impl Gate {
    pub fn new(now: Instant) -> Self {
        Self { blocked: BTreeMap::new(), failing: None, answers: 0, last_progress: now }
    }

    /// A message of this topic was delivered.
    pub fn delivered(&mut self, now: Instant, topic: &str) {
        self.last_progress = now;
        self.failing = None;
        self.blocked.remove(topic);
    }

    /// A message of this topic failed.
    pub fn failed(&mut self, now: Instant, topic: &str, why: &str) {
        if self.failing.is_none() {
            self.failing = Some((now, why.to_owned()));
        }
        self.answers = 0;
        self.last_progress = now;
        let blocked = self
            .blocked
            .entry(topic.to_owned())
            .or_insert_with(|| Blocked { until: now, pauses: Pauses::new(PAUSE_MIN, PAUSE_MAX) });
        // One pause for all the messages that failed together.
        if now >= blocked.until {
            blocked.until = now + blocked.pauses.next_pause();
        }
    }

    /// The broker was asked, and answered: messages may try again.
    pub fn answered(&mut self) {
        self.answers += 1;
        if self.answers >= QUIET {
            self.failing = None;
        }
    }

    /// Since when nothing was delivered although it was tried, and why.
    pub fn failing(&self, now: Instant) -> Option<(Duration, String)> {
        let (since, why) = self.failing.as_ref()?;
        Some((now.saturating_duration_since(*since), why.clone()))
    }

    /// A message is handed to an idle producer: the wait for its report starts now.
    pub fn sending(&mut self, now: Instant, in_flight: usize) {
        if in_flight == 0 {
            self.last_progress = now;
        }
    }

    /// Whether tasks of this topic may be claimed.
    pub fn open(&self, now: Instant, topic: &str) -> bool {
        self.blocked.get(topic).is_none_or(|blocked| now >= blocked.until)
    }

    /// Why nothing should be claimed, if so.
    pub fn shut(&self, now: Instant, in_flight: usize) -> Option<String> {
        match &self.failing {
            Some((_, why)) if self.answers == 0 => return Some(why.clone()),
            _ => {}
        }
        let silence = now.saturating_duration_since(self.last_progress);
        (in_flight > 0 && silence >= STALLED).then(|| "no delivery report comes back".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: &str = "dueline.orders.1m";

    #[test]
    fn h13_after_a_failure_nothing_is_claimed_until_the_broker_answers() {
        let now = Instant::now();
        let mut gate = Gate::new(now);
        assert!(gate.shut(now, 0).is_none() && gate.open(now, TOPIC));
        gate.failed(now, TOPIC, "timed out");
        assert!(gate.shut(now, 0).is_some() && !gate.open(now, TOPIC));
        gate.answered();
        assert!(gate.shut(now, 0).is_none() && gate.failing(now).is_some());
        assert!(!gate.open(now, TOPIC), "this topic still rests");
        assert!(gate.open(now, "dueline.orders.1h"), "others do not");
        gate.delivered(now, TOPIC);
        assert!(gate.open(now, TOPIC));
    }

    #[test]
    fn messages_without_reports_stop_the_claims_before_they_time_out() {
        let now = Instant::now();
        let mut gate = Gate::new(now);
        gate.sending(now, 0);
        assert!(gate.shut(now + STALLED, 5).is_some());
        assert!(gate.shut(now + STALLED, 0).is_none(), "nothing is under way");
        gate.delivered(now + STALLED, TOPIC);
        assert!(gate.shut(now + STALLED, 5).is_none());
    }
}
