//! Which topics a delayed message may be sent on to.

use std::collections::BTreeSet;

use crate::name::MAX_TOPIC_LEN;

/// The allow-list: exact names, or beginnings that end with `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    exact: BTreeSet<String>,
    beginnings: Vec<String>,
    own: BTreeSet<String>,
}

impl Targets {
    /// An allow-list of `patterns`. `own` are dueline's own topics, which no pattern allows: a
    /// message sent to one of them would be taken for a task, an outcome, or a request again.
    #[must_use]
    pub fn new<'a>(
        patterns: impl IntoIterator<Item = &'a str>,
        own: impl IntoIterator<Item = String>,
    ) -> Self {
        let mut targets = Self { own: own.into_iter().collect(), ..Self::default() };
        for pattern in patterns {
            match pattern.strip_suffix('*') {
                Some(beginning) => targets.beginnings.push(beginning.to_owned()),
                None => _ = targets.exact.insert(pattern.to_owned()),
            }
        }
        targets
    }

    /// Whether messages may go to `topic`.
    #[must_use]
    pub fn allow(&self, topic: &str) -> bool {
        is_topic(topic)
            && !self.own.contains(topic)
            && (self.exact.contains(topic)
                || self.beginnings.iter().any(|beginning| topic.starts_with(beginning)))
    }
}

/// Whether Kafka allows a topic of this name.
fn is_topic(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=MAX_TOPIC_LEN).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(legal)
}
