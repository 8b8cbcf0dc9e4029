//! Breadth-first search over packed states, and the search for states without a way out.
//!
//! States are stored whole, not as fingerprints: two different states are never taken for one. A table of
//! indices finds a state by its hash; parents are kept, so that the path to any state is a shortest one.

use std::time::{Duration, Instant};

use crate::model::{Edge, Invariant, Kind, Model};
use crate::pack::{Packed, WORDS};
use crate::state::State;

const NONE: u32 = u32::MAX;

/// How an invariant was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// What happened, in words.
    pub what: &'static str,
    /// The path to it: every state from the start, each with the edge that led to it.
    pub path: Vec<(Option<Edge>, State)>,
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// Edges between them.
    pub transitions: u64,
    /// Steps to the deepest state.
    pub depth: usize,
    /// The time that it took.
    pub took: Duration,
    /// Memory of the search, in bytes.
    pub bytes: usize,
    /// Not all of it: `max_states` was reached.
    pub cut: bool,
    /// At most one for each invariant, the shortest.
    pub violations: Vec<Violation>,
}

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// No more states than this.
    pub max_states: usize,
    /// End as soon as one of these is broken.
    pub until: Option<Invariant>,
}

/// Open addressing over indices into the list of states.
struct Table {
    slots: Vec<u32>,
    used: usize,
}

impl Table {
    fn new() -> Self {
        Self { slots: vec![NONE; 1 << 16], used: 0 }
    }

    /// The place of a state: its index, or the free slot where it belongs.
    fn place(&self, states: &[Packed], state: &Packed) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash(state) & mask;
        while self.slots[at] != NONE && states[self.slots[at] as usize] != *state {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self, states: &[Packed]) {
        self.slots = vec![NONE; self.slots.len() * 2];
        for (index, state) in states.iter().enumerate() {
            let at = self.place(&states[..index], state);
            self.slots[at] = index as u32;
        }
    }
}

fn hash(state: &Packed) -> usize {
    let mut hash = 0_u64;
    for word in state {
        hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (hash ^ (hash >> 32)) as usize
}

/// The search.
pub struct Search<'a> {
    model: &'a Model,
    states: Vec<Packed>,
    parents: Vec<u32>,
    table: Table,
    /// Plain edges of each expanded state, one list after another.
    ways: Vec<u32>,
    way_ends: Vec<usize>,
    /// Per expanded state: finished, lettered, drained.
    rest: Vec<u8>,
    transitions: u64,
    /// Invariant, words, the state before, the edge.
    broken: Vec<(Invariant, &'static str, u32, Edge)>,
}

impl<'a> Search<'a> {
    /// A search that has found nothing yet.
    #[must_use]
    pub fn new(model: &'a Model) -> Self {
        Self {
            model,
            states: Vec::new(),
            parents: Vec::new(),
            table: Table::new(),
            ways: Vec::new(),
            way_ends: Vec::new(),
            rest: Vec::new(),
            transitions: 0,
            broken: Vec::new(),
        }
    }

    /// Explores, then looks for states without a way out.
    #[must_use]
    pub fn run(mut self, limits: Limits) -> Report {
        let began = Instant::now();
        let (depth, cut) = self.walk(limits);
        let mut violations: Vec<Violation> =
            std::mem::take(&mut self.broken).into_iter().map(|b| self.violation(b)).collect();
        let wants = |i: Invariant| limits.until.is_none_or(|until| until == i);
        let done = limits.until.is_some_and(|i| violations.iter().any(|v| v.invariant == i));
        if !done && [Invariant::V1, Invariant::V6, Invariant::V8].into_iter().any(wants) {
            for stuck in self.stuck() {
                if violations.iter().all(|v| v.invariant != stuck.invariant) {
                    violations.push(stuck);
                }
            }
        }
        violations.sort_by_key(|v| v.invariant);
        Report {
            states: self.states.len(),
            transitions: self.transitions,
            depth,
            took: began.elapsed(),
            bytes: self.states.capacity() * WORDS * 8
                + (self.parents.capacity() + self.table.slots.len() + self.ways.capacity()) * 4
                + self.way_ends.capacity() * 8
                + self.rest.capacity(),
            cut,
            violations,
        }
    }

    /// Breadth first; returns the depth, and whether the bound cut it short.
    fn walk(&mut self, limits: Limits) -> (usize, bool) {
        self.insert(&self.model.start(), NONE);
        let mut edges = Vec::with_capacity(64);
        let (mut next, mut level_end, mut depth) = (0, 1, 0);
        while next < self.states.len() {
            if self.states.len() >= limits.max_states.min(NONE as usize - 1) {
                return (depth, true);
            }
            if next == level_end {
                depth += 1;
                level_end = self.states.len();
            }
            let state = State::unpack(&self.states[next]);
            edges.clear();
            self.model.edges(&state, &mut edges);
            for edge in &edges {
                self.follow(edge, next as u32);
            }
            self.way_ends.push(self.ways.len());
            let (finished, lettered, drained) = self.model.rest(&state);
            // Behind an edge that breaks something nobody looked: it may be a way out.
            let unseen = edges.iter().any(|e| e.breach.is_some() && self.counts(e.kind));
            let rest = [finished, lettered, drained].map(|rest| u8::from(rest || unseen));
            self.rest.push(rest[0] | rest[1] << 1 | rest[2] << 2);
            if limits.until.is_some_and(|i| self.broken.iter().any(|b| b.0 == i)) {
                return (depth, true);
            }
            next += 1;
        }
        (depth, false)
    }

    /// An edge that breaks something is noted, and leads nowhere.
    fn follow(&mut self, edge: &Edge, from: u32) {
        self.transitions += 1;
        if let Some((invariant, what)) = edge.breach {
            if self.broken.iter().all(|b| b.0 != invariant) {
                self.broken.push((invariant, what, from, *edge));
            }
            return;
        }
        let to = self.insert(&edge.to, from);
        if self.counts(edge.kind) && to != from {
            self.ways.push(to);
        }
    }

    /// Whether a way out may lead over such an edge.
    fn counts(&self, kind: Kind) -> bool {
        let scope = &self.model.scope;
        kind == Kind::Plain || kind == Kind::Park && scope.unanswered <= scope.faults
    }

    fn insert(&mut self, state: &State, parent: u32) -> u32 {
        let packed = state.in_order().pack();
        let at = self.table.place(&self.states, &packed);
        if self.table.slots[at] != NONE {
            return self.table.slots[at];
        }
        let index = self.states.len() as u32;
        self.states.push(packed);
        self.parents.push(parent);
        self.table.slots[at] = index;
        self.table.used += 1;
        if self.table.used * 3 > self.table.slots.len() * 2 {
            self.table.grow(&self.states);
        }
        index
    }

    /// The nearest states from which no path without faults leads to a finished (lettered, drained) one. States
    /// that were not expanded are given the benefit of the doubt.
    fn stuck(&self) -> Vec<Violation> {
        let kinds = [
            (1, Invariant::V1, "no way out without faults: the task is never finished"),
            (2, Invariant::V6, "no way out without faults: the letter is never written"),
            (4, Invariant::V8, "no way out without faults: the system is never drained"),
        ];
        // Who is stuck for one reason is not reported for the later ones.
        let mut known = vec![false; self.states.len()];
        let mut violations = Vec::new();
        for (bit, invariant, what) in kinds {
            let escapes = self.escapes(bit);
            let new = |index: &usize| !escapes[*index] && !known[*index];
            if let Some(index) = (0..escapes.len()).find(new) {
                violations.push(Violation { invariant, what, path: self.path(index as u32) });
            }
            known = escapes.into_iter().map(|escapes| !escapes).collect();
        }
        violations
    }

    fn escapes(&self, bit: u8) -> Vec<bool> {
        let mut escapes: Vec<bool> = self.rest.iter().map(|rest| rest & bit != 0).collect();
        escapes.resize(self.states.len(), true);
        loop {
            let mut changed = false;
            for index in (0..self.rest.len()).rev() {
                if escapes[index] {
                    continue;
                }
                let start = index.checked_sub(1).map_or(0, |before| self.way_ends[before]);
                let ways = &self.ways[start..self.way_ends[index]];
                if ways.iter().any(|to| escapes[*to as usize]) {
                    escapes[index] = true;
                    changed = true;
                }
            }
            if !changed {
                return escapes;
            }
        }
    }

    fn violation(&self, broken: (Invariant, &'static str, u32, Edge)) -> Violation {
        let (invariant, what, from, edge) = broken;
        let mut path = self.path(from);
        path.push((Some(edge), edge.to));
        Violation { invariant, what, path }
    }

    /// The shortest path to a state; its edges are worked out again.
    fn path(&self, to: u32) -> Vec<(Option<Edge>, State)> {
        let mut indices = vec![to];
        while let Some(parent) = indices.last().map(|i| self.parents[*i as usize]) {
            if parent == NONE {
                break;
            }
            indices.push(parent);
        }
        indices.reverse();
        let mut path = vec![(None, State::unpack(&self.states[indices[0] as usize]))];
        let mut edges = Vec::new();
        for pair in indices.windows(2) {
            let from = State::unpack(&self.states[pair[0] as usize]);
            let to = &self.states[pair[1] as usize];
            edges.clear();
            self.model.edges(&from, &mut edges);
            let edge = edges.iter().find(|e| e.breach.is_none() && e.to.in_order().pack() == *to);
            path.push((edge.copied(), State::unpack(to)));
        }
        path
    }
}
