//! What other teams say of their tasks: read from each queue's outcome topic, settled in bulk.
//!
//! One consumer group per instance, whose partitions its relays share. Whatever a partition holds is
//! settled by the row (`dueline.settle_outcomes`) before its offset is passed; what cannot be read has
//! its dead letter before. One turn after another: a turn is one statement, so that a hand-over of
//! partitions never meets work under way.

mod inbox;
mod letter;
mod unread;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dueline_core::Outcome;
use dueline_kafka::{
    Consumer, ConsumerConfig, Event, KafkaError, Outcome as Delivery, OwnedRecord, TopicPartition,
};
use dueline_service::CancellationToken;
use dueline_service::backoff::Pauses;
use dueline_store::operate::instance::{SourceOrigin, origin_of};
use dueline_store::relay::{Settled, count_stops, settle_outcomes};
use dueline_store::{StoreError, Whose};
use futures_util::future::join_all;

use crate::error::RelayError;
use crate::shared::Shared;
use inbox::{Entry, Inbox};
pub(crate) use unread::wait_for_unread;

/// The health component.
const COMPONENT: &str = "outcomes";
/// The most outcomes of one statement.
const BATCH: usize = 1_000;
/// The most records that wait for another turn (rows that somebody holds, later outcomes of a task of
/// this turn): beyond, nothing more is read.
const MAX_WAITING: usize = 2_000;
/// How long what waits does so.
const AGAIN: Duration = Duration::from_millis(100);
/// How long an outcome of a newer version holds up its partition before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Pauses while database or broker is away.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long leaving the group may take.
const LEAVE: Duration = Duration::from_secs(3);

/// Settles outcomes until `stop`; returns at once when no queue is another team's.
pub(crate) async fn run(shared: &Shared, stop: &CancellationToken) {
    let queues: BTreeMap<String, Arc<str>> = shared
        .config
        .queues
        .values()
        .filter_map(|queue| Some((queue.outcome_topic()?, queue.name.as_str().into())))
        .collect();
    if queues.is_empty() {
        return;
    }
    let mut pauses = Pauses::new(PAUSE_MIN, PAUSE_MAX);
    while !stop.is_cancelled() {
        let ended = match Member::join(shared, &queues) {
            Ok(member) => member.run(stop, &mut pauses).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = ended {
            shared.health.set(COMPONENT, Err(&error));
            tracing::warn!(%error, "outcomes cannot be read; joining their group anew");
            pauses.sleep(stop).await;
        }
    }
}

/// One membership of the group.
struct Member<'s> {
    shared: &'s Shared,
    queues: &'s BTreeMap<String, Arc<str>>,
    consumer: Consumer,
    inbox: Inbox,
    /// Partitions that stand at an outcome of a newer version, until when.
    held: HashMap<TopicPartition, Instant>,
}

impl<'s> Member<'s> {
    fn join(
        shared: &'s Shared,
        queues: &'s BTreeMap<String, Arc<str>>,
    ) -> Result<Self, KafkaError> {
        let group = shared.config.outcome_group();
        let mut config = ConsumerConfig::new(group, queues.keys().cloned().collect());
        config.session_timeout = shared.config.consumer.session_timeout;
        config.max_poll_interval = shared.config.consumer.max_poll_interval;
        config.revoke_timeout = config.revoke_timeout.min(config.max_poll_interval / 2);
        config.commit_interval = shared.config.consumer.commit_interval;
        let consumer = Consumer::start(&shared.publisher.settings.kafka, config)?;
        let (inbox, held) = (Inbox::default(), HashMap::new());
        Ok(Self { shared, queues, consumer, inbox, held })
    }

    async fn run(
        mut self,
        stop: &CancellationToken,
        pauses: &mut Pauses,
    ) -> Result<(), RelayError> {
        let result = self.turns(stop, pauses).await;
        if let Err(error) = self.consumer.close(LEAVE).await {
            tracing::warn!(%error, "the group of the outcomes was not left in time");
        }
        result
    }

    async fn turns(
        &mut self,
        stop: &CancellationToken,
        pauses: &mut Pauses,
    ) -> Result<(), RelayError> {
        let mut wait = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                event = self.consumer.next_event() => self.on_event(event)?,
                () = self.consumer.readable(), if self.inbox.is_empty() => {}
                () = tokio::time::sleep(wait) => {}
            }
            self.fill();
            wait = match self.turn().await {
                Ok(rest) => {
                    pauses.reset();
                    self.report();
                    rest
                }
                Err(error) => {
                    self.shared.health.set(COMPONENT, Err(&error));
                    tracing::warn!(%error, "outcomes wait: they cannot be settled now");
                    pauses.next_pause()
                }
            };
        }
    }

    fn on_event(&mut self, event: Option<Event>) -> Result<(), KafkaError> {
        match event {
            Some(Event::Assigned(partitions)) => {
                tracing::info!(partitions = partitions.len(), "outcomes: assigned");
            }
            // Between two turns nothing is under way: what waits here is read again by whoever gets it.
            Some(Event::Revoked(partitions, ack)) => {
                self.forget(&partitions);
                ack.done();
            }
            Some(Event::Lost(partitions)) => self.forget(&partitions),
            Some(Event::Failed(error)) => return Err(error),
            None => return Err(KafkaError::Closed),
        }
        Ok(())
    }

    fn forget(&mut self, partitions: &[TopicPartition]) {
        self.inbox.forget(partitions);
        self.held.retain(|partition, _| !partitions.contains(partition));
    }

    /// Healthy, unless a partition stands still.
    fn report(&self) {
        let state = match self.held.keys().next() {
            Some(partition) => Err(format!(
                "{partition} stands at an outcome of a newer version: upgrade the relay"
            )),
            None => Ok(()),
        };
        self.shared.health.set(COMPONENT, state);
    }

    /// Takes what has arrived, as far as there is room.
    fn fill(&mut self) {
        let now = Instant::now();
        let over = |until: &Instant| *until <= now;
        for partition in self.held.extract_if(|_, until| over(until)).map(|(p, _)| p) {
            self.consumer.resume(&partition);
        }
        for (partition, count) in self.consumer.buffered() {
            let room = MAX_WAITING.saturating_sub(self.inbox.len());
            if self.held.contains_key(&partition) || room == 0 {
                continue;
            }
            for record in self.consumer.take(&partition, count.min(room).min(BATCH)) {
                if !self.sort(&partition, record) {
                    break;
                }
            }
        }
    }

    /// Puts a record where it belongs; `false`: the partition stands still at it.
    fn sort(&mut self, partition: &TopicPartition, record: OwnedRecord) -> bool {
        let offset = record.offset;
        match Outcome::read(&record, record.value.as_deref()) {
            Ok(outcome) => match origin_of(&self.shared.source(), &outcome.instance) {
                // An effect of before a failover happened all the same; the row's guards judge the rest.
                SourceOrigin::Ours | SourceOrigin::BeforeFailover => {
                    self.inbox.push(partition, offset, Entry::Says(outcome));
                }
                SourceOrigin::Foreign => {
                    self.count(partition, outcome.verdict.as_str(), "foreign", 1);
                    self.consumer.mark_finished(partition, offset);
                }
            },
            Err(error) if error.is_newer() => {
                tracing::error!(%partition, offset, %error, "outcomes of this partition wait");
                self.consumer.pause(partition);
                self.consumer.rewind(partition, offset);
                self.held.insert(partition.clone(), Instant::now() + LOOK_AGAIN);
                return false;
            }
            Err(error) => {
                let error = error.to_string();
                self.inbox.push(partition, offset, Entry::Broken(Box::new(record), error));
            }
        }
        true
    }

    /// Settles what can be settled now. Answers how long what waits should do so.
    async fn turn(&mut self) -> Result<Duration, StoreError> {
        for _ in 0..2 * MAX_WAITING {
            let turn = self.inbox.turn(BATCH);
            if turn.is_empty() {
                break;
            }
            dueline_failpoints::reached("relay.outcomes.read");
            let lettered = self.letter(&turn.broken).await;
            self.pass(lettered);
            let settled = self.settle(&turn.said).await?;
            dueline_failpoints::reached("relay.outcomes.settled");
            self.take_in(&turn.said, &settled).await;
            if turn.said.iter().all(|n| self.inbox.has(*n)) {
                // Nothing got further: somebody holds the rows, or the broker is away.
                break;
            }
        }
        let more = || self.consumer.buffered().iter().any(|(p, _)| !self.held.contains_key(p));
        Ok(match self.inbox.is_empty() {
            false => AGAIN,
            true if more() => Duration::ZERO,
            true => LOOK_AGAIN,
        })
    }

    /// Outcomes in one statement; in halves when it is refused, so that one of them holds up no other.
    async fn settle(&self, said: &[usize]) -> Result<Vec<Settled>, StoreError> {
        let outcomes: Vec<&Outcome> = said.iter().filter_map(|n| self.inbox.outcome(*n)).collect();
        let lease = self.shared.config.relay.lease;
        let mut settled = Vec::with_capacity(outcomes.len());
        let mut rest = vec![outcomes.as_slice()];
        // Each half is a half of one before: fewer than twice as many as there are outcomes.
        while let Some(part) = rest.pop() {
            let sessions = &self.shared.publisher.sessions;
            match sessions.run(async |db| settle_outcomes(db, part, lease).await).await {
                Ok(verdicts) => settled.extend(verdicts),
                Err(error) if !is_of_some(&error) => return Err(error),
                Err(error) => match part {
                    [one] => {
                        tracing::warn!(
                            id = one.task_id, attempt = one.attempt, outcome = one.verdict.as_str(),
                            %error, "an outcome waits: it cannot be settled now"
                        );
                        settled.push(Settled::Locked);
                    }
                    many => {
                        let (first, second) = many.split_at(many.len() / 2);
                        rest.extend([second, first]);
                    }
                },
            }
        }
        Ok(settled)
    }

    /// What came of a turn: counted, told, and passed unless it has to wait.
    async fn take_in(&mut self, said: &[usize], settled: &[Settled]) {
        let mut counts: HashMap<(Arc<str>, &'static str, Settled), u64> = HashMap::new();
        let mut passed = Vec::with_capacity(said.len());
        for (n, settled) in said.iter().zip(settled) {
            let Some((partition, outcome)) = self.inbox.said(*n) else { continue };
            tell(outcome, *settled);
            if *settled == Settled::Locked {
                continue;
            }
            let topic = Arc::clone(&partition.topic);
            *counts.entry((topic, outcome.verdict.as_str(), *settled)).or_default() += 1;
            passed.push(*n);
        }
        self.pass(passed);
        for ((topic, outcome, settled), count) in &counts {
            self.count(
                &TopicPartition::new(Arc::clone(topic), 0),
                outcome,
                settled.as_str(),
                *count,
            );
        }
        for (topic, queue) in self.queues {
            let sum = |wanted: Settled| {
                let of = counts.iter().filter(|((t, _, s), _)| **t == **topic && *s == wanted);
                i64::try_from(of.map(|(_, n)| n).sum::<u64>()).unwrap_or(i64::MAX)
            };
            let stops = [("guard", sum(Settled::Stale)), ("dedupe", sum(Settled::Known))];
            if stops.iter().all(|(_, n)| *n == 0) {
                continue;
            }
            let sessions = &self.shared.publisher.sessions;
            // A count that is lost is no task that is lost.
            if let Err(error) = sessions.run(async |db| count_stops(db, queue, &stops).await).await
            {
                tracing::warn!(%error, "stopped duplicates are not counted");
            }
        }
    }

    /// These entries are finished: their offsets may be passed.
    fn pass(&mut self, finished: Vec<usize>) {
        for n in finished {
            if let Some((partition, offset)) = self.inbox.remove(n) {
                self.consumer.mark_finished(&partition, offset);
            }
        }
    }

    fn count(
        &self,
        partition: &TopicPartition,
        outcome: &'static str,
        verdict: &'static str,
        n: u64,
    ) {
        let queue = self.queues.get(&*partition.topic).map_or("", |queue| queue);
        metrics::counter!(
            "dueline_relay_outcomes_total",
            "queue" => queue.to_owned(), "outcome" => outcome, "verdict" => verdict
        )
        .increment(n);
    }

    /// Letters of what cannot be read; answers those that are delivered.
    async fn letter(&self, broken: &[usize]) -> Vec<usize> {
        let letters = broken.iter().map(|n| async move {
            let (record, error) = self.inbox.broken(*n)?;
            let queue = self.shared.config.queues.get(&**self.queues.get(&*record.topic)?)?;
            let letter = letter::of(record, error, &queue.name, self.shared.now());
            let topic = queue.dead_letter_topic();
            match self.shared.publisher.send_and_wait(letter::with_bytes(&topic, record, &letter)).await {
                Delivery::Delivered { .. } => {
                    dueline_failpoints::reached("relay.outcomes.lettered");
                    let at = record.topic_partition();
                    tracing::warn!(partition = %at, offset = record.offset, error, "no outcome: lettered");
                    self.count(&at, "unreadable", "lettered", 1);
                    Some(*n)
                }
                Delivery::NotWritten { error } | Delivery::Unknown { error } => {
                    tracing::warn!(%error, "the letter of an unreadable outcome is not written");
                    None
                }
            }
        });
        join_all(letters).await.into_iter().flatten().collect()
    }
}

/// Whether an error is that of some outcomes, so that the others may do without them: a row that somebody
/// holds, or data that the database refuses. Everything else is the environment's, and waited out.
fn is_of_some(error: &StoreError) -> bool {
    let held = matches!(error.sqlstate().as_deref(), Some("55P03" | "DLX01"));
    held || error.is_free_retry() || error.whose() == Whose::Task
}

/// What people should know of (G1).
fn tell(outcome: &Outcome, settled: Settled) {
    let Outcome { task_id: id, generation, attempt, key_hash, .. } = outcome;
    let said = outcome.verdict.as_str();
    match settled {
        Settled::OldGeneration | Settled::WithoutTask => tracing::error!(
            id, %key_hash, generation, attempt, outcome = said, state = settled.as_str(),
            "an effect happened that was not wanted any more: look at the business object"
        ),
        Settled::Dead => tracing::error!(
            id, %key_hash, generation, attempt, state = "dead",
            error = outcome.verdict.reason().unwrap_or("it had its last attempt"), "a task is dead"
        ),
        Settled::Unknown => tracing::warn!(
            id, %key_hash, generation, attempt, outcome = said,
            "an outcome of no task: retention has taken it, or somebody made it up"
        ),
        _ => tracing::debug!(
            id, %key_hash, generation, attempt, outcome = said, state = settled.as_str(), "an outcome"
        ),
    }
}
