//! Delay topics on the wire: what a record on `<prefix>.delay` or `<prefix>.delay.<level>` asks
//! for, and the headers with which the message arrives.
//!
//! Key, value and headers are the sender's own; the request is in headers whose names begin with
//! `dueline-`. Whatever cannot be carried out is a [`Refusal`], never a guess.

mod duration;
mod forward;
mod target;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use duration::parse_duration;
pub use forward::{Stamp, forwarded, message_id};
pub use target::Targets;

use crate::time::Micros;

/// A header of a record: its name and its bytes, which may be null.
pub type HeaderRef<'a> = (&'a str, Option<&'a [u8]>);

/// How many delays one message may go through: a target that is a delay topic of another instance
/// may lead back here.
pub const MAX_HOPS: u32 = 8;
/// The most characters of a receipt's correlation text.
pub const MAX_RECEIPT_CHARS: usize = 256;
/// How far ahead of the database's clock a record's timestamp is believed.
pub const MAX_AHEAD: Duration = Duration::from_secs(60);

/// Header names.
pub mod header {
    /// The topic where the message is to arrive.
    pub const TARGET: &str = "dueline-target";
    /// A duration from the event's time.
    pub const DELAY: &str = "dueline-delay";
    /// An instant.
    pub const DELIVER_AT: &str = "dueline-deliver-at";
    /// `cancel` or `reschedule`.
    pub const CONTROL: &str = "dueline-control";
    /// Correlation text of the receipt that is asked for.
    pub const RECEIPT: &str = "dueline-receipt";
    /// The headers of a request: they do not arrive.
    pub const REQUEST: [&str; 5] = [TARGET, DELAY, DELIVER_AT, CONTROL, RECEIPT];
    /// Stable id of the message.
    pub const ID: &str = "dueline-id";
    /// When it was to arrive.
    pub const DUE_AT: &str = "dueline-due-at";
    /// When it was published.
    pub const SENT_AT: &str = "dueline-sent-at";
    /// How many delays it has been through.
    pub const HOPS: &str = "dueline-hops";
    /// The headers that dueline adds.
    pub const ARRIVED: [&str; 4] = [ID, DUE_AT, SENT_AT, HOPS];
}

/// A record on a delay topic.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// The delay of the level's topic; `None` on the topic for any delay.
    pub level: Option<Duration>,
    /// The record's key.
    pub key: Option<&'a [u8]>,
    /// The record's value.
    pub value: Option<&'a [u8]>,
    /// The record's headers in their order.
    pub headers: &'a [HeaderRef<'a>],
    /// The record's timestamp; `None` or a negative one counts as absent.
    pub timestamp: Option<Micros>,
}

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Where messages may go.
    pub targets: &'a Targets,
    /// How far from now a message may be due.
    pub max_delay: Duration,
    /// The most bytes of key, value and headers together.
    pub max_message_bytes: usize,
}

/// What a record asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Delay this message.
    Message(DelayRequest),
    /// Do something to messages that wait.
    Command(DelayCommand),
}

/// A message to be delayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayRequest {
    /// Where it is to arrive.
    pub target: String,
    /// When.
    pub due_at: Micros,
    /// How many delays it will have been through when it arrives: 1 to [`MAX_HOPS`].
    pub hops: u32,
    /// Correlation text of the receipt that is asked for.
    pub receipt: Option<String>,
}

/// A command for all pending messages of the record's key and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayCommand {
    /// The target of the messages that are meant.
    pub target: String,
    /// `None` cancels them; otherwise they are due then.
    pub reschedule_to: Option<Micros>,
    /// Correlation text of the receipt that is asked for.
    pub receipt: Option<String>,
}

/// Why a request is refused. [`Refusal::reason`] is the word on the wire; the text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `dueline-target` is missing or empty.
    #[error("the header `dueline-target` is missing or empty")]
    NoTarget,
    /// The target is not in the allow-list.
    #[error("the topic {0:.80?} is not among `delay.targets`")]
    TargetNotAllowed(String),
    /// The time of delivery cannot be read, is missing, or is said twice.
    #[error("{0}")]
    BadDelay(String),
    /// It is due later than `max_delay` from now.
    #[error("it is due at {0}, later than `delay.max_delay` allows")]
    TooFar(Micros),
    /// It is too large.
    #[error("it has {0} bytes, at most {1} are allowed")]
    TooLarge(usize, usize),
    /// It has been through too many delays, or does not say clearly through how many.
    #[error("it has been through {MAX_HOPS} delays, or `dueline-hops` is not a number")]
    Loop,
    /// The command is unknown.
    #[error("{0:.40?} is no command: cancel and reschedule are")]
    BadControl(String),
    /// A command without a key.
    #[error("a command needs the key of the messages that it is for")]
    NoKey,
    /// The correlation text is too long or not plain text.
    #[error(
        "`dueline-receipt` is 1 to {MAX_RECEIPT_CHARS} characters, none of them control characters"
    )]
    BadReceipt,
    /// A header of the request is there twice, or is not UTF-8 text.
    #[error("the header `{0}` is there more than once, is null, or is not UTF-8 text")]
    BadHeader(&'static str),
}

impl Refusal {
    /// The reason in `dueline-letter-reason`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::TargetNotAllowed(_) => "target_not_allowed",
            Self::BadDelay(_) => "bad_delay",
            Self::TooFar(_) => "too_far",
            Self::TooLarge(..) => "too_large",
            Self::Loop => "loop",
            Self::BadControl(_) => "bad_control",
            Self::NoKey => "no_key",
            Self::BadReceipt => "bad_receipt",
            Self::BadHeader(_) => "bad_header",
        }
    }
}

/// From when a delay counts: the record's timestamp, or `now` (the database's clock) when there is
/// none or it is more than [`MAX_AHEAD`] ahead: a sender's wrong clock must not hold a message
/// back.
#[must_use]
pub fn event_time(timestamp: Option<Micros>, now: Micros) -> Micros {
    timestamp.filter(|at| at.0 >= 0 && *at <= now.plus(MAX_AHEAD)).unwrap_or(now)
}

/// Reads what a record asks for. `now` is the database's clock.
///
/// # Errors
/// When it cannot be carried out as it stands.
pub fn read(sent: &Sent<'_>, rules: &Rules<'_>, now: Micros) -> Result<Ask, Refusal> {
    let bytes = size(sent);
    if bytes > rules.max_message_bytes {
        return Err(Refusal::TooLarge(bytes, rules.max_message_bytes));
    }
    let target = text(sent.headers, header::TARGET)?.filter(|target| !target.is_empty());
    let target = target.ok_or(Refusal::NoTarget)?.to_owned();
    if !rules.targets.allow(&target) {
        return Err(Refusal::TargetNotAllowed(target));
    }
    let receipt = receipt(sent.headers)?;
    let due = || due_at(sent, rules, now);
    match text(sent.headers, header::CONTROL)? {
        None => {
            let hops = hops(sent.headers)?;
            Ok(Ask::Message(DelayRequest { target, due_at: due()?, hops, receipt }))
        }
        Some(word @ ("cancel" | "reschedule")) => {
            if sent.key.is_none() {
                return Err(Refusal::NoKey);
            }
            let reschedule_to = if word == "reschedule" { Some(due()?) } else { None };
            Ok(Ask::Command(DelayCommand { target, reschedule_to, receipt }))
        }
        Some(word) => Err(Refusal::BadControl(word.to_owned())),
    }
}

/// Bytes of key, value and headers together.
fn size(sent: &Sent<'_>) -> usize {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = sent.headers.iter().map(|(name, value)| name.len() + length(*value));
    headers.sum::<usize>() + length(sent.key) + length(sent.value)
}

fn due_at(sent: &Sent<'_>, rules: &Rules<'_>, now: Micros) -> Result<Micros, Refusal> {
    let bad = |what: &str| Refusal::BadDelay(what.to_owned());
    let delay = text(sent.headers, header::DELAY)?;
    let instant = text(sent.headers, header::DELIVER_AT)?;
    let after = |delay| event_time(sent.timestamp, now).plus(delay);
    let due = match (sent.level, delay, instant) {
        (Some(level), None, None) => after(level),
        (Some(_), _, _) => return Err(bad("the topic says the delay: no header may")),
        (None, Some(delay), None) => after(
            parse_duration(delay)
                .ok_or_else(|| bad("`dueline-delay` is no duration such as 90s, 1h30m or PT5M"))?,
        ),
        (None, None, Some(instant)) => parse_instant(instant).ok_or_else(|| {
            bad("`dueline-deliver-at` is neither RFC 3339 with an offset nor epoch milliseconds")
        })?,
        (None, _, _) => {
            return Err(bad("one of `dueline-delay` and `dueline-deliver-at` is needed"));
        }
    };
    if due > now.plus(rules.max_delay) { Err(Refusal::TooFar(due)) } else { Ok(due) }
}

/// An instant: RFC 3339, or milliseconds since the Unix epoch.
fn parse_instant(text: &str) -> Option<Micros> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse::<i64>().ok()?.checked_mul(1_000).map(Micros);
    }
    // PostgreSQL's calendar begins later than RFC 3339's here: nothing before the epoch gets that
    // far.
    Micros::parse_rfc3339(text).ok().filter(|at| at.0 >= 0)
}

fn hops(headers: &[HeaderRef<'_>]) -> Result<u32, Refusal> {
    let before = match text(headers, header::HOPS)? {
        None => 0,
        Some(text) => text.parse::<u32>().map_err(|_| Refusal::Loop)?,
    };
    if before >= MAX_HOPS { Err(Refusal::Loop) } else { Ok(before + 1) }
}

fn receipt(headers: &[HeaderRef<'_>]) -> Result<Option<String>, Refusal> {
    let Some(text) = text(headers, header::RECEIPT)? else { return Ok(None) };
    let plain = !text.chars().any(char::is_control);
    if plain && (1..=MAX_RECEIPT_CHARS).contains(&text.chars().count()) {
        Ok(Some(text.to_owned()))
    } else {
        Err(Refusal::BadReceipt)
    }
}

/// The one header of this name. Two of them would leave it to the reader which one counts.
fn text<'a>(headers: &[HeaderRef<'a>], name: &'static str) -> Result<Option<&'a str>, Refusal> {
    let mut found = headers.iter().filter(|(n, _)| *n == name);
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some((_, Some(bytes))), None) => {
            std::str::from_utf8(bytes).map(Some).map_err(|_| Refusal::BadHeader(name))
        }
        _ => Err(Refusal::BadHeader(name)),
    }
}
