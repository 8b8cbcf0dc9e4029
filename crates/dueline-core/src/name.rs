//! Names of queues, kinds and tiers: they end up in topic names, headers, metrics and log lines, so
//! the alphabet is small (hazard H25) and a dot, which separates the parts of a topic, is not in it.

/// The most characters that a queue, kind or tier name may have.
pub const MAX_NAME_LEN: usize = 63;
/// Kafka's own limit on the length of a topic name.
pub const MAX_TOPIC_LEN: usize = 249;

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} name {name:?} is not allowed: use 1 to 63 of a-z, 0-9, `_` and `-`, starting with a \
     letter or digit"
)]
pub struct NameError {
    what: &'static str,
    name: String,
}

/// Checks a queue, kind or tier name. `what` names the thing in the error (`"queue"`).
///
/// # Errors
/// When the name is empty, too long, or has a character outside `a-z 0-9 _ -`.
pub fn check_name(what: &'static str, name: &str) -> Result<(), NameError> {
    let mut bytes = name.bytes();
    let first_ok = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest_ok =
        bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'));
    if first_ok && rest_ok && name.len() <= MAX_NAME_LEN {
        Ok(())
    } else {
        Err(NameError { what, name: name.chars().take(80).collect() })
    }
}

/// The topic of one tier of a queue: `<prefix>.<queue>.<tier>`.
#[must_use]
pub fn tier_topic(prefix: &str, queue: &str, tier: &str) -> String {
    format!("{prefix}.{queue}.{tier}")
}

/// The dead-letter topic of a queue: `<prefix>.<queue>.dlq`.
#[must_use]
pub fn dead_letter_topic(prefix: &str, queue: &str) -> String {
    format!("{prefix}.{queue}.{DEAD_LETTER_SUFFIX}")
}

/// The topic of a queue's outcomes: `<prefix>.<queue>.outcomes`.
#[must_use]
pub fn outcome_topic(prefix: &str, queue: &str) -> String {
    format!("{prefix}.{queue}.{OUTCOME_SUFFIX}")
}

/// The last part of a dead-letter topic's name; no tier may have it.
pub const DEAD_LETTER_SUFFIX: &str = "dlq";
/// The last part of an outcome topic's name; no tier may have it.
pub const OUTCOME_SUFFIX: &str = "outcomes";
/// Names that no tier may have.
pub const RESERVED_TIER_NAMES: [&str; 2] = [DEAD_LETTER_SUFFIX, OUTCOME_SUFFIX];

/// The known name nearest to a mistyped one, if any is near enough to suggest.
#[must_use]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(typed, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h25_names_that_could_inject_are_refused() {
        for bad in ["", "a.b", "A", "a b", "x'; drop table", "../x", "ü", "-a", &"a".repeat(64)] {
            assert!(check_name("queue", bad).is_err(), "{bad:?}");
        }
        for good in ["orders", "close_order", "10s", "7d", "a-b"] {
            assert!(check_name("queue", good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn the_nearest_known_name_is_suggested() {
        assert_eq!(nearest("close_oder", ["refund", "close_order"]), Some("close_order"));
        assert_eq!(nearest("zzz", ["refund", "close_order"]), None);
    }
}
