//! Crash marks (H13).

use std::sync::Arc;

use anyhow::Result;
use dueline_store::effect::{CrashMark, CrashMarks};

use super::effect::Lab;

fn mark(partition: i32, offset: i64, tries: i32) -> CrashMark {
    CrashMark { topic: Arc::from("t"), partition, offset, tries }
}

#[tokio::test]
async fn h13_marks_are_written_replaced_and_cleared_by_what_is_behind() -> Result<()> {
    let lab = Lab::new().await?;
    let marks = CrashMarks::new(lab.pool.clone(), "group");
    let others = CrashMarks::new(lab.pool.clone(), "another group");
    let partitions: Vec<(Arc<str>, i32)> = (0..3).map(|p| (Arc::from("t"), p)).collect();
    marks.write(&[mark(0, 10, 1), mark(1, 20, 1)]).await?;
    marks.write(&[mark(0, 10, 2)]).await?;
    let mut read = marks.read(&partitions).await?;
    read.sort_by_key(|mark| mark.partition);
    assert_eq!(read, [mark(0, 10, 2), mark(1, 20, 1)]);
    assert!(others.read(&partitions).await?.is_empty());
    // Only what the next offset has passed.
    marks.clear(&[(Arc::from("t"), 0, 10), (Arc::from("t"), 1, 21)]).await?;
    assert_eq!(marks.read(&partitions).await?, [mark(0, 10, 2)]);
    marks.clear(&[(Arc::from("t"), 0, i64::MAX)]).await?;
    assert!(marks.read(&partitions).await?.is_empty());
    Ok(())
}
