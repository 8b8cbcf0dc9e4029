use super::*;

const NOW: Micros = Micros(1_796_083_200_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn ask(level: Option<u64>, key: Option<&[u8]>, headers: &[HeaderRef<'_>]) -> Result<Ask, Refusal> {
    let targets = Targets::new(["orders", "mail.*"], ["mail.own".to_owned()]);
    let rules = Rules { targets: &targets, max_delay: 90 * DAY, max_message_bytes: 1_000 };
    let level = level.map(Duration::from_secs);
    let sent = Sent { level, key, value: None, headers, timestamp: Some(NOW) };
    read(&sent, &rules, NOW)
}

fn due(headers: &[HeaderRef<'_>]) -> Result<Micros, &'static str> {
    let mut all: Vec<HeaderRef<'_>> = vec![(header::TARGET, Some(b"orders"))];
    all.extend_from_slice(headers);
    match ask(None, None, &all) {
        Ok(Ask::Message(request)) => Ok(request.due_at),
        Ok(Ask::Command(_)) => Err("command"),
        Err(refusal) => Err(refusal.reason()),
    }
}

fn refused(level: Option<u64>, key: Option<&[u8]>, headers: &[HeaderRef<'_>]) -> &'static str {
    ask(level, key, headers).expect_err("refused").reason()
}

#[test]
fn q3_durations_are_read_in_both_forms() {
    for (text, micros) in [
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("2d", 172_800_000_000),
        ("250ms", 250_000),
        ("1m1ms", 60_001_000),
        ("0s", 0),
        ("PT5M", 300_000_000),
        ("P1D", 86_400_000_000),
        ("P1DT1H", 90_000_000_000),
        ("PT0.5S", 500_000),
        ("PT1M0.0000001S", 60_000_001),
    ] {
        assert_eq!(parse_duration(text), Some(Duration::from_micros(micros)), "{text}");
    }
    for text in [
        "",
        "5",
        "s",
        "-5s",
        "+5s",
        "5 s",
        "5x",
        "1m1h",
        "1s1s",
        "1.5s",
        "P",
        "PT",
        "P1M",
        "P1Y",
        "P1DT",
        "PT5",
        "PT1.S",
        "PT.5S",
        "PT1.5M",
        "PT1.0000000001S",
        "PT5m",
        "５s",
        "1é",
        "99999999999999999999s",
        "9999999999999999d",
    ] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}

#[test]
fn q3_any_delay_or_instant_says_when() {
    assert_eq!(due(&[(header::DELAY, Some(b"90s"))]), Ok(Micros(NOW.0 + 90_000_000)));
    let utc = due(&[(header::DELIVER_AT, Some(b"2026-12-01T01:00:00+01:00"))]);
    assert_eq!(utc, Ok(Micros::parse_rfc3339("2026-12-01T00:00:00Z").expect("parses")));
    let millis = (NOW.0 / 1_000 + 5).to_string();
    assert_eq!(due(&[(header::DELIVER_AT, Some(millis.as_bytes()))]), Ok(Micros(NOW.0 + 5_000)));
    for text in
        ["", "tomorrow", "2026-12-01T00:00:00", "-5", "9999999999999999999", "1969-12-31T23:59:59Z"]
    {
        assert_eq!(due(&[(header::DELIVER_AT, Some(text.as_bytes()))]), Err("bad_delay"), "{text}");
    }
    assert_eq!(due(&[]), Err("bad_delay"));
    let both: [HeaderRef<'_>; 2] = [(header::DELAY, Some(b"1s")), (header::DELIVER_AT, Some(b"1"))];
    assert_eq!(due(&both), Err("bad_delay"));
    assert_eq!(due(&[(header::DELAY, Some(b"91d"))]), Err("too_far"));
    let twice: [HeaderRef<'_>; 2] = [(header::DELAY, Some(b"1s")), (header::DELAY, Some(b"1s"))];
    assert_eq!(due(&twice), Err("bad_header"));
    assert_eq!(due(&[(header::DELAY, None)]), Err("bad_header"));
    assert_eq!(due(&[(header::DELAY, Some(b"\xff"))]), Err("bad_header"));
}

#[test]
fn q3_a_level_is_the_delay_and_no_header_contradicts_it() {
    let target: HeaderRef<'_> = (header::TARGET, Some(b"orders"));
    let Ok(Ask::Message(request)) = ask(Some(5), None, &[target]) else { panic!("a message") };
    assert_eq!((request.due_at, request.hops), (Micros(NOW.0 + 5_000_000), 1));
    assert_eq!(refused(Some(5), None, &[target, (header::DELAY, Some(b"1s"))]), "bad_delay");
}

#[test]
fn h05_a_wrong_clock_of_the_sender_does_not_hold_a_message_back() {
    let ahead = |seconds| NOW.plus(Duration::from_secs(seconds));
    assert_eq!(event_time(Some(ahead(60)), NOW), ahead(60));
    assert_eq!(event_time(Some(ahead(61)), NOW), NOW);
    assert_eq!(event_time(Some(NOW.minus(DAY)), NOW), NOW.minus(DAY));
    assert_eq!(event_time(Some(Micros(-1_000)), NOW), NOW);
    assert_eq!(event_time(None, NOW), NOW);
}

#[test]
fn q3_only_allowed_targets_never_our_own_topics() {
    for (target, reason) in [
        ("", "no_target"),
        ("ordersx", "target_not_allowed"),
        ("Orders", "target_not_allowed"),
        ("mail.own", "target_not_allowed"),
        ("mail.a b", "target_not_allowed"),
        ("mail.\u{e9}", "target_not_allowed"),
    ] {
        let header: HeaderRef<'_> = (header::TARGET, Some(target.as_bytes()));
        assert_eq!(refused(Some(1), None, &[header]), reason, "{target}");
    }
    assert_eq!(refused(Some(1), None, &[]), "no_target");
    assert!(ask(Some(1), None, &[(header::TARGET, Some(b"mail.out"))]).is_ok());
    assert!(!Targets::new(["*"], []).allow(".."));
    assert!(!Targets::new(["*"], []).allow(&"x".repeat(250)));
}

#[test]
fn q3_commands_need_a_key_and_are_known() {
    let command = |word: &'static [u8]| -> [HeaderRef<'static>; 2] {
        [(header::TARGET, Some(b"orders")), (header::CONTROL, Some(word))]
    };
    let to = |reschedule_to| {
        Ok(Ask::Command(DelayCommand { target: "orders".into(), reschedule_to, receipt: None }))
    };
    assert_eq!(ask(None, Some(b""), &command(b"cancel")), to(None));
    let later = Some(Micros(NOW.0 + 5_000_000));
    assert_eq!(ask(Some(5), Some(b"k"), &command(b"reschedule")), to(later));
    assert_eq!(refused(None, Some(b"k"), &command(b"reschedule")), "bad_delay");
    assert_eq!(refused(None, None, &command(b"cancel")), "no_key");
    assert_eq!(refused(None, Some(b"k"), &command(b"Cancel")), "bad_control");
}

#[test]
fn h14_size_hops_and_receipts_are_bounded() {
    let target: HeaderRef<'_> = (header::TARGET, Some(b"orders"));
    let with = |name, value| ask(Some(1), None, &[target, (name, Some(value))]);
    assert_eq!(with("x", &[0; 1_000]).expect_err("large").reason(), "too_large");
    assert_eq!(with(header::HOPS, b"8"), Err(Refusal::Loop));
    assert_eq!(with(header::HOPS, b"-1"), Err(Refusal::Loop));
    let Ok(Ask::Message(last)) = with(header::HOPS, b"7") else { panic!("a message") };
    assert_eq!(last.hops, MAX_HOPS);
    let long = "é".repeat(MAX_RECEIPT_CHARS);
    assert!(with(header::RECEIPT, long.as_bytes()).is_ok());
    for bad in ["", "a\nb", &format!("{long}x")] {
        assert_eq!(with(header::RECEIPT, bad.as_bytes()), Err(Refusal::BadReceipt));
    }
}

#[test]
fn q3_headers_arrive_untouched_in_their_order() {
    let sent: [HeaderRef<'_>; 7] = [
        ("a", Some(b"\x00\xff")),
        (header::TARGET, Some(b"orders")),
        ("a", None),
        (header::HOPS, Some(b"1")),
        ("Dueline-Target", Some(b"x")),
        (header::RECEIPT, Some(b"r")),
        ("", Some(b"")),
    ];
    let id = message_id("Zm9v", 3, 17);
    let stamp = Stamp { id: &id, due_at: NOW, sent_at: NOW.plus(DAY), hops: 2 };
    let arrived = forwarded(&sent, &stamp);
    let names: Vec<&str> = arrived.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["a", "a", "Dueline-Target", "", header::ID, header::DUE_AT, header::SENT_AT, header::HOPS]
    );
    assert_eq!(arrived[0].1.as_deref(), Some(b"\x00\xff".as_slice()));
    assert_eq!(arrived[1].1, None);
    assert_eq!(arrived[4].1.as_deref(), Some(b"Zm9v-3-17".as_slice()));
    assert_eq!(arrived[7].1.as_deref(), Some(b"2".as_slice()));
}

/// A small generator with a fixed seed: what fails once fails always.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn v3_property_no_request_is_due_before_its_delay_is_over() {
    let mut random = Random(6);
    for _ in 0..20_000 {
        let micros = random.below(7_000_000_000);
        let nanos = random.below(1_000);
        let text = format!("PT{}.{:06}{nanos:03}S", micros / 1_000_000, micros % 1_000_000);
        let due = due(&[(header::DELAY, Some(text.as_bytes()))]).expect("a duration");
        let exact =
            i128::from(NOW.0 + i64::try_from(micros).expect("fits")) * 1_000 + i128::from(nanos);
        let late = i128::from(due.0) * 1_000 - exact;
        assert!((0..1_000).contains(&late), "{text} is {late} ns late");
    }
}

#[test]
fn h14_property_no_input_panics_and_what_is_taken_keeps_the_rules() {
    let names = header::REQUEST.into_iter().chain(header::ARRIVED).chain(["x"]).collect::<Vec<_>>();
    let values: [&[u8]; 12] = [
        b"orders",
        b"mail.x",
        b"mail.own",
        b"5s",
        b"PT1H",
        b"P",
        b"cancel",
        b"reschedule",
        b"9",
        b"\xff\xfe",
        b"",
        b"2026-12-02T00:00:00Z",
    ];
    let mut random = Random(7);
    let mut taken = 0;
    for _ in 0..50_000 {
        let mut headers: Vec<HeaderRef<'_>> = vec![(header::TARGET, Some(values[0]))];
        for _ in 0..random.below(4) {
            let name = names[usize::try_from(random.below(names.len() as u64)).expect("small")];
            let value = usize::try_from(random.below(values.len() as u64)).expect("small");
            headers.push((name, (random.below(9) > 0).then_some(values[value])));
        }
        let level = (random.below(2) == 0).then_some(5);
        if let Ok(Ask::Message(request)) = ask(level, None, &headers) {
            taken += 1;
            assert_eq!(request.target, "orders");
            assert!(request.due_at <= NOW.plus(90 * DAY));
            assert!((1..=MAX_HOPS).contains(&request.hops));
        }
    }
    assert!(taken > 1_000, "only {taken} requests were taken");
}
