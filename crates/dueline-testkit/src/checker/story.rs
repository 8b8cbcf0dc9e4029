//! What a task's row and its recorded steps must be like (V9).

use dueline_core::TaskState;
use dueline_core::state::Step;

use super::evidence::{Event, Task};
use super::judge::name;

/// What stands beside a task's row must fit its state.
pub(super) fn wrong_row(task: &Task) -> Option<String> {
    let live = task.state == TaskState::Live;
    if task.alarm.is_some() != live {
        let has = if live { "no" } else { "an" };
        return Some(format!("{} is {} and has {has} alarm", name(task), task.state));
    }
    if let Some(alarm) = &task.alarm
        && (alarm.generation, alarm.attempt) != (task.generation, task.attempt)
    {
        return Some(format!("{} and its alarm differ", name(task)));
    }
    (task.deduped != (task.state == TaskState::Done)).then(|| {
        let has = if task.deduped { "a" } else { "no" };
        format!("{} is {} and has {has} dedupe row", name(task), task.state)
    })
}

/// The recorded transitions of a task must be allowed, one after the other.
pub(super) fn wrong_story(task: &Task, events: &[&Event]) -> Option<String> {
    let mut generation = 0;
    for event in events {
        let wrong = |what: &str| Some(format!("{}: step {} {what}", name(task), event.step));
        let Some(step) = step_of(event) else {
            // A refused wish is noted and changes nothing.
            if event.from != event.to || event.generation != generation {
                return wrong("is unknown and changed something");
            }
            continue;
        };
        let Some(from) = event.from else { return wrong("has no state before") };
        if from.after(step) != event.to {
            return wrong(&format!("led from {from} to {:?}", event.to));
        }
        generation += i32::from(TaskState::renews_generation(step));
        if event.generation != generation {
            return wrong(&format!("has generation {}, not {generation}", event.generation));
        }
    }
    (generation != task.generation)
        .then(|| format!("{} has generation {}, not {generation}", name(task), task.generation))
}

fn step_of(event: &Event) -> Option<Step> {
    Some(match (event.step.as_str(), event.to) {
        ("fail" | "die", Some(TaskState::Dead)) => Step::Die,
        ("fail", _) => Step::Fail,
        ("settle", _) => Step::Done,
        ("park", _) => Step::Park,
        ("open", _) => Step::Open,
        ("reschedule", _) => Step::Reschedule,
        ("cancel", _) => Step::Cancel,
        ("replay", _) => Step::Replay,
        ("resolve", _) => Step::Resolve,
        ("discard", _) => Step::Discard,
        _ => return None,
    })
}
