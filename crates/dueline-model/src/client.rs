//! Clients and persons: schedule, pay, cancel, reschedule, replay, resolve, discard, with their receipts; the SQL
//! functions in `migrations`.

use crate::guard::Guard;
use crate::here::locks_order;
use crate::model::{Breach, Edges, Effect, Invariant, Kind, Model, Who};
use crate::state::{Claimant, Lease, Life, Order, Outcome, PAIR, Phase, Stage, State, Task};
use dueline_core::state::Step;

/// What `dueline.under_way` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Free,
    WillBeDropped,
    Running,
    MayHaveRun,
    Finished,
}

impl Model {
    pub(crate) fn clients(&self, edges: &mut Edges<'_>) {
        for task in 0..self.scope.tasks {
            if edges.from.tasks[task].life == Life::Unscheduled {
                schedule(edges, task);
            } else if edges.from.common.clients > 0 {
                self.ask(edges, task);
            }
        }
        self.receiver(edges);
    }

    fn ask(&self, edges: &mut Edges<'_>, task: usize) {
        let t = edges.from.tasks[task];
        // A person who replays what may have run, with a receiver without a key, takes the risk.
        let risky = self.scope.effect == Effect::CallOnce && t.unknown;
        self.cancel(edges, task);
        if self.scope.effect == Effect::Here && t.order == Order::Open {
            self.pay(edges, task);
        }
        self.reschedule(edges, task);
        self.open(edges, task);
        if t.life == Life::Dead {
            if !risky {
                self.replay(edges, task);
            }
            self.judge(edges, task);
        }
    }

    /// `dueline.under_way`, of a task that its caller has locked.
    fn under_way(&self, t: &Task) -> Found {
        let leased = t.leased() && self.on(Guard::ReceiptSeesLease);
        if t.life == Life::Done {
            Found::Finished
        } else if self.scope.effect == Effect::Here {
            if leased { Found::WillBeDropped } else { Found::Free }
        } else if t.dedupe == Outcome::Done {
            Found::Finished
        } else if t.dedupe == Outcome::InProgress && self.on(Guard::ReceiptSeesToken) {
            if t.until_over { Found::MayHaveRun } else { Found::Running }
        } else if t.unknown || leased || t.loose && self.on(Guard::LooseSticks) {
            Found::MayHaveRun
        } else if t.dedupe == Outcome::Failed {
            Found::Free
        } else if (t.attempt > 0 || t.life == Life::Dead) && self.on(Guard::ReceiptSeesTries) {
            Found::MayHaveRun
        } else {
            Found::Free
        }
    }

    fn cancel(&self, edges: &mut Edges<'_>, task: usize) {
        let mut to = *edges.from;
        to.common.clients -= 1;
        let (step, breach) = self.cancel_in(&mut to, task);
        edges.check(Kind::Client, Who::Client, step, task as u8, to, breach);
        if !self.on(Guard::ReceiptLocksAlarm) {
            self.cancel_and_claim(edges, task);
        }
    }

    /// The alarm is not locked while the receipt is worked out: a claim comes between.
    fn cancel_and_claim(&self, edges: &mut Edges<'_>, task: usize) {
        let s = edges.from;
        let t = &s.tasks[task];
        let relay = match s.common.lane {
            Claimant::RelayA => 0,
            Claimant::RelayB => 1,
            _ => return,
        };
        let Some(hand) = s.free_hand() else { return };
        if t.lease != Lease::Waiting || t.phase != Phase::Rings || s.relays[relay].down {
            return;
        }
        let found = self.under_way(t);
        let mut to = self.claimed(s, hand, relay, task);
        to.common.clients -= 1;
        let breach = self.make_cancelled(&mut to, task, found, Step::Cancel);
        edges.check(
            Kind::Client,
            Who::Client,
            "cancel, with a claim between",
            task as u8,
            to,
            breach,
        );
    }

    fn cancel_in(&self, to: &mut State, task: usize) -> (&'static str, Option<Breach>) {
        let t = &mut to.tasks[task];
        match t.life {
            Life::Done | Life::Skipped => return ("cancel: finished", finished_is_true(t)),
            Life::Cancelled | Life::Unscheduled => return ("cancel: as before", None),
            Life::Live | Life::Dead => {}
        }
        let found = self.under_way(t);
        match found {
            Found::Finished => ("cancel: finished", finished_is_true(t)),
            Found::Running => {
                t.wish = true;
                ("cancel: running", None)
            }
            _ => {
                let breach = self.make_cancelled(to, task, found, Step::Cancel);
                let step = match found {
                    Found::Free => "cancel: cancelled",
                    Found::WillBeDropped => "cancel: published_will_be_dropped",
                    _ => "cancel: may_have_run",
                };
                (step, breach)
            }
        }
    }

    fn make_cancelled(
        &self,
        to: &mut State,
        task: usize,
        found: Found,
        step: Step,
    ) -> Option<Breach> {
        let renew = self.on(Guard::CancelRenews);
        let t = &mut to.tasks[task];
        let breach = promise(t, found).or(t.become_by(step, Life::Cancelled));
        t.generation = (t.generation + u8::from(renew)).min(7);
        t.lettered = false;
        t.silence();
        to.touch(task as u8);
        breach
    }

    /// Pays, then cancels, in one transaction.
    fn pay(&self, edges: &mut Edges<'_>, task: usize) {
        let s = edges.from;
        if (0..PAIR).any(|consumer| locks_order(s, consumer, task as u8)) {
            return;
        }
        let mut to = *s;
        to.common.clients -= 1;
        to.tasks[task].order = Order::Paid;
        // The re-check is for those who forget to cancel.
        edges.add(Kind::Client, Who::Client, "pay", task as u8, to);
        let (_, breach) = self.cancel_in(&mut to, task);
        edges.check(Kind::Client, Who::Client, "pay, then cancel", task as u8, to, breach);
    }

    fn reschedule(&self, edges: &mut Edges<'_>, task: usize) {
        let mut to = *edges.from;
        to.common.clients -= 1;
        let t = &mut to.tasks[task];
        let found = self.under_way(t);
        let step = match found {
            Found::Finished => {
                let breach = finished_is_true(t);
                edges.check(
                    Kind::Client,
                    Who::Client,
                    "reschedule: finished",
                    task as u8,
                    to,
                    breach,
                );
                return;
            }
            Found::Running => return,
            Found::Free => "reschedule: rescheduled",
            Found::WillBeDropped => "reschedule: published_will_be_dropped",
            Found::MayHaveRun => "reschedule: may_have_run",
        };
        let renew = self.on(Guard::RescheduleRenews);
        let breach = promise(t, found);
        let breach =
            breach.or(self.make_live(&mut to, task, Step::Reschedule, renew, Phase::Early));
        edges.check(Kind::Client, Who::Client, step, task as u8, to, breach);
    }

    /// `schedule` with `keep`, of a key that is there.
    fn open(&self, edges: &mut Edges<'_>, task: usize) {
        let mut to = *edges.from;
        to.common.clients -= 1;
        if !matches!(to.tasks[task].life, Life::Cancelled | Life::Skipped) {
            return;
        }
        let renew = self.on(Guard::OpenRenews);
        let breach = self.make_live(&mut to, task, Step::Open, renew, Phase::Early);
        edges.check(Kind::Client, Who::Client, "schedule: reopened", task as u8, to, breach);
    }

    /// A person replays a dead letter: of this death, or of an earlier one.
    fn replay(&self, edges: &mut Edges<'_>, task: usize) {
        let t = &edges.from.tasks[task];
        for generation in 0..8 {
            let this = generation == t.generation;
            let lettered = t.letters & (1 << generation) != 0;
            if !(this || lettered && !self.on(Guard::ReplayGeneration)) {
                continue;
            }
            let mut to = *edges.from;
            to.common.clients -= 1;
            let renew = self.on(Guard::ReplayRenews);
            let breach = self.make_live(&mut to, task, Step::Replay, renew, Phase::Rings);
            let wrong = (Invariant::V6, "the letter of an earlier death was acted upon");
            let breach = if this { breach } else { Some(wrong) };
            edges.check(Kind::Client, Who::Client, "replay", task as u8, to, breach);
        }
    }

    /// A person's verdict: it did happen; it is not wanted.
    fn judge(&self, edges: &mut Edges<'_>, task: usize) {
        let mut to = *edges.from;
        to.common.clients -= 1;
        let mut discarded = to;
        let t = &mut to.tasks[task];
        let breach = t.become_by(Step::Resolve, Life::Done);
        t.generation = (t.generation + 1).min(7);
        t.dedupe = Outcome::Done;
        t.resolved = true;
        t.lettered = false;
        edges.check(Kind::Client, Who::Client, "resolve", task as u8, to, breach);
        // Discard promises nothing.
        let breach = self.make_cancelled(&mut discarded, task, Found::MayHaveRun, Step::Discard);
        edges.check(Kind::Client, Who::Client, "discard", task as u8, discarded, breach);
    }

    /// `dueline.make_live`.
    fn make_live(
        &self,
        to: &mut State,
        task: usize,
        step: Step,
        renew: bool,
        phase: Phase,
    ) -> Option<Breach> {
        let t = &mut to.tasks[task];
        let had_alarm = t.lease != Lease::Absent;
        let breach = t.become_by(step, Life::Live);
        t.generation = (t.generation + u8::from(renew)).min(7);
        t.attempt = 0;
        t.wish = false;
        t.lettered = false;
        t.silence();
        t.wait();
        t.phase = phase;
        to.touch(task as u8);
        if !had_alarm && !self.on(Guard::FenceIsKept) {
            // The fence begins anew: one that was seen before may come again.
            for (hand, message) in &mut to.hands {
                if hand.stage != Stage::Free && usize::from(message.task) == task {
                    (hand.fresh, hand.wild) = (true, true);
                }
            }
        }
        breach
    }
}

fn schedule(edges: &mut Edges<'_>, task: usize) {
    let mut to = *edges.from;
    let t = &mut to.tasks[task];
    t.life = Life::Live;
    t.lease = Lease::Waiting;
    edges.add(Kind::Plain, Who::Client, "schedule: scheduled", task as u8, to);
    to.tasks[task].behind = true;
    to.tasks[task].phase = Phase::Rings;
    edges.fault(Who::Client, "schedule, committed behind the watermark", task as u8, to, None);
}

/// What a receipt promises; a breach when it was untrue already.
fn promise(t: &mut Task, found: Found) -> Option<Breach> {
    if !matches!(found, Found::Free | Found::WillBeDropped) {
        return None;
    }
    t.promised = t.promised.max(t.generation + 1);
    (t.effects > 0).then_some((Invariant::Receipt, "promised no effect, but it had happened"))
}

fn finished_is_true(t: &Task) -> Option<Breach> {
    let untrue = t.effects == 0 && !t.resolved && t.life != Life::Skipped;
    untrue.then_some((Invariant::Receipt, "answered finished, but nothing had happened"))
}
