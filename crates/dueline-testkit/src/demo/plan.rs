//! What will happen to each order and refund, drawn from a seed.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// The earliest and latest deadline, after the order, in milliseconds.
const DELAY_MS: std::ops::Range<i64> = 1_000..11_000;
/// How far from the deadline a race is run, to either side.
const RACE_MS: i64 = 25;

/// What somebody does about an order or a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Pays.
    Pay,
    /// Pays, and cancels the task in the same transaction.
    PayAndCancel,
    /// Cancels the task.
    Cancel,
    /// Moves the deadline so many milliseconds from then.
    Reschedule(i64),
}

/// An order to be closed unless it is paid.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its id, which is the task's key.
    pub id: i64,
    /// From order to deadline.
    pub delay_ms: i64,
    /// Who does something, and how long after the deadline (negative: before).
    pub deed: Option<(Deed, i64)>,
}

/// A refund to be made.
#[derive(Clone, Debug)]
pub struct Refund {
    /// Its id, which is the task's key.
    pub id: i64,
    /// From request to deadline.
    pub delay_ms: i64,
    /// Who does something, and when.
    pub deed: Option<(Deed, i64)>,
    /// How long after the deadline the gateway stays down for it.
    pub down_ms: Option<i64>,
    /// What is to be paid back; not always a number.
    pub amount: &'static str,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The orders.
    pub orders: Vec<Order>,
    /// The refunds.
    pub refunds: Vec<Refund>,
}

impl Plan {
    /// Draws a plan for so many orders and refunds: three of four are orders.
    pub fn draw(total: u32, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let total = i64::from(total);
        let orders = total - total / 4;
        Self {
            orders: (1..=orders).map(|id| order(&mut rng, id)).collect(),
            refunds: (1..=total - orders).map(|id| refund(&mut rng, id)).collect(),
        }
    }

    /// How many tasks it has.
    pub fn len(&self) -> usize {
        self.orders.len() + self.refunds.len()
    }
}

fn before(rng: &mut StdRng) -> i64 {
    -rng.random_range(200..900)
}

fn race(rng: &mut StdRng) -> i64 {
    rng.random_range(-RACE_MS..=RACE_MS)
}

fn order(rng: &mut StdRng, id: i64) -> Order {
    let deed = match rng.random_range(0..100) {
        0..12 => Some((Deed::Pay, before(rng))),
        12..20 => Some((Deed::PayAndCancel, before(rng))),
        20..32 => Some((Deed::Pay, race(rng))),
        32..38 => Some((Deed::Cancel, before(rng))),
        38..41 => Some((Deed::Cancel, race(rng))),
        41..46 => Some((Deed::Reschedule(rng.random_range(500..4_000)), before(rng))),
        46..50 => Some((Deed::Reschedule(rng.random_range(500..4_000)), race(rng))),
        _ => None,
    };
    Order { id, delay_ms: rng.random_range(DELAY_MS), deed }
}

fn refund(rng: &mut StdRng, id: i64) -> Refund {
    let delay_ms = rng.random_range(DELAY_MS);
    let mut refund = Refund { id, delay_ms, deed: None, down_ms: None, amount: "12.50" };
    match rng.random_range(0..1_000) {
        0..60 => refund.deed = Some((Deed::Cancel, before(rng))),
        60..120 => {
            refund.deed = Some((Deed::Reschedule(rng.random_range(500..4_000)), before(rng)));
        }
        // Down for a moment: the first try or two fail.
        120..160 => refund.down_ms = Some(rng.random_range(100..700)),
        160..170 => refund.amount = "twelve fifty",
        _ => {}
    }
    refund
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_follows_from_its_seed() {
        let plan = Plan::draw(6_000, 7);
        assert_eq!(plan.len(), 6_000);
        assert_eq!(format!("{plan:?}"), format!("{:?}", Plan::draw(6_000, 7)));
        assert_ne!(format!("{plan:?}"), format!("{:?}", Plan::draw(6_000, 8)));
        assert!(plan.refunds.iter().any(|refund| refund.amount.parse::<f64>().is_err()));
        assert!(plan.orders.iter().any(|o| matches!(o.deed, Some((Deed::Pay, ms)) if ms > 0)));
    }
}
