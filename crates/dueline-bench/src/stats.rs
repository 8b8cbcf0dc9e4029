//! Medians, spreads and percentiles.

use serde::Serialize;

/// What repeats came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number the mean of both.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of these values; `None` when there is none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self { median, min, max })
    }
}

/// How late tasks were, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of them were not later.
    pub p50: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// All of them.
    pub max: f64,
}

impl Percentiles {
    /// Of these values; `None` when there is none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let max = *sorted.last()?;
        let at = |share: f64| nearest_rank(&sorted, share);
        Some(Self { p50: at(0.50), p99: at(0.99), p999: at(0.999), max })
    }
}

/// The least value that at least this share of all values does not exceed.
fn nearest_rank(sorted: &[f64], share: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(&[4.0, 2.0]).map(|s| s.median), Some(3.0));
        assert_eq!(Spread::of(&[f64::NAN]), None, "what was not measured is no value");
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let p = Percentiles::of(&values).expect("values");
        assert_eq!((p.p50, p.p99, p.p999, p.max), (500.0, 990.0, 999.0, 1_000.0));
        let one = Percentiles::of(&[7.0]).expect("a value");
        assert_eq!((one.p50, one.p999), (7.0, 7.0));
    }
}
