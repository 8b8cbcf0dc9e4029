//! Headers of dead letters, as `dueline dlq --from topic` reads them: anybody may have written them.

use anyhow::{Result, ensure};
use dueline_core::letter::{DeadTask, MAX_ERROR_CHARS, Origin, Reason};
use dueline_core::{DeadLetter, Micros};

use super::dice::Dice;
use super::envelope::{self, Headers};
use super::harness;

fn good(dice: &mut Dice) -> DeadLetter {
    let envelope = envelope::good(dice);
    let task = DeadTask {
        source: envelope.source,
        task_id: envelope.task_id,
        generation: envelope.generation,
        kind: envelope.kind,
        key: envelope.key,
        key_hash: envelope.key_hash,
        attempts: envelope.attempt,
    };
    let origin = Origin { topic: dice.text(), partition: 0, offset: dice.bits() as i64 };
    DeadLetter {
        reason: *dice.pick(&Reason::ALL),
        error: dice.text(),
        queue: envelope::QUEUE.to_owned(),
        at: Micros(dice.below(1 << 50) as i64),
        task: (!dice.one_in(4)).then_some(task),
        origin: (!dice.one_in(4)).then_some(origin),
    }
}

fn headers_of(letter: &DeadLetter) -> Headers {
    let headers = letter.headers().into_iter();
    headers.map(|(name, value)| (name.to_owned(), value.into_bytes())).collect()
}

#[test]
fn h14_any_headers_are_a_letter_or_none() -> Result<()> {
    harness::run(harness::LETTER, &["of a task", "of no task", "none"], |dice| {
        let mut headers = headers_of(&good(dice));
        envelope::spoil(dice, &mut headers);
        dice.show(|| envelope::readable(&headers));
        let Some(mut letter) = DeadLetter::read(&headers) else { return Ok("none") };
        let again = DeadLetter::read(&headers_of(&letter));
        letter.error = letter.error.chars().take(MAX_ERROR_CHARS).collect();
        let of_task = letter.task.is_some();
        ensure!(again.as_ref() == Some(&letter), "written again it reads as {again:?}");
        Ok(if of_task { "of a task" } else { "of no task" })
    })
}
