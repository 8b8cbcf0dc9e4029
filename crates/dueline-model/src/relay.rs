//! The relay: claim, produce, confirm, release, sweep, takeover; `crates/dueline-relay` and
//! `dueline-store/sql/relay`.

use crate::guard::Guard;
use crate::model::{Edges, Effect, Invariant, Kind, Model, Who};
use crate::state::{Claimant, Hand, Lease, Life, Message, PAIR, Phase, Stage, State};
use dueline_core::state::Step;

const OWN: [Claimant; PAIR] = [Claimant::RelayA, Claimant::RelayB];

impl Model {
    pub(crate) fn relays(&self, edges: &mut Edges<'_>) {
        for relay in 0..PAIR {
            if edges.from.relays[relay].down {
                let mut to = *edges.from;
                to.relays[relay].down = false;
                edges.add(Kind::Plain, Who::Relay(relay), "register", 0, to);
                continue;
            }
            self.ownership(edges, relay);
            relay_crash(edges, relay);
            for task in 0..self.scope.tasks {
                self.claim(edges, relay, task);
                self.sweep(edges, relay, task);
            }
        }
        for hand in 0..PAIR {
            let (at, _) = edges.from.hands[hand];
            if at.stage == Stage::Limbo {
                late_write(edges, hand);
            }
            if at.stage == Stage::Free || edges.from.relays[usize::from(at.relay)].down {
                continue;
            }
            match at.stage {
                Stage::Claimed => self.produce(edges, hand),
                Stage::Delivered => self.confirm(edges, hand),
                Stage::Release => self.release(edges, hand),
                Stage::Extend => self.extend(edges, hand),
                Stage::Again => self.republish(edges, hand, false),
                Stage::AgainConsumed => self.republish(edges, hand, true),
                Stage::Park => self.park(edges, hand),
                Stage::Free | Stage::Limbo => {}
            }
        }
    }

    fn ownership(&self, edges: &mut Edges<'_>, relay: usize) {
        let other = 1 - relay;
        let s = edges.from;
        if s.relays[relay].ended {
            // The heartbeat finds no row: another incarnation begins, with an empty tracker.
            let mut to = *s;
            to.relays[relay].ended = false;
            for hand in 0..PAIR {
                let (at, _) = to.hands[hand];
                if usize::from(at.relay) == relay
                    && matches!(at.stage, Stage::Delivered | Stage::Release)
                {
                    to.clear_hand(hand);
                }
            }
            edges.add(Kind::Plain, Who::Relay(relay), "heartbeat: declared dead", 0, to);
            return;
        }
        let victim = match s.common.lane {
            Claimant::Silent => Claimant::Silent,
            lane if lane == OWN[other] => lane,
            _ => return,
        };
        let mut to = *s;
        to.common.lane = OWN[relay];
        for task in &mut to.tasks {
            if task.leased() && task.claimant == victim {
                task.claimant = Claimant::Ended;
            }
        }
        if victim == Claimant::Silent {
            edges.add(Kind::Plain, Who::Relay(relay), "take_over", 0, to);
        } else {
            to.relays[other].ended = true;
            edges.fault(Who::Relay(relay), "take_over of a relay that is only paused", 0, to, None);
        }
    }

    fn claim(&self, edges: &mut Edges<'_>, relay: usize, task: usize) {
        let s = edges.from;
        let t = &s.tasks[task];
        let Some(hand) = s.free_hand() else { return };
        let mine = s.common.lane == OWN[relay];
        let ripe = t.phase == Phase::Rings;
        let free = t.lease == Lease::Waiting;
        if t.lease == Lease::Absent
            || t.behind
            || self.on(Guard::ClaimOwnLane) && !mine
            || self.on(Guard::ClaimUnleased) && !free
            || self.on(Guard::ClaimDue) && !ripe
        {
            return;
        }
        let breach = if !ripe {
            Some((Invariant::V3, "claimed before its time"))
        } else if !free {
            Some((Invariant::V9, "a published task was claimed"))
        } else if !mine {
            Some((Invariant::V9, "claimed in a lane of another relay"))
        } else {
            None
        };
        let to = self.claimed(s, hand, relay, task);
        edges.check(Kind::Plain, Who::Relay(relay), "claim", task as u8, to, breach);
        if !self.on(Guard::BodiesAfterClaim) && t.generation > 0 {
            // One statement that joins `task` reads the body by an older snapshot than the alarm.
            let mut to = to;
            to.hands[hand].1.body -= 1;
            if self.on(Guard::BodyGeneration) {
                to.clear_hand(hand);
            }
            edges.add(Kind::Plain, Who::Relay(relay), "claim with an old body", task as u8, to);
        }
    }

    /// The alarm is leased to a claim of `relay`, whose hand has the message.
    pub(crate) fn claimed(&self, s: &State, hand: usize, relay: usize, task: usize) -> State {
        let mut to = *s;
        let t = &mut to.tasks[task];
        t.wait();
        t.lease = Lease::Running;
        t.behind = false;
        t.claimant = if s.relays[relay].ended { Claimant::Ended } else { OWN[relay] };
        t.confirmed = !self.on(Guard::ConfirmDelivered);
        t.loose |= self.scope.effect == Effect::Team;
        let number = task as u8;
        let (generation, attempt) = (t.generation, t.attempt);
        let message = Message { task: number, generation, attempt, body: generation };
        to.touch(number);
        to.forget_records(number);
        to.common.second_later = task == 1;
        let at = Hand { relay: relay as u8, stage: Stage::Claimed, fresh: true, wild: false };
        to.hands[hand] = (at, message);
        to
    }

    fn produce(&self, edges: &mut Edges<'_>, hand: usize) {
        let s = edges.from;
        let (at, m) = s.hands[hand];
        let who = Who::Relay(usize::from(at.relay));
        let mut message = m;
        let t = s.of(&m);
        if t.generation != m.generation {
            // The body was read after the row had moved on.
            if self.on(Guard::BodyGeneration) {
                let mut to = *s;
                to.clear_hand(hand);
                edges.add(Kind::Plain, who, "produce: body of a newer alarm, left out", m.task, to);
            } else {
                message.body = t.generation;
            }
        }
        let certain = self.on(Guard::UnknownIsLeft);
        let unknown = if certain { Stage::Free } else { Stage::Release };
        let with = |stage: Stage, written: bool| {
            let mut to = *s;
            if written {
                to.append(message, at.fresh);
            }
            to.hands[hand].0.stage = stage;
            if stage == Stage::Free {
                to.clear_hand(hand);
            }
            to
        };
        if s.has_room() {
            edges.add(Kind::Plain, who, "produce: delivered", m.task, with(Stage::Delivered, true));
            let to = with(unknown, true);
            edges.fault(who, "produce: unknown, but written", m.task, to, None);
        }
        edges.fault(who, "produce: unknown, and lost", m.task, with(unknown, false), None);
        edges.fault(
            who,
            "produce: unknown, written later",
            m.task,
            with(Stage::Limbo, false),
            None,
        );
        edges.fault(
            who,
            "produce: certainly not written",
            m.task,
            with(Stage::Release, false),
            None,
        );
    }

    fn confirm(&self, edges: &mut Edges<'_>, hand: usize) {
        let mut to = *edges.from;
        let (at, m) = to.hands[hand];
        if at.fresh {
            to.task(&m).confirmed = true;
        }
        to.clear_hand(hand);
        let who = Who::Relay(usize::from(at.relay));
        edges.add(Kind::Plain, who, "heartbeat: confirmed", m.task, to);
    }

    fn release(&self, edges: &mut Edges<'_>, hand: usize) {
        let (at, m) = edges.from.hands[hand];
        let mut to = *edges.from;
        let t = to.task(&m);
        let hit = t.leased() && (at.fresh || !self.on(Guard::FenceOfRelease));
        if hit {
            t.wait();
            to.touch(m.task);
        }
        to.clear_hand(hand);
        let breach =
            (hit && at.stale()).then_some((Invariant::V9, "a stale fence released an alarm"));
        let who = Who::Relay(usize::from(at.relay));
        edges.check(Kind::Plain, who, "release", m.task, to, breach);
    }

    fn extend(&self, edges: &mut Edges<'_>, hand: usize) {
        let (at, m) = edges.from.hands[hand];
        let mut to = *edges.from;
        let t = to.task(&m);
        let hit = t.leased()
            && (at.fresh || !self.on(Guard::FenceOfExtend))
            && (t.phase == Phase::Rings || !self.on(Guard::ExtendDue));
        if hit {
            t.lease = Lease::Running;
            t.extended = true;
            to.touch(m.task);
        }
        to.clear_hand(hand);
        let breach =
            (hit && at.stale()).then_some((Invariant::V9, "a stale fence extended a lease"));
        let who = Who::Relay(usize::from(at.relay));
        edges.check(Kind::Plain, who, "sweep: extend", m.task, to, breach);
    }

    fn republish(&self, edges: &mut Edges<'_>, hand: usize, consumed: bool) {
        let s = edges.from;
        let (at, m) = s.hands[hand];
        let who = Who::Relay(usize::from(at.relay));
        let t = s.of(&m);
        let ripe = t.phase == Phase::Rings;
        let hit = t.lease != Lease::Absent
            && (at.fresh || !self.on(Guard::FenceOfRepublish))
            && (ripe || !self.on(Guard::RepublishDue));
        if !hit {
            let mut to = *s;
            to.clear_hand(hand);
            edges.add(Kind::Plain, who, "sweep: republish, refused", m.task, to);
            return;
        }
        let breach = if !ripe {
            Some((Invariant::V3, "published again before its time"))
        } else {
            at.stale().then_some((Invariant::V9, "a stale fence published an alarm"))
        };
        let mut to = self.claimed(s, hand, usize::from(at.relay), usize::from(m.task));
        let t = to.task(&m);
        t.ignored = (t.ignored + u8::from(consumed)).min(7);
        let counted = consumed || !self.on(Guard::UnansweredIsConsumed);
        t.unanswered = (t.unanswered + u8::from(counted)).min(7);
        edges.check(Kind::Plain, who, "sweep: republish", m.task, to, breach);
    }

    fn park(&self, edges: &mut Edges<'_>, hand: usize) {
        let (at, m) = edges.from.hands[hand];
        let who = Who::Relay(usize::from(at.relay));
        let mut to = *edges.from;
        to.clear_hand(hand);
        let t = to.task(&m);
        if t.lease == Lease::Absent || !at.fresh && self.on(Guard::FenceOfPark) {
            edges.add(Kind::Plain, who, "sweep: park, refused", m.task, to);
            return;
        }
        let ignored = t.ignored + 1;
        let mut breach = t.bury(Step::Park, self.on(Guard::DeathRenews));
        if at.stale() {
            breach = Some((Invariant::V9, "a stale fence parked a task"));
        } else if ignored < self.scope.unanswered {
            breach =
                Some((Invariant::V9, "parked as unanswered, but it was not consumed so often"));
        }
        to.touch(m.task);
        edges.check(Kind::Park, who, "sweep: park", m.task, to, breach);
    }

    /// Reads an alarm, asks Kafka of its message, decides. The write follows as a step of its own.
    fn sweep(&self, edges: &mut Edges<'_>, relay: usize, task: usize) {
        let s = edges.from;
        let t = &s.tasks[task];
        let Some(hand) = s.free_hand() else { return };
        if t.life != Life::Live || t.phase != Phase::Rings || s.common.lane != OWN[relay] {
            return;
        }
        let orphan = t.leased() && t.claimant == Claimant::Ended && !t.confirmed;
        let over = t.lease == Lease::Over || t.lease == Lease::Far && self.on(Guard::LeaseTooLong);
        let stage = if t.lease == Lease::Waiting {
            (t.behind && self.on(Guard::SweepFromTheStart)).then_some(Stage::Again)
        } else if orphan && self.on(Guard::OrphansAtOnce) {
            Some(Stage::Again)
        } else if over && self.on(Guard::SweepOfLeases) {
            self.decide(s, task)
        } else {
            None
        };
        let Some(stage) = stage else { return };
        let mut to = *s;
        let (generation, attempt) = (t.generation, t.attempt);
        let message = Message { task: task as u8, generation, attempt, body: generation };
        to.hands[hand] = (Hand { relay: relay as u8, stage, fresh: true, wild: false }, message);
        edges.add(Kind::Plain, Who::Relay(relay), "sweep: read and ask Kafka", task as u8, to);
    }

    /// `dueline_relay::decide` over `dueline_kafka::still_waiting`.
    fn decide(&self, s: &State, task: usize) -> Option<Stage> {
        let t = &s.tasks[task];
        let waits = s.log.iter().any(|(record, _)| record.young & (1 << task) != 0);
        let gone = || self.on(Guard::LostIsPublishedAgain).then_some(Stage::Again);
        if t.foreign_topic && self.on(Guard::TopicIdentity) {
            gone()
        } else if t.passed {
            let limit = t.unanswered + 1 >= self.scope.unanswered;
            let again = if limit { Stage::Park } else { Stage::AgainConsumed };
            self.on(Guard::ConsumedIsPublishedAgain).then_some(again)
        } else if waits {
            let extend = self.on(Guard::WaitingIsExtended)
                && (!t.extended || !self.on(Guard::ExtensionLimit));
            Some(if extend { Stage::Extend } else { Stage::Again })
        } else {
            gone()
        }
    }
}

fn late_write(edges: &mut Edges<'_>, hand: usize) {
    let (at, m) = edges.from.hands[hand];
    if edges.from.has_room() {
        let mut to = *edges.from;
        to.append(m, at.fresh);
        to.clear_hand(hand);
        edges.add(Kind::Plain, Who::Kafka, "a record of unknown fate is written", m.task, to);
    }
}

fn relay_crash(edges: &mut Edges<'_>, relay: usize) {
    let mut to = *edges.from;
    to.relays[relay].down = true;
    to.relays[relay].ended = false;
    let mine = if edges.from.relays[relay].ended { Claimant::Ended } else { OWN[relay] };
    if to.common.lane == mine {
        to.common.lane = Claimant::Silent;
    }
    for task in &mut to.tasks {
        if task.leased() && task.claimant == mine && mine != Claimant::Ended {
            task.claimant = Claimant::Silent;
        }
    }
    to.clear_letter(1);
    let mut on_the_wire = None;
    for hand in 0..PAIR {
        let (at, m) = to.hands[hand];
        if usize::from(at.relay) != relay || matches!(at.stage, Stage::Free | Stage::Limbo) {
            continue;
        }
        to.clear_hand(hand);
        if at.stage == Stage::Claimed {
            on_the_wire = Some((hand, at, m));
        }
    }
    edges.fault(Who::Relay(relay), "crash", 0, to, None);
    if let Some((hand, at, m)) = on_the_wire {
        let mut to = to;
        to.hands[hand] = (Hand { stage: Stage::Limbo, ..at }, m);
        edges.fault(Who::Relay(relay), "crash with a record on the wire", m.task, to, None);
    }
}
