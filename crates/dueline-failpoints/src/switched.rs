//! The switches as tests have them.

use std::sync::OnceLock;
use std::time::Duration;

/// Reads `FAILPOINTS`: once, at the start of a process.
///
/// # Panics
/// When the variable is not in the syntax of the crate `fail`: a test that asks for nothing must not pass.
pub fn set_up() {
    // What it gives back would switch the points off again when dropped: they stay for as long as the
    // process does.
    std::mem::forget(fail::FailScenario::setup());
}

/// Marks a place between two durable actions.
///
/// # Panics
/// When `FAILPOINTS` asks this place for something that is not known here.
pub fn reached(point: &'static str) {
    let Some(action) = fail::eval(point, Option::unwrap_or_default) else { return };
    eprintln!("fail point {point}: {action}");
    match action.split_once(':').map(|(what, millis)| (what, millis.parse())) {
        None if action == "kill" => std::process::abort(),
        Some(("delay", Ok(millis))) => std::thread::sleep(Duration::from_millis(millis)),
        _ => panic!("FAILPOINTS asks {point} for `{action}`: it knows `kill` and `delay:<ms>`"),
    }
}

/// Whether this bug is planted: the guard beside the question is then left out.
#[must_use]
pub fn planted(bug: &'static str) -> bool {
    static PLANTED: OnceLock<Option<String>> = OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("DUELINE_PLANTED").ok()).as_deref() == Some(bug)
}
