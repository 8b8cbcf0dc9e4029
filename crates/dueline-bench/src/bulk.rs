//! Tasks by the million: the rows that `schedule_many` would write, by COPY. How fast the product itself schedules is
//! measured by the scenarios `steady` and `schedule`.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context as _, Result, ensure};
use dueline_core::{KeyHash, Micros};
use dueline_store::Pool;

use crate::load;
use crate::settings::KIND;

/// Tasks of one COPY and one transaction.
const BATCH: i64 = 25_000;
/// PostgreSQL counts from the year 2000.
const EPOCH: i64 = 946_684_800_000_000;
/// What a binary COPY begins with: signature, no flags, no extension.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// … and ends with.
const END: [u8; 2] = [0xff; 2];

const COPY_TASKS: &str =
    "copy dueline.task (id, key_hash, due_at, kind, key, tier) from stdin (format binary)";
const COPY_ALARMS: &str =
    "copy dueline.due (id, next_at, lane, generation, attempt) from stdin (format binary)";

/// When a task is due, and in which tier it waits: an index into [`Way::tiers`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub due_at: Micros,
    pub tier: usize,
}

/// The lanes of our kind, as `dueline apply` made them.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct Way {
    queue: String,
    slots: i32,
    /// The tiers, the shortest first.
    pub tiers: Vec<String>,
    /// Tier after tier, `slots` each.
    lanes: Vec<i32>,
}

impl Way {
    /// Reads it.
    pub async fn of(pool: &Pool) -> Result<Self> {
        let row = sqlx::query_as(include_str!("../sql/way.sql")).bind(KIND).fetch_one(pool).await;
        row.context("the kind has no lanes")
    }

    /// The index of the tier of this name.
    pub fn tier(&self, name: &str) -> Result<usize> {
        self.tiers.iter().position(|tier| tier == name).with_context(|| format!("no tier {name}"))
    }

    fn lane(&self, tier: usize, hash: KeyHash) -> Result<i32> {
        let slots = u32::try_from(self.slots)?;
        let place = tier * usize::try_from(slots)? + usize::try_from(hash.slot(slots))?;
        self.lanes.get(place).copied().with_context(|| format!("tier {tier} has no lane"))
    }
}

/// Makes a task for each of these keys where `place` says. The database must be at rest.
pub(crate) async fn load<P>(pool: &Pool, keys: RangeInclusive<i64>, place: P) -> Result<()>
where
    P: Fn(i64, KeyHash) -> Place + Send + Sync + 'static,
{
    let count = keys.end() - keys.start() + 1;
    let first_id: i64 =
        sqlx::query_scalar(include_str!("../sql/take_ids.sql")).bind(count).fetch_one(pool).await?;
    let (first_key, loaded) = (*keys.start(), Arc::new(AtomicI64::new(0)));
    let (way, place, sum) = (Arc::new(Way::of(pool).await?), Arc::new(place), Arc::clone(&loaded));
    let pool = pool.clone();
    load::in_parallel(keys, BATCH, move |keys| {
        let (pool, way, place) = (pool.clone(), Arc::clone(&way), Arc::clone(&place));
        let sum = Arc::clone(&sum);
        async move {
            let mut rows = Rows::default();
            for key in keys {
                rows.add(&way, first_id + key - first_key, key, &*place)?;
            }
            let mut tx = pool.begin().await?;
            let tasks = copy(&mut tx, COPY_TASKS, rows.tasks).await?;
            let alarms = copy(&mut tx, COPY_ALARMS, rows.alarms).await?;
            tx.commit().await?;
            ensure!(tasks == alarms, "{tasks} tasks and {alarms} alarms");
            sum.fetch_add(i64::try_from(tasks)?, Ordering::Relaxed);
            Ok(())
        }
    })
    .await?;
    let loaded = loaded.load(Ordering::Relaxed);
    ensure!(loaded == count, "{loaded} of {count} tasks were made");
    Ok(())
}

async fn copy(
    connection: &mut sqlx::PgConnection,
    statement: &'static str,
    rows: Vec<u8>,
) -> Result<u64> {
    let mut copy = connection.copy_in_raw(statement).await?;
    copy.send(HEAD).await?;
    copy.send(rows).await?;
    copy.send(&END[..]).await?;
    Ok(copy.finish().await?)
}

/// The rows of both tables, in the binary format of COPY.
#[derive(Debug, Default)]
struct Rows {
    tasks: Vec<u8>,
    alarms: Vec<u8>,
}

impl Rows {
    fn add(
        &mut self,
        way: &Way,
        id: i64,
        key: i64,
        place: &dyn Fn(i64, KeyHash) -> Place,
    ) -> Result<()> {
        let text = key.to_string();
        let hash = KeyHash::new(&way.queue, KIND, &text);
        let Place { due_at, tier } = place(key, hash);
        let due = (due_at.0 - EPOCH).to_be_bytes();
        let id = id.to_be_bytes();
        let name = way.tiers.get(tier).with_context(|| format!("there is no tier {tier}"))?;
        let lane = way.lane(tier, hash)?.to_be_bytes();
        row(
            &mut self.tasks,
            [&id, &hash.0, &due, KIND.as_bytes(), text.as_bytes(), name.as_bytes()],
        );
        row(&mut self.alarms, [&id, &due, &lane, &[0; 4], &[0; 4]]);
        Ok(())
    }
}

/// Adds a row: the number of its columns, then each with its length. All are short.
#[allow(clippy::cast_possible_truncation)]
fn row<const N: usize>(rows: &mut Vec<u8>, columns: [&[u8]; N]) {
    rows.extend_from_slice(&(N as u16).to_be_bytes());
    for column in columns {
        rows.extend_from_slice(&(column.len() as u32).to_be_bytes());
        rows.extend_from_slice(column);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way() -> Way {
        let tiers = vec!["10s".to_owned(), "1m".to_owned()];
        Way { queue: "bench".to_owned(), slots: 2, tiers, lanes: vec![11, 12, 21, 22] }
    }

    #[test]
    fn a_task_has_the_lane_of_its_tier_and_slot() {
        let way = way();
        let (even, odd) =
            (KeyHash([0; 16]), KeyHash([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(way.tier("1m").expect("is there"), 1);
        assert_eq!((way.lane(0, even).ok(), way.lane(1, odd).ok()), (Some(11), Some(22)));
        assert!(way.lane(2, even).is_err() && way.tier("1h").is_err());
    }

    #[test]
    fn rows_are_as_copy_reads_them() {
        let mut rows = Vec::new();
        row(&mut rows, [&[7, 8][..], b"key"]);
        assert_eq!(rows, [0, 2, 0, 0, 0, 2, 7, 8, 0, 0, 0, 3, b'k', b'e', b'y']);
        let mut both = Rows::default();
        let place = |_: i64, _: KeyHash| Place { due_at: Micros(EPOCH + 5), tier: 1 };
        both.add(&way(), 3, 42, &place).expect("fits");
        assert_eq!(both.tasks[..2], [0, 6]);
        assert_eq!(both.alarms.len(), 2 + 5 * 4 + 8 + 8 + 3 * 4);
        assert_eq!(both.alarms[18..26], [0, 0, 0, 0, 0, 0, 0, 5], "counted from the year 2000");
    }
}
