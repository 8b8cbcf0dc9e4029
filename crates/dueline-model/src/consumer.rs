//! The consumer's loop around the effect: take, fail, finish, commit of the offset, crash marks, rebalances;
//! `crates/dueline-consumer`.

use crate::guard::Guard;
use crate::model::{ATTEMPTS, Breach, Edges, Effect, Invariant, Kind, MARKS, Model, Who};
use crate::state::{Fate, Item, LOG, Letter, Life, Message, PAIR, Phase, Slot, State};
use dueline_core::state::Step;

impl Model {
    pub(crate) fn consumers(&self, edges: &mut Edges<'_>) {
        for consumer in 0..PAIR {
            let who = Who::Consumer(consumer);
            let (at, items) = &edges.from.consumers[consumer];
            if at.down {
                let mut to = *edges.from;
                to.consumers[consumer].0.down = false;
                edges.add(Kind::Plain, who, "start", 0, to);
                continue;
            }
            let has = |fate: Fate| items.iter().any(|(item, _)| item.fate == fate);
            let idle = items.iter().all(|(item, _)| item.fate == Fate::Absent);
            membership(edges, consumer, idle);
            self.commit_offset(edges, consumer);
            if idle {
                self.take(edges, consumer);
            } else if has(Fate::Failed) {
                self.fail(edges, consumer);
            } else if items.iter().all(|(item, _)| item.fate.is_final()) {
                self.finish(edges, consumer);
            } else {
                match self.scope.effect {
                    Effect::Here => self.here(edges, consumer),
                    Effect::Call | Effect::CallOnce => self.call(edges, consumer),
                    Effect::Team => self.team(edges, consumer),
                }
            }
        }
    }

    /// Takes one unread record, or two of different tasks.
    fn take(&self, edges: &mut Edges<'_>, consumer: usize) {
        let s = edges.from;
        if usize::from(s.common.partition) != consumer + 1 || s.common.deaf {
            return;
        }
        let unread = |n: &usize| s.log[*n].0.slot == Slot::Unread;
        let Some(first) = (0..LOG).find(unread) else { return };
        let second = (first + 1..LOG)
            .find(|n| unread(n) && s.log[*n].1.task != s.log[first].1.task)
            .filter(|_| s.common.mark == 0);
        let ours = self.scope.effect != Effect::Team;
        let condemned = ours && self.on(Guard::CrashMarks) && s.common.mark >= MARKS;
        for also in [None, second] {
            if also.is_none() && second.is_some() && condemned {
                continue;
            }
            let mut to = *s;
            let mut breach = None;
            for (place, n) in [Some(first), also].into_iter().flatten().enumerate() {
                let message = s.log[n].1;
                let early = !self.on(Guard::OffsetAfterCommit);
                to.log[n].0.slot = if early { Slot::Finished } else { Slot::Taken };
                if early && !s.of(&message).answered(&message) {
                    breach = Some((Invariant::V7, "an offset was stored before the work"));
                }
                let fate = if condemned { Fate::Failed } else { Fate::Taken };
                let charged = condemned && !self.on(Guard::CrashIsFree);
                to.consumers[consumer].1[place] =
                    (Item { fate, doomed: condemned, charged }, message);
                if charged {
                    breach = Some((Invariant::V6, "a crash was charged as an attempt"));
                }
            }
            let step = if condemned { "take: condemned by its crash marks" } else { "take" };
            edges.check(
                Kind::Plain,
                Who::Consumer(consumer),
                step,
                s.log[first].1.task,
                to,
                breach,
            );
            if second.is_none() {
                break;
            }
        }
    }

    /// Records the first failure on its row; `effect/fail.sql`.
    fn fail(&self, edges: &mut Edges<'_>, consumer: usize) {
        let s = edges.from;
        let items = &s.consumers[consumer].1;
        let Some(n) = items.iter().position(|(i, _)| i.fate == Fate::Failed) else { return };
        let (item, m) = items[n];
        let who = Who::Consumer(consumer);
        let mut to = *s;
        let t = s.of(&m);
        let holds = t.speaks(&m) || !self.on(Guard::FailGuard) && t.life == Life::Live;
        if !holds {
            // Another team only hears that its outcome came too late.
            let team = self.scope.effect == Effect::Team;
            let fate = if team { Fate::Settled } else { Fate::Taken };
            to.consumers[consumer].1[n].0 = Item { fate, ..Item::default() };
            let untold = t.letters & (1 << ((m.generation + 1) & 7)) != 0
                && t.deaths & (1 << ((m.generation + 1) & 7)) == 0;
            let breach =
                untold.then_some((Invariant::V6, "a letter tells of a death that did not happen"));
            edges.check(Kind::Plain, who, "fail: moved", m.task, to, breach);
            return;
        }
        let mut breach: Option<Breach> = (!t.speaks(&m))
            .then_some((Invariant::V6, "a failure was charged to another generation or attempt"));
        let step = self.record_failure(&mut to, item, &m, &mut breach);
        to.consumers[consumer].1[n].0 = Item { fate: Fate::Settled, ..Item::default() };
        edges.check(Kind::Plain, who, step, m.task, to, breach);
        edges.fault(
            who,
            "fail: COMMIT of unknown fate, written",
            m.task,
            {
                let mut to = to;
                to.consumers[consumer].1[n].0 = Item { fate: Fate::Taken, ..Item::default() };
                to
            },
            None,
        );
    }

    fn record_failure(
        &self,
        to: &mut State,
        item: Item,
        m: &Message,
        breach: &mut Option<Breach>,
    ) -> &'static str {
        let renew = self.on(Guard::DeathRenews);
        let t = to.task(m);
        t.attempt = (t.attempt + u8::from(item.charged)).min(3);
        let step = if item.doomed || t.attempt >= ATTEMPTS {
            *breach = breach.or(t.bury(Step::Die, renew));
            let generation = t.generation;
            if !to.letters[0].busy {
                to.letters[0] = Letter { busy: true, written: false, task: m.task, generation };
            }
            "die"
        } else if t.wish && self.on(Guard::WishIsHonoured) {
            *breach = breach.or(t.become_by(Step::Cancel, Life::Cancelled));
            t.generation = (t.generation + 1).min(7);
            t.silence();
            "fail: cancelled, as wished"
        } else {
            t.wait();
            t.phase = Phase::BackingOff;
            t.unanswered = 0;
            t.ignored = 0;
            "fail"
        };
        to.touch(m.task);
        step
    }

    /// The records of what is done with may be passed; what moved is tried again.
    fn finish(&self, edges: &mut Edges<'_>, consumer: usize) {
        let mut to = *edges.from;
        let (at, items) = edges.from.consumers[consumer];
        let mut rest = 0;
        to.consumers[consumer].1 = Default::default();
        for (item, message) in items {
            if item.fate == Fate::Moved {
                let item = Item { fate: Fate::Taken, ..Item::default() };
                to.consumers[consumer].1[rest] = (item, message);
                rest += 1;
            } else if item.fate != Fate::Absent && !at.evicted {
                let taken = to.log.iter_mut().find(|(r, m)| r.slot == Slot::Taken && *m == message);
                if let Some((record, _)) = taken {
                    record.slot = Slot::Finished;
                }
            }
        }
        to.consumers[consumer].0.evicted = at.evicted && rest > 0;
        edges.add(Kind::Plain, Who::Consumer(consumer), "finish", items[0].1.task, to);
    }

    /// The highest contiguous finished offset is committed.
    fn commit_offset(&self, edges: &mut Edges<'_>, consumer: usize) {
        let s = edges.from;
        if usize::from(s.common.partition) != consumer + 1 {
            return;
        }
        let finished = |n: &usize| s.log[*n].0.slot == Slot::Finished;
        let passes = if self.on(Guard::OffsetContiguous) {
            (0..LOG).take_while(finished).count()
        } else {
            (0..LOG).rev().find(finished).map_or(0, |n| n + 1)
        };
        if passes == 0 {
            return;
        }
        let skipped = |n: usize| {
            let (record, m) = &s.log[n];
            record.slot != Slot::Finished && !s.of(m).answered(m)
        };
        let breach = (0..passes)
            .any(skipped)
            .then_some((Invariant::V7, "the committed offset passes an unanswered message"));
        let mut to = *s;
        (0..passes).for_each(|_| to.pass_first());
        to.common.mark = 0;
        edges.check(Kind::Plain, Who::Consumer(consumer), "commit offset", 0, to, breach);
    }
}

impl Fate {
    /// Nothing more is to be done in this run.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Absent | Self::Stale | Self::Settled | Self::Moved)
    }
}

impl State {
    /// Everything that a transaction of this consumer had not committed is undone.
    pub(crate) fn roll_back(&mut self, consumer: usize) {
        for (item, _) in &mut self.consumers[consumer].1 {
            if !matches!(item.fate, Fate::Absent | Fate::Moved | Fate::Failed) {
                *item = Item { fate: Fate::Taken, ..Item::default() };
            }
        }
    }

    /// The consumer dies: its transaction is rolled back, its partition goes to the other one.
    pub(crate) fn die(&mut self, consumer: usize) {
        let owner = usize::from(self.common.partition) == consumer + 1;
        let (at, items) = &mut self.consumers[consumer];
        let busy = items.iter().any(|(item, _)| item.fate != Fate::Absent);
        *items = Default::default();
        *at = crate::state::Consumer { down: true, evicted: false };
        if owner {
            self.common.mark = (self.common.mark + u8::from(busy)).min(MARKS);
            self.rewind();
            self.common.deaf = false;
            let other = 1 - consumer;
            self.common.partition = if self.consumers[other].0.down { 0 } else { other as u8 + 1 };
        }
        self.clear_letter(0);
    }
}

/// Crash, eviction by a rebalance, and the way back into the group.
fn membership(edges: &mut Edges<'_>, consumer: usize, idle: bool) {
    let s = edges.from;
    let who = Who::Consumer(consumer);
    let owner = usize::from(s.common.partition) == consumer + 1;
    let mut to = *s;
    to.die(consumer);
    edges.fault(who, "crash", 0, to, None);
    if s.common.partition == 0 {
        let mut to = *s;
        to.common.partition = consumer as u8 + 1;
        edges.add(Kind::Plain, who, "assigned", 0, to);
    }
    let other = 1 - consumer;
    if owner && !idle && !s.consumers[other].0.down {
        // Silent beyond max.poll.interval: the batch stays in its hands, and it does not know.
        let mut to = *s;
        to.common.partition = other as u8 + 1;
        to.common.mark = (to.common.mark + 1).min(MARKS);
        to.consumers[consumer].0.evicted = true;
        to.common.deaf = false;
        to.rewind();
        edges.fault(who, "evicted while it works", 0, to, None);
    }
}
