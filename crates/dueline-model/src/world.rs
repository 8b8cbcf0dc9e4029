//! Time, Kafka's faults, and the writers of dead letters.

use crate::guard::Guard;
use crate::model::{Edges, Effect, Invariant, Kind, Model, Who};
use crate::state::{Fate, LOG, Lease, Letter, Life, Message, Outcome, Phase, Slot, State};

impl Model {
    /// Time passes; the clock jumps.
    pub(crate) fn clock(&self, edges: &mut Edges<'_>) {
        let s = edges.from;
        for (n, t) in s.tasks[..self.scope.tasks].iter().enumerate() {
            let task = n as u8;
            if t.life == Life::Live && t.phase != Phase::Rings {
                let mut to = *s;
                to.tasks[n].phase = Phase::Rings;
                edges.add(Kind::Plain, Who::Clock, "the alarm rings", task, to);
            }
            let waits_for_token = t.postponed && t.dedupe == Outcome::InProgress && !t.until_over;
            if t.lease == Lease::Running && !waits_for_token {
                let mut to = *s;
                to.tasks[n].lease = Lease::Over;
                if s.on_its_way(task) {
                    edges.fault(
                        Who::Clock,
                        "the lease ends although a message is alive",
                        task,
                        to,
                        None,
                    );
                } else {
                    edges.add(Kind::Plain, Who::Clock, "the lease ends", task, to);
                }
            }
            if t.dedupe == Outcome::InProgress && !t.until_over {
                let mut to = *s;
                to.tasks[n].until_over = true;
                let held = s.consumers[usize::from(t.holder)].1.iter().any(|(item, m)| {
                    m.task == task && !item.fate.is_final() && item.fate != Fate::Taken
                });
                if held {
                    edges.fault(Who::Clock, "the token ends while it is held", task, to, None);
                } else {
                    edges.add(Kind::Plain, Who::Clock, "the token ends", task, to);
                }
            }
        }
        if s.tasks.iter().any(|t| t.life == Life::Live && t.phase != Phase::Early) {
            let mut to = *s;
            for t in to.tasks.iter_mut().filter(|t| t.life == Life::Live) {
                t.phase = Phase::Early;
                if t.leased() {
                    t.lease = Lease::Far;
                }
            }
            // A failover: what was open is rolled back. A call that was begun is not called back.
            if self.scope.effect == Effect::Here {
                to.roll_back(0);
                to.roll_back(1);
            }
            if self.scope.effect != Effect::Team {
                edges.fault(Who::Clock, "goes back", 0, to, None);
            }
        }
    }

    /// What Kafka loses or gives twice.
    pub(crate) fn kafka(&self, edges: &mut Edges<'_>) {
        let s = edges.from;
        let empty = s.log.iter().all(|(r, _)| r.slot == Slot::Empty);
        for foreign in [false, true] {
            if empty {
                break;
            }
            let mut to = *s;
            to.log = Default::default();
            for t in to.tasks.iter_mut().filter(|t| t.leased()) {
                t.foreign_topic |= foreign;
                t.passed &= !foreign;
            }
            to.common.deaf |= foreign && s.common.partition != 0 && !self.on(Guard::LogBeginsAnew);
            let what = if foreign { "topic deleted and made again" } else { "records deleted" };
            edges.fault(Who::Kafka, what, 0, to, None);
        }
        let idle = s
            .consumers
            .iter()
            .all(|(_, items)| items.iter().all(|(item, _)| item.fate == Fate::Absent));
        if idle && !empty {
            let mut to = *s;
            // Empty ones pass without a trace.
            (0..LOG).for_each(|_| to.pass_first());
            edges.fault(Who::Kafka, "the group's offset is set to the end", 0, to, None);
        }
        if s.has_room() {
            for task in 0..self.scope.tasks {
                self.again(edges, task);
            }
        }
    }

    /// The group's offset goes back: an older message is read again, before all others.
    fn again(&self, edges: &mut Edges<'_>, task: usize) {
        let s = edges.from;
        let t = &s.tasks[task];
        if t.life == Life::Unscheduled {
            return;
        }
        let (generation, attempt) = (t.generation, t.attempt);
        let this_try = attempt == 0 || t.life != Life::Live || t.leased();
        let old = [
            this_try.then_some((generation, attempt)),
            attempt.checked_sub(1).map(|attempt| (generation, attempt)),
            generation.checked_sub(1).map(|generation| (generation, 0)),
        ];
        let written = |(generation, _): &(u8, u8)| t.published & (1 << generation) != 0;
        for (generation, attempt) in old.into_iter().flatten().filter(written) {
            let mut to = *s;
            let message = Message { task: task as u8, generation, attempt, body: generation };
            to.append(message, false);
            let end = to.log.iter().filter(|(r, _)| r.slot != Slot::Empty).count();
            to.log[..end].rotate_right(1);
            let t = &mut to.tasks[task];
            if t.passed && t.speaks(&message) {
                t.passed = false;
                to.log[0].0.young |= 1 << task;
            }
            // Whoever reads the partition starts again there.
            to.rewind();
            edges.fault(Who::Kafka, "the group's offset is set back", task as u8, to, None);
        }
    }

    /// Dead letters: in the consumer that buried a task, and in the leading relay.
    pub(crate) fn letters(&self, edges: &mut Edges<'_>) {
        let s = edges.from;
        for (writer, letter) in s.letters.iter().enumerate() {
            let who = [Who::Consumer(0), Who::Relay(0)][writer];
            if letter.busy {
                self.write_letter(edges, writer, *letter, who);
            } else if writer == 1 && self.on(Guard::MissingLetters) {
                missing_letters(edges, self.scope.tasks, who);
            }
        }
    }

    fn write_letter(&self, edges: &mut Edges<'_>, writer: usize, letter: Letter, who: Who) {
        let mut to = *edges.from;
        let t = &mut to.tasks[usize::from(letter.task)];
        if !letter.written {
            t.letters |= 1 << letter.generation;
            to.letters[writer].written = true;
            edges.add(Kind::Plain, who, "letter: delivered", letter.task, to);
            let mut to = *edges.from;
            to.clear_letter(writer);
            edges.fault(who, "letter: not delivered", letter.task, to, None);
            return;
        }
        let same = t.generation == letter.generation;
        let hit =
            t.life == Life::Dead && !t.lettered && (same || !self.on(Guard::LetterGeneration));
        let mut breach = None;
        if hit {
            t.lettered = true;
            let told = t.letters & (1 << t.generation) != 0;
            breach =
                (!told).then_some((Invariant::V6, "lettered, but no letter tells of this death"));
        }
        to.clear_letter(writer);
        edges.check(Kind::Plain, who, "lettered", letter.task, to, breach);
    }
}

fn missing_letters(edges: &mut Edges<'_>, tasks: usize, who: Who) {
    let s = edges.from;
    if s.relays.iter().all(|relay| relay.down) {
        return;
    }
    for (n, t) in s.tasks[..tasks].iter().enumerate() {
        let told = |l: &Letter| l.busy && usize::from(l.task) == n && l.generation == t.generation;
        // Not while its consumer is still at it: that is the grace.
        if t.life == Life::Dead && !t.lettered && !s.letters.iter().any(told) {
            let mut to: State = *s;
            let (task, generation) = (n as u8, t.generation);
            to.letters[1] = Letter { busy: true, written: false, task, generation };
            edges.add(Kind::Plain, who, "letters_missing", task, to);
        }
    }
}
