//! A scope, the guards that are on, and the edges out of a state.

use crate::guard::{Guard, Guards};
use crate::state::{
    Claimant, Fate, Hand, Lease, Letter, Life, Message, PAIR, Phase, Record, Slot, Stage, State,
    Task,
};
use dueline_core::TaskState;
use dueline_core::state::Step;

/// Attempts of a task; the last failure ends it.
pub(crate) const ATTEMPTS: u8 = 2;
/// Deaths of consumers at one message, after which it is failed for good.
pub(crate) const MARKS: u8 = 2;

/// What is promised, and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A way out to a finished task, without faults; done means that the effect happened.
    V1,
    /// At most one effect.
    V2,
    /// Nothing before the due time.
    V3,
    /// No effect after a promise that there is none.
    V4,
    /// Never both paid and closed.
    V5,
    /// Dead, stranded and letter agree; attempts are failures of their own.
    V6,
    /// A committed offset passes nothing unanswered.
    V7,
    /// A way out to a drained system, without faults.
    V8,
    /// Only the steps of the protocol; a write with a stale fence or guard changes nothing.
    V9,
    /// A receipt tells the truth of what had happened when it was given.
    Receipt,
}

impl Invariant {
    /// All of them, in order.
    pub const ALL: [Self; 10] = [
        Self::V1,
        Self::V2,
        Self::V3,
        Self::V4,
        Self::V5,
        Self::V6,
        Self::V7,
        Self::V8,
        Self::V9,
        Self::Receipt,
    ];
}

/// Where an effect happens, and who handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// In the transaction that settles the task.
    Here,
    /// Elsewhere, begun in the deadline database; the receiver honours the idempotency key.
    Call,
    /// As `Call`, by a receiver that takes no key.
    CallOnce,
    /// Elsewhere, by another team's consumer that does not `begin`.
    Team,
}

/// What part of the world is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Its name.
    pub name: &'static str,
    /// The kind of every task.
    pub effect: Effect,
    /// One task or two.
    pub tasks: usize,
    /// Faults on one path.
    pub faults: u8,
    /// Consumed without an answer so often, a task is parked: more often than there are faults, unless parking
    /// itself is looked at.
    pub unanswered: u8,
    /// Calls by clients and persons on one path, beside the first schedule.
    pub clients: u8,
}

/// Whose doing an edge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A step of the protocol, or time passing: always possible again.
    Plain,
    /// A client or a person.
    Client,
    /// A fault.
    Fault,
    /// The sweep gives up and calls a person: no way out that V1 counts on.
    Park,
}

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Relay A or B.
    Relay(usize),
    /// Consumer A or B.
    Consumer(usize),
    /// Clients and persons.
    Client,
    /// The database's clock.
    Clock,
    /// Kafka.
    Kafka,
    /// The receiver of calls elsewhere.
    Receiver,
}

/// A broken invariant: which, and what happened.
pub type Breach = (Invariant, &'static str);

/// One possible next step.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Whose doing.
    pub kind: Kind,
    /// Who acts.
    pub who: Who,
    /// The step, as the code calls it.
    pub step: &'static str,
    /// The task, where it matters.
    pub task: u8,
    /// Where it leads.
    pub to: State,
    /// What it breaks.
    pub breach: Option<Breach>,
}

/// The edges out of one state.
pub(crate) struct Edges<'a> {
    pub from: &'a State,
    pub list: &'a mut Vec<Edge>,
}

impl Edges<'_> {
    pub fn add(&mut self, kind: Kind, who: Who, step: &'static str, task: u8, to: State) {
        self.check(kind, who, step, task, to, None);
    }

    pub fn check(
        &mut self,
        kind: Kind,
        who: Who,
        step: &'static str,
        task: u8,
        to: State,
        breach: Option<Breach>,
    ) {
        self.list.push(Edge { kind, who, step, task, to, breach });
    }

    /// A step that costs one of the faults left; nothing when none is left.
    pub fn fault(
        &mut self,
        who: Who,
        step: &'static str,
        task: u8,
        mut to: State,
        breach: Option<Breach>,
    ) {
        if self.from.common.faults > 0 {
            to.common.faults -= 1;
            self.check(Kind::Fault, who, step, task, to, breach);
        }
    }
}

/// The protocol within a scope, with or without some of its guards.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// What is explored.
    pub scope: Scope,
    /// The guards that are on.
    pub guards: Guards,
}

impl Model {
    pub(crate) fn on(&self, guard: Guard) -> bool {
        self.guards.has(guard)
    }

    /// Before anything was scheduled.
    #[must_use]
    pub fn start(&self) -> State {
        let mut state = State::default();
        state.common.lane = Claimant::RelayA;
        state.common.partition = 1;
        state.common.faults = self.scope.faults;
        state.common.clients = self.scope.clients;
        state
    }

    /// Appends every edge out of `from`.
    pub fn edges(&self, from: &State, list: &mut Vec<Edge>) {
        let mut edges = Edges { from, list };
        self.clock(&mut edges);
        self.relays(&mut edges);
        self.kafka(&mut edges);
        self.consumers(&mut edges);
        self.letters(&mut edges);
        self.clients(&mut edges);
    }

    /// Whether every task is finished; and lettered where dead; and nothing is under way any more.
    #[must_use]
    pub fn rest(&self, s: &State) -> (bool, bool, bool) {
        let tasks = &s.tasks[..self.scope.tasks];
        let finished = tasks.iter().all(|t| t.life != Life::Live);
        let lettered = finished && tasks.iter().all(|t| t.life != Life::Dead || t.lettered);
        let idle = s.log.iter().all(|(r, _)| r.slot == Slot::Empty)
            && s.hands.iter().all(|(h, _)| h.stage == Stage::Free)
            && s.consumers
                .iter()
                .all(|(_, items)| items.iter().all(|(i, _)| i.fate == Fate::Absent))
            && s.letters.iter().all(|letter| !letter.busy);
        (finished, lettered, lettered && idle)
    }
}

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
