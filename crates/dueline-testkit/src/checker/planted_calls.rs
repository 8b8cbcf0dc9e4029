//! The judge of calls is judged: every planted lie is caught, and answers that never came allow both
//! outcomes.

use dueline_core::{Micros, TaskState};

use super::evidence::*;
use super::judge;

const DUE: Micros = Micros(10_000_000);

fn call(wish: &'static str, asked_at: i64, told: Told) -> Call {
    Call {
        kind: "close".into(),
        key: "1".into(),
        who: "client".into(),
        wish,
        asked_at: Micros(asked_at),
        told_at: Micros(asked_at + 1_000),
        told,
    }
}

fn receipt(text: &str) -> Told {
    Told::Receipt(text.into(), Some(DUE))
}

fn unknown() -> Told {
    Told::Unknown("connection reset".into())
}

fn task(state: TaskState) -> Task {
    Task {
        id: 1,
        kind: "close".into(),
        key: "1".into(),
        queue: "orders".into(),
        tier: "fast".into(),
        state,
        generation: 0,
        attempt: 0,
        due_at: Micros(0),
        finished_at: Some(DUE),
        alarm: None,
        deduped: state == TaskState::Done,
        stranded: None,
    }
}

/// Which invariants these calls break, with the task in this state and these effects.
fn broken(calls: Vec<Call>, state: Option<TaskState>, effects: &[i64]) -> Vec<&'static str> {
    let effect = |at: &i64| Effect { kind: "close".into(), key: "1".into(), at: Micros(*at) };
    let evidence = Evidence {
        tasks: state.into_iter().map(task).collect(),
        effects: effects.iter().map(effect).collect(),
        calls,
        ..Evidence::default()
    };
    let about_calls = |finding: &super::Finding| {
        finding.violations > 0 && ["V1", "V3", "V4"].contains(&finding.invariant)
    };
    let findings = judge(&evidence).into_iter().filter(about_calls);
    findings.map(|finding| finding.invariant).collect()
}

#[test]
fn v1_what_was_acknowledged_is_there_and_what_was_not_need_not_be() {
    assert_eq!(broken(vec![call("schedule", 0, receipt("scheduled"))], None, &[]), ["V1"]);
    assert!(broken(vec![call("schedule", 0, unknown())], None, &[]).is_empty());
    assert!(broken(vec![call("schedule", 0, Told::Failed("no".into()))], None, &[]).is_empty());
}

#[test]
fn v3_no_effect_before_the_deadline_that_was_told() {
    let calls = || vec![call("schedule", 0, receipt("scheduled"))];
    let done = Some(TaskState::Done);
    assert_eq!(broken(calls(), done, &[DUE.0 - 1]), ["V3"]);
    assert!(broken(calls(), done, &[DUE.0]).is_empty());
    // Somebody may have moved it to an earlier time.
    let moved = || [calls(), vec![call("reschedule", 5_000_000, unknown())]].concat();
    assert!(broken(moved(), done, &[6_000_000]).is_empty());
    assert_eq!(broken(moved(), done, &[4_000_000]), ["V3"]);
}

#[test]
fn v4_a_granted_cancel_is_kept_until_somebody_opens_the_task_again() {
    let calls = || vec![call("cancel", 0, receipt("published_will_be_dropped"))];
    assert!(broken(calls(), Some(TaskState::Cancelled), &[]).is_empty());
    assert_eq!(broken(calls(), Some(TaskState::Done), &[DUE.0]), ["V4"]);
    let opened = || [calls(), vec![call("schedule", 2_000_000, receipt("reopened"))]].concat();
    assert!(broken(opened(), Some(TaskState::Done), &[DUE.0]).is_empty());
    assert_eq!(broken(opened(), Some(TaskState::Done), &[1_000_000]), ["V3", "V4"]);
    // `kept` opens nothing.
    let kept = [calls(), vec![call("schedule", 2_000_000, receipt("kept"))]].concat();
    assert_eq!(broken(kept, Some(TaskState::Done), &[DUE.0]), ["V4"]);
}

#[test]
fn v4_a_granted_reschedule_is_kept() {
    let calls = || vec![call("reschedule", 0, receipt("rescheduled"))];
    assert_eq!(broken(calls(), Some(TaskState::Done), &[DUE.0 - 1]), ["V4"]);
    assert!(broken(calls(), Some(TaskState::Done), &[DUE.0]).is_empty());
}

#[test]
fn v4_a_verdict_that_was_answered_stands() {
    let lost = |wish, receipt_text| {
        broken(vec![call(wish, 0, receipt(receipt_text))], Some(TaskState::Dead), &[])
    };
    assert!(lost("cancel", "cancelled").contains(&"V4"));
    assert!(lost("discard", "discarded").contains(&"V4"));
    assert!(lost("resolve", "resolved").contains(&"V4"));
    assert!(!lost("discard", "stale").contains(&"V4"));
    // Another client's answer crossed it: nobody can say which came last.
    let mut crossed = call("replay", 0, receipt("replayed"));
    crossed.told_at = Micros(500);
    let calls = vec![crossed, call("cancel", 400, receipt("cancelled"))];
    assert!(!broken(calls, Some(TaskState::Dead), &[]).contains(&"V4"));
}
