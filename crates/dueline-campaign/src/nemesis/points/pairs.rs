//! Which pairs of points: few of many, so that each point is in about as many.

use std::collections::HashMap;

use dueline_failpoints::Point;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

/// Two points at which processes are killed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair<'p> {
    /// A relay's and a consumer's, at about the same time.
    Across([&'p Point; 2]),
    /// One after the other of the same process: it dies again while it recovers.
    InTurn([&'p Point; 2]),
}

impl<'p> Pair<'p> {
    fn points(&self) -> [&'p Point; 2] {
        match self {
            Self::Across(points) | Self::InTurn(points) => *points,
        }
    }
}

/// So many different pairs, or all there are. Each is the one whose points were in the fewest so far;
/// among equals the seed decides.
pub fn covering<'p>(
    relay: &[&'p Point],
    consumer: &[&'p Point],
    count: usize,
    rng: &mut StdRng,
) -> Vec<Pair<'p>> {
    let mut left = Vec::new();
    left.extend(relay.iter().flat_map(|r| consumer.iter().map(move |c| Pair::Across([*r, *c]))));
    for own in [relay, consumer] {
        left.extend(own.iter().flat_map(|a| own.iter().map(move |b| Pair::InTurn([*a, *b]))));
    }
    left.shuffle(rng);
    let mut uses: HashMap<&str, usize> = HashMap::new();
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let cost = |pair: &Pair<'_>| -> usize {
            pair.points().iter().map(|point| uses.get(point.name).copied().unwrap_or(0)).sum()
        };
        let Some(best) = (0..left.len()).min_by_key(|place| cost(&left[*place])) else { break };
        let pair = left.swap_remove(best);
        pair.points().iter().for_each(|point| *uses.entry(point.name).or_default() += 1);
        chosen.push(pair);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use dueline_failpoints::{POINTS, Process};
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_pairs_and_few_pairs_have_every_point() {
        let of = |process| {
            POINTS.iter().filter(|p| p.in_campaign && p.process == process).collect::<Vec<_>>()
        };
        let (relay, consumer) = (of(Process::Relay), of(Process::Consumer));
        let drawn =
            |count, seed| covering(&relay, &consumer, count, &mut StdRng::seed_from_u64(seed));
        let count = relay.len() + consumer.len();
        let pairs = drawn(count, 1);
        assert_eq!(pairs, drawn(count, 1));
        assert_ne!(pairs, drawn(count, 2));
        let names: HashSet<&str> =
            pairs.iter().flat_map(|pair| pair.points().map(|point| point.name)).collect();
        assert_eq!(names.len(), relay.len() + consumer.len());
        let (r, c) = (relay.len(), consumer.len());
        assert_eq!(drawn(usize::MAX, 1).len(), r * c + r * r + c * c, "and then there are no more");
    }
}
