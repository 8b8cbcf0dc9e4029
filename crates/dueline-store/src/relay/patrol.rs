//! Retention: deleting what is finished long ago, a stretch of blocks at a time.

use std::time::Duration;

use sqlx::{PgConnection, Row as _};

use super::interval;
use crate::{Pool, StoreError};

/// The tables that the patrol walks, in the order in which it must: a key is forgotten before its
/// task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Handled keys.
    Dedupe,
    /// Finished tasks.
    Task,
    /// The audit trail.
    TaskEvent,
}

impl Table {
    /// All, in order.
    pub const ALL: [Self; 3] = [Self::Dedupe, Self::Task, Self::TaskEvent];

    /// The table's name, and its key in `dueline.patrol`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dedupe => "dedupe",
            Self::Task => "task",
            Self::TaskEvent => "task_event",
        }
    }

    fn statement(self) -> &'static str {
        match self {
            Self::Dedupe => include_str!("../../sql/relay/patrol_dedupe.sql"),
            Self::Task => include_str!("../../sql/relay/patrol_task.sql"),
            Self::TaskEvent => include_str!("../../sql/relay/patrol_task_event.sql"),
        }
    }
}

/// One step of the patrol.
#[derive(Clone, Copy, Debug)]
pub struct Purge {
    /// How long handled keys are remembered.
    pub dedupe: Duration,
    /// How long finished tasks are kept.
    pub task: Duration,
    /// How long the audit trail is kept.
    pub events: Duration,
    /// Blocks of a table that one step looks at.
    pub blocks: i64,
    /// Rows of a table that one step deletes at most.
    pub limit: i32,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Another relay patrols: nothing was done.
    pub elsewhere: bool,
    /// Keys forgotten.
    pub dedupe: u64,
    /// Tasks deleted.
    pub task: u64,
    /// Events deleted.
    pub events: u64,
    /// Whether a table had more to delete in the same blocks.
    pub more: bool,
    /// Whether every table was walked to its end with this step.
    pub wrapped: bool,
}

impl Purged {
    /// Whether nothing was deleted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dedupe + self.task + self.events == 0
    }
}

/// One step over each table, in one transaction, by one relay at a time.
///
/// # Errors
/// When the database refuses or cannot be reached; nothing is changed then.
pub async fn purge(pool: &Pool, purge: &Purge) -> Result<Purged, StoreError> {
    let mut tx = pool.begin().await?;
    let mine: bool = sqlx::query(include_str!("../../sql/relay/patrol_lock.sql"))
        .fetch_one(&mut *tx)
        .await?
        .try_get(0)?;
    if !mine {
        return Ok(Purged { elsewhere: true, ..Purged::default() });
    }
    let mut done = Purged { wrapped: true, ..Purged::default() };
    for table in Table::ALL {
        let (age, count) = match table {
            Table::Dedupe => (purge.dedupe, &mut done.dedupe),
            Table::Task => (purge.task, &mut done.task),
            Table::TaskEvent => (purge.events, &mut done.events),
        };
        let (deleted, wrapped) = step(&mut tx, table, age, purge).await?;
        *count = deleted;
        done.more |= deleted >= u64::try_from(purge.limit).unwrap_or(0);
        done.wrapped &= wrapped;
    }
    if done.wrapped {
        sqlx::query(include_str!("../../sql/relay/patrol_fold.sql")).execute(&mut *tx).await?;
        purge_relays(&mut tx).await?;
    }
    dueline_failpoints::reached("relay.patrol.deleted");
    tx.commit().await?;
    Ok(done)
}

/// Deletes in the next stretch of blocks; says how much, and whether the table's end was reached.
async fn step(
    tx: &mut PgConnection,
    table: Table,
    age: Duration,
    purge: &Purge,
) -> Result<(u64, bool), StoreError> {
    let row = sqlx::query(include_str!("../../sql/relay/patrol_position.sql"))
        .bind(table.name())
        .fetch_one(&mut *tx)
        .await?;
    let (next, blocks): (i64, i64) = (row.try_get("next_block")?, row.try_get("blocks")?);
    let from = if next >= blocks { 0 } else { next };
    let upto = from.saturating_add(purge.blocks);
    let deleted = sqlx::query(table.statement())
        .bind(from)
        .bind(upto)
        .bind(interval(age))
        .bind(purge.limit)
        .execute(&mut *tx)
        .await?
        .rows_affected();
    let full = deleted >= u64::try_from(purge.limit).unwrap_or(0);
    let wrapped = !full && upto >= blocks;
    let position = match (full, wrapped) {
        (true, _) => from,
        (_, true) => 0,
        _ => upto,
    };
    sqlx::query(include_str!("../../sql/relay/patrol_moved.sql"))
        .bind(table.name())
        .bind(position)
        .execute(&mut *tx)
        .await?;
    Ok((deleted, wrapped))
}

async fn purge_relays(tx: &mut PgConnection) -> Result<(), StoreError> {
    let worth: bool = sqlx::query(include_str!("../../sql/relay/patrol_relays_due.sql"))
        .fetch_one(&mut *tx)
        .await?
        .try_get(0)?;
    if worth {
        sqlx::query(include_str!("../../sql/relay/patrol_relays.sql")).execute(&mut *tx).await?;
        sqlx::query(include_str!("../../sql/relay/patrol_moved.sql"))
            .bind("relay")
            .bind(0_i64)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}
