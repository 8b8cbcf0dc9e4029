//! Command lines, parsed and not run.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use anyhow::{Result, ensure};

use super::dice::Dice;
use super::harness;

/// Lines that are right, to be bent. The words of one line are divided by `|`.
pub const LINES: [&str; 26] = [
    "migrate",
    "apply|--plan|--only|database",
    "topics|yaml|--queue|orders",
    "instance|show",
    "schedule|close_order|1001|--in|30m|--payload|{\"a\":1}|--header|a=b|--jitter|5s",
    "schedule|close_order|1001|--at|2026-11-30T23:59:00Z|--on-conflict|reschedule|--json",
    "schedule|close_order|1|--in|1h|--event-at|2026-11-30T23:59:00+02:00",
    "cancel|close_order|1001|--reason|paid",
    "reschedule|close_order|1001|--in|1h30m|--payload|null|--reason|later",
    "get|close_order|1001|--json",
    "list|--queue|orders|--limit|5|--until|2030-01-01T00:00:00Z",
    "list|--kind|close_order|--after|2026-11-30T23:59:00Z/42",
    "why|1001|--kind|close_order",
    "dlq|list|--reason|exhausted|--since|2h|--until|1h",
    "dlq|show|7|--json",
    "dlq|replay|1|2|3|--who|me|--rate|10|--dry-run",
    "dlq|replay|--all|--force|--dry-run|--key|10*",
    "dlq|resolve|1|--reason|seen|--who|me",
    "dlq|discard|--kind|close_order|--reason|old|--died-of|too_old",
    "dlq|list|--after|x|--limit|3|--key|?",
    "sweep|--once",
    "config|check|--json",
    "--set|relay.lease=90s|config|check",
    "--set|queues.orders.tiers=[{ name = \"a\", max_delay = \"1s\" }]|config|check",
    "--verbose|config|check",
    "bench|burst|--quick|--repeats|1",
];

/// The words of a command line, without the program's name: one that is right, and then bent.
pub fn line(dice: &mut Dice) -> Vec<OsString> {
    let mut words: Vec<OsString> = dice.pick(&LINES).split('|').map(OsString::from).collect();
    for _ in 0..dice.below(4) {
        let at = dice.below(words.len() + 1);
        let word = match dice.below(5) {
            0 => OsString::from_vec(dice.bytes(30)),
            1 => dice.pick(&LINES).split('|').next_back().unwrap_or_default().into(),
            2 => dice.number().into(),
            _ => dice.text().into(),
        };
        match dice.below(4) {
            0 => words.insert(at, word),
            1 if at < words.len() => words[at] = word,
            2 if at < words.len() => drop(words.remove(at)),
            _ if at < words.len() => {
                let mut bytes = std::mem::take(&mut words[at]).into_vec();
                dice.bend(&mut bytes);
                words[at] = OsString::from_vec(bytes);
            }
            _ => words.push(word),
        }
    }
    words
}

#[test]
fn any_command_line_is_understood_or_explained() -> Result<()> {
    harness::run(harness::ARGUMENTS, &["accepted", "refused", "help"], |dice| {
        let mut words = line(dice);
        words.insert(0, "dueline".into());
        dice.show(|| format!("{words:?}"));
        let Err(text) = dueline_cli::check_arguments(words) else { return Ok("accepted") };
        ensure!(!text.trim().is_empty(), "refused without a word");
        ensure!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        if !text.starts_with("error:") {
            return Ok("help");
        }
        // What was wrong, and where to read on.
        ensure!(text.contains("Usage:") || text.contains("--help"), "{text}");
        Ok("refused")
    })
}
