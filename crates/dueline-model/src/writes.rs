//! What several steps do to a state: the small writes that the protocol's statements have in common.

use crate::model::{Breach, Invariant};
use crate::state::{
    Claimant, Fate, Hand, Lease, Letter, Life, Message, PAIR, Phase, Record, Slot, Stage, State,
    Task,
};
use dueline_core::TaskState;
use dueline_core::state::Step;

impl Task {
    pub(crate) fn leased(&self) -> bool {
        matches!(self.lease, Lease::Running | Lease::Over | Lease::Far)
    }

    /// The guard of a message.
    pub(crate) fn speaks(&self, m: &Message) -> bool {
        self.life == Life::Live && self.generation == m.generation && self.attempt == m.attempt
    }

    /// Whether a committed offset may pass this message (V7).
    pub(crate) fn answered(&self, m: &Message) -> bool {
        !(self.speaks(m) && self.leased())
    }

    /// Takes a step of the code's own state machine; a breach of V9 when that has no such step.
    pub(crate) fn become_by(&mut self, step: Step, life: Life) -> Option<Breach> {
        let before = self.life.in_core();
        self.life = life;
        if before.and_then(|state| state.after(step)) == life.in_core() {
            None
        } else {
            Some((Invariant::V9, "a step that the state machine does not have"))
        }
    }

    /// The alarm waits; a claim's marks go.
    pub(crate) fn wait(&mut self) {
        self.lease = Lease::Waiting;
        self.forget_claim();
    }

    /// No alarm.
    pub(crate) fn silence(&mut self) {
        self.lease = Lease::Absent;
        self.phase = Phase::Early;
        self.behind = false;
        self.unanswered = 0;
        self.ignored = 0;
        self.forget_claim();
    }

    fn forget_claim(&mut self) {
        self.claimant = Claimant::default();
        self.confirmed = false;
        self.passed = false;
        self.foreign_topic = false;
        self.extended = false;
        self.postponed = false;
    }

    /// Buries the row: dead, the next generation, stranded without a letter.
    pub(crate) fn bury(&mut self, step: Step, renew: bool) -> Option<Breach> {
        let breach = self.become_by(step, Life::Dead);
        self.generation = (self.generation + u8::from(renew)).min(7);
        self.deaths |= 1 << self.generation;
        self.lettered = false;
        self.silence();
        breach
    }
}

impl Hand {
    /// The alarm was written by somebody else since this hand saw it.
    pub(crate) fn stale(self) -> bool {
        !self.fresh || self.wild
    }
}

impl Life {
    pub(crate) fn in_core(self) -> Option<TaskState> {
        match self {
            Self::Unscheduled => None,
            Self::Live => Some(TaskState::Live),
            Self::Done => Some(TaskState::Done),
            Self::Skipped => Some(TaskState::Skipped),
            Self::Cancelled => Some(TaskState::Cancelled),
            Self::Dead => Some(TaskState::Dead),
        }
    }
}

impl State {
    pub(crate) fn task(&mut self, m: &Message) -> &mut Task {
        &mut self.tasks[usize::from(m.task)]
    }

    pub(crate) fn of(&self, m: &Message) -> &Task {
        &self.tasks[usize::from(m.task)]
    }

    /// A write to the alarm of `task`: every fence that a relay saw is stale.
    pub(crate) fn touch(&mut self, task: u8) {
        for (hand, message) in &mut self.hands {
            hand.fresh &= message.task != task || hand.wild;
        }
    }

    /// The alarm is claimed anew: no record in the topic is as young.
    pub(crate) fn forget_records(&mut self, task: u8) {
        for (record, _) in &mut self.log {
            record.young &= !(1 << task);
        }
    }

    /// Whether a message that speaks of the task's present try is on its way to somebody.
    pub(crate) fn on_its_way(&self, task: u8) -> bool {
        let t = &self.tasks[usize::from(task)];
        let speaks = |m: &Message| m.task == task && t.speaks(m);
        let sent = |stage: Stage| matches!(stage, Stage::Claimed | Stage::Limbo);
        self.hands.iter().any(|(h, m)| sent(h.stage) && speaks(m))
            || self
                .log
                .iter()
                .any(|(r, m)| matches!(r.slot, Slot::Unread | Slot::Taken) && speaks(m))
            || self.consumers.iter().any(|(_, items)| {
                items.iter().any(|(item, m)| item.fate != Fate::Absent && speaks(m))
            })
    }

    /// The log has room for one more record.
    pub(crate) fn has_room(&self) -> bool {
        self.log.iter().any(|(record, _)| record.slot == Slot::Empty)
    }

    /// Appends a record. `claim`: it is of the task's present claim.
    pub(crate) fn append(&mut self, message: Message, claim: bool) {
        let other = 1 - message.task;
        let other_is_older = self.common.second_later == (message.task == 1);
        let mut young = 0;
        self.task(&message).published |= 1 << message.generation;
        if claim {
            young |= 1 << message.task;
            if other_is_older && self.tasks[usize::from(other)].leased() {
                young |= 1 << other;
            }
        }
        if let Some(free) = self.log.iter_mut().find(|(record, _)| record.slot == Slot::Empty) {
            *free = (Record { slot: Slot::Unread, young }, message);
        }
    }

    /// The committed offset passes the first record.
    pub(crate) fn pass_first(&mut self) {
        let (record, _) = self.log[0];
        for task in 0..PAIR {
            if record.young & (1 << task) != 0 && self.tasks[task].leased() {
                self.tasks[task].passed = true;
            }
        }
        self.log.rotate_left(1);
        self.log[self.log.len() - 1] = Default::default();
    }

    /// What the partition's owner had read is read again.
    pub(crate) fn rewind(&mut self) {
        for (record, _) in &mut self.log {
            if matches!(record.slot, Slot::Taken | Slot::Finished) {
                record.slot = Slot::Unread;
            }
        }
    }

    pub(crate) fn free_hand(&self) -> Option<usize> {
        self.hands.iter().position(|(hand, _)| hand.stage == Stage::Free)
    }

    pub(crate) fn clear_hand(&mut self, hand: usize) {
        self.hands[hand] = Default::default();
    }

    pub(crate) fn clear_letter(&mut self, writer: usize) {
        self.letters[writer] = Letter::default();
    }

    /// Hands are interchangeable: equal states are written in one way.
    pub(crate) fn in_order(mut self) -> Self {
        let rank = |(hand, m): &(Hand, Message)| {
            (
                hand.stage as u8,
                hand.relay,
                m.task,
                m.generation,
                m.attempt,
                m.body,
                hand.fresh,
                hand.wild,
            )
        };
        if rank(&self.hands[0]) < rank(&self.hands[1]) {
            self.hands.swap(0, 1);
        }
        self
    }
}
