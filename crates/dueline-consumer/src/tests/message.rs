use super::*;
use dueline_core::Micros;
use dueline_core::envelope::source_uri;

fn instance(timeline: i32) -> Instance {
    Instance {
        name: "shop".into(),
        uuid: uuid::Uuid::nil(),
        system_identifier: "1".into(),
        timeline,
        schema_version: 1,
        oldest_binary: "0.1.0".into(),
    }
}

fn sorter() -> Sorter {
    let kinds = HashMap::from([(Arc::from("close_order"), 64)]);
    Sorter { queue: "orders".into(), instance: instance(2), kinds }
}

fn envelope() -> Envelope {
    Envelope {
        task_id: 42,
        source: source_uri("shop", &uuid::Uuid::nil(), 2),
        kind: "close_order".into(),
        key: "1001".into(),
        key_hash: KeyHash::new("orders", "close_order", "1001"),
        generation: 1,
        attempt: 0,
        delivery: 1,
        due_at: Micros(1),
        claimed_at: Micros(2),
        traceparent: None,
    }
}

fn record(envelope: &Envelope, value: Option<&[u8]>) -> OwnedRecord {
    let mut headers = Vec::new();
    envelope.write_headers(|name, value| headers.push((name.to_owned(), value.to_vec())));
    OwnedRecord {
        topic: Arc::from("t.orders.10s"),
        partition: 0,
        offset: 7,
        timestamp_ms: 0,
        key: Some(envelope.key.clone().into_bytes()),
        value: value.map(<[u8]>::to_vec),
        headers,
    }
}

fn broken(sorted: Sorted) -> Box<Broken> {
    match sorted {
        Sorted::Broken(broken) => broken,
        other => panic!("broken expected, found {other:?}"),
    }
}

#[test]
fn a_good_message_becomes_a_task() {
    for (value, expected) in
        [(None, None), (Some(&b""[..]), None), (Some(b"{\"a\":1}"), Some("{\"a\":1}"))]
    {
        let Sorted::Task(message) = sorter().sort(record(&envelope(), value), 3) else {
            panic!("a task expected")
        };
        assert_eq!(message.task.payload.as_deref().map(RawValue::get), expected);
        assert_eq!(
            (message.task.id, message.origin.assignment, message.origin.record.offset),
            (42, 3, 7)
        );
    }
}

#[test]
fn h35_sources_are_told_apart() {
    let from = |timeline, name: &str| {
        let mut envelope = envelope();
        envelope.source = source_uri(name, &uuid::Uuid::nil(), timeline);
        sorter().sort(record(&envelope, None), 0)
    };
    assert!(matches!(from(1, "shop"), Sorted::Stale(_)), "before the failover");
    assert!(matches!(from(3, "shop"), Sorted::Held(..)), "after one that we have not seen");
    assert!(matches!(from(2, "clone"), Sorted::Held(..)));
}

#[test]
fn h14_a_newer_message_is_left_in_place() {
    let mut newer = record(&envelope(), None);
    newer.headers.push((header::VERSION.to_owned(), b"2".to_vec()));
    let Sorted::Held(_, reason) = sorter().sort(newer, 0) else { panic!("held expected") };
    assert!(reason.contains("upgrade"), "{reason}");
}

#[test]
fn h14_what_is_wrong_with_a_message_decides_its_reason() {
    let sorter = sorter();
    let large = [b'1'; 65];
    let cases: [(&[u8], Reason); 3] = [
        (b"{", Reason::Undecodable),
        (b"\xff\xfe", Reason::Undecodable),
        (&large, Reason::Oversized),
    ];
    for (value, reason) in cases {
        let broken = broken(sorter.sort(record(&envelope(), Some(value)), 0));
        assert_eq!((broken.reason, broken.task_id), (reason, Some(42)));
    }
    let mut unknown = envelope();
    unknown.kind = "refund".into();
    assert_eq!(broken(sorter.sort(record(&unknown, None), 0)).reason, Reason::UnknownKind);
    let mut forged = envelope();
    forged.key = "1002".into();
    assert_eq!(broken(sorter.sort(record(&forged, None), 0)).reason, Reason::Undecodable);
}

#[test]
fn h25_what_a_stranger_wrote_is_quoted_on_one_short_line() {
    let sorter = sorter();
    let strange = "a\u{1b}[2J\n\0".repeat(500);
    let mut foreign = envelope();
    foreign.source.clone_from(&strange);
    let Sorted::Held(_, held) = sorter.sort(record(&foreign, None), 0) else { panic!("held") };
    let mut unknown = envelope();
    unknown.kind.clone_from(&strange);
    let error = broken(sorter.sort(record(&unknown, None), 0)).error;
    for text in [held, error] {
        assert!(text.len() < 1_200 && !text.chars().any(char::is_control), "{text:?}");
    }
}

#[test]
fn h14_an_id_counts_only_with_our_source() {
    let sorter = sorter();
    let mut bare = record(&envelope(), None);
    bare.headers.clear();
    assert_eq!(broken(sorter.sort(bare, 0)).task_id, None);
    let mut without_generation = record(&envelope(), None);
    without_generation.headers.retain(|(name, _)| name != header::GENERATION);
    let broken = broken(sorter.sort(without_generation, 0));
    assert_eq!(broken.task_id, Some(42));
    assert_eq!(broken.guard(), (Some(envelope().key_hash), None, Some(0)));
}
