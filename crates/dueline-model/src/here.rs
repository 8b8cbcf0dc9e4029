//! The effect, kind `here`: one transaction; `dueline-store/sql/effect/admit.sql` and `settle.sql`.
//!
//! READ COMMITTED lets others in between the statements, so each statement is a step: admit judges by one
//! snapshot and then may wait for a dedupe row (`enter`), the handler locks the order, settle looks again and
//! commits. From settle's row locks to COMMIT nobody can interfere, so the two are one step.

use crate::guard::Guard;
use crate::model::{Breach, Edges, Invariant, Kind, Model, Who};
use crate::state::{Fate, Item, Life, Message, Order, Outcome, PAIR, Phase, State, Task};
use dueline_core::state::Step;

impl Model {
    pub(crate) fn here(&self, edges: &mut Edges<'_>, consumer: usize) {
        let items = &edges.from.consumers[consumer].1;
        let has = |fate: Fate| items.iter().any(|(item, _)| item.fate == fate);
        if !has(Fate::Taken) {
            self.trouble(edges, consumer);
        }
        if has(Fate::Taken) {
            self.admit(edges, consumer);
        } else if has(Fate::Ready) {
            self.enter(edges, consumer);
        } else if has(Fate::Entered) {
            self.apply(edges, consumer);
        } else {
            self.settle(edges, consumer);
        }
    }

    /// Steps 1 and 2, without the wait for another's dedupe row.
    fn admit(&self, edges: &mut Edges<'_>, consumer: usize) {
        let s = edges.from;
        let mut to = *s;
        for (item, m) in &mut to.consumers[consumer].1 {
            if item.fate != Fate::Taken {
                continue;
            }
            let t = s.of(m);
            item.fate = if self.on(Guard::AdmitGuard) && !t.speaks(m) {
                Fate::Stale
            } else if self.on(Guard::EarlyCheck) && t.phase == Phase::Early && t.speaks(m) {
                Fate::Early
            } else {
                Fate::Ready
            };
        }
        let task = s.consumers[consumer].1[0].1.task;
        if self.enter_ready(&mut to, consumer) {
            edges.add(Kind::Plain, Who::Consumer(consumer), "admit", task, to);
        } else {
            edges.add(Kind::Plain, Who::Consumer(consumer), "admit: judged, waits", task, to);
        }
    }

    fn enter(&self, edges: &mut Edges<'_>, consumer: usize) {
        let mut to = *edges.from;
        if self.enter_ready(&mut to, consumer) {
            let task = to.consumers[consumer].1[0].1.task;
            edges.add(Kind::Plain, Who::Consumer(consumer), "admit: entered", task, to);
        }
    }

    /// Enters the ready ones in the dedupe table, in order; `false`: another transaction is in the way.
    fn enter_ready(&self, to: &mut State, consumer: usize) -> bool {
        for n in 0..PAIR {
            let (item, m) = to.consumers[consumer].1[n];
            if item.fate != Fate::Ready {
                continue;
            }
            if self.on(Guard::DedupeInsert) && holds_key(to, 1 - consumer, m.task) {
                return false;
            }
            let known = self.on(Guard::DedupeInsert) && to.of(&m).dedupe == Outcome::Done;
            to.consumers[consumer].1[n].0.fate = if known { Fate::Known } else { Fate::Entered };
            if !known && !self.on(Guard::DedupeWithEffect) {
                to.task(&m).dedupe = Outcome::Done;
            }
        }
        true
    }

    /// Step 3: the handler.
    fn apply(&self, edges: &mut Edges<'_>, consumer: usize) {
        let s = edges.from;
        let who = Who::Consumer(consumer);
        let mut to = *s;
        let mut breach = None;
        for n in 0..PAIR {
            let (item, m) = s.consumers[consumer].1[n];
            if item.fate != Fate::Entered {
                continue;
            }
            if s.of(&m).poison {
                let mut to = *s;
                to.die(consumer);
                edges.add(Kind::Plain, who, "the handler kills its consumer", m.task, to);
                return;
            }
            self.handler_fails(edges, consumer, n);
            let mut deadly = *s;
            deadly.task(&m).poison = true;
            deadly.die(consumer);
            edges.fault(
                who,
                "the handler kills its consumer, each time from now on",
                m.task,
                deadly,
                None,
            );
            if locks_order(s, 1 - consumer, m.task) {
                return;
            }
            let wanted = s.of(&m).order == Order::Open || !self.on(Guard::Recheck);
            let fate = if wanted { Fate::Applied } else { Fate::Declined };
            to.consumers[consumer].1[n].0.fate = fate;
            if wanted && !self.on(Guard::EffectWithSettle) {
                let t = to.task(&m);
                breach = breach.or(happen(t, &m)).or(too_early(t, &m));
            }
        }
        let task = s.consumers[consumer].1[0].1.task;
        edges.check(Kind::Plain, who, "handler", task, to, breach);
    }

    fn handler_fails(&self, edges: &mut Edges<'_>, consumer: usize, n: usize) {
        let m = edges.from.consumers[consumer].1[n].1;
        for (doomed, step) in [(false, "handler fails"), (true, "handler fails for good")] {
            let mut to = *edges.from;
            to.roll_back(consumer);
            to.consumers[consumer].1[n].0 = Item { fate: Fate::Failed, doomed, charged: true };
            if doomed && !self.on(Guard::RowBeforeLetter) {
                to.task(&m).letters |= 1 << ((m.generation + 1) & 7);
            }
            edges.fault(Who::Consumer(consumer), step, m.task, to, None);
        }
    }

    /// Steps 4 and 5.
    fn settle(&self, edges: &mut Edges<'_>, consumer: usize) {
        let s = edges.from;
        let who = Who::Consumer(consumer);
        let task = s.consumers[consumer].1[0].1.task;
        let moved = |n: usize| {
            let (item, m) = &s.consumers[consumer].1[n];
            matches!(item.fate, Fate::Applied | Fate::Declined) && !self.settles(s.of(m), m)
        };
        if self.on(Guard::MovedRollsBack) && (0..PAIR).any(moved) {
            let mut to = *s;
            to.roll_back(consumer);
            (0..PAIR).filter(|n| moved(*n)).for_each(|n| {
                to.consumers[consumer].1[n].0 = Item { fate: Fate::Moved, ..Item::default() };
            });
            edges.add(Kind::Plain, who, "settle: moved, rolled back", task, to);
            return;
        }
        for n in 0..PAIR {
            self.locked_row(edges, consumer, n);
        }
        let mut to = *s;
        let mut breach = None;
        for n in 0..PAIR {
            let (item, m) = s.consumers[consumer].1[n];
            let (fate, broken) = self.settle_one(&mut to, item.fate, &m);
            to.consumers[consumer].1[n].0.fate = fate;
            breach = breach.or(broken);
        }
        edges.check(Kind::Plain, who, "settle and COMMIT", task, to, breach);
        // The answer is lost: whatever the look-up says, running them again is safe.
        let mut again = to;
        again.roll_back(consumer);
        edges.fault(who, "settle: COMMIT of unknown fate, written", task, again, breach);
    }

    /// SKIP LOCKED: somebody holds the row, who knows what for.
    fn locked_row(&self, edges: &mut Edges<'_>, consumer: usize, n: usize) {
        let mut to = *edges.from;
        let (item, m) = to.consumers[consumer].1[n];
        if matches!(item.fate, Fate::Applied | Fate::Declined) {
            to.roll_back(consumer);
            to.consumers[consumer].1[n].0 = Item { fate: Fate::Moved, ..Item::default() };
            let step = "settle: the row is locked, rolled back";
            edges.fault(Who::Consumer(consumer), step, m.task, to, None);
        }
    }

    /// The guard of `settle.sql`.
    fn settles(&self, t: &Task, m: &Message) -> bool {
        (t.life == Life::Live || !self.on(Guard::SettleLive))
            && (t.generation == m.generation || !self.on(Guard::SettleGeneration))
            && (t.attempt == m.attempt || !self.on(Guard::SettleAttempt))
    }

    fn settle_one(&self, to: &mut State, fate: Fate, m: &Message) -> (Fate, Option<Breach>) {
        let with_settle = self.on(Guard::EffectWithSettle);
        let holds = self.settles(to.of(m), m);
        let t = to.task(m);
        let mut breach = None;
        match fate {
            Fate::Applied => {
                if with_settle {
                    breach = happen(t, m).or(too_early(t, m));
                }
                t.dedupe = Outcome::Done;
                if holds {
                    breach = breach.or(finish_row(to, m, Step::Done, Life::Done));
                }
            }
            Fate::Declined => {
                let forget = self.on(Guard::SkippedIsForgotten);
                t.dedupe = if forget { Outcome::Absent } else { Outcome::Done };
                if holds {
                    breach = finish_row(to, m, Step::Skip, Life::Skipped);
                }
            }
            Fate::Known if holds => {
                if self.on(Guard::KnownSettles) {
                    breach = finish_row(to, m, Step::Done, Life::Done);
                }
            }
            Fate::Known => return (Fate::Moved, None),
            Fate::Early => {
                if t.speaks(m) && t.leased() {
                    t.wait();
                    to.touch(m.task);
                }
            }
            other => return (other, None),
        }
        (Fate::Settled, breach)
    }

    /// Something around us fails: the transaction is rolled back, and nobody is charged.
    pub(crate) fn trouble(&self, edges: &mut Edges<'_>, consumer: usize) {
        let mut to = *edges.from;
        let m = to.consumers[consumer].1[0].1;
        to.roll_back(consumer);
        let mut breach = None;
        if !self.on(Guard::TroubleIsFree) {
            let item = Item { fate: Fate::Failed, doomed: false, charged: true };
            to.consumers[consumer].1[0].0 = item;
            breach = Some((Invariant::V6, "trouble of the environment was charged as an attempt"));
        }
        let step = "trouble: timeout, lost connection, COMMIT not written";
        edges.fault(Who::Consumer(consumer), step, m.task, to, breach);
    }
}

/// The effect is committed: what must hold of it.
pub(crate) fn happen(t: &mut Task, m: &Message) -> Option<Breach> {
    t.effects = (t.effects + 1).min(2);
    let oldest = m.generation.min(m.body);
    let breach = if t.promised > oldest {
        Some((Invariant::V4, "an effect after a promise that there is none"))
    } else if t.effects > 1 {
        Some((Invariant::V2, "a second effect"))
    } else if t.order == Order::Paid {
        Some((Invariant::V5, "paid and closed"))
    } else {
        None
    };
    t.order = Order::Closed;
    breach
}

fn too_early(t: &Task, m: &Message) -> Option<Breach> {
    let early = t.generation == m.generation && t.life == Life::Live && t.phase == Phase::Early;
    early.then_some((Invariant::V3, "an effect before its time"))
}

/// The row is done or skipped, its alarm is gone.
pub(crate) fn finish_row(to: &mut State, m: &Message, step: Step, life: Life) -> Option<Breach> {
    let t = to.task(m);
    let breach = t.become_by(step, life);
    t.silence();
    let hollow = life == Life::Done && t.effects == 0 && !t.resolved;
    to.touch(m.task);
    breach.or(hollow.then_some((Invariant::V1, "done without an effect")))
}

/// Whether this consumer's open transaction has the key's dedupe row.
fn holds_key(s: &State, consumer: usize, task: u8) -> bool {
    s.consumers[consumer].1.iter().any(|(item, m)| {
        m.task == task && matches!(item.fate, Fate::Entered | Fate::Applied | Fate::Declined)
    })
}

/// Whether this consumer's open transaction has locked the order.
pub(crate) fn locks_order(s: &State, consumer: usize, task: u8) -> bool {
    s.consumers[consumer].1.iter().any(|(item, m)| m.task == task && item.fate == Fate::Applied)
}
