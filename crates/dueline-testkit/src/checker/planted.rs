//! The judge is judged: sound evidence passes, and each planted bug is caught by its invariant.

use dueline_core::envelope::source_uri;
use dueline_core::{Envelope, KeyHash, Micros, TaskState};

use super::evidence::*;
use super::{Passed, Probe, all_hold, judge};

const DUE: Micros = Micros(10_000_000);
const LATER: Micros = Micros(10_005_000);
const TOPIC: &str = "t.orders.fast";

fn task(id: i64, state: TaskState) -> Task {
    Task {
        id,
        kind: "close".into(),
        key: id.to_string(),
        queue: "orders".into(),
        tier: "fast".into(),
        state,
        generation: 0,
        attempt: 0,
        due_at: DUE,
        finished_at: (state != TaskState::Live).then_some(LATER),
        alarm: None,
        deduped: state == TaskState::Done,
        stranded: None,
    }
}

fn event(task_id: i64, step: &str, to: TaskState, generation: i32, attempt: i32) -> Event {
    let from = Some(TaskState::Live);
    let error = (step == "fail").then(|| "the gateway did not answer".to_owned());
    Event { task_id, step: step.into(), from, to: Some(to), generation, attempt, error }
}

fn published(id: i64, offset: i64) -> Published {
    let envelope = Envelope {
        task_id: id,
        source: source_uri("shop", &uuid::Uuid::nil(), 1),
        kind: "close".into(),
        key: id.to_string(),
        key_hash: KeyHash::new("orders", "close", &id.to_string()),
        generation: 0,
        attempt: 0,
        delivery: 1,
        due_at: DUE,
        claimed_at: LATER,
        traceparent: None,
    };
    Published { topic: TOPIC.into(), partition: 0, offset, envelope: Some(envelope) }
}

fn heard(id: i64, answer: Answer) -> Heard {
    Heard { kind: "close".into(), key: id.to_string(), answer }
}

/// Task 1 is done, 2 skipped, 3 cancelled, 4 died in its first attempt.
fn sound() -> Evidence {
    let mut cancelled = task(3, TaskState::Cancelled);
    cancelled.generation = 1;
    let mut dead = task(4, TaskState::Dead);
    (dead.generation, dead.attempt) = (1, 1);
    dead.stranded = Some(Stranded { generation: 1, attempts: 1, lettered: true });
    Evidence {
        tasks: vec![task(1, TaskState::Done), task(2, TaskState::Skipped), cancelled, dead],
        events: vec![
            event(3, "cancel", TaskState::Cancelled, 1, 0),
            event(4, "fail", TaskState::Dead, 1, 1),
        ],
        published: vec![published(1, 0), published(2, 1), published(4, 2)],
        letters: vec![Letter { task: Some((4, 1)), origin: None }],
        offsets: vec![Offset {
            group: "g".into(),
            topic: TOPIC.into(),
            partition: 0,
            committed: Some(3),
            low: 0,
            end: 3,
        }],
        effects: vec![Effect { kind: "close".into(), key: "1".into(), at: LATER }],
        heard: (1..=4)
            .map(|id| heard(id, Answer::Scheduled(DUE)))
            .chain([heard(3, Answer::Cancelled)])
            .collect(),
        business_objects: 4,
        ..Evidence::default()
    }
}

/// Which invariants are broken once `plant` has been at the evidence.
fn broken_by(plant: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    let mut evidence = sound();
    plant(&mut evidence);
    let broken = judge(&evidence).into_iter().filter(|finding| finding.violations > 0);
    broken.map(|finding| finding.invariant).collect()
}

fn caught(invariant: &str, plant: impl FnOnce(&mut Evidence)) {
    let broken = broken_by(plant);
    assert!(broken.contains(&invariant), "{invariant} is not among {broken:?}");
}

#[test]
fn sound_evidence_passes() {
    let findings = judge(&sound());
    assert!(all_hold(&findings), "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.checked > 0), "something was not looked at");
}

#[test]
fn v1_a_lost_and_an_unfinished_task() {
    caught("V1", |e| e.heard.push(heard(9, Answer::Scheduled(DUE))));
    caught("V1", |e| e.tasks.push(task(9, TaskState::Live)));
    caught("V1", |e| e.tasks[3].stranded = None);
}

#[test]
fn v2_an_effect_twice_none_or_uncalled_for() {
    caught("V2", |e| e.effects.push(e.effects[0].clone()));
    caught("V2", |e| e.effects.clear());
    caught("V2", |e| e.effects[0].key = "2".into());
}

#[test]
fn v3_an_early_effect_and_an_early_publish() {
    caught("V3", |e| e.effects[0].at = Micros(DUE.0 - 1));
    caught("V3", |e| {
        if let Some(envelope) = &mut e.published[0].envelope {
            envelope.claimed_at = Micros(DUE.0 - 1);
        }
    });
}

#[test]
fn v4_an_effect_after_a_cancel_and_before_the_new_deadline() {
    caught("V4", |e| e.effects[0].key = "3".into());
    caught("V4", |e| e.heard.push(heard(1, Answer::Rescheduled(Micros(LATER.0 + 1)))));
}

#[test]
fn v5_both_paid_and_closed() {
    caught("V5", |e| e.contradictions.push("order 1".into()));
}

#[test]
fn v6_death_letter_and_attempts() {
    caught("V6", |e| e.letters.clear());
    caught("V6", |e| e.letters.push(Letter { task: Some((1, 1)), origin: None }));
    caught("V6", |e| e.tasks[3].attempt = 2);
    caught("V6", |e| e.own_failures = vec!["the card is blocked"]);
    caught("V6", |e| e.tasks[0].stranded = e.tasks[3].stranded.clone());
    caught("V6", |e| {
        if let Some(row) = &mut e.tasks[3].stranded {
            row.lettered = false;
        }
    });
}

#[test]
fn v7_a_message_passed_without_an_answer() {
    caught("V7", |e| {
        e.tasks[0].state = TaskState::Live;
        e.tasks[0].alarm = Some(Alarm { generation: 0, attempt: 0, claim_no: 1, leased: true });
    });
    caught("V7", |e| e.published[0].envelope = None);
}

#[test]
fn v7_a_message_that_was_passed_while_work_went_on() {
    caught("V7", |e| {
        let passed = Passed { record: e.published[0].clone(), committed: 1 };
        e.probes.add(Probe { checked: 1, passed: vec![passed] });
    });
}

#[test]
fn v7_a_message_that_was_deleted_needs_no_answer() {
    let broken = broken_by(|e| {
        let passed = Passed { record: e.published[0].clone(), committed: 1 };
        e.lost.push(e.published[0].clone());
        e.probes.add(Probe { checked: 1, passed: vec![passed] });
    });
    assert!(!broken.contains(&"V7"));
}

#[test]
fn v7_offsets_that_somebody_moved_are_not_ours() {
    let moved = |offset| {
        broken_by(|e| {
            e.published[0].envelope = None;
            e.moved_offsets.push((TOPIC.into(), 0, offset));
        })
    };
    assert!(!moved(1).contains(&"V7") && moved(0).contains(&"V7"));
}

#[test]
fn v3_an_early_publish_into_a_topic_that_is_gone() {
    caught("V3", |e| {
        let mut record = e.published[0].clone();
        if let Some(envelope) = &mut record.envelope {
            envelope.claimed_at = Micros(DUE.0 - 1);
        }
        e.lost.push(record);
    });
}

#[test]
fn v8_a_backlog() {
    caught("V8", |e| e.offsets[0].committed = Some(2));
    caught("V8", |e| e.offsets[0].committed = None);
}

#[test]
fn v9_a_forbidden_step_and_tables_that_differ() {
    caught("V9", |e| e.events[1].from = Some(TaskState::Done));
    caught("V9", |e| e.events[0].generation = 0);
    caught("V9", |e| e.tasks[0].deduped = false);
    caught("V9", |e| e.orphans.push("alarm 7".into()));
    caught("V9", |e| {
        e.tasks[0].alarm = Some(Alarm { generation: 0, attempt: 0, claim_no: 1, leased: true });
    });
    caught("V9", |e| e.tasks[1].generation = 1);
}
