//! Records, as dueline sees them.

use std::fmt;
use std::sync::Arc;

use dueline_core::Headers;
use rdkafka::message::{Header, OwnedHeaders};

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition of a topic.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// The topic, shared by all its records.
    pub topic: Arc<str>,
    /// The partition, from 0.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: i64,
    /// The record's timestamp, milliseconds since the Unix epoch; -1 when it has none.
    pub timestamp_ms: i64,
    /// The key, if any.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers in the order of the record. Bytes of a name that are no UTF-8 are replaced, so
    /// that a foreign record cannot stop the reader.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl OwnedRecord {
    /// The partition that the record was read from.
    #[must_use]
    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition { topic: Arc::clone(&self.topic), partition: self.partition }
    }

    /// Bytes that the record keeps in memory, about.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(n, v)| n.len() + v.len() + 48).sum();
        let body = self.key.as_ref().map_or(0, Vec::len) + self.value.as_ref().map_or(0, Vec::len);
        body + headers + 96
    }
}

impl Headers for OwnedRecord {
    fn last_value(&self, name: &str) -> Option<&[u8]> {
        self.headers.last_value(name)
    }
}

/// Headers of a record to be sent, kept in librdkafka's own list: no `String` per name.
///
/// ```
/// # let envelope: Option<dueline_core::Envelope> = None;
/// let mut headers = dueline_kafka::HeaderList::with_capacity(16);
/// headers.push("content-type", b"application/json");
/// if let Some(envelope) = envelope {
///     envelope.write_headers(|name, value| headers.push(name, value));
/// }
/// ```
#[derive(Default)]
pub struct HeaderList(Option<OwnedHeaders>);

impl HeaderList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self(None)
    }

    /// An empty list with room for so many headers.
    #[must_use]
    pub fn with_capacity(headers: usize) -> Self {
        Self(Some(OwnedHeaders::new_with_capacity(headers)))
    }

    /// Adds a header at the end.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        let list = self.0.take().unwrap_or_default();
        self.0 = Some(list.insert(Header { key: name, value: Some(value) }));
    }

    pub(crate) fn into_native(self) -> Option<OwnedHeaders> {
        self.0
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for HeaderList {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(pairs: I) -> Self {
        let mut list = Self::new();
        for (name, value) in pairs {
            list.push(name, value);
        }
        list
    }
}

/// Names only: header values may hold anything.
impl fmt::Debug for HeaderList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use rdkafka::message::Headers as _;
        let count = self.0.as_ref().map_or(0, rdkafka::message::OwnedHeaders::count);
        write!(f, "HeaderList({count} headers)")
    }
}

/// A record to be sent. The partition follows from the key (murmur2).
#[derive(Debug, Default)]
pub struct Record<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The key; `None` lets any partition be chosen.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: HeaderList,
    /// The record's timestamp, milliseconds since the Unix epoch; `None` is now, by this host.
    pub timestamp_ms: Option<i64>,
}
