//! The sweep: a walk without a watermark over everything that the scan has passed.
//!
//! Config: `relay.sweep_interval`, `relay.lease`, `relay.takeover_rate`, `relay.unanswered_limit`.
//! It finds alarms that were committed later than any window, claims that a dead relay had not
//! confirmed, leases that are over (or longer than one can be), and tasks that nobody answers or
//! that are too old.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dueline_kafka::{Claim, Verdict, WaitingQuery};
use dueline_service::CancellationToken;
use dueline_store::relay::{self, Again, Alarm, Found, Parking, Subject, TopicSeen};
use dueline_store::{Pool, StoreError};

use crate::decide::{Action, decide, longest_lease, parking_of};
use crate::error::RelayError;
use crate::outcomes;
use crate::pace::{Bucket, Rest};
use crate::publish::locked;
use crate::routes::Route;
use crate::shared::Shared;

/// Alarms of a lane that one page reads, with few lanes and with many.
const PAGE: usize = 4_000;
const PAGE_MIN: usize = 50;
/// Alarms that one statement writes.
const CHUNK: usize = 1_000;
/// However long a sweep took, the next begins after so many intervals.
const INTERVALS: u32 = 5;
/// A bound for a walk that never ends: lanes that grow faster than they are walked.
const MAX_PAGES: usize = 100_000;

/// The sweeper of one incarnation.
pub(crate) struct Sweep {
    bucket: Bucket,
    rest: Rest,
}

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Alarms that the scan had missed, published.
    pub missed: usize,
    /// Claims of dead relays, published again.
    pub orphans: usize,
    /// Claims whose message was lost or consumed without an answer, published again.
    pub republished: usize,
    /// Leases that go on, because the message still waits in its topic.
    pub extended: usize,
    /// Tasks parked.
    pub parked: usize,
}

impl Sweep {
    pub fn new(shared: &Shared) -> Self {
        let relay = &shared.config.relay;
        let rest = Rest::new(relay.sweep_interval * INTERVALS);
        Self { bucket: Bucket::new(relay.takeover_rate), rest }
    }

    /// Sweeps at each interval, and at once when lanes were taken over, until `stop`.
    pub async fn run(&mut self, shared: &Shared, stop: &CancellationToken) {
        let interval = shared.config.relay.sweep_interval;
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = shared.sweep_now.notified() => {}
                () = tokio::time::sleep(interval) => {
                    if !self.rest.allows(Instant::now()) {
                        continue;
                    }
                }
            }
            let began = Instant::now();
            match self.run_once(shared, stop).await {
                Ok(swept) if swept == Swept::default() => {}
                Ok(swept) => tracing::info!(?swept, took = ?began.elapsed(), "sweep"),
                Err(error) => tracing::warn!(%error, "the sweep stopped; the next goes on"),
            }
            self.rest.took(Instant::now(), began.elapsed());
            metrics::histogram!("dueline_relay_sweep_seconds")
                .record(began.elapsed().as_secs_f64());
        }
    }

    /// One whole sweep over the lanes of this relay.
    ///
    /// # Errors
    /// When the database refuses or cannot be reached.
    pub async fn run_once(
        &mut self,
        shared: &Shared,
        stop: &CancellationToken,
    ) -> Result<Swept, RelayError> {
        let mut spans = locked(&shared.book).spans();
        let mut swept = Swept::default();
        let mut stopped: BTreeMap<String, i64> = BTreeMap::new();
        let longest = longest_lease(shared.config.relay.lease);
        for _ in 0..MAX_PAGES {
            if spans.is_empty() || stop.is_cancelled() {
                break;
            }
            let per_lane = (PAGE / spans.len()).max(PAGE_MIN);
            let page = relay::sweep_page(&shared.pool, &spans, per_lane, longest).await?;
            spans.retain_mut(|span| {
                let end = page.iter().find(|a| a.page_end && a.lane == span.cursor.lane);
                if let Some(end) = end {
                    span.cursor.at = end.next_at;
                    span.cursor.id = end.id;
                }
                end.is_some()
            });
            self.handle(shared, &page, &mut swept, &mut stopped, stop).await?;
        }
        if !stopped.is_empty() {
            let counts: Vec<(String, i64)> = stopped.into_iter().collect();
            relay::stopped(&shared.pool, &counts).await?;
        }
        Ok(swept)
    }

    async fn handle(
        &mut self,
        shared: &Shared,
        page: &[Alarm],
        swept: &mut Swept,
        stopped: &mut BTreeMap<String, i64>,
        stop: &CancellationToken,
    ) -> Result<(), RelayError> {
        let left_out = |found: Found| match found {
            Found::Missed => dueline_failpoints::planted("watermark-alone"),
            Found::LeaseOver => dueline_failpoints::planted("lease-never-over"),
            _ => false,
        };
        let of = |found: Found| page.iter().filter(move |a| a.found == found && !left_out(found));
        let plain = |alarm: &Alarm| Again {
            id: alarm.id,
            fence: alarm.fence,
            lease: shared.config.relay.lease,
            consumed: false,
        };
        let missed: Vec<(i32, Again)> = of(Found::Missed).map(|a| (a.lane, plain(a))).collect();
        if let Some(lag) = of(Found::Missed).map(|a| a.now.since(a.next_at)).max() {
            locked(&shared.window).late(Instant::now(), lag);
        }
        swept.missed += again(shared, &missed).await?;
        let orphans: Vec<(i32, Again)> = of(Found::Orphan).map(|a| (a.lane, plain(a))).collect();
        swept.orphans += self.limited(shared, &orphans, stop).await?;
        let over: Vec<&Alarm> = of(Found::LeaseOver).collect();
        for chunk in over.chunks(CHUNK) {
            self.lease_over(shared, chunk, swept, stopped).await?;
        }
        Ok(())
    }

    /// Publishes what a dead relay had claimed, at the configured rate.
    async fn limited(
        &mut self,
        shared: &Shared,
        alarms: &[(i32, Again)],
        stop: &CancellationToken,
    ) -> Result<usize, RelayError> {
        let mut published = 0;
        let mut rest = alarms;
        while !rest.is_empty() && !stop.is_cancelled() {
            let count = self.bucket.take(Instant::now(), rest.len().min(CHUNK));
            if count == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            let (now, later) = rest.split_at(count);
            published += again(shared, now).await?;
            rest = later;
        }
        Ok(published)
    }

    async fn lease_over(
        &mut self,
        shared: &Shared,
        alarms: &[&Alarm],
        swept: &mut Swept,
        stopped: &mut BTreeMap<String, i64>,
    ) -> Result<(), RelayError> {
        let ids: Vec<i64> = alarms.iter().map(|alarm| alarm.id).collect();
        let subjects = relay::subjects(&shared.pool, &ids).await?;
        let judged = judge(shared, alarms, &subjects).await?;
        dueline_failpoints::reached("relay.judged");
        let mut extend = Vec::new();
        let mut publish = Vec::new();
        let mut parking = Vec::new();
        for (alarm, route, action) in &judged {
            let (id, fence) = (alarm.id, alarm.fence);
            match *action {
                Action::Leave => {}
                Action::Extend(lease) => extend.push((id, fence, lease)),
                Action::Again { lease, consumed } => {
                    route.republished.increment(1);
                    publish.push((alarm.lane, Again { id, fence, lease, consumed }));
                }
                Action::Park(reason) => parking.push(parking_of(alarm, reason)),
            }
        }
        let extended: BTreeSet<i64> = if extend.is_empty() {
            BTreeSet::new()
        } else {
            let extended = relay::extend(&shared.pool, &extend).await?;
            dueline_failpoints::reached("relay.extended");
            extended.into_iter().collect()
        };
        swept.extended += extended.len();
        for (alarm, route, _) in &judged {
            if extended.contains(&alarm.id) {
                route.suppressed.increment(1);
                *stopped.entry(route.queue.clone()).or_default() += 1;
            }
        }
        swept.parked += park(&shared.pool, &parking).await?;
        swept.republished += again(shared, &publish).await?;
        Ok(())
    }
}

/// An alarm with what is known of its task and its topic.
type Case<'a> = (&'a Alarm, &'a Subject, Arc<Route>);

/// Judges each alarm whose task is still as the alarm says.
async fn judge<'a>(
    shared: &Shared,
    alarms: &[&'a Alarm],
    subjects: &'a [Subject],
) -> Result<Vec<(&'a Alarm, Arc<Route>, Action)>, RelayError> {
    let by_id: BTreeMap<i64, &'a Subject> = subjects.iter().map(|s| (s.id, s)).collect();
    let mut by_topic: BTreeMap<String, Vec<Case<'a>>> = BTreeMap::new();
    for alarm in alarms {
        let route = locked(&shared.book).route(alarm.lane).cloned();
        let subject = by_id.get(&alarm.id).copied().filter(|s| s.generation == alarm.generation);
        if let (Some(route), Some(subject)) = (route, subject) {
            by_topic.entry(route.topic.clone()).or_default().push((alarm, subject, route));
        }
    }
    let names: Vec<String> = by_topic.keys().cloned().collect();
    let seen = relay::topics_seen(&shared.pool, &names).await?;
    let relay = &shared.config.relay;
    let mut judged = Vec::with_capacity(alarms.len());
    for (topic, members) in by_topic {
        let mut verdicts = ask(shared, seen.iter().find(|s| s.topic == topic), &members).await;
        if let Some(outcomes) = &members[0].2.outcomes {
            let claims: Vec<_> = members.iter().map(|(alarm, ..)| alarm.claimed_at).collect();
            outcomes::wait_for_unread(shared, outcomes, &claims, &mut verdicts).await;
        }
        for ((alarm, subject, route), verdict) in members.into_iter().zip(verdicts) {
            let limit = relay.unanswered_limit;
            let action = decide(alarm, subject.too_old, &verdict, relay.lease, limit);
            tracing::debug!(
                id = subject.id,
                kind = subject.kind,
                key = subject.key,
                attempt = subject.attempt,
                state = "live",
                ?verdict,
                ?action,
                "lease over"
            );
            judged.push((alarm, route, action));
        }
    }
    Ok(judged)
}

/// Asks Kafka which messages still wait in their topic.
async fn ask(shared: &Shared, seen: Option<&TopicSeen>, members: &[Case<'_>]) -> Vec<Verdict> {
    let (Some(seen), Some((_, _, route))) = (seen, members.first()) else {
        return vec![Verdict::Gone("the topic was never seen"); members.len()];
    };
    let claim = |alarm: &Alarm| alarm.claimed_at.filter(|at| *at >= seen.since);
    let claims: Vec<Claim> = members
        .iter()
        .filter_map(|(alarm, subject, _)| {
            claim(alarm)
                .map(|claimed_at| Claim { key: subject.key.clone().into_bytes(), claimed_at })
        })
        .collect();
    let mut answers = if claims.is_empty() {
        Vec::new()
    } else {
        let query = WaitingQuery {
            topic: seen.topic.clone(),
            topic_id: seen.topic_id.clone(),
            partitions: seen.partitions,
            group: route.group.clone(),
            claims,
        };
        shared.admin.still_waiting(query).await
    }
    .into_iter();
    let before = Verdict::Gone("claimed before the topic was what it is");
    members
        .iter()
        .map(|(alarm, _, _)| match claim(alarm) {
            Some(_) => answers.next().unwrap_or_else(|| before.clone()),
            None => before.clone(),
        })
        .collect()
}

/// Claims these alarms anew and publishes them, as far as there is room and their topics take
/// messages.
async fn again(shared: &Shared, alarms: &[(i32, Again)]) -> Result<usize, RelayError> {
    let mut published = 0;
    if alarms.is_empty() || shared.publisher.shut().is_some() {
        return Ok(0);
    }
    let open: Vec<Again> = {
        let book = locked(&shared.book);
        let open = |lane: i32| book.route(lane).is_some_and(|r| shared.publisher.open(&r.topic));
        alarms.iter().filter(|(lane, _)| open(*lane)).map(|(_, again)| *again).collect()
    };
    for chunk in open.chunks(CHUNK) {
        // What finds no room now is found by the next sweep.
        let chunk = &chunk[..chunk.len().min(shared.publisher.room())];
        if chunk.is_empty() {
            break;
        }
        let epoch = shared.epoch();
        let ticket = shared.open_claim();
        let answer = relay::republish(&shared.pool, epoch, chunk).await;
        let claims = match answer {
            Ok(claims) => claims,
            Err(error) => {
                shared.claimed(epoch, ticket, Vec::new());
                return Err(error.into());
            }
        };
        dueline_failpoints::reached("relay.reclaimed");
        let claims = shared.claimed(epoch, ticket, claims);
        published += claims.len();
        shared.publish(epoch, &claims).await?;
    }
    Ok(published)
}

/// Parks tasks, and says so, one line a task.
pub(crate) async fn park(pool: &Pool, parking: &[Parking]) -> Result<usize, StoreError> {
    if parking.is_empty() {
        return Ok(0);
    }
    let parked = relay::park(pool, parking).await?;
    dueline_failpoints::reached("relay.parked");
    for task in &parked {
        tracing::error!(
            id = task.id,
            kind = task.kind,
            key = task.key,
            attempt = task.attempt,
            state = "dead",
            reason = task.reason,
            "parked: a person has to look at it"
        );
    }
    metrics::counter!("dueline_relay_parked_total")
        .increment(u64::try_from(parked.len()).unwrap_or(u64::MAX));
    Ok(parked.len())
}
