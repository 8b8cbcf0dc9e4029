//! A path as a table: a line for each step, with the state that it led to.

use std::fmt;

use crate::explore::Violation;
use crate::model::Who;
use crate::state::{Fate, Slot, Stage, State, Task};

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |n: &usize| if *n == 0 { 'A' } else { 'B' };
        match self {
            Self::Relay(n) => write!(f, "relay {}", letter(n)),
            Self::Consumer(n) => write!(f, "consumer {}", letter(n)),
            Self::Client => f.write_str("client"),
            Self::Clock => f.write_str("clock"),
            Self::Kafka => f.write_str("kafka"),
            Self::Receiver => f.write_str("receiver"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}: {}", self.invariant, self.what)?;
        let mut before: Option<&State> = None;
        for (number, (edge, state)) in self.path.iter().enumerate() {
            if let Some(edge) = edge {
                let task = if state.tasks[1] == Task::default() {
                    String::new()
                } else {
                    format!(" (task {})", edge.task)
                };
                write!(
                    f,
                    "{number:4}  {:<11} {:<52}",
                    edge.who.to_string(),
                    edge.step.to_owned() + &task
                )?;
                writeln!(f, " {}", changes(before, state))?;
            }
            before = Some(state);
        }
        Ok(())
    }
}

/// The parts of the state that a step has changed.
fn changes(before: Option<&State>, now: &State) -> String {
    let parts = |state: &State| -> Vec<String> {
        let mut parts: Vec<String> = state.tasks.iter().map(row).collect();
        parts.push(format!("topic[{}]", topic(state)));
        parts.extend(state.hands.iter().map(|(hand, m)| match hand.stage {
            Stage::Free => String::new(),
            stage => {
                let stale = if hand.stale() { " stale" } else { "" };
                format!("hand[{stage:?} g{} a{}{stale}]", m.generation, m.attempt)
            }
        }));
        for (n, (_, items)) in state.consumers.iter().enumerate() {
            let held = items.iter().filter(|(item, _)| item.fate != Fate::Absent);
            let held: Vec<String> = held
                .map(|(i, m)| format!("{:?} g{} a{}", i.fate, m.generation, m.attempt))
                .collect();
            parts.push(format!("consumer {}[{}]", ["A", "B"][n], held.join(", ")));
        }
        parts
    };
    let old = before.map(parts).unwrap_or_default();
    let changed = parts(now).into_iter().enumerate().filter(|(n, part)| old.get(*n) != Some(part));
    changed.map(|(_, part)| part).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ")
}

fn row(t: &Task) -> String {
    let mut text = format!(
        "task[{:?} g{} a{}, alarm {:?} {:?}, order {:?}",
        t.life, t.generation, t.attempt, t.lease, t.phase, t.order
    );
    if t.dedupe != crate::state::Outcome::Absent {
        text += &format!(", dedupe {:?}", t.dedupe);
    }
    if t.effects > 0 {
        text += &format!(", effects {}", t.effects);
    }
    if t.promised > 0 {
        text += &format!(", promised none up to g{}", t.promised - 1);
    }
    text + "]"
}

fn topic(state: &State) -> String {
    let records = state.log.iter().filter(|(record, _)| record.slot != Slot::Empty);
    let texts =
        records.map(|(record, m)| format!("g{} a{} {:?}", m.generation, m.attempt, record.slot));
    texts.collect::<Vec<_>>().join(", ")
}
