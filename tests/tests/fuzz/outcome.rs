//! Outcomes, as the relay reads them: other teams write them, in any language.

use anyhow::{Result, ensure};
use dueline_core::outcome::{MAX_REASON_CHARS, MAX_RETRY_AFTER_MS, Outcome, Verdict};

use super::dice::Dice;
use super::envelope::{self, Headers};
use super::harness;

fn good(dice: &mut Dice) -> Outcome {
    let envelope = envelope::good(dice);
    let reason = format!("because {}", dice.text());
    let verdict = match dice.below(5) {
        0 => Verdict::Done,
        1 => Verdict::Skipped,
        2 => Verdict::Retry {
            reason,
            after_ms: dice.one_in(2).then(|| dice.bits() % (MAX_RETRY_AFTER_MS + 1)),
        },
        3 => Verdict::Dead { reason },
        _ => Verdict::Working,
    };
    Outcome {
        instance: envelope.source,
        task_id: envelope.task_id,
        key_hash: envelope.key_hash,
        generation: envelope.generation & i32::MAX,
        attempt: envelope.attempt & i32::MAX,
        verdict,
    }
}

fn headers_of(outcome: &Outcome) -> Headers {
    let headers = outcome.headers("o-1", "/team").into_iter();
    headers.map(|(name, value)| (name.to_owned(), value.into_bytes())).collect()
}

#[test]
fn h14_any_record_is_an_outcome_or_a_reason() -> Result<()> {
    harness::run(harness::OUTCOME, &["good", "newer", "broken"], |dice| {
        let outcome = good(dice);
        let (mut headers, mut body) = (headers_of(&outcome), outcome.body().into_bytes());
        if dice.one_in(2) {
            envelope::spoil(dice, &mut headers);
        }
        if dice.one_in(2) {
            dice.bend(&mut body);
        }
        dice.show(|| {
            format!("{} {:?}", envelope::readable(&headers), String::from_utf8_lossy(&body))
        });
        match Outcome::read(&headers, Some(&body)) {
            Ok(read) => {
                if let Some(reason) = read.verdict.reason() {
                    let fits = reason.chars().count() <= MAX_REASON_CHARS;
                    ensure!(fits && !reason.contains('\0'), "{reason:?} is no text for a row");
                }
                let again = Outcome::read(&headers_of(&read), Some(read.body().as_bytes()));
                ensure!(again.as_ref() == Ok(&read), "written again it reads as {again:?}");
                Ok("good")
            }
            Err(error) => {
                let text = error.to_string();
                ensure!(text.len() < 600, "the reason has {} bytes", text.len());
                ensure!(!text.chars().any(char::is_control), "not one line: {text:?}");
                Ok(if error.is_newer() { "newer" } else { "broken" })
            }
        }
    })
}
