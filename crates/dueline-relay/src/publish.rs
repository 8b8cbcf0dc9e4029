//! Producing what was claimed, and acting on the delivery reports.
//!
//! Delivered: remembered in memory; `confirmed_upto` follows with the next heartbeat. Certainly not
//! written: released under its fence, as soon as the database lets it. Unknown: nothing, the lease
//! decides.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use dueline_core::Micros;
use dueline_kafka::{
    Admin, KafkaError, KafkaSettings, Outcome, Producer, ProducerConfig, Record, Report, Reports,
};
use dueline_service::CancellationToken;
use dueline_store::relay::{self, Body, Claimed};
use dueline_store::{Pool, Sessions, StoreError};
use tokio::sync::Notify;

use crate::gate::Gate;
use crate::message;
use crate::release::Release;
use crate::routes::Route;
use crate::tracker::Tracker;

/// Reports handled in one go.
const REPORTS: usize = 1_000;
/// How often the broker is asked while nothing can be produced, and releases are tried again.
const TICK: Duration = Duration::from_millis(500);
/// Room for letters beside the claims in flight.
const SPARE: usize = 1_000;

/// What a message is recognised by when its report comes.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) epoch: i64,
    pub(crate) id: i64,
    pub(crate) lane: i32,
    pub(crate) next_at: Micros,
    pub(crate) fence: i32,
    pub(crate) claimed_at: Micros,
    /// When the claim's answer was there.
    pub(crate) answered: Instant,
    pub(crate) route: Arc<Route>,
}

impl Ticket {
    /// How long after its due time the broker has the message, when it reports now.
    fn lateness(&self, now: Instant) -> Duration {
        self.claimed_at.since(self.next_at) + now.saturating_duration_since(self.answered)
    }
}

/// How a publisher works.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub kafka: KafkaSettings,
    pub delivery_timeout: Duration,
    pub max_in_flight: usize,
    pub lease: Duration,
    /// Any topic: asked about while nothing can be produced.
    pub probe_topic: String,
}

/// Everything about producing that the loops share.
pub(crate) struct Publisher {
    pub(crate) settings: Settings,
    pub(crate) sessions: Sessions,
    admin: Admin,
    producer: RwLock<Arc<Producer<Ticket>>>,
    pub tracker: Mutex<(i64, Tracker)>,
    gate: Mutex<Gate>,
    pub(crate) releases: Mutex<Vec<Release>>,
    in_flight: AtomicUsize,
    /// Room, or a released alarm: the scan may want to look again.
    pub wake: Notify,
    /// Alarms that wait again: lane and `next_at`.
    pub(crate) returned: Mutex<Vec<(i32, Micros)>>,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves whole values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Publisher {
    pub fn new(
        settings: Settings,
        pool: Pool,
        admin: Admin,
    ) -> Result<(Self, Reports<Ticket>), KafkaError> {
        let (producer, reports) = create(&settings)?;
        let publisher = Self {
            settings,
            sessions: Sessions::new(pool),
            admin,
            producer: RwLock::new(Arc::new(producer)),
            tracker: Mutex::new((0, Tracker::new())),
            gate: Mutex::new(Gate::new(Instant::now())),
            releases: Mutex::new(Vec::new()),
            in_flight: AtomicUsize::new(0),
            wake: Notify::new(),
            returned: Mutex::new(Vec::new()),
        };
        Ok((publisher, reports))
    }

    fn producer(&self) -> Arc<Producer<Ticket>> {
        Arc::clone(&self.producer.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A new incarnation begins: what the old one had not confirmed is its successor's.
    pub fn begin(&self, epoch: i64) {
        *locked(&self.tracker) = (epoch, Tracker::new());
        locked(&self.releases).clear();
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// How many more tasks may be claimed now.
    pub fn room(&self) -> usize {
        self.settings.max_in_flight.saturating_sub(self.in_flight())
    }

    pub fn open(&self, topic: &str) -> bool {
        locked(&self.gate).open(Instant::now(), topic)
    }

    /// Why nothing should be claimed, if so.
    pub fn shut(&self) -> Option<String> {
        locked(&self.gate).shut(Instant::now(), self.in_flight())
    }

    /// Since when nothing was delivered although it was tried, and why.
    pub fn failing(&self) -> Option<(Duration, String)> {
        locked(&self.gate).failing(Instant::now())
    }

    /// Alarms that wait again since the last call.
    pub fn take_returned(&self) -> Vec<(i32, Micros)> {
        std::mem::take(&mut *locked(&self.returned))
    }

    /// [`Publisher::produce`] of claims whose bodies are still to be read.
    ///
    /// # Errors
    /// When the bodies cannot be read: the alarms are queued for release then.
    pub async fn publish(
        &self,
        epoch: i64,
        source: &str,
        claims: &[(Claimed, Arc<Route>)],
    ) -> Result<(), StoreError> {
        if claims.is_empty() {
            return Ok(());
        }
        let answered = Instant::now();
        let ids: Vec<i64> = claims.iter().map(|(claim, _)| claim.id).collect();
        match self.sessions.run(async |db| relay::bodies(db, &ids).await).await {
            Ok(bodies) => {
                dueline_failpoints::reached("relay.bodies.read");
                self.produce(epoch, source, claims, bodies, answered);
                Ok(())
            }
            Err(error) => {
                for (claim, route) in claims {
                    self.queue_release(ticket(epoch, claim, route, answered), None);
                }
                Err(error)
            }
        }
    }

    /// Produces what was claimed by `epoch`; the claims are committed and known to the tracker.
    /// `answered`: when the claim's answer was there.
    pub fn produce(
        &self,
        epoch: i64,
        source: &str,
        claims: &[(Claimed, Arc<Route>)],
        bodies: Vec<Body>,
        answered: Instant,
    ) {
        let bodies: HashMap<i64, Body> = bodies.into_iter().map(|body| (body.id, body)).collect();
        let producer = self.producer();
        locked(&self.gate).sending(Instant::now(), self.in_flight());
        for (claim, route) in claims {
            match bodies.get(&claim.id) {
                Some(body) if body.generation == claim.generation => {
                    let record = message::record(&route.topic, source, claim, body);
                    self.send(&producer, record, ticket(epoch, claim, route, answered));
                }
                // Rescheduled, cancelled or finished since the claim: its newer alarm stands by
                // itself.
                _ => self.resolve(epoch, (claim.claimed_at, claim.id)),
            }
        }
        dueline_failpoints::reached("relay.produced.all");
    }

    fn send(&self, producer: &Producer<Ticket>, record: Record<'_>, ticket: Ticket) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        if let Err(refused) = producer.send(record, ticket) {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            self.not_written(refused.ticket, &refused.error);
        }
        dueline_failpoints::reached("relay.produced.one");
    }

    fn not_written(&self, ticket: Ticket, error: &KafkaError) {
        ticket.route.released.increment(1);
        let oversized = is_oversized(error).then(|| error.to_string());
        if oversized.is_none() {
            locked(&self.gate).failed(Instant::now(), &ticket.route.topic, &error.to_string());
        }
        self.queue_release(ticket, oversized);
    }

    fn queue_release(&self, ticket: Ticket, oversized: Option<String>) {
        locked(&self.releases).push(Release { ticket, oversized, since: Instant::now() });
    }

    pub(crate) fn resolve(&self, epoch: i64, claim: (Micros, i64)) {
        let mut tracker = locked(&self.tracker);
        if tracker.0 == epoch {
            tracker.1.resolve(claim);
        }
    }

    /// Sends a record outside the claims (a dead letter) and waits for its report.
    pub async fn send_and_wait(&self, record: Record<'_>) -> Outcome {
        self.producer().send_and_wait(record).await
    }

    fn take_reports(&self, reports: &mut Vec<Report<Ticket>>) {
        dueline_failpoints::reached("relay.reported");
        self.in_flight.fetch_sub(reports.len(), Ordering::Relaxed);
        let now = Instant::now();
        {
            let mut tracker = locked(&self.tracker);
            let mut gate = locked(&self.gate);
            let mut last: Option<&Arc<Route>> = None;
            for report in reports.iter() {
                let ticket = &report.ticket;
                let claim = (ticket.claimed_at, ticket.id);
                let current = tracker.0 == ticket.epoch;
                match &report.outcome {
                    Outcome::Delivered { .. } => {
                        ticket.route.published.increment(1);
                        ticket.route.acknowledged.record(ticket.lateness(now).as_secs_f64());
                        if last.is_none_or(|route| !Arc::ptr_eq(route, &ticket.route)) {
                            gate.delivered(now, &ticket.route.topic);
                            last = Some(&ticket.route);
                        }
                        if current {
                            tracker.1.resolve(claim);
                        }
                    }
                    Outcome::Unknown { error } => {
                        ticket.route.unknown.increment(1);
                        last = None;
                        gate.failed(now, &ticket.route.topic, &error.to_string());
                        if current {
                            tracker.1.unknown(claim);
                        }
                    }
                    Outcome::NotWritten { .. } => {}
                }
            }
        }
        dueline_failpoints::reached("relay.confirmed");
        for report in reports.drain(..) {
            if let Outcome::NotWritten { error } = report.outcome {
                self.not_written(report.ticket, &error);
            }
        }
        self.wake.notify_one();
    }

    /// Asks the broker while nothing can be produced, and replaces a producer that is of no more
    /// use. Returns the reports of the new one.
    async fn tend(&self) -> Option<Reports<Ticket>> {
        if let Some(why) = self.producer().fatal() {
            tracing::error!(why, "the Kafka producer is in a fatal state and is made anew");
            match create(&self.settings) {
                Ok((producer, reports)) => {
                    let new = Arc::new(producer);
                    let mut slot = self.producer.write().unwrap_or_else(PoisonError::into_inner);
                    let old = std::mem::replace(&mut *slot, new);
                    drop(slot);
                    // Dropping joins a thread.
                    tokio::task::spawn_blocking(move || drop(old));
                    return Some(reports);
                }
                Err(error) => tracing::error!(%error, "the Kafka producer cannot be made anew"),
            }
        }
        if self.in_flight() == 0 && self.failing().is_some() {
            let topic = std::slice::from_ref(&self.settings.probe_topic);
            if self.admin.identify(topic).await.is_ok() {
                locked(&self.gate).answered();
                self.wake.notify_one();
            }
        }
        None
    }

    /// Reads delivery reports until the producer is gone, or `stop`.
    pub async fn run(self: Arc<Self>, reports: Reports<Ticket>, stop: CancellationToken) {
        let mut current = reports;
        let mut next: Option<Reports<Ticket>> = None;
        let mut buffer = Vec::with_capacity(REPORTS);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                count = current.recv_many(&mut buffer, REPORTS) => {
                    if count == 0 {
                        match next.take() {
                            Some(reports) => current = reports,
                            None => return,
                        }
                    } else {
                        self.take_reports(&mut buffer);
                        self.release().await;
                    }
                }
                () = stop.cancelled() => return,
                _ = tick.tick() => {
                    self.release().await;
                    if let Some(reports) = self.tend().await {
                        next = Some(reports);
                    }
                }
            }
        }
    }

    /// Waits until everything that was sent is reported, at most `timeout`.
    pub async fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        if let Err(error) = self.producer().flush(timeout).await {
            tracing::warn!(%error, "some messages were still under way; their leases decide");
        }
        // The reports are there; the loop that reads them needs a moment.
        loop {
            let open = self.in_flight() > 0 || !locked(&self.releases).is_empty();
            let rest = deadline.saturating_duration_since(Instant::now());
            if !open || rest.is_zero() {
                return;
            }
            let _ = tokio::time::timeout(rest.min(TICK), self.wake.notified()).await;
        }
    }
}

fn ticket(epoch: i64, claim: &Claimed, route: &Arc<Route>, answered: Instant) -> Ticket {
    Ticket {
        epoch,
        id: claim.id,
        lane: claim.lane,
        next_at: claim.next_at,
        fence: claim.fence,
        claimed_at: claim.claimed_at,
        answered,
        route: Arc::clone(route),
    }
}

fn create(settings: &Settings) -> Result<(Producer<Ticket>, Reports<Ticket>), KafkaError> {
    let config = ProducerConfig {
        delivery_timeout: settings.delivery_timeout,
        max_in_flight: settings.max_in_flight + SPARE,
        ..ProducerConfig::default()
    };
    Producer::new(&settings.kafka, &config)
}

fn is_oversized(error: &KafkaError) -> bool {
    matches!(error, KafkaError::Request { code, .. } if code == "MessageSizeTooLarge")
}
