//! Crash marks (H13): what a consumer was about to handle when it was last heard of.

use std::sync::Arc;

use crate::{Pool, StoreError};

/// A mark on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashMark {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The first offset that was about to be handled.
    pub offset: i64,
    /// The how-manieth try at it this is, from 1.
    pub tries: i32,
}

/// The crash marks of one consumer group.
#[derive(Clone, Debug)]
pub struct CrashMarks {
    pool: Pool,
    group: String,
}

type Row = (String, i32, i64, i32);

impl CrashMarks {
    /// The marks of a group.
    #[must_use]
    pub fn new(pool: Pool, group: impl Into<String>) -> Self {
        Self { pool, group: group.into() }
    }

    /// The marks that stand on these partitions.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn read(&self, partitions: &[(Arc<str>, i32)]) -> Result<Vec<CrashMark>, StoreError> {
        let topics: Vec<&str> = partitions.iter().map(|(topic, _)| &**topic).collect();
        let numbers: Vec<i32> = partitions.iter().map(|(_, partition)| *partition).collect();
        let rows: Vec<Row> = sqlx::query_as(include_str!("../../sql/effect/marks.sql"))
            .bind(&self.group)
            .bind(topics)
            .bind(numbers)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows
            .into_iter()
            .map(|(topic, partition, offset, tries)| CrashMark {
                topic: topic.into(),
                partition,
                offset,
                tries,
            })
            .collect())
    }

    /// Writes marks, each in place of the one that stands on its partition. At most one per partition.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn write(&self, marks: &[CrashMark]) -> Result<(), StoreError> {
        let topics: Vec<&str> = marks.iter().map(|mark| &*mark.topic).collect();
        let partitions: Vec<i32> = marks.iter().map(|mark| mark.partition).collect();
        let offsets: Vec<i64> = marks.iter().map(|mark| mark.offset).collect();
        let tries: Vec<i32> = marks.iter().map(|mark| mark.tries).collect();
        let result = sqlx::query(include_str!("../../sql/effect/mark.sql"))
            .bind(&self.group)
            .bind(topics)
            .bind(partitions)
            .bind(offsets)
            .bind(tries)
            .execute(&self.pool)
            .await?;
        let (expected, actual) = (marks.len(), result.rows_affected());
        if actual != expected as u64 {
            let actual = usize::try_from(actual).unwrap_or(usize::MAX);
            return Err(StoreError::Count { step: "mark", expected, actual });
        }
        Ok(())
    }

    /// Removes the marks below the offset that is to be read next in each partition.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn clear(&self, next: &[(Arc<str>, i32, i64)]) -> Result<(), StoreError> {
        let topics: Vec<&str> = next.iter().map(|(topic, _, _)| &**topic).collect();
        let partitions: Vec<i32> = next.iter().map(|(_, partition, _)| *partition).collect();
        let offsets: Vec<i64> = next.iter().map(|(_, _, offset)| *offset).collect();
        sqlx::query(include_str!("../../sql/effect/unmark.sql"))
            .bind(&self.group)
            .bind(topics)
            .bind(partitions)
            .bind(offsets)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
