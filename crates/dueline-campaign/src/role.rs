//! The processes of ours that the campaign runs.

use std::fmt;

/// One process: two relays and two consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The first relay.
    Relay1,
    /// The second relay.
    Relay2,
    /// The first consumer.
    Consumer1,
    /// The second consumer.
    Consumer2,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Relay1, Self::Relay2, Self::Consumer1, Self::Consumer2];
    /// The relays.
    pub const RELAYS: [Self; 2] = [Self::Relay1, Self::Relay2];
    /// The consumers.
    pub const CONSUMERS: [Self; 2] = [Self::Consumer1, Self::Consumer2];

    /// Its name, which is also that of its log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Relay1 => "relay1",
            Self::Relay2 => "relay2",
            Self::Consumer1 => "consumer1",
            Self::Consumer2 => "consumer2",
        }
    }

    /// The other one of its kind.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Relay1 => Self::Relay2,
            Self::Relay2 => Self::Relay1,
            Self::Consumer1 => Self::Consumer2,
            Self::Consumer2 => Self::Consumer1,
        }
    }

    /// Whether it is a relay.
    #[must_use]
    pub fn is_relay(self) -> bool {
        matches!(self, Self::Relay1 | Self::Relay2)
    }

    /// Its place in [`Role::ALL`].
    #[must_use]
    pub fn place(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
