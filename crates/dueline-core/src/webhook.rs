//! A webhook's rules: what an answer means, how a call is signed, which headers tell of the task.
//!
//! A call is a CloudEvents message in HTTP's binary mode, signed as
//! [Standard Webhooks](https://www.standardwebhooks.com) describes.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::envelope::header;

/// The fewest and the most bytes of a signing key, as Standard Webhooks has them.
pub const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The longest pause that a receiver may ask for; a longer one is cut to it.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(7 * 86_400);

/// How a signing key's text begins.
const KEY_PREFIX: &str = "whsec_";

/// Header names of a call, beside those of CloudEvents.
pub mod call {
    /// The same for every call of one key, whatever the try: by it a receiver knows what it has done.
    pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
    /// Standard Webhooks' name for the same.
    pub const ID: &str = "webhook-id";
    /// When the call was made, in seconds since the Unix epoch.
    pub const TIMESTAMP: &str = "webhook-timestamp";
    /// One signature for each signing key, with spaces between.
    pub const SIGNATURE: &str = "webhook-signature";
}

/// What an answer says of the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It happened.
    Done,
    /// There was nothing to do any more.
    Skipped,
    /// It certainly did not happen, and may later.
    Transient,
    /// Nobody knows whether it happened.
    Unknown,
    /// It did not happen, and never will.
    Permanent,
}

impl Answer {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Done, Self::Skipped, Self::Transient, Self::Unknown, Self::Permanent];

    /// The text that configuration, database and metrics use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Transient => "transient",
            Self::Unknown => "unknown",
            Self::Permanent => "permanent",
        }
    }

    /// Reads what [`Answer::as_str`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.as_str() == text)
    }

    /// What an HTTP status usually says.
    ///
    /// 408, 425, 429 and 503 say that nothing was done; another 5xx can come from anywhere on the way, also
    /// from behind the effect. A redirect is not followed, for the signature would go elsewhere with it.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        match status {
            200..=299 => Self::Done,
            409 | 410 | 412 => Self::Skipped,
            408 | 425 | 429 | 503 => Self::Transient,
            500..=599 => Self::Unknown,
            _ => Self::Permanent,
        }
    }
}

/// A key that signs calls: `whsec_` and base64. It never shows itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl SigningKey {
    /// Reads one; `None` when it is none, or has too few or too many bytes ([`KEY_BYTES`]).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(text.strip_prefix(KEY_PREFIX)?).ok()?;
        KEY_BYTES.contains(&bytes.len()).then_some(Self(bytes))
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        // HMAC takes a key of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The value of [`call::SIGNATURE`]: one signature for each key, so that a receiver may know either of two while
/// they change.
#[must_use]
pub fn signature(keys: &[SigningKey], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = keys.iter().map(|key| key.sign(id, timestamp, body)).collect();
    signatures.join(" ")
}

/// How a header of a task's message is called in HTTP, and its value; `None` for one that stays behind: the
/// business's own headers could be mistaken for those of the call.
#[must_use]
pub fn http_header(name: &str, value: &[u8]) -> Option<(String, String)> {
    let name = match name {
        header::TRACEPARENT | header::CONTENT_TYPE => name.to_owned(),
        _ => format!("ce-{}", name.strip_prefix("ce_")?),
    };
    Some((name, escaped(value)))
}

/// A header's value as CloudEvents' HTTP binding writes it: what is not visible ASCII is percent-encoded.
fn escaped(value: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(value.len());
    for byte in value {
        match byte {
            b'"' | b'%' | 0..=b' ' | 0x7f.. => {
                let _ = write!(text, "%{byte:02X}");
            }
            visible => text.push(char::from(*visible)),
        }
    }
    text
}

/// The pause that `Retry-After` asks for, at most [`MAX_RETRY_AFTER`]: seconds, or a date, which is compared with the
/// answer's own `Date`: nobody else's clock has a say. `None` for what cannot be told.
#[must_use]
pub fn retry_after(value: &str, date: Option<&str>) -> Option<Duration> {
    let value = value.trim();
    let pause = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) if value.bytes().all(|b| b.is_ascii_digit()) && !value.is_empty() => MAX_RETRY_AFTER,
        Err(_) => {
            let at = httpdate::parse_http_date(value).ok()?;
            let now = httpdate::parse_http_date(date?.trim()).ok()?;
            at.duration_since(now).unwrap_or_default()
        }
    };
    Some(pause.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn what_each_status_says_of_the_effect() {
        for (statuses, answer) in [
            (&[200, 201, 202, 204, 299][..], Answer::Done),
            (&[409, 410, 412], Answer::Skipped),
            (&[408, 425, 429, 503], Answer::Transient),
            (&[500, 501, 502, 504, 599], Answer::Unknown),
            (&[101, 300, 301, 307, 308, 400, 401, 403, 404, 413, 422, 600, 999], Answer::Permanent),
        ] {
            for status in statuses {
                assert_eq!(Answer::of_status(*status), answer, "{status}");
            }
        }
    }

    #[test]
    fn answers_have_names() {
        for answer in Answer::ALL {
            assert_eq!(Answer::parse(answer.as_str()), Some(answer));
        }
        assert_eq!(Answer::parse("Done"), None);
    }

    /// The example of Standard Webhooks' own libraries.
    #[test]
    fn a_call_is_signed_as_standard_webhooks_says() {
        let key = SigningKey::parse(KEY).expect("a key");
        let signed = signature(
            std::slice::from_ref(&key),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn while_keys_change_each_of_them_signs() {
        let [old, new] = [KEY, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"]
            .map(|text| SigningKey::parse(text).expect("a key"));
        let both = signature(&[new.clone(), old.clone()], "a", 1, b"x");
        let alone = [new, old].map(|key| signature(&[key], "a", 1, b"x"));
        assert_eq!(both, alone.join(" "));
        assert_ne!(alone[0], alone[1]);
    }

    #[test]
    fn h26_what_is_no_key_is_refused_and_a_key_does_not_show_itself() {
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ", "whsec_!!!!"] {
            assert_eq!(SigningKey::parse(text), None, "{text}");
        }
        assert_eq!(format!("{:?}", SigningKey::parse(KEY)), "Some(<redacted>)");
    }

    #[test]
    fn headers_are_those_of_cloudevents_over_http() {
        let of = |name, value: &str| http_header(name, value.as_bytes());
        let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(of("ce_id", "7-0-1"), pair("ce-id", "7-0-1"));
        assert_eq!(
            of("ce_subject", "Größe \"50%\"\r\n"),
            pair("ce-subject", "Gr%C3%B6%C3%9Fe%20%2250%25%22%0D%0A")
        );
        assert_eq!(of("traceparent", "00-a-b-01"), pair("traceparent", "00-a-b-01"));
        assert_eq!(
            of("content-type", "application/json"),
            pair("content-type", "application/json")
        );
        for business in ["authorization", "host", "webhook-id", "x-shop", "CE_ID"] {
            assert_eq!(of(business, "1"), None, "{business}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_receivers_own_clock() {
        let date = Some("Mon, 07 Dec 2026 01:00:00 GMT");
        let s = Duration::from_secs;
        assert_eq!(retry_after(" 120 ", None), Some(s(120)));
        assert_eq!(retry_after("Mon, 07 Dec 2026 01:02:00 GMT", date), Some(s(120)));
        assert_eq!(retry_after("Mon, 07 Dec 2026 00:02:00 GMT", date), Some(s(0)));
        assert_eq!(retry_after("99999999999999999999999", None), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after("999999999", None), Some(MAX_RETRY_AFTER));
        for nonsense in ["", "soon", "-1", "1.5", "Mon, 07 Dec 2026 01:02:00 GMT"] {
            assert_eq!(retry_after(nonsense, None), None, "{nonsense}");
        }
    }
}
