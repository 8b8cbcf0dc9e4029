use dueline_store::Timestamptz;

use super::*;

const TAKEOVER: Duration = Duration::from_secs(3);

fn at(seconds: i64) -> Timestamptz {
    Timestamptz(Micros(1_800_000_000_000_000 + seconds * 1_000_000))
}

/// Scheduled at 0, due at 100, seen at 40, in a lane whose owner showed life at 39.
fn base() -> Facts {
    Facts {
        now: at(40),
        id: 7,
        queue: "orders".into(),
        kind: "close_order".into(),
        key: "1001".into(),
        key_hash: Default::default(),
        tier: "10m".into(),
        state: "live".into(),
        generation: 0,
        attempt: 0,
        due_at: at(100),
        created_at: at(0),
        published_at: None,
        finished_at: None,
        last_error: None,
        payload: None,
        headers: None,
        max_attempts: 4,
        consumer_group: "g".into(),
        next_at: Some(at(100)),
        lease_until: None,
        claimed_at: None,
        claim_epoch: None,
        claim_no: Some(0),
        unanswered: Some(0),
        extensions: Some(0),
        lane: Some(3),
        lane_tier: Some("10m".into()),
        slot: Some(0),
        lane_epoch: Some(1),
        owner_name: Some("relay-a".into()),
        owner_heartbeat_at: Some(at(39)),
        owner_ended_at: None,
        owner_ended_why: None,
        owner_cannot_produce: None,
        open_relays: 1,
        dedupe_outcome: None,
        dedupe_finished_at: None,
        dedupe_until: None,
        dead_reason: None,
        dead_error: None,
        dead_history: None,
        dead_attempts: None,
        died_at: None,
        lettered_at: None,
    }
}

/// Seen 50 s after it was due, its owner alive.
fn overdue_facts() -> Facts {
    Facts { now: at(150), owner_heartbeat_at: Some(at(149)), ..base() }
}

fn published_facts() -> Facts {
    Facts { lease_until: Some(at(170)), claimed_at: Some(at(110)), ..overdue_facts() }
}

fn seen(members: usize, committed: Option<i64>, offset: Option<i64>) -> InTopic {
    InTopic {
        topic: "dueline.orders.10m".into(),
        group: "g".into(),
        outcomes: None,
        message: Message::Seen { partition: 2, members, committed, log_start: 0, offset },
    }
}

fn event(step: &str, to: &str, detail: &str) -> Event {
    Event {
        at: at(30),
        step: step.into(),
        from_state: Some("live".into()),
        to_state: Some(to.into()),
        generation: 1,
        attempt: 0,
        actor: "app".into(),
        detail: Some(detail.into()),
    }
}

fn headline(facts: &Facts, in_topic: Option<&InTopic>) -> String {
    explain(facts, &[], in_topic, TAKEOVER).headline
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
}

#[test]
fn c02_not_due_yet() {
    says(&headline(&base(), None), &["not due yet", "due in 1 m"]);
}

#[test]
fn c02_in_backoff_after_which_error() {
    let facts = Facts {
        attempt: 1,
        next_at: Some(at(160)),
        last_error: Some("gateway timeout".into()),
        ..overdue_facts()
    };
    says(&headline(&facts, None), &["in backoff", "gateway timeout", "in 10 s"]);
    let explanation = explain(&facts, &[], None, TAKEOVER);
    says(&explanation.details.join("\n"), &["attempt 1 of 4"]);
}

#[test]
fn c02_nobody_walks_its_lane() {
    let none = Facts { open_relays: 0, lane_epoch: None, owner_name: None, ..overdue_facts() };
    says(&headline(&none, None), &["overdue by 50 s", "no relay is running", "lane 3"]);
    let free = Facts { lane_epoch: None, owner_name: None, ..overdue_facts() };
    says(&headline(&free, None), &["no relay owns its lane 3"]);
    let ended = Facts {
        owner_ended_at: Some(at(120)),
        owner_ended_why: Some("stopped".into()),
        ..overdue_facts()
    };
    says(&headline(&ended, None), &["no relay owns", "relay-a", "stopped"]);
    let silent = Facts { owner_heartbeat_at: Some(at(120)), ..overdue_facts() };
    says(&headline(&silent, None), &["relay-a", "silent for 30 s"]);
    let no_lane = Facts { lane: None, ..overdue_facts() };
    let explanation = explain(&no_lane, &[], None, TAKEOVER);
    says(&explanation.headline, &["lane does not exist"]);
    says(&explanation.advice.join("\n"), &["dueline apply"]);
}

#[test]
fn c02_its_owner_cannot_produce_or_is_behind() {
    let broken = Facts { owner_cannot_produce: Some("all brokers down".into()), ..overdue_facts() };
    says(&headline(&broken, None), &["cannot produce", "all brokers down"]);
    says(&headline(&overdue_facts(), None), &["overdue by 50 s", "backlog"]);
    let just = Facts { now: at(100), owner_heartbeat_at: Some(at(100)), ..base() };
    says(&headline(&just, None), &["about to be published"]);
}

#[test]
fn c02_published_and_waiting_at_a_lag() {
    let facts = published_facts();
    says(
        &headline(&facts, Some(&seen(2, Some(90), Some(100)))),
        &["waiting at lag 10", "dueline.orders.10m[2]"],
    );
    says(&headline(&facts, Some(&seen(1, None, Some(100)))), &["lag 100"]);
    let nobody = explain(&facts, &[], Some(&seen(0, Some(90), Some(100))), TAKEOVER);
    says(&nobody.headline, &["lag 10", "group g has no members"]);
    says(&nobody.advice.join("\n"), &["dueline-consumer"]);
}

#[test]
fn c02_published_consumed_lost_or_unknown() {
    let facts = published_facts();
    says(&headline(&facts, Some(&seen(1, Some(101), Some(100)))), &["consumed", "not answered"]);
    says(&headline(&facts, Some(&seen(1, Some(90), None))), &["no message has come"]);
    let asked = |message| InTopic { topic: "t".into(), group: "g".into(), outcomes: None, message };
    let unknown = asked(Message::Unknown { error: "timed out".into() });
    says(&headline(&facts, Some(&unknown)), &["Kafka does not say"]);
    says(&headline(&facts, Some(&asked(Message::NoTopic))), &["topic t does not exist"]);
}

#[test]
fn c02_a_lease_that_is_over_waits_for_the_sweep() {
    let facts = Facts { lease_until: Some(at(140)), open_relays: 0, ..published_facts() };
    let explanation = explain(&facts, &[], Some(&seen(1, Some(101), Some(100))), TAKEOVER);
    says(&explanation.details.join("\n"), &["ended 10 s ago", "no relay is running"]);
}

#[test]
fn c02_finished_by_whom_and_when() {
    let end = |state: &str| Facts {
        state: state.into(),
        finished_at: Some(at(130)),
        next_at: None,
        ..overdue_facts()
    };
    let done = explain(&end("done"), &[], None, TAKEOVER);
    says(&done.headline, &["done at 2027-01-15T08:02:10Z"]);
    says(&done.details.join("\n"), &["30 s after it was due"]);
    says(&headline(&end("skipped"), None), &["skipped", "condition did not hold"]);
    let events = [event("cancel", "cancelled", r#"{"reason": "paid"}"#)];
    let cancelled = explain(&end("cancelled"), &events, None, TAKEOVER);
    says(&cancelled.headline, &["cancelled", "by app: paid"]);
    let events = [event("resolve", "done", r#"{"who": "ann", "reason": "by hand"}"#)];
    let resolved = explain(&end("done"), &events, None, TAKEOVER);
    says(&resolved.details.join("\n"), &["by ann: by hand"]);
}

#[test]
fn c02_dead_because_and_how_to_replay() {
    let facts = Facts {
        state: "dead".into(),
        next_at: None,
        attempt: 4,
        dead_reason: Some("exhausted".into()),
        dead_error: Some("gateway timeout".into()),
        dead_attempts: Some(4),
        died_at: Some(at(140)),
        ..overdue_facts()
    };
    let explanation = explain(&facts, &[], None, TAKEOVER);
    says(&explanation.headline, &["dead since", "4 failed attempts", "exhausted"]);
    says(&explanation.details.join("\n"), &["gateway timeout", "letter is not written"]);
    says(&explanation.advice.join("\n"), &["dueline dlq replay 7", "resolve 7", "discard 7"]);
}

#[test]
fn an_impossible_row_is_said_to_be_one() {
    says(&headline(&Facts { next_at: None, ..base() }, None), &["without an alarm"]);
}

#[test]
fn c02_a_task_of_another_team_sends_people_to_that_team() {
    let facts = published_facts();
    let team = |in_topic: InTopic| InTopic { outcomes: Some("t.outcomes".into()), ..in_topic };
    let waits = explain(&facts, &[], Some(&team(seen(0, Some(3), Some(5)))), TAKEOVER);
    says(&waits.advice.join("\n"), &["ask those who run group g"]);
    let taken = explain(&facts, &[], Some(&team(seen(2, Some(9), Some(5)))), TAKEOVER);
    says(&taken.details.join("\n"), &["no outcome in t.outcomes"]);
}
