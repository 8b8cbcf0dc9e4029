//! What clients do with a task after they scheduled it, drawn from the seed.

use rand::Rng as _;
use rand::rngs::StdRng;

use crate::parcels::Flaw;

/// The kinds that clients schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An order that is closed unless somebody pays.
    CloseOrder,
    /// A refund by a gateway that fails now and then.
    Refund,
    /// A parcel, by the handler in Rust.
    Ship,
    /// Poison: fails for good, whatever happens.
    Curse,
}

impl Kind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CloseOrder => "close_order",
            Self::Refund => "refund",
            Self::Ship => "ship",
            Self::Curse => "curse",
        }
    }

    /// Draws one.
    pub fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..1_000) {
            0..450 => Self::CloseOrder,
            450..750 => Self::Refund,
            750..985 => Self::Ship,
            _ => Self::Curse,
        }
    }
}

/// What a client does with a task, some time after it was scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Pays the order, and nothing else: the task will find nothing to do.
    Pay,
    /// Pays the order and cancels its task, in one transaction.
    PayAndCancel,
    /// Cancels.
    Cancel,
    /// Cancels, and schedules the same key again a little later.
    CancelAndReopen,
    /// Moves the deadline to so many milliseconds from then.
    Reschedule(i64),
}

/// From scheduling to the deadline, in milliseconds.
pub fn delay_ms(rng: &mut StdRng) -> i64 {
    match rng.random_range(0..100) {
        0..20 => 0,
        20..97 => rng.random_range(50..4_000),
        _ => rng.random_range(4_000..9_000),
    }
}

/// Draws what happens to a task, and when after its deadline (negative: before), in milliseconds.
pub fn draw(rng: &mut StdRng, kind: Kind) -> Option<(Deed, i64)> {
    let move_to = rng.random_range(100..3_000);
    let orders = kind == Kind::CloseOrder;
    let deed = match rng.random_range(0..100) {
        0..12 if orders => Deed::Pay,
        12..22 if orders => Deed::PayAndCancel,
        22..28 => Deed::Cancel,
        28..31 => Deed::CancelAndReopen,
        31..38 => Deed::Reschedule(move_to),
        _ => return None,
    };
    // Half of them at the very moment, where the races are.
    let when = if rng.random() { rng.random_range(-60..120) } else { rng.random_range(-900..400) };
    Some((deed, when))
}

/// How a refund is going to fail: its amount, and how long after its deadline the gateway is down.
pub fn refund(rng: &mut StdRng) -> (&'static str, Option<i64>) {
    match rng.random_range(0..1_000) {
        0..40 => ("12.50", Some(rng.random_range(100..2_500))),
        40..46 => ("twelve fifty", None),
        _ => ("12.50", None),
    }
}

/// How a parcel is going to fail.
pub fn flaw(rng: &mut StdRng) -> Flaw {
    match rng.random_range(0..1_000) {
        0..30 => Flaw::Tries(rng.random_range(1..=3)),
        30..33 => Flaw::Tries(i32::MAX),
        33..38 => Flaw::Broken,
        38..40 => Flaw::Panic,
        _ => Flaw::None,
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_and_everything_comes() {
        let drawn = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            let each = |_| (draw(&mut rng, Kind::CloseOrder), refund(&mut rng), flaw(&mut rng));
            format!("{:?}", (0..3_000).map(each).collect::<Vec<_>>())
        };
        let text = drawn(3);
        assert_eq!(text, drawn(3));
        for part in ["Pay,", "PayAndCancel", "Cancel,", "CancelAndReopen", "Reschedule", "Panic"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
