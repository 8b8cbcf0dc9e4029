//! Which claims are known to be delivered, and which are not.
//!
//! A successor publishes at once what its predecessor had not confirmed, so `confirmed_upto` may
//! never pass a claim whose delivery is open: neither one that is in flight, nor one whose
//! statement has not returned yet.

use std::collections::{BTreeMap, BTreeSet};

use dueline_core::Micros;
use dueline_store::relay::BEGINNING;

/// The most exceptions that a relay row holds.
const MAX_EXCEPTIONS: usize = 1_000;

/// A claim: when it was made, and the task.
pub(crate) type Claim = (Micros, i64);

/// The claims of one incarnation that are not known to be delivered.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Statements under way, and an instant before which none of their claims can be.
    open: BTreeMap<u64, Micros>,
    next_ticket: u64,
    /// Claimed, and not reported yet. Bounded by the messages in flight.
    unresolved: BTreeSet<Claim>,
    /// Reported as unknown: the lease decides. Kept until their leases are over.
    unknown: BTreeSet<Claim>,
    /// The last instant of which it is known that every claim before it has returned.
    latest: Micros,
}

impl Tracker {
    pub fn new() -> Self {
        Self {
            open: BTreeMap::new(),
            next_ticket: 0,
            unresolved: BTreeSet::new(),
            unknown: BTreeSet::new(),
            latest: BEGINNING,
        }
    }

    /// A claiming statement starts. `now` is the last reading of the database's clock.
    pub fn open(&mut self, now: Micros) -> u64 {
        self.next_ticket += 1;
        self.open.insert(self.next_ticket, now);
        self.next_ticket
    }

    /// The statement returned with these claims. Also after an error, with none: whatever it may
    /// have committed is then left to its lease.
    pub fn returned(&mut self, ticket: u64, claims: impl IntoIterator<Item = Claim>) {
        self.open.remove(&ticket);
        for claim in claims {
            self.latest = self.latest.max(claim.0);
            self.unresolved.insert(claim);
        }
    }

    /// The claim is delivered, released or needless.
    pub fn resolve(&mut self, claim: Claim) {
        self.unresolved.remove(&claim);
    }

    /// Nobody knows whether the claim's message was written.
    pub fn unknown(&mut self, claim: Claim) {
        if self.unresolved.remove(&claim) {
            self.unknown.insert(claim);
        }
    }

    /// Forgets unknown claims from before `horizon`: their leases are over, and the sweep has them.
    pub fn forget_before(&mut self, horizon: Micros) {
        while self.unknown.first().is_some_and(|claim| claim.0 < horizon) {
            self.unknown.pop_first();
        }
    }

    /// `confirmed_upto` and the exceptions up to it.
    pub fn confirmed(&self) -> (Micros, Vec<i64>) {
        let before = |instant: Micros| Micros(instant.0.saturating_sub(1));
        let mut upto = self.latest;
        if let Some(first) = self.unresolved.first() {
            upto = upto.min(before(first.0));
        }
        if let Some(first) = self.open.values().min() {
            upto = upto.min(before(*first));
        }
        if let Some(beyond) = self.unknown.iter().nth(MAX_EXCEPTIONS) {
            upto = upto.min(before(beyond.0));
        }
        let within = self.unknown.iter().take(MAX_EXCEPTIONS);
        (upto, within.take_while(|claim| claim.0 <= upto).map(|claim| claim.1).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h06_confirmation_stops_before_the_first_claim_without_a_report() {
        let mut tracker = Tracker::new();
        let ticket = tracker.open(Micros(10));
        assert_eq!(tracker.confirmed().0, BEGINNING);
        tracker.returned(ticket, [(Micros(11), 1), (Micros(12), 2), (Micros(13), 3)]);
        tracker.resolve((Micros(11), 1));
        tracker.resolve((Micros(13), 3));
        assert_eq!(tracker.confirmed(), (Micros(11), vec![]));
        tracker.resolve((Micros(12), 2));
        assert_eq!(tracker.confirmed(), (Micros(13), vec![]));
    }

    #[test]
    fn h06_a_statement_under_way_holds_confirmation_back() {
        let mut tracker = Tracker::new();
        let slow = tracker.open(Micros(5));
        let quick = tracker.open(Micros(20));
        tracker.returned(quick, [(Micros(21), 1)]);
        tracker.resolve((Micros(21), 1));
        assert_eq!(tracker.confirmed().0, Micros(4), "the slow one may have claimed at 6");
        tracker.returned(slow, []);
        assert_eq!(tracker.confirmed().0, Micros(21));
    }

    #[test]
    fn h07_unknown_claims_are_exceptions_until_their_lease_is_over() {
        let mut tracker = Tracker::new();
        let ticket = tracker.open(Micros(0));
        tracker.returned(ticket, [(Micros(1), 1), (Micros(2), 2)]);
        tracker.unknown((Micros(1), 1));
        tracker.resolve((Micros(2), 2));
        assert_eq!(tracker.confirmed(), (Micros(2), vec![1]));
        tracker.forget_before(Micros(2));
        assert_eq!(tracker.confirmed(), (Micros(2), vec![]));
    }

    #[test]
    fn too_many_exceptions_hold_confirmation_back_instead() {
        let mut tracker = Tracker::new();
        let ticket = tracker.open(Micros(0));
        tracker.returned(ticket, (1..=1_500).map(|i| (Micros(i), i)));
        for i in 1..=1_500 {
            tracker.unknown((Micros(i), i));
        }
        let (upto, exceptions) = tracker.confirmed();
        assert_eq!((upto, exceptions.len()), (Micros(1_000), MAX_EXCEPTIONS));
    }
}
