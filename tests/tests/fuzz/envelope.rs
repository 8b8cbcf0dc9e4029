//! Headers of task messages.

use anyhow::{Result, bail, ensure};
use dueline_core::envelope::{ENVELOPE_VERSION, EnvelopeError, header, source_uri};
use dueline_core::{Envelope, KeyHash, Micros};

use super::dice::Dice;
use super::harness;

/// Headers, to be bent.
pub type Headers = Vec<(String, Vec<u8>)>;

/// Every name that an envelope has.
pub const NAMES: [&str; 16] = [
    header::SPEC_VERSION,
    header::ID,
    header::SOURCE,
    header::TYPE,
    header::SUBJECT,
    header::TIME,
    header::VERSION,
    header::TASK_ID,
    header::KIND,
    header::KEY_HASH,
    header::GENERATION,
    header::ATTEMPT,
    header::DELIVERY,
    header::CLAIMED_AT,
    header::TRACEPARENT,
    header::CONTENT_TYPE,
];

/// The queue and kind of good messages.
pub const QUEUE: &str = "orders";
pub const KIND: &str = "close_order";

/// A good envelope of the instance `shop` on timeline 2.
pub fn good(dice: &mut Dice) -> Envelope {
    let key = if dice.one_in(4) { dice.text() } else { dice.below(1_000).to_string() };
    Envelope {
        task_id: dice.bits() as i64,
        source: source_uri("shop", &uuid::Uuid::nil(), 2),
        kind: KIND.to_owned(),
        key_hash: KeyHash::new(QUEUE, KIND, &key),
        key,
        generation: dice.below(3) as i32,
        attempt: dice.below(3) as i32,
        delivery: 1,
        due_at: Micros(dice.below(1 << 50) as i64),
        claimed_at: Micros(dice.below(1 << 50) as i64),
        traceparent: dice.one_in(3).then(|| dice.text()),
    }
}

/// The headers of an envelope.
pub fn headers_of(envelope: &Envelope) -> Headers {
    let mut headers = Headers::new();
    envelope.write_headers(|name, value| headers.push((name.to_owned(), value.to_vec())));
    headers
}

/// Headers as a failure shows them.
pub fn readable(headers: &Headers) -> String {
    let one = |(name, value): &(String, Vec<u8>)| format!("{name:?}: \"{}\"", value.escape_ascii());
    headers.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Spoils headers: values bent or replaced, names lost, doubled, bent, in another order.
pub fn spoil(dice: &mut Dice, headers: &mut Headers) {
    for _ in 0..dice.below(4) {
        if headers.is_empty() {
            headers.push(((*dice.pick(&NAMES)).to_owned(), dice.bytes(40)));
        }
        let at = dice.below(headers.len());
        match dice.below(9) {
            0 => drop(headers.remove(at)),
            1 => headers[at].1 = dice.text().into_bytes(),
            2 => headers[at].1 = dice.number().into_bytes(),
            3 => headers[at].1 = dice.bytes(60),
            4 => headers[at].0 = dice.text(),
            5 => {
                let twice = headers[at].clone();
                headers.push(twice);
            }
            6 => headers.push(((*dice.pick(&NAMES)).to_owned(), dice.text().into_bytes())),
            7 => headers.reverse(),
            _ => dice.bend(&mut headers[at].1),
        }
    }
}

#[test]
fn h14_any_headers_are_an_envelope_or_a_reason() -> Result<()> {
    harness::run(harness::ENVELOPE, &["good", "missing", "malformed", "newer"], |dice| {
        let mut headers = headers_of(&good(dice));
        spoil(dice, &mut headers);
        dice.show(|| readable(&headers));
        // Whatever else is wrong, this is asked of every broken message.
        let identity = Envelope::read_identity(&headers);
        let error = match Envelope::read(&headers) {
            Ok(envelope) => {
                ensure!(identity == Some((envelope.task_id, envelope.source.as_str())));
                let again = Envelope::read(&headers_of(&envelope));
                ensure!(again == Ok(envelope), "written again it reads as {again:?}");
                return Ok("good");
            }
            Err(error) => error,
        };
        let text = error.to_string();
        ensure!(text.len() < 500, "the reason has {} bytes", text.len());
        ensure!(!text.chars().any(char::is_control), "the reason is not one line: {text:?}");
        Ok(match error {
            EnvelopeError::Missing(name) => {
                ensure!(text.contains(name) && NAMES.contains(&name), "{text}");
                "missing"
            }
            EnvelopeError::Malformed { name, reason } => {
                ensure!(text.contains(name) && !reason.is_empty(), "{text}");
                "malformed"
            }
            EnvelopeError::Body { reason } => bail!("an envelope has no body: {reason}"),
            EnvelopeError::Newer(version) => {
                ensure!(version > ENVELOPE_VERSION, "{version}");
                "newer"
            }
        })
    })
}
