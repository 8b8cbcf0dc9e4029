//! A scope, the guards that are on, and the edges out of a state.

use crate::guard::{Guard, Guards};
use crate::state::{Claimant, Fate, Life, Slot, Stage, State};

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
