//! From when to when a number of tasks was worked off.

use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, ensure};
use dueline_core::Micros;
use dueline_store::Timestamptz;

use crate::settings::{KIND, QUEUE};
use crate::stage::Stage;

/// The first and the last claim, and the last settle, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// When the first of them was claimed.
    pub first_claim: Micros,
    /// When the last of them was claimed.
    pub last_claim: Micros,
    /// When the last of them was settled.
    pub last_settle: Micros,
}

impl Drained {
    /// Both together: as if it were one number of tasks.
    pub fn and(self, other: Self) -> Self {
        Self {
            first_claim: self.first_claim.min(other.first_claim),
            last_claim: self.last_claim.max(other.last_claim),
            last_settle: self.last_settle.max(other.last_settle),
        }
    }

    /// Seconds from the first claim to the last, never zero.
    pub fn claim_seconds(self) -> f64 {
        self.last_claim.since(self.first_claim).as_secs_f64().max(1e-3)
    }

    /// Seconds from the first claim to the last settle, never zero.
    pub fn seconds(self) -> f64 {
        self.last_settle.since(self.first_claim).as_secs_f64().max(1e-3)
    }
}

/// Reads it for the tasks of these orders, all of which must be settled.
pub(crate) async fn of_orders(stage: &Stage, orders: RangeInclusive<i64>) -> Result<Drained> {
    let (first, last) = orders.into_inner();
    type Row = (i64, Option<Timestamptz>, Option<Timestamptz>, Option<Timestamptz>);
    let row: Row = sqlx::query_as(include_str!("../sql/drained.sql"))
        .bind(first)
        .bind(last)
        .bind(QUEUE)
        .bind(KIND)
        .fetch_one(&stage.pool)
        .await?;
    let (settled, first_claim, last_claim, last_settle) = row;
    ensure!(settled == last - first + 1, "of the orders {first} to {last}, {settled} are settled");
    let time = |at: Option<Timestamptz>| anyhow::Ok(at.context("settled without a claim")?.0);
    Ok(Drained {
        first_claim: time(first_claim)?,
        last_claim: time(last_claim)?,
        last_settle: time(last_settle)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_drains_are_one_from_the_first_claim_to_the_last_settle() {
        let drained = |from, claimed, to| Drained {
            first_claim: Micros(from),
            last_claim: Micros(claimed),
            last_settle: Micros(to),
        };
        let one = drained(1_000_000, 2_500_000, 3_000_000);
        let both = one.and(drained(2_000_000, 2_000_000, 4_000_000));
        assert_eq!(both, drained(1_000_000, 2_500_000, 4_000_000));
        assert!((both.seconds() - 3.0).abs() < 1e-9);
        assert!((both.claim_seconds() - 1.5).abs() < 1e-9);
    }
}
