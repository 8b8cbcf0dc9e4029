//! What the loops of one relay share.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use dueline_config::Config;
use dueline_core::Micros;
use dueline_kafka::Admin;
use dueline_service::Health;
use dueline_store::Pool;
use dueline_store::relay::{BEGINNING, Claimed, Heartbeat};
use tokio::sync::Notify;

use crate::book::Book;
use crate::clock::{self, ClockGuard, Reading};
use crate::error::RelayError;
use crate::pace::Window;
use crate::publish::{Publisher, locked};
use crate::routes::{Route, Routes};

/// See the module.
pub(crate) struct Shared {
    pub config: Config,
    pub pool: Pool,
    pub admin: Admin,
    pub publisher: Arc<Publisher>,
    pub routes: Routes,
    pub health: Health,
    pub book: Mutex<Book>,
    pub window: Mutex<Window>,
    pub clock: Mutex<ClockGuard>,
    /// The present incarnation.
    epoch: AtomicI64,
    /// Whether this is the relay that does what one relay is enough for (missing letters).
    pub leader: AtomicBool,
    source: RwLock<Arc<str>>,
    /// Lanes were taken: the sweep begins as soon as the scan has passed them.
    pub sweep_wanted: AtomicBool,
    pub sweep_now: Notify,
}

impl Shared {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        config: Config,
        pool: Pool,
        admin: Admin,
        publisher: Arc<Publisher>,
        routes: Routes,
        health: Health,
        source: &str,
    ) -> Self {
        let window = Window::new(config.relay.window_min, config.relay.window_max);
        Self {
            config,
            pool,
            admin,
            publisher,
            routes,
            health,
            book: Mutex::new(Book::default()),
            window: Mutex::new(window),
            clock: Mutex::new(ClockGuard::new()),
            epoch: AtomicI64::new(0),
            leader: AtomicBool::new(false),
            source: RwLock::new(source.into()),
            sweep_wanted: AtomicBool::new(false),
            sweep_now: Notify::new(),
        }
    }

    /// The scan has passed everything that is due: a sweep that was waiting for it may begin.
    pub fn passed_all(&self) {
        if self.sweep_wanted.swap(false, Ordering::Relaxed) {
            self.sweep_now.notify_one();
        }
    }

    pub fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Begins a new incarnation, without lanes.
    pub fn begin(&self, epoch: i64) {
        locked(&self.book).clear();
        self.publisher.begin(epoch);
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    pub fn source(&self) -> Arc<str> {
        Arc::clone(&self.source.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set_source(&self, source: &str) {
        let mut slot = self.source.write().unwrap_or_else(PoisonError::into_inner);
        if **slot != *source {
            tracing::warn!(from = %slot, to = source, "the source of messages changes");
            *slot = source.into();
        }
    }

    /// What the next heartbeat says.
    pub fn heartbeat(&self, now: Option<Micros>) -> Heartbeat {
        let watermark = locked(&self.book).watermark().unwrap_or(BEGINNING);
        let (confirmed_upto, exceptions) = {
            let mut tracker = locked(&self.publisher.tracker);
            if let Some(now) = now {
                // Twice: the lease began a little after the claim was made.
                tracker.1.forget_before(now.minus(self.config.relay.lease * 2));
            }
            tracker.1.confirmed()
        };
        let cannot_produce = self
            .publisher
            .failing()
            .filter(|(since, _)| *since >= self.config.relay.hand_over_after)
            .map(|(_, why)| why.chars().take(300).collect());
        Heartbeat { watermark, confirmed_upto, exceptions, cannot_produce }
    }

    /// Takes in a reading of the database's clock, asked for at `asked`.
    pub fn read_clock(&self, clock: Micros, asked: Instant) {
        let reading = locked(&self.clock).read(clock, asked);
        metrics::gauge!("dueline_relay_host_clock_offset_seconds")
            .set(clock::host_offset_seconds(clock));
        let state = match reading {
            Reading::Steady => Ok(()),
            Reading::Ahead(by) => Err(format!("the database's clock jumped ahead by {by:.1?}")),
            Reading::Back(by) => {
                tracing::error!(?by, "the database's clock went back; scanning from its new time");
                metrics::counter!("dueline_relay_clock_jumps_total", "direction" => "back")
                    .increment(1);
                locked(&self.book).clock_went_back(clock);
                Ok(())
            }
            Reading::Believed => {
                tracing::error!("the database's clock stays ahead; it is believed now");
                metrics::counter!("dueline_relay_clock_jumps_total", "direction" => "ahead")
                    .increment(1);
                Ok(())
            }
        };
        self.health.set("clock", state);
    }

    /// The latest `next_at` that may be claimed now.
    pub fn horizon(&self) -> Micros {
        locked(&self.clock).horizon(Instant::now())
    }

    /// The best guess of the database's clock.
    pub fn now(&self) -> Option<Micros> {
        locked(&self.clock).guess(Instant::now())
    }

    /// A claiming statement starts.
    pub fn open_claim(&self) -> u64 {
        let now = locked(&self.clock).last().unwrap_or(BEGINNING);
        locked(&self.publisher.tracker).1.open(now)
    }

    /// A claiming statement of `epoch` returned; with the routes of what it claimed.
    pub fn claimed(
        &self,
        epoch: i64,
        ticket: u64,
        claims: Vec<Claimed>,
    ) -> Vec<(Claimed, Arc<Route>)> {
        {
            let mut tracker = locked(&self.publisher.tracker);
            if tracker.0 == epoch {
                tracker.1.returned(ticket, claims.iter().map(|c| (c.claimed_at, c.id)));
            }
        }
        let book = locked(&self.book);
        let mut routed = Vec::with_capacity(claims.len());
        for claim in claims {
            // The claim names lanes of the book only, and their routes stay known.
            let Some(route) = book.route(claim.lane) else { continue };
            route.lateness.record(claim.claimed_at.since(claim.next_at).as_secs_f64());
            route.claimed.increment(1);
            routed.push((claim, Arc::clone(route)));
        }
        routed
    }

    /// Publishes what `epoch` claimed.
    pub async fn publish(
        &self,
        epoch: i64,
        claims: &[(Claimed, Arc<Route>)],
    ) -> Result<(), RelayError> {
        Ok(self.publisher.publish(epoch, &self.source(), claims).await?)
    }
}
