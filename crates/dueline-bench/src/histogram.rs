//! Percentiles of a Prometheus histogram, from two scrapes of `/metrics`.

use std::collections::BTreeMap;

use crate::stats::Percentiles;

/// How many samples there are up to each bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram(BTreeMap<Bound, f64>);

/// An upper bound in seconds; they sort by number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound(f64);

impl Eq for Bound {}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Histogram {
    /// The histogram `name` of a scrape, added up over the lines that contain `label`.
    pub fn read(scrape: &str, name: &str, label: &str) -> Self {
        let mut buckets = BTreeMap::new();
        for line in scrape.lines().filter(|line| line.contains(label)) {
            let Some(rest) = line.strip_prefix(name) else { continue };
            let Some(rest) = rest.strip_prefix("_bucket{") else { continue };
            let Some((bound, count)) = bound_and_count(rest) else { continue };
            *buckets.entry(Bound(bound)).or_insert(0.0) += count;
        }
        Self(buckets)
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bound| earlier.0.get(bound).copied().unwrap_or(0.0);
        Self(self.0.iter().map(|(bound, count)| (*bound, count - before(bound))).collect())
    }

    /// The percentiles in milliseconds, each interpolated within its bucket; `max` is the bound of the
    /// highest bucket with a sample. `None` without samples.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let total = *self.0.last_key_value()?.1;
        if total < 1.0 {
            return None;
        }
        let at = |share: f64| 1_000.0 * self.quantile(share * total);
        Some(Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) })
    }

    /// The value, in seconds, that `rank` samples do not exceed.
    fn quantile(&self, rank: f64) -> f64 {
        let (mut lower, mut below) = (0.0, 0.0);
        for (bound, count) in &self.0 {
            if *count >= rank {
                // Nothing is known of what lies beyond the last finite bound.
                return if bound.0.is_finite() {
                    lower + (bound.0 - lower) * ((rank - below) / (count - below).max(1.0))
                } else {
                    lower
                };
            }
            (lower, below) = (bound.0, *count);
        }
        lower
    }
}

/// `queue="q",le="0.01"} 17`
fn bound_and_count(labels: &str) -> Option<(f64, f64)> {
    let (labels, count) = labels.rsplit_once(' ')?;
    let bound = labels.split_once("le=\"")?.1.split_once('"')?.0;
    let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
    Some((bound, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# TYPE late_seconds histogram
late_seconds_bucket{tier=\"10s\",le=\"0.001\"} 5
late_seconds_bucket{tier=\"10s\",le=\"0.01\"} 5
late_seconds_bucket{tier=\"10s\",le=\"+Inf\"} 5
late_seconds_sum{tier=\"10s\"} 0.001
";
    const AFTER: &str = "late_seconds_bucket{tier=\"10s\",le=\"0.001\"} 55
late_seconds_bucket{tier=\"10s\",le=\"0.01\"} 105
late_seconds_bucket{tier=\"10s\",le=\"+Inf\"} 105
late_seconds_bucket{tier=\"1m\",le=\"+Inf\"} 1000
other_late_seconds_bucket{tier=\"10s\",le=\"+Inf\"} 7
";

    #[test]
    fn percentiles_are_of_what_came_between_two_scrapes() {
        let read = |scrape| Histogram::read(scrape, "late_seconds", "tier=\"10s\"");
        let p = read(AFTER).since(&read(BEFORE)).percentiles().expect("samples");
        assert!((p.p50 - 1.0).abs() < 1e-9, "{p:?}");
        assert!((p.p99 - (1.0 + 9.0 * 0.98)).abs() < 1e-9, "{p:?}");
        assert!((p.max - 10.0).abs() < 1e-9, "{p:?}");
    }

    #[test]
    fn without_samples_there_are_no_percentiles() {
        assert_eq!(Histogram::read(AFTER, "missing_seconds", "").percentiles(), None);
        let read = Histogram::read(AFTER, "late_seconds", "");
        assert_eq!(read.since(&read).percentiles(), None);
    }

    #[test]
    fn what_lies_beyond_the_last_bound_counts_as_that_bound() {
        let scrape = "late_seconds_bucket{le=\"0.5\"} 1\nlate_seconds_bucket{le=\"+Inf\"} 9\n";
        let p = Histogram::read(scrape, "late_seconds", "").percentiles().expect("samples");
        assert!((p.p99 - 500.0).abs() < 1e-9);
    }
}
