//! What clients were told, against what came of it. Answers that never came allow either outcome, and
//! end the certainty about what went before.

use std::collections::HashMap;

use dueline_core::{Micros, TaskState};

use super::evidence::{Call, Told};
use super::judge::{Finding, Index, name};

/// Adds what calls say to the findings of V1, V3 and V4.
pub(super) fn judge(index: &Index, v1: &mut Finding, v3: &mut Finding, v4: &mut Finding) {
    let mut by_key: HashMap<(&str, &str), Vec<&Call>> = HashMap::new();
    for call in &index.evidence.calls {
        by_key.entry((&call.kind, &call.key)).or_default().push(call);
    }
    for (of, mut calls) in by_key {
        calls.sort_by_key(|call| call.asked_at);
        acknowledged(index, of, &calls, v1);
        for (place, call) in calls.iter().enumerate() {
            let Told::Receipt(receipt, due_at) = &call.told else { continue };
            let until = next_change(&calls, place);
            match (call.wish, receipt.as_str()) {
                ("cancel", "cancelled" | "published_will_be_dropped") => {
                    cancelled(index, of, until, v4);
                }
                ("reschedule", "rescheduled" | "published_will_be_dropped") => {
                    not_before(index, of, *due_at, until, "its new deadline", v4);
                }
                ("schedule", "scheduled" | "reopened") => {
                    not_before(index, of, *due_at, until, "the deadline it was told", v3);
                }
                _ => {}
            }
        }
        verdict_stands(index, of, &calls, v4);
    }
}

/// When the next call was asked that changed the task, or may have.
fn next_change(calls: &[&Call], place: usize) -> Option<Micros> {
    calls[place + 1..].iter().find(|call| call.may_have_changed()).map(|call| call.asked_at)
}

/// What was acknowledged is there.
fn acknowledged(index: &Index, of: (&str, &str), calls: &[&Call], v1: &mut Finding) {
    let told = calls.iter().any(|call| {
        call.wish == "schedule"
            && matches!(&call.told, Told::Receipt(receipt, _) if receipt != "not_found")
    });
    if told {
        v1.demand_of(of, index.by_key.contains_key(&of), || {
            format!("{} of {} was acknowledged and is lost", of.0, of.1)
        });
    }
}

/// A granted cancel: no effect until somebody opened the task again.
fn cancelled(index: &Index, of: (&str, &str), until: Option<Micros>, v4: &mut Finding) {
    let effects = index.effects_of(of.0, of.1);
    let kept = effects.iter().all(|at| until.is_some_and(|until| *at >= until));
    v4.demand_of(of, kept, || format!("{} of {} was cancelled and took effect", of.0, of.1));
}

/// No effect before the deadline that was told, unless another one was asked for first.
fn not_before(
    index: &Index,
    of: (&str, &str),
    due_at: Option<Micros>,
    until: Option<Micros>,
    what: &str,
    finding: &mut Finding,
) {
    let Some(due_at) = due_at else { return };
    let end = until.map_or(due_at, |until| until.min(due_at));
    let kept = index.effects_of(of.0, of.1).iter().all(|at| *at >= end);
    finding.demand_of(of, kept, || format!("{} of {} took effect before {what}", of.0, of.1));
}

/// The last thing that was certainly granted is how the task stands, if nothing may have come after.
fn verdict_stands(index: &Index, of: (&str, &str), calls: &[&Call], v4: &mut Finding) {
    let Some(last) = calls.iter().rfind(|call| call.may_have_changed()) else { return };
    // Calls of several clients cross: only an answer before the next question is certain.
    let crossed = calls.iter().any(|other| {
        !std::ptr::eq(*other, *last) && other.may_have_changed() && other.told_at > last.asked_at
    });
    let (Told::Receipt(receipt, _), Some(task)) = (&last.told, index.by_key.get(&of)) else {
        return;
    };
    let stands = match receipt.as_str() {
        "cancelled" | "discarded" => Some(TaskState::Cancelled),
        "published_will_be_dropped" if last.wish == "cancel" => Some(TaskState::Cancelled),
        "resolved" => Some(TaskState::Done),
        _ => None,
    };
    if let (Some(stands), false) = (stands, crossed) {
        v4.demand_of(of, task.state == stands, || {
            format!("{} is {}, but {} was answered {receipt}", name(task), task.state, last.wish)
        });
    }
}
