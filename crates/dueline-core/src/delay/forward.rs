//! The headers with which a delayed message arrives at its target.

use super::{HeaderRef, header};
use crate::time::Micros;

/// The id of a request, the same for every copy of what arrives: `<topic id>-<partition>-<offset>`.
#[must_use]
pub fn message_id(topic_id: &str, partition: i32, offset: i64) -> String {
    format!("{topic_id}-{partition}-{offset}")
}

/// What dueline says of a message beside the sender's own headers.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// [`message_id`] of the request.
    pub id: &'a str,
    /// When it was to arrive.
    pub due_at: Micros,
    /// When it is published.
    pub sent_at: Micros,
    /// How many delays it has been through, this one included.
    pub hops: u32,
}

/// The sender's headers in their order, bytes untouched, without those of the request; then
/// dueline's.
///
/// A message that was delayed before brings dueline's headers of then: they are replaced, so that
/// each is there once.
#[must_use]
pub fn forwarded(sent: &[HeaderRef<'_>], stamp: &Stamp<'_>) -> Vec<(String, Option<Vec<u8>>)> {
    let own = [
        (header::ID, stamp.id.to_owned()),
        (header::DUE_AT, stamp.due_at.to_string()),
        (header::SENT_AT, stamp.sent_at.to_string()),
        (header::HOPS, stamp.hops.to_string()),
    ];
    let dropped = |name: &str| header::REQUEST.contains(&name) || header::ARRIVED.contains(&name);
    sent.iter()
        .filter(|(name, _)| !dropped(name))
        .map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)))
        .chain(own.into_iter().map(|(name, value)| (name.to_owned(), Some(value.into_bytes()))))
        .collect()
}
