//! Delay tiers: one topic each, so that a flood of seven-day confirmations does not hold up
//! thirty-second checks (Q1).

use std::time::Duration;

/// One delay tier of a queue.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tier {
    /// The tier's name, which is the last part of its topic's name.
    pub name: String,
    /// The longest delay that belongs here. The last tier of a queue also takes everything longer.
    pub max_delay: Duration,
}

/// The default tiers: from seconds to months.
#[must_use]
pub fn default_tiers() -> Vec<Tier> {
    named(&[
        ("10s", 10),
        ("1m", 60),
        ("10m", 600),
        ("1h", 3_600),
        ("1d", 86_400),
        ("7d", 604_800),
        ("90d", 7_776_000),
    ])
}

/// RocketMQ's eighteen delay levels as tiers (Q3).
#[must_use]
pub fn rocketmq_tiers() -> Vec<Tier> {
    named(&[
        ("1s", 1),
        ("5s", 5),
        ("10s", 10),
        ("30s", 30),
        ("1m", 60),
        ("2m", 120),
        ("3m", 180),
        ("4m", 240),
        ("5m", 300),
        ("6m", 360),
        ("7m", 420),
        ("8m", 480),
        ("9m", 540),
        ("10m", 600),
        ("20m", 1_200),
        ("30m", 1_800),
        ("1h", 3_600),
        ("2h", 7_200),
    ])
}

fn named(tiers: &[(&str, u64)]) -> Vec<Tier> {
    tiers
        .iter()
        .map(|(name, seconds)| Tier {
            name: (*name).to_owned(),
            max_delay: Duration::from_secs(*seconds),
        })
        .collect()
}

/// The tier of a requested delay: the first whose `max_delay` is not shorter, else the last.
///
/// `tiers` must be sorted by `max_delay`. The SQL function `dueline.tier_for` decides the same way; a
/// test compares the two. Returns `None` only when there are no tiers.
#[must_use]
pub fn tier_for(tiers: &[Tier], delay: Duration) -> Option<&Tier> {
    tiers.iter().find(|tier| delay <= tier.max_delay).or_else(|| tiers.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q01_a_delay_belongs_to_the_first_tier_that_covers_it() {
        let tiers = default_tiers();
        let name = |s: u64, ns: u32| {
            tier_for(&tiers, Duration::new(s, ns)).map(|t| t.name.as_str()).expect("some tier")
        };
        assert_eq!(name(0, 0), "10s");
        assert_eq!(name(10, 0), "10s");
        assert_eq!(name(10, 1), "1m");
        assert_eq!(name(1_800, 0), "1h");
        assert_eq!(name(604_800, 0), "7d");
        assert_eq!(name(400 * 86_400, 0), "90d");
    }

    #[test]
    fn q03_rocketmq_levels_are_eighteen_and_sorted() {
        let tiers = rocketmq_tiers();
        assert_eq!(tiers.len(), 18);
        assert!(tiers.windows(2).all(|w| w[0].max_delay < w[1].max_delay));
    }
}
