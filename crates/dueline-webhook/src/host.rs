//! One host and port: how many calls may be under way, and whether it answers at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All webhooks of one host and port share it.
#[derive(Debug)]
pub struct Host {
    name: String,
    slots: Arc<Semaphore>,
    /// The one call at a time that an ailing host gets.
    probe: Arc<Semaphore>,
    failures: AtomicU32,
    ailing_from: u32,
}

/// The right to make one call, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    _slot: OwnedSemaphorePermit,
    _probe: Option<OwnedSemaphorePermit>,
}

impl Host {
    pub(crate) fn new(name: String, concurrency: usize, ailing_from: u32) -> Self {
        Self {
            name,
            slots: Arc::new(Semaphore::new(concurrency)),
            probe: Arc::new(Semaphore::new(1)),
            failures: AtomicU32::new(0),
            ailing_from,
        }
    }

    /// `host:port`, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the last calls have all failed: then one call at a time finds out whether that is over.
    #[must_use]
    pub fn is_ailing(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= self.ailing_from
    }

    /// Notes how a call ended.
    pub(crate) fn note(&self, failed: bool) {
        if failed {
            // Wraps after four billion failures in a row, and then has to count to the limit again.
            self.failures.fetch_add(1, Ordering::Relaxed);
        } else {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Takes up to `most` of the slots that are free. Of an ailing host: one, or none when somebody else is finding out
    /// already.
    #[must_use]
    pub fn free_slots(&self, most: usize) -> Vec<Slot> {
        let one = || Arc::clone(&self.slots).try_acquire_owned().ok();
        if !self.is_ailing() {
            let free = std::iter::from_fn(one).take(most);
            return free.map(|slot| Slot { _slot: slot, _probe: None }).collect();
        }
        let probe = || Arc::clone(&self.probe).try_acquire_owned().ok();
        let both = if most > 0 { one().zip(probe()) } else { None };
        both.map(|(slot, probe)| Slot { _slot: slot, _probe: Some(probe) }).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_calls_than_slots_are_under_way() {
        let host = Host::new("h:443".into(), 3, 2);
        let two = host.free_slots(2);
        assert_eq!(two.len(), 2);
        let last = host.free_slots(10);
        assert_eq!(last.len(), 1);
        assert!(host.free_slots(1).is_empty());
        drop(two);
        assert_eq!(host.free_slots(10).len(), 2);
        drop(last);
        assert!(host.free_slots(0).is_empty());
    }

    #[test]
    fn an_ailing_host_gets_one_call_at_a_time_until_one_succeeds() {
        let host = Host::new("h:443".into(), 8, 2);
        host.note(true);
        assert!(!host.is_ailing());
        host.note(true);
        assert!(host.is_ailing());
        let probe = host.free_slots(8);
        assert_eq!(probe.len(), 1);
        assert!(host.free_slots(8).is_empty());
        drop(probe);
        assert_eq!(host.free_slots(8).len(), 1);
        host.note(false);
        assert_eq!(host.free_slots(8).len(), 8);
    }
}
