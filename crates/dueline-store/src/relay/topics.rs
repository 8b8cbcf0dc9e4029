//! The topics as relays have seen them.

use dueline_core::Micros;
use sqlx::Row as _;

use crate::{Pool, StoreError, Timestamptz};

/// A topic, and since when it is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSeen {
    /// Its name.
    pub topic: String,
    /// The broker's id of it.
    pub topic_id: String,
    /// Its partitions.
    pub partitions: u32,
    /// A claim is believed to be in the topic only if it is not older than this.
    pub since: Micros,
}

/// Remembers a topic as it is now.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn topic_seen(
    pool: &Pool,
    topic: &str,
    topic_id: &str,
    partitions: u32,
) -> Result<(), StoreError> {
    sqlx::query(include_str!("../../sql/relay/topic_seen.sql"))
        .bind(topic)
        .bind(topic_id)
        .bind(i32::try_from(partitions).unwrap_or(i32::MAX))
        .execute(pool)
        .await?;
    Ok(())
}

/// What is known of these topics.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub async fn topics_seen(pool: &Pool, topics: &[String]) -> Result<Vec<TopicSeen>, StoreError> {
    let rows = sqlx::query(include_str!("../../sql/relay/topics_seen.sql"))
        .bind(topics)
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(TopicSeen {
                topic: row.try_get("topic")?,
                topic_id: row.try_get("topic_id")?,
                partitions: u32::try_from(row.try_get::<i32, _>("partitions")?).unwrap_or(0),
                since: row.try_get::<Timestamptz, _>("since")?.into(),
            })
        })
        .collect()
}
