//! The effect, kind `elsewhere`: as `protocol.md` has it; the product's code for it is still to come.
//!
//! `Call`: begin, the call, its outcome; the dedupe row is in the deadline database, so that begin and the
//! token are one write. `Team`: another team's consumer that neither asks nor begins.

use crate::guard::Guard;
use crate::here::{finish_row, happen};
use crate::model::{Breach, Edges, Effect, Invariant, Kind, Model, Who};
use crate::state::{Fate, Item, Lease, Life, Message, Outcome, Phase, State};
use dueline_core::state::Step;

impl Model {
    pub(crate) fn call(&self, edges: &mut Edges<'_>, consumer: usize) {
        match edges.from.consumers[consumer].1[0].0.fate {
            Fate::Taken => self.begin(edges, consumer),
            Fate::Entered => send(edges, consumer),
            Fate::Calling => wire(edges, consumer),
            Fate::Answered => self.outcome_done(edges, consumer),
            Fate::Refused | Fate::Unanswered => self.outcome_failed(edges, consumer),
            _ => {}
        }
    }

    /// One UPDATE under the task's lock: the token is set where the guards hold and no live token stands.
    fn begin(&self, edges: &mut Edges<'_>, consumer: usize) {
        let s = edges.from;
        let who = Who::Consumer(consumer);
        let m = s.consumers[consumer].1[0].1;
        let mut to = *s;
        let (item, step, breach) = self.begun(&mut to, &m, consumer);
        to.consumers[consumer].1[0].0 = item;
        edges.check(Kind::Plain, who, step, m.task, to, breach);
    }

    fn begun(
        &self,
        to: &mut State,
        m: &Message,
        consumer: usize,
    ) -> (Item, &'static str, Option<Breach>) {
        let fate = |fate| Item { fate, ..Item::default() };
        let failed = |doomed| Item { fate: Fate::Failed, doomed, charged: true };
        let once = self.scope.effect == Effect::CallOnce;
        let t = to.task(m);
        if !t.speaks(m) && self.on(Guard::BeginGuard) {
            return (fate(Fate::Stale), "begin: stale", None);
        }
        if t.phase == Phase::Early && t.speaks(m) && self.on(Guard::EarlyCheck) {
            if t.leased() {
                t.wait();
                to.touch(m.task);
            }
            return (fate(Fate::Settled), "begin: early", None);
        }
        let breach = (t.phase == Phase::Early && t.speaks(m))
            .then_some((Invariant::V3, "a call was begun before its time"));
        let same_try = t.tried_generation == m.generation && m.attempt <= t.tried_attempt;
        match t.dedupe {
            Outcome::Done if self.on(Guard::KnownSettles) => {
                let breach = finish_row(to, m, Step::Done, Life::Done);
                return (fate(Fate::Settled), "begin: known, its outcome is sent again", breach);
            }
            Outcome::Done => return (fate(Fate::Settled), "begin: known, dropped", None),
            Outcome::InProgress if !t.until_over && self.on(Guard::BeginToken) => {
                if t.leased() && self.on(Guard::PostponeAnswers) {
                    t.unanswered = 0;
                    t.ignored = 0;
                }
                if t.leased() && self.on(Guard::PostponeLease) {
                    t.lease = Lease::Running;
                    t.postponed = true;
                }
                to.touch(m.task);
                return (fate(Fate::Settled), "begin: in progress, postponed", None);
            }
            Outcome::InProgress | Outcome::Failed
                if once
                    && (t.unknown || t.dedupe == Outcome::InProgress)
                    && self.on(Guard::UnknownIsForPeople) =>
            {
                t.dedupe = Outcome::Failed;
                t.unknown = true;
                (t.tried_generation, t.tried_attempt) = (m.generation, m.attempt);
                return (failed(true), "begin: an earlier call ended unknown", None);
            }
            Outcome::Failed if same_try && self.on(Guard::FailureIsRemembered) => {
                return (failed(once && t.unknown), "begin: failed before, sent again", None);
            }
            Outcome::InProgress => t.unknown |= self.on(Guard::UnknownSticks),
            Outcome::Failed | Outcome::Absent => {}
        }
        t.dedupe = Outcome::InProgress;
        t.until_over = false;
        t.holder = consumer as u8;
        (fate(Fate::Entered), "begin", breach)
    }

    fn outcome_done(&self, edges: &mut Edges<'_>, consumer: usize) {
        let m = edges.from.consumers[consumer].1[0].1;
        let mut to = *edges.from;
        let t = to.task(&m);
        let mine = t.dedupe == Outcome::InProgress && usize::from(t.holder) == consumer;
        let (mut fate, mut breach) = (Fate::Taken, None);
        if mine || !self.on(Guard::OutcomeToken) {
            t.dedupe = Outcome::Done;
            fate = Fate::Settled;
            if t.life == Life::Live && self.on(Guard::DoneOfTheKey) || t.speaks(&m) {
                breach = finish_row(&mut to, &m, Step::Done, Life::Done);
            }
        }
        to.consumers[consumer].1[0].0.fate = fate;
        edges.check(Kind::Plain, Who::Consumer(consumer), "outcome: done", m.task, to, breach);
    }

    /// The dedupe row first, under its token; the attempt is recorded by `fail`.
    fn outcome_failed(&self, edges: &mut Edges<'_>, consumer: usize) {
        let (item, m) = edges.from.consumers[consumer].1[0];
        let mut to = *edges.from;
        let t = to.task(&m);
        let mine = t.dedupe == Outcome::InProgress && usize::from(t.holder) == consumer;
        let unknown = item.fate == Fate::Unanswered;
        let doomed =
            unknown && self.scope.effect == Effect::CallOnce && self.on(Guard::UnknownIsForPeople);
        let mut next = Item { fate: Fate::Taken, ..Item::default() };
        let mut breach = None;
        if mine || !self.on(Guard::OutcomeToken) {
            if t.dedupe == Outcome::Done {
                breach = Some((Invariant::V9, "a stale token turned done into failed"));
            }
            t.dedupe = Outcome::Failed;
            (t.tried_generation, t.tried_attempt) = (m.generation, m.attempt);
            t.unknown |= unknown && self.on(Guard::UnknownSticks);
            next = Item { fate: Fate::Failed, doomed, charged: true };
        }
        to.consumers[consumer].1[0].0 = next;
        let step = if unknown { "outcome: unknown" } else { "outcome: failed" };
        edges.check(Kind::Plain, Who::Consumer(consumer), step, m.task, to, breach);
    }

    /// Another team handles the message: no guard of ours, a dedupe row of its own, then its outcome.
    pub(crate) fn team(&self, edges: &mut Edges<'_>, consumer: usize) {
        let (item, m) = edges.from.consumers[consumer].1[0];
        let who = Who::Consumer(consumer);
        let mut to = *edges.from;
        let mut breach = None;
        if item.fate == Fate::Taken {
            let t = to.task(&m);
            if t.effects == 0 {
                breach = happen(t, &m);
            }
            to.consumers[consumer].1[0].0.fate = Fate::Answered;
            edges.check(Kind::Plain, who, "the other team's transaction", m.task, to, breach);
            let mut to = *edges.from;
            to.consumers[consumer].1[0].0 =
                Item { fate: Fate::Failed, doomed: false, charged: true };
            edges.fault(who, "the other team's handler fails", m.task, to, None);
        } else {
            let t = to.of(&m);
            if t.life == Life::Live && self.on(Guard::DoneOfTheKey) || t.speaks(&m) {
                breach = finish_row(&mut to, &m, Step::Done, Life::Done);
            }
            to.consumers[consumer].1[0].0.fate = Fate::Settled;
            edges.check(Kind::Plain, who, "outcome: done", m.task, to, breach);
        }
    }

    /// The receiver gets a call, whoever still waits for its answer.
    pub(crate) fn receiver(&self, edges: &mut Edges<'_>) {
        let s = edges.from;
        let Some(generation) = s.common.wire.checked_sub(1) else { return };
        let mut to = *s;
        to.common.wire = 0;
        let m = Message { task: 0, generation, attempt: 0, body: generation };
        let keyed = self.scope.effect == Effect::Call;
        let again = to.tasks[0].effects > 0 && keyed;
        let breach = if again { None } else { happen(&mut to.tasks[0], &m) };
        for (_, items) in &mut to.consumers {
            let (item, m) = &mut items[0];
            if item.fate == Fate::Calling && m.generation == generation {
                item.fate = Fate::Answered;
            }
        }
        edges.check(Kind::Plain, Who::Receiver, "handles the call", 0, to, breach);
    }
}

fn send(edges: &mut Edges<'_>, consumer: usize) {
    let s = edges.from;
    if s.common.wire != 0 {
        return;
    }
    let mut to = *s;
    let (item, m) = &mut to.consumers[consumer].1[0];
    item.fate = Fate::Calling;
    to.common.wire = m.generation + 1;
    edges.add(Kind::Plain, Who::Consumer(consumer), "call", 0, to);
}

/// How a call can end without its effect being known.
fn wire(edges: &mut Edges<'_>, consumer: usize) {
    let who = Who::Consumer(consumer);
    let mut to = *edges.from;
    to.consumers[consumer].1[0].0.fate = Fate::Unanswered;
    edges.fault(who, "call: no answer in time", 0, to, None);
    if to.common.wire != 0 {
        to.common.wire = 0;
        edges.fault(who, "call: lost, no answer in time", 0, to, None);
        to.consumers[consumer].1[0].0.fate = Fate::Refused;
        edges.fault(who, "call: certainly failed", 0, to, None);
    }
}
