//! From when to when a number of tasks was worked off.

use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, ensure};
use dueline_core::Micros;
use dueline_store::Timestamptz;

use crate::settings::{KIND, QUEUE};
use crate::stage::Stage;

/// The first claim and the last settle, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// When the first of them was claimed.
    pub first_claim: Micros,
    /// When the last of them was settled.
    pub last_settle: Micros,
}

impl Drained {
    /// Both together: as if it were one number of tasks.
    pub fn and(self, other: Self) -> Self {
        Self {
            first_claim: self.first_claim.min(other.first_claim),
            last_settle: self.last_settle.max(other.last_settle),
        }
    }

    /// How long it took, in seconds, never zero.
    pub fn seconds(self) -> f64 {
        self.last_settle.since(self.first_claim).as_secs_f64().max(1e-3)
    }
}

/// Reads it for the tasks of these orders, all of which must be settled.
pub(crate) async fn of_orders(stage: &Stage, orders: RangeInclusive<i64>) -> Result<Drained> {
    let (first, last) = orders.into_inner();
    let (settled, claim, settle): (i64, Option<Timestamptz>, Option<Timestamptz>) =
        sqlx::query_as(include_str!("../sql/drained.sql"))
            .bind(first)
            .bind(last)
            .bind(QUEUE)
            .bind(KIND)
            .fetch_one(&stage.pool)
            .await?;
    ensure!(settled == last - first + 1, "of the orders {first} to {last}, {settled} are settled");
    let (claim, settle) = claim.zip(settle).context("tasks without a claim")?;
    Ok(Drained { first_claim: claim.0, last_settle: settle.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_drains_are_one_from_the_first_claim_to_the_last_settle() {
        let drained = |a, b| Drained { first_claim: Micros(a), last_settle: Micros(b) };
        let both = drained(1_000_000, 3_000_000).and(drained(2_000_000, 4_000_000));
        assert_eq!(both, drained(1_000_000, 4_000_000));
        assert!((both.seconds() - 3.0).abs() < 1e-9);
    }
}
