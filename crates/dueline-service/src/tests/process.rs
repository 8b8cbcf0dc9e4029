//! What a whole process does: signals, log lines, panics. The test runs its own binary again, with one
//! of the ignored tests below as the process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use dueline_config::{Log, LogFormat};

use crate::{exit, logging, shutdown};

const READY: &str = "ready for signals";

fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test binary"));
    command.args(["--exact", &format!("tests::process::{name}"), "--ignored", "--nocapture"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn json_log() -> Log {
    Log { format: LogFormat::Json, level: "info".to_owned() }
}

#[tokio::test]
#[ignore = "a process that other tests start"]
async fn waits_for_signals() {
    logging::init(&json_log()).expect("first");
    let stop = shutdown::on_signal().expect("handlers");
    tracing::info!(READY);
    stop.cancelled().await;
    // A drain that never ends: only a second signal, or the test's patience, ends it.
    std::future::pending::<()>().await;
}

#[test]
#[ignore = "a process that other tests start"]
fn logs_what_a_stranger_wrote() {
    logging::init(&json_log()).expect("first");
    let key = "1\n{\"level\":\"ERROR\",\"message\":\"forged\"}\u{1b}[2J";
    let span = tracing::info_span!("task", id = 7, kind = "close_order", key);
    let _entered = span.enter();
    tracing::warn!(error = %key, "attempt failed");
    let _ = std::thread::Builder::new()
        .name("worker".to_owned())
        .spawn(|| panic!("two\nlines"))
        .expect("a thread")
        .join();
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

fn wait_for(lines: &mut impl Iterator<Item = String>, text: &str) {
    assert!(lines.any(|line| line.contains(text)), "{text:?} is not logged");
}

#[test]
fn h32_the_first_signal_stops_and_the_second_ends_at_once() {
    for (first, second) in [("-TERM", "-TERM"), ("-INT", "-TERM")] {
        let mut child = child("waits_for_signals").spawn().expect("starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut lines = stderr.lines().map_while(Result::ok);
        wait_for(&mut lines, READY);
        signal(&child, first);
        wait_for(&mut lines, "stopping");
        assert!(child.try_wait().expect("a child").is_none(), "the first signal only asks");
        signal(&child, second);
        let code = child.wait().expect("ended").code();
        assert_eq!(code, Some(i32::from(exit::FORCED)));
    }
}

#[test]
fn h25_one_event_is_one_line_and_a_panic_is_one() {
    let Output { status, stderr, .. } = child("logs_what_a_stranger_wrote").output().expect("runs");
    assert!(status.success());
    let text = String::from_utf8(stderr).expect("UTF-8");
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for line in &lines {
        assert!(line.starts_with("{\"timestamp\"") && line.ends_with('}'), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
    // G1: the span's fields stand in the event's line.
    assert!(lines[0].contains("\"kind\":\"close_order\"") && lines[0].contains("\"id\":7"));
    assert!(lines[1].contains("\"panic\":\"two\\nlines\""), "{}", lines[1]);
    assert!(lines[1].contains("\"thread\":\"worker\""), "{}", lines[1]);
    assert!(lines[1].contains("tests/process.rs"), "{}", lines[1]);
}
