//! Whether everything that was scheduled happened, once, and not too early.

use std::ops::AddAssign;

use anyhow::Result;
use serde::Serialize;

use crate::stage::Stage;

/// What the judge counted; anything but zeros is a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Judgement {
    /// Effects that happened again.
    pub duplicates: i64,
    /// Tasks that are not done although they are due, or without their effect.
    pub losses: i64,
    /// Effects or claims before the due time.
    pub early: i64,
}

impl Judgement {
    /// Whether there is nothing to complain about.
    pub fn is_clean(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for Judgement {
    fn add_assign(&mut self, other: Self) {
        self.duplicates += other.duplicates;
        self.losses += other.losses;
        self.early += other.early;
    }
}

/// Judges all tasks that are due by now; what waits for later is no loss. `scheduled` is how many were
/// scheduled to be due by now: a task without a row is a loss too.
pub(crate) async fn judge(stage: &Stage, scheduled: i64) -> Result<Judgement> {
    let row: (i64, i64, i64, i64) =
        sqlx::query_as(include_str!("../sql/judge.sql")).fetch_one(&stage.pool).await?;
    let (duplicates, unfinished, early, due) = row;
    Ok(Judgement { duplicates, losses: unfinished + (scheduled - due).max(0), early })
}
