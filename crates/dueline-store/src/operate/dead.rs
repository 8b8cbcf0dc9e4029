//! The stranded table, as a person goes through it.

use dueline_core::Micros;

use crate::{Pool, StoreError, Timestamptz};

/// Which of the dead are meant; everything that is `None` does not matter.
#[derive(Clone, Debug, Default)]
pub struct DeadFilter {
    /// Of this queue.
    pub queue: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Died at or after this instant.
    pub since: Option<Micros>,
    /// Died before this instant.
    pub until: Option<Micros>,
    /// Dead for this reason.
    pub reason: Option<String>,
    /// With a key like this.
    pub key: Option<KeyPattern>,
}

/// Where a page begins: after the one that died then, with this id.
pub type DeadCursor = (Micros, i64);

/// A dead task.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct DeadTask {
    /// The database's clock.
    pub now: Timestamptz,
    /// Its id.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// Its business key.
    pub key: String,
    /// Hash of queue, kind and key.
    pub key_hash: uuid::Uuid,
    /// The dead row's generation: a verdict acts on no other.
    pub generation: i32,
    /// Failed attempts.
    pub attempts: i32,
    /// Why it is dead.
    pub reason: String,
    /// The last error.
    pub error: String,
    /// When it died.
    pub died_at: Timestamptz,
    /// When its letter was written.
    pub lettered_at: Option<Timestamptz>,
    /// The deadline as asked for.
    pub due_at: Timestamptz,
}

/// The rest of a dead task, for looking at one.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct DeadDetail {
    /// A JSON array of its attempts.
    pub history: String,
    /// JSON.
    pub payload: Option<String>,
    /// A JSON object.
    pub headers: Option<String>,
}

/// A page of the dead, oldest first.
///
/// # Errors
/// When the database does not answer.
pub async fn list(
    pool: &Pool,
    filter: &DeadFilter,
    after: Option<DeadCursor>,
    limit: u32,
) -> Result<Vec<DeadTask>, StoreError> {
    let (after_at, after_id) = after.unwrap_or((Micros(i64::MIN), i64::MIN));
    Ok(sqlx::query_as(include_str!("../../sql/operate/dead_list.sql"))
        .bind(&filter.queue)
        .bind(&filter.kind)
        .bind(filter.since.map(Timestamptz))
        .bind(filter.until.map(Timestamptz))
        .bind(&filter.reason)
        .bind(filter.key.as_ref().map(KeyPattern::like))
        .bind(Timestamptz(after_at))
        .bind(after_id)
        .bind(i64::from(limit.clamp(1, 10_000)))
        .fetch_all(pool)
        .await?)
}

/// One dead task; `None` when it is not dead (any more).
///
/// # Errors
/// When the database does not answer.
pub async fn by_id(pool: &Pool, id: i64) -> Result<Option<DeadTask>, StoreError> {
    Ok(sqlx::query_as(include_str!("../../sql/operate/dead_by_id.sql"))
        .bind(id)
        .fetch_optional(pool)
        .await?)
}

/// History, payload and headers of a dead task; `None` when it is not dead (any more).
///
/// # Errors
/// When the database does not answer.
pub async fn detail(pool: &Pool, id: i64) -> Result<Option<DeadDetail>, StoreError> {
    Ok(sqlx::query_as(include_str!("../../sql/operate/dead_show.sql"))
        .bind(id)
        .fetch_optional(pool)
        .await?)
}

/// Where an undecodable message's letter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterPlace<'a> {
    /// The dead-letter topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
}

impl LetterPlace<'_> {
    fn json(&self) -> String {
        serde_json::json!({
            "topic": self.topic, "partition": self.partition, "offset": self.offset
        })
        .to_string()
    }
}

/// Whether the message of this letter was sent again before. A message without a row has no generation that
/// could guard it, so the audit table does.
///
/// # Errors
/// When the database does not answer.
pub async fn was_resent(pool: &Pool, letter: LetterPlace<'_>) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar(include_str!("../../sql/operate/resend_seen.sql"))
        .bind(letter.json())
        .fetch_one(pool)
        .await?)
}

/// Writes down that the message of this letter was sent again.
///
/// # Errors
/// When the database does not answer.
pub async fn note_resent(
    pool: &Pool,
    letter: LetterPlace<'_>,
    who: &str,
) -> Result<(), StoreError> {
    sqlx::query(include_str!("../../sql/operate/resend_note.sql"))
        .bind(letter.json())
        .bind(who)
        .execute(pool)
        .await?;
    Ok(())
}

/// A key pattern as shells write it: `*` for any text, `?` for one character, anything else is itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern(String);

impl KeyPattern {
    /// Takes any text: a pattern cannot be wrong.
    #[must_use]
    pub fn new(glob: impl Into<String>) -> Self {
        Self(glob.into())
    }

    /// The same as a pattern of SQL's LIKE with its default escape.
    #[must_use]
    pub fn like(&self) -> String {
        let mut like = String::with_capacity(self.0.len() + 4);
        for c in self.0.chars() {
            match c {
                '*' => like.push('%'),
                '?' => like.push('_'),
                '%' | '_' | '\\' => {
                    like.push('\\');
                    like.push(c);
                }
                other => like.push(other),
            }
        }
        like
    }

    /// Whether a key matches, as [`KeyPattern::like`] decides in the database.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        let pattern: Vec<char> = self.0.chars().collect();
        let key: Vec<char> = key.chars().collect();
        let (mut p, mut k) = (0, 0);
        // Where to go on when the text after the last `*` does not fit: with one character more in it.
        let mut retry: Option<(usize, usize)> = None;
        while k < key.len() {
            match pattern.get(p) {
                Some('*') => {
                    retry = Some((p, k));
                    p += 1;
                }
                Some(c) if *c == '?' || *c == key[k] => {
                    p += 1;
                    k += 1;
                }
                _ => {
                    let Some((star, at)) = retry else { return false };
                    retry = Some((star, at + 1));
                    p = star + 1;
                    k = at + 1;
                }
            }
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (glob, key, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*1001*", "order-1001-x", true),
            ("a**b", "ab", true),
            ("100%", "100x", false),
            ("", "a", false),
        ] {
            assert_eq!(KeyPattern::new(glob).matches(key), expected, "{glob:?} {key:?}");
        }
    }

    #[test]
    fn h25_what_like_takes_for_a_sign_is_escaped() {
        assert_eq!(KeyPattern::new(r"a_b%c\d*?").like(), r"a\_b\%c\\d%_");
    }
}
