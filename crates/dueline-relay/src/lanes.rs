//! Which lanes this relay walks: heartbeat, fair shares, takeover of the dead, hand-over.
//!
//! Config: `relay.heartbeat_interval`, `relay.takeover_after`, `relay.hand_over_after`. The scan
//! loop calls [`Ownership::keep`] itself, so that a hung scan loses its lanes.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dueline_store::relay::{self, BEGINNING, Lane, Observed};
use rand::seq::SliceRandom as _;

use crate::error::RelayError;
use crate::publish::locked;
use crate::shared::Shared;

/// The most dead relays that are buried in one go.
const BURIALS: usize = 16;

/// What this relay knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    /// The last heartbeat number of each other relay, and since when it has been that one.
    seen: HashMap<i64, (i64, Instant)>,
    last_beat: Option<Instant>,
}

impl Ownership {
    /// When the next heartbeat is due.
    pub fn next_beat(&self, interval: Duration) -> Option<Instant> {
        self.last_beat.map(|last| last + interval)
    }

    pub fn is_due(&self, now: Instant, interval: Duration) -> bool {
        self.next_beat(interval).is_none_or(|due| now >= due)
    }

    /// A heartbeat, and then whatever the lanes need.
    ///
    /// # Errors
    /// [`RelayError::DeclaredDead`] when this incarnation is over.
    pub async fn keep(&mut self, shared: &Shared) -> Result<(), RelayError> {
        let epoch = shared.epoch();
        let began = Instant::now();
        let beat = shared.heartbeat(shared.now());
        let Some(clock) = relay::heartbeat(&shared.pool, epoch, &beat).await? else {
            return Err(RelayError::DeclaredDead);
        };
        dueline_failpoints::reached("relay.heartbeat.written");
        self.last_beat = Some(Instant::now());
        shared.read_clock(clock, began);
        self.tend(shared, beat.cannot_produce.is_some()).await
    }

    async fn tend(&mut self, shared: &Shared, cannot_produce: bool) -> Result<(), RelayError> {
        let epoch = shared.epoch();
        let takeover_after = shared.config.relay.takeover_after;
        let relays = relay::observe(&shared.pool, takeover_after).await?;
        let lanes = relay::lanes(&shared.pool).await?;
        let lanes: Vec<&Lane> = lanes.iter().filter(|l| shared.routes.of(l).is_some()).collect();
        sync(shared, epoch, &lanes);
        let dead = self.silent(&relays, epoch, takeover_after, Instant::now());
        if !cannot_produce {
            for (dead, heartbeat_no) in dead.into_iter().take(BURIALS) {
                take_over(shared, epoch, dead, heartbeat_no, &lanes).await?;
            }
        }
        balance(shared, epoch, &relays, &lanes, cannot_produce).await?;
        let leader = relays.iter().find(|r| !r.overdue && !r.cannot_produce).map(|r| r.epoch);
        shared.leader.store(leader == Some(epoch), Ordering::Relaxed);
        metrics::gauge!("dueline_relay_lanes").set(locked(&shared.book).len() as f64);
        metrics::gauge!("dueline_relay_in_flight").set(shared.publisher.in_flight() as f64);
        Ok(())
    }

    /// The relays that are silent by the database's clock *and* showed the same heartbeat for as
    /// long on our own steady clock.
    fn silent(
        &mut self,
        relays: &[Observed],
        own: i64,
        takeover_after: Duration,
        now: Instant,
    ) -> Vec<(i64, i64)> {
        self.seen.retain(|epoch, _| relays.iter().any(|r| r.epoch == *epoch));
        let mut silent = Vec::new();
        for other in relays.iter().filter(|r| r.epoch != own) {
            let seen = self.seen.entry(other.epoch).or_insert((other.heartbeat_no, now));
            if seen.0 != other.heartbeat_no {
                *seen = (other.heartbeat_no, now);
            }
            if other.overdue && now.saturating_duration_since(seen.1) >= takeover_after {
                silent.push((other.epoch, other.heartbeat_no));
            }
        }
        silent
    }

    /// Whether some relay that has lanes gives no sign of life, and is not yet known to be dead.
    pub async fn suspects(&self, shared: &Shared) -> Result<bool, RelayError> {
        let relays = relay::observe(&shared.pool, shared.config.relay.takeover_after).await?;
        Ok(relays.iter().any(|r| r.overdue && r.epoch != shared.epoch()))
    }
}

/// Brings the book in line with the database: somebody may have taken lanes from us.
fn sync(shared: &Shared, epoch: i64, lanes: &[&Lane]) {
    let mut book = locked(&shared.book);
    for lane in book.ids() {
        if !lanes.iter().any(|l| l.lane == lane && l.owner == Some(epoch)) {
            tracing::info!(lane, "the lane is not ours any more");
            book.remove(lane);
        }
    }
    for lane in lanes.iter().filter(|l| l.owner == Some(epoch)) {
        if let Some(route) = shared.routes.of(lane) {
            book.add(lane.lane, route.clone(), BEGINNING);
        }
    }
}

async fn take_over(
    shared: &Shared,
    epoch: i64,
    dead: i64,
    heartbeat_no: i64,
    lanes: &[&Lane],
) -> Result<(), RelayError> {
    let after = shared.config.relay.takeover_after;
    let taken = relay::take_over(&shared.pool, epoch, dead, heartbeat_no, after).await?;
    let Some(taken) = taken else { return Ok(()) };
    dueline_failpoints::reached("relay.lanes.taken_over");
    tracing::warn!(dead, lanes = taken.lanes.len(), "a relay is silent: its lanes are taken over");
    metrics::counter!("dueline_relay_takeovers_total").increment(1);
    {
        let mut book = locked(&shared.book);
        for lane in lanes.iter().filter(|l| taken.lanes.contains(&l.lane)) {
            if let Some(route) = shared.routes.of(lane) {
                book.add(lane.lane, route.clone(), taken.watermark);
            }
        }
    }
    shared.sweep_wanted.store(true, Ordering::Relaxed);
    Ok(())
}

/// How many lanes are to be taken (positive) or given (negative). `able` relays, this one included,
/// share all lanes evenly.
fn imbalance(mine: usize, all: usize, able: usize) -> isize {
    let fair = all.div_ceil(able.max(1));
    let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
    signed(fair) - signed(mine)
}

async fn balance(
    shared: &Shared,
    epoch: i64,
    relays: &[Observed],
    lanes: &[&Lane],
    cannot_produce: bool,
) -> Result<(), RelayError> {
    let others =
        relays.iter().filter(|r| r.epoch != epoch && !r.overdue && !r.cannot_produce).count();
    let mine = locked(&shared.book).ids();
    if cannot_produce {
        if others > 0 && !mine.is_empty() {
            tracing::error!(
                lanes = mine.len(),
                "nothing can be produced: the lanes are handed over"
            );
            give(shared, epoch, &mine).await?;
        }
        return Ok(());
    }
    let change = imbalance(mine.len(), lanes.len(), others + 1);
    let count = change.unsigned_abs();
    if change > 0 {
        // Mixed, so that one relay does not get all the slots of one busy tier.
        let mut free: Vec<i32> =
            lanes.iter().filter(|l| l.owner.is_none()).map(|l| l.lane).collect();
        free.shuffle(&mut rand::rng());
        take(shared, epoch, &free, count, lanes).await?;
    } else if change < 0 {
        let mut given = mine;
        given.shuffle(&mut rand::rng());
        given.truncate(count);
        give(shared, epoch, &given).await?;
    }
    Ok(())
}

async fn take(
    shared: &Shared,
    epoch: i64,
    free: &[i32],
    limit: usize,
    lanes: &[&Lane],
) -> Result<(), RelayError> {
    if free.is_empty() {
        return Ok(());
    }
    let chosen = &free[..limit.min(free.len())];
    let taken = relay::take_free(&shared.pool, epoch, chosen, limit).await?;
    if taken.is_empty() {
        return Ok(());
    }
    dueline_failpoints::reached("relay.lanes.taken");
    tracing::info!(lanes = taken.len(), "lanes taken");
    let mut book = locked(&shared.book);
    for lane in lanes.iter().filter(|l| taken.contains(&l.lane)) {
        if let Some(route) = shared.routes.of(lane) {
            // Nobody says how far the previous owner had come: from the beginning, once.
            book.add(lane.lane, route.clone(), BEGINNING);
        }
    }
    drop(book);
    shared.sweep_wanted.store(true, Ordering::Relaxed);
    Ok(())
}

async fn give(shared: &Shared, epoch: i64, lanes: &[i32]) -> Result<(), RelayError> {
    {
        // Out of the book first: nothing is claimed in a lane that is being given away.
        let mut book = locked(&shared.book);
        for lane in lanes {
            book.remove(*lane);
        }
    }
    dueline_failpoints::reached("relay.lanes.leaving");
    let given = relay::give(&shared.pool, epoch, lanes).await?;
    dueline_failpoints::reached("relay.lanes.given");
    tracing::info!(lanes = given.len(), "lanes given back");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(epoch: i64, heartbeat_no: i64, overdue: bool) -> Observed {
        Observed { epoch, name: "r".into(), heartbeat_no, overdue, cannot_produce: false }
    }

    #[test]
    fn lanes_are_shared_evenly() {
        assert_eq!(imbalance(0, 8, 1), 8);
        assert_eq!(imbalance(8, 8, 2), -4);
        assert_eq!(imbalance(4, 9, 2), 1);
        assert_eq!(imbalance(3, 8, 3), 0);
        assert_eq!(imbalance(0, 0, 1), 0);
    }

    #[test]
    fn a_relay_is_silent_only_by_both_clocks() {
        let after = Duration::from_secs(3);
        let start = Instant::now();
        let mut ownership = Ownership::default();
        let mut silent = |relay, at| ownership.silent(&[other(1, 0, false), relay], 1, after, at);
        assert!(silent(other(2, 7, true), start).is_empty(), "seen for the first time");
        assert!(silent(other(2, 7, true), start + after / 2).is_empty());
        assert_eq!(silent(other(2, 7, true), start + after), [(2, 7)]);
        assert!(silent(other(2, 8, true), start + after * 2).is_empty(), "it moved");
        assert!(silent(other(2, 8, false), start + after * 9).is_empty(), "the database disagrees");
    }
}
