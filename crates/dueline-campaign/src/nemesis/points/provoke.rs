//! How a process is brought to a point to which no task's way leads.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dueline_failpoints::POINTS;
use dueline_kafka::{Admin, Outcome, Producer, ProducerConfig, Record};
use dueline_testkit::proxy::Mode;
use dueline_testkit::wait;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::strike::Strike;
use super::{Action, Tour};
use crate::nemesis::fault::Fault;
use crate::nemesis::{database, hands, one};
use crate::role::Role;
use crate::stage::LEASE;

/// How long a consumer may take to die over a mark.
const DIES: Duration = Duration::from_secs(10);
/// The pause between two rounds of a provocation.
const PAUSE: Duration = Duration::from_secs(2);
/// How long peers may take to find each other, or to find one gone.
const PEERS: Duration = Duration::from_secs(20);
/// The longest wait for an answer of the broker.
const ASK: Duration = Duration::from_secs(5);
/// Longer than a message is tried to be delivered.
const REFUSED: Duration = Duration::from_secs(5);
/// The kind whose tasks get stuck while its business table is locked, and that table.
const STUCK: (&str, &str) = ("close_order", "shop.orders");
/// The crash mark that a consumer dies over to make its partitions suspicious.
const MARKED: &str = "consumer.mark.written";

/// What is done beside the armed process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provocation {
    /// Nothing: work gets it there.
    Work,
    /// The other process of its kind dies.
    OtherDies,
    /// The other process of its kind stops cleanly, and leaves what it had to whoever wants it.
    OtherLeaves,
    /// It has everything, and the other comes.
    OtherComes,
    /// SIGTERM.
    Terminated,
    /// Its broker lets nobody in, for longer than a message is tried.
    BrokerRefuses,
    /// Messages wait for longer than their lease.
    Stuck,
    /// So do they, and they are too old then.
    TooOld,
    /// It is not known of some dead that their letters are written.
    LettersForgotten,
    /// Its connection breaks at a COMMIT.
    CutAtCommit,
    /// Messages that nobody can read.
    Garbage,
    /// A topic is deleted and made again.
    TopicRecreated,
    /// It died here before.
    Suspicion,
}

impl Provocation {
    /// What brings a process to this point.
    pub fn of(point: &str) -> Self {
        match point {
            "relay.lanes.taken_over" | "relay.reclaimed" | "relay.bodies.read" => Self::OtherDies,
            "relay.lanes.taken" => Self::OtherLeaves,
            "relay.lanes.leaving" | "relay.lanes.given" => Self::OtherComes,
            "relay.releasing" | "relay.released" => Self::BrokerRefuses,
            "relay.judged" | "relay.extended" => Self::Stuck,
            "relay.parked" => Self::TooOld,
            "relay.flushed" | "relay.ended" | "consumer.left" => Self::Terminated,
            "consumer.commit.unknown" | "consumer.commit.looked_up" => Self::CutAtCommit,
            "consumer.topic.renewed" => Self::TopicRecreated,
            "consumer.lone.marked" => Self::Suspicion,
            _ if point.starts_with("relay.letters.") => Self::LettersForgotten,
            _ if point.starts_with("consumer.broken.") => Self::Garbage,
            _ if point.starts_with("consumer.revoke.") => Self::OtherComes,
            _ if point.starts_with("consumer.stop.") => Self::Terminated,
            _ => Self::Work,
        }
    }

    /// Whether the other process of the kind must be away, so that this one has all the work.
    fn is_alone(self) -> bool {
        matches!(
            self,
            Self::OtherComes
                | Self::Stuck
                | Self::TooOld
                | Self::LettersForgotten
                | Self::TopicRecreated
                | Self::Suspicion
        )
    }

    /// How often it is tried, in the same time as others are tried once. What a consumer died over may have been
    /// a message that nobody can read, which is buried and not handled alone.
    pub fn tries(self) -> u32 {
        if self == Self::Suspicion { 4 } else { 1 }
    }

    /// What must be so before the armed process starts.
    pub async fn prepare(self, strike: &Strike<'_>) -> Result<()> {
        let stage = strike.tour.stage;
        let other = strike.role.other();
        if self.is_alone() {
            stage.kill(other).await;
        } else if stage.has_ended(other).await.is_some() {
            // The point before in the same process wanted it away.
            stage.start_process(other, &[]).await?;
        }
        if self == Self::Suspicion {
            let marked = POINTS.iter().find(|point| point.name == MARKED);
            let marked = marked.context("no such point")?;
            let first = Strike { action: Action::Kill, points: &[], ..*strike };
            // Partitions that are under suspicion already have no such mark written.
            if let Ok(reached) = timeout(DIES, Box::pin(first.reach(marked))).await {
                reached?;
            }
        }
        Ok(())
    }

    /// Goes on until it `is_over`. What fails is tried again: the process may have died over it.
    pub async fn provoke(self, strike: &Strike<'_>, mut is_over: watch::Receiver<bool>) {
        while !*is_over.borrow() {
            let round = async {
                if let Err(error) = Box::pin(self.round(strike)).await {
                    eprintln!("         {self:?} beside {}: {}", strike.role, error.root_cause());
                }
            };
            if self == Self::TopicRecreated {
                // Half of it would leave no topic.
                round.await;
            } else {
                tokio::select! {
                    () = round => {}
                    _ = is_over.wait_for(|over| *over) => return,
                }
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                _ = is_over.wait_for(|over| *over) => return,
            }
        }
    }

    async fn round(self, strike: &Strike<'_>) -> Result<()> {
        let Strike { tour: tour @ Tour { stage, archive, log }, role, .. } = *strike;
        let (hold, other) = (LEASE + Duration::from_secs(3), role.other());
        match self {
            Self::Work | Self::Suspicion => Ok(()),
            Self::OtherDies => {
                tour.peers(role, 2).await?;
                stage.kill(other).await;
                tour.peers(role, 1).await?;
                stage.start_process(other, &[]).await
            }
            Self::OtherLeaves => {
                tour.peers(role, 2).await?;
                let left = stage.terminate(other, hands::TERM_TIMEOUT).await.map(drop);
                let taken = tour.peers(role, 1).await;
                stage.start_process(other, &[]).await?;
                left.and(taken)
            }
            Self::OtherComes => {
                stage.kill(other).await;
                tour.peers(role, 1).await?;
                stage.start_process(other, &[]).await?;
                stage.ready(other).await
            }
            Self::Terminated => {
                stage.ready(role).await?;
                stage.terminate(role, hands::TERM_TIMEOUT).await.map(drop)
            }
            Self::BrokerRefuses => {
                tour.peers(role, 2).await?;
                stage.kafka_wire(role).set(Mode::Refuse);
                sleep(REFUSED).await;
                stage.kafka_wire(role).set(Mode::Pass);
                Ok(())
            }
            Self::Stuck => {
                tour.peers(role, 1).await?;
                database::lock_table(stage, STUCK.1, hold).await
            }
            Self::TooOld => {
                tour.peers(role, 1).await?;
                tour.limit_age(Duration::from_secs(1)).await?;
                database::lock_table(stage, STUCK.1, hold).await
            }
            Self::LettersForgotten => {
                let forget = sqlx::query(include_str!("../../../sql/nemesis/forget_letters.sql"));
                Ok(forget.execute(stage.pool()).await.map(drop)?)
            }
            Self::CutAtCommit => hands::cut_after(stage.postgres_wire(role), hands::COMMIT).await,
            Self::Garbage => tour.send_garbage().await,
            Self::TopicRecreated => {
                tour.peers(role, 1).await?;
                stage.ready(role).await?;
                one(Fault::TopicRecreated, Duration::ZERO, stage, archive, log).await;
                Ok(())
            }
        }
    }

    /// Takes back what a provocation that was broken off may have left.
    pub async fn heal(self, strike: &Strike<'_>) -> Result<()> {
        let Strike { tour, role, .. } = *strike;
        match self {
            Self::BrokerRefuses => tour.stage.kafka_wire(role).set(Mode::Pass),
            Self::CutAtCommit => tour.stage.postgres_wire(role).disarm(),
            Self::TooOld => {
                let kind = tour.stage.config().kinds.get(STUCK.0).context("no such kind")?;
                tour.limit_age(kind.age_limit).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Tour<'_> {
    /// Waits until so many relays share all lanes, or so many consumers are in each group.
    async fn peers(&self, role: Role, count: usize) -> Result<()> {
        let (what, stage) = (format!("{role} to be one of {count}"), self.stage);
        if role.is_relay() {
            return wait::until(&what, PEERS, async || {
                let sharing = sqlx::query_scalar(include_str!("../../../sql/nemesis/sharing.sql"));
                let sharing: Option<i64> = sharing.fetch_one(stage.pool()).await?;
                Ok(sharing.is_some_and(|sharing| usize::try_from(sharing) == Ok(count)))
            })
            .await;
        }
        let admin = Admin::new(&stage.places().kafka, ASK)?;
        wait::until(&what, PEERS, async || {
            for queue in &stage.places().queues {
                if admin.group_view(&queue.group, &queue.topics[0]).await?.members != count {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    async fn limit_age(&self, limit: Duration) -> Result<()> {
        let limiting = sqlx::query(include_str!("../../../sql/nemesis/age_limit.sql"))
            .bind(STUCK.0)
            .bind(limit.as_secs_f64())
            .execute(self.stage.pool())
            .await?;
        ensure!(limiting.rows_affected() == 1, "there is no kind {}", STUCK.0);
        Ok(())
    }

    /// Messages without headers, in every partition of every tier, as good as surely.
    pub async fn send_garbage(&self) -> Result<()> {
        let places = self.stage.places();
        let config = ProducerConfig { delivery_timeout: ASK, ..ProducerConfig::default() };
        let (producer, _reports) = Producer::<()>::new(&places.kafka, &config)?;
        for topic in places.queues.iter().flat_map(|queue| &queue.topics) {
            for key in [&b"a"[..], b"b", b"c", b"d"] {
                let value = Some(&b"nobody can read this"[..]);
                let record = Record { topic, key: Some(key), value, ..Record::default() };
                let outcome = producer.send_and_wait(record).await;
                ensure!(matches!(outcome, Outcome::Delivered { .. }), "not sent: {outcome:?}");
            }
        }
        producer.close(ASK).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_provocation_leads_to_a_point_that_there_is() {
        let used: HashSet<String> =
            POINTS.iter().map(|point| format!("{:?}", Provocation::of(point.name))).collect();
        assert_eq!(used.len(), 13, "{used:?}");
        assert_eq!(Provocation::of("consumer.lone.marked"), Provocation::Suspicion);
        assert!(POINTS.iter().any(|point| point.name == MARKED));
    }
}
