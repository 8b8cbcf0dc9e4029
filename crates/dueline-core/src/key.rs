//! The identity of one action on one business object.

use std::fmt;

use sha2::{Digest, Sha256};

/// The first 16 bytes of SHA-256 over the length-prefixed queue, kind and key.
///
/// Lengths are prefixed (four bytes, big-endian) so that `("a", "bc")` and `("ab", "c")` differ. The
/// SQL function `dueline.key_hash` computes the same value; a test compares the two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 16]);

impl KeyHash {
    /// Hashes a queue, kind and business key.
    #[must_use]
    pub fn new(queue: &str, kind: &str, key: &str) -> Self {
        let mut hasher = Sha256::new();
        for part in [queue, kind, key] {
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            hasher.update(length.to_be_bytes());
            hasher.update(part.as_bytes());
        }
        let digest = hasher.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(bytes)
    }

    /// The hash as PostgreSQL's `uuid`, the narrowest fixed-width type that holds it.
    #[must_use]
    pub fn as_uuid(self) -> uuid::Uuid {
        uuid::Uuid::from_bytes(self.0)
    }

    /// The slot of this key among the `slots` of its queue (0 when there are none): which of a tier's lanes
    /// its alarm is in. The SQL function `dueline.slot_for` computes the same.
    #[must_use]
    pub fn slot(self, slots: u32) -> u32 {
        u32::from(u16::from_be_bytes([self.0[0], self.0[1]])).checked_rem(slots).unwrap_or(0)
    }

    /// Reads 32 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        (text.len() == 32).then(|| uuid::Uuid::try_parse(text).ok())?.map(|u| Self(u.into_bytes()))
    }
}

/// 32 hexadecimal digits, as the message header carries it.
impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_uuid().simple())
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i02_lengths_keep_neighbouring_parts_apart() {
        assert_ne!(KeyHash::new("q", "a", "bc"), KeyHash::new("q", "ab", "c"));
        assert_ne!(KeyHash::new("q", "close", "1"), KeyHash::new("q", "refund", "1"));
    }

    #[test]
    fn hex_round_trips() {
        let hash = KeyHash::new("orders", "close_order", "1001");
        assert_eq!(KeyHash::from_hex(&hash.to_string()), Some(hash));
        assert_eq!(KeyHash::from_hex("short"), None);
    }
}
