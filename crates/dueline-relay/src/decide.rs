//! What becomes of an alarm whose lease is over: pure, so that it can be read and tested by itself.

use std::time::Duration;

use dueline_core::letter::Reason;
use dueline_kafka::Verdict;
use dueline_store::relay::{Alarm, Parking};

/// For how many leases a group without a committed offset is believed.
const UNCOMMITTED_LEASES: u32 = 3;
/// Extensions of one claim; then it is published again.
const EXTENSIONS: i16 = 10;
/// A lease grows to at most so many times the configured one.
const LONGEST: u32 = 16;
/// What is to be done with an alarm whose lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Leave,
    Extend(Duration),
    Again { lease: Duration, consumed: bool },
    Park(Reason),
}

/// The lease after `times` doublings.
fn grown(lease: Duration, times: impl Into<i64>) -> Duration {
    let times = u32::try_from(times.into().max(0)).unwrap_or(u32::MAX).min(LONGEST.ilog2());
    lease.saturating_mul(1 << times)
}

/// The longest that a lease can be.
pub(crate) fn longest_lease(lease: Duration) -> Duration {
    lease.saturating_mul(LONGEST)
}

pub(crate) fn decide(
    alarm: &Alarm,
    too_old: bool,
    verdict: &Verdict,
    lease: Duration,
    unanswered_limit: u32,
) -> Action {
    if too_old {
        return Action::Park(Reason::TooOld);
    }
    let age = alarm.claimed_at.map_or(Duration::MAX, |claimed| alarm.now.since(claimed));
    let again = |consumed: bool| {
        let unanswered = alarm.unanswered.saturating_add(i16::from(consumed));
        if consumed && i64::from(unanswered) >= i64::from(unanswered_limit) {
            return Action::Park(Reason::Unanswered);
        }
        // Growing pauses: each publication of one attempt waits longer than the one before.
        Action::Again { lease: grown(lease, alarm.tries), consumed }
    };
    match verdict {
        Verdict::Unknown(_) => Action::Leave,
        Verdict::Waiting { committed: false } if age > lease * UNCOMMITTED_LEASES => again(false),
        Verdict::Waiting { .. } if alarm.extensions < EXTENSIONS => {
            Action::Extend(grown(lease, alarm.extensions.saturating_add(1)))
        }
        Verdict::Waiting { .. } => again(false),
        Verdict::Consumed => again(true),
        Verdict::Gone(_) => again(false),
    }
}

/// How a task is parked, in words for the person who looks at it.
pub(crate) fn parking_of(alarm: &Alarm, reason: Reason) -> Parking {
    let error = match reason {
        Reason::Unanswered => format!(
            "its message was consumed {} times and nobody answered",
            i32::from(alarm.unanswered) + 1
        ),
        _ => "it stayed unfinished for longer than its kind's age limit".to_owned(),
    };
    Parking { id: alarm.id, fence: alarm.fence, reason, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dueline_core::Micros;
    use dueline_store::relay::Found;

    const LEASE: Duration = Duration::from_secs(60);
    const LIMIT: u32 = 10;

    fn alarm(extensions: i16, unanswered: i16, age: Duration) -> Alarm {
        let now = Micros(1_000_000_000_000);
        Alarm {
            found: Found::LeaseOver,
            lane: 1,
            id: 1,
            next_at: Micros(0),
            generation: 0,
            fence: 1,
            claimed_at: Some(now.minus(age)),
            tries: 1,
            unanswered,
            extensions,
            page_end: false,
            now,
        }
    }

    fn verdict_of(alarm: &Alarm, verdict: &Verdict) -> Action {
        decide(alarm, false, verdict, LEASE, LIMIT)
    }

    const WAITING: Verdict = Verdict::Waiting { committed: true };

    #[test]
    fn h12_what_still_waits_is_extended_ever_longer_and_ten_times_at_most() {
        let extended = |n| verdict_of(&alarm(n, 0, LEASE), &WAITING);
        assert_eq!(extended(0), Action::Extend(LEASE * 2));
        assert_eq!(extended(2), Action::Extend(LEASE * 8));
        assert_eq!(extended(9), Action::Extend(longest_lease(LEASE)));
        assert_eq!(extended(10), Action::Again { lease: LEASE * 2, consumed: false });
    }

    #[test]
    fn h13_only_a_consumed_message_counts_as_unanswered() {
        let consumed = Verdict::Consumed;
        let lost = Verdict::Gone("no record at or after the claim: it was lost");
        assert_eq!(
            verdict_of(&alarm(0, 0, LEASE), &consumed),
            Action::Again { lease: LEASE * 2, consumed: true }
        );
        assert_eq!(
            verdict_of(&alarm(0, 9, LEASE), &lost),
            Action::Again { lease: LEASE * 2, consumed: false }
        );
        assert_eq!(verdict_of(&alarm(0, 9, LEASE), &consumed), Action::Park(Reason::Unanswered));
    }

    #[test]
    fn h12_the_pause_between_publications_grows_within_a_bound() {
        let mut often = alarm(0, 0, LEASE);
        often.tries = 30;
        let lost = Verdict::Gone("no record at or after the claim: it was lost");
        let longest = Action::Again { lease: longest_lease(LEASE), consumed: false };
        assert_eq!(verdict_of(&often, &lost), longest);
    }

    #[test]
    fn h11_a_group_without_offsets_is_believed_for_three_leases() {
        let starting = Verdict::Waiting { committed: false };
        assert!(matches!(verdict_of(&alarm(0, 0, LEASE * 2), &starting), Action::Extend(_)));
        assert!(matches!(verdict_of(&alarm(0, 0, LEASE * 4), &starting), Action::Again { .. }));
    }

    #[test]
    fn an_unreachable_broker_decides_nothing_and_age_decides_all() {
        let unknown = Verdict::Unknown(dueline_kafka::KafkaError::Closed);
        assert_eq!(verdict_of(&alarm(0, 0, LEASE), &unknown), Action::Leave);
        let old = decide(&alarm(0, 0, LEASE), true, &WAITING, LEASE, LIMIT);
        assert_eq!(old, Action::Park(Reason::TooOld));
    }
}
