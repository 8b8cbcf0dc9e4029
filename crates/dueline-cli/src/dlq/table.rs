//! The dead from the stranded table.

use dueline_store::Pool;
use dueline_store::operate::dead::{self, DeadFilter, DeadTask};

use super::source::{Dead, Found};
use crate::args::Selection;
use crate::exit;
use crate::output::fail;
use crate::typed::table_cursor;

/// Rows that one statement reads.
const PAGE: u32 = 1_000;

/// Selects at most `select.limit`.
pub async fn find(pool: &Pool, select: &Selection, filter: &DeadFilter) -> anyhow::Result<Found> {
    let mut after = match &select.after {
        None => None,
        Some(text) => {
            Some(table_cursor(text).map_err(|e| fail(exit::REFUSED, format!("--after: {e}")))?)
        }
    };
    let limit = select.limit as usize;
    let mut found = Found::default();
    while found.dead.len() < limit {
        let page = dead::list(pool, filter, after, PAGE).await?;
        let last = page.len() < PAGE as usize;
        for task in page {
            after = Some((task.died_at.0, task.id));
            if select.ids.is_empty() || select.ids.contains(&task.id) {
                found.dead.push(Dead::Task(task));
            }
            if found.dead.len() == limit {
                found.more = found.dead.last().map(Dead::cursor);
                return Ok(found);
            }
        }
        if last {
            break;
        }
    }
    Ok(found)
}

/// One dead task.
pub async fn by_id(pool: &Pool, id: i64) -> anyhow::Result<Option<DeadTask>> {
    Ok(dead::by_id(pool, id).await?)
}
