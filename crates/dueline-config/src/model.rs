//! The configuration that is ready to run. Every value is within its bounds and agrees with the
//! others; `dueline.sample.toml` describes each key, its default and its range.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use dueline_core::name;
use dueline_core::webhook::{Answer, SigningKey};
use dueline_core::{RetryPolicy, Tier};
use ipnet::IpNet;

use crate::secret::{REDACTED, Secret};

/// The most lanes (queue × tier × slot) that a configuration may have: a claim visits each of them.
pub const MAX_LANES: usize = 4_096;

/// Everything that a dueline process is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Who we are.
    pub instance: Instance,
    /// The deadline database.
    pub postgres: Postgres,
    /// The broker.
    pub kafka: Kafka,
    /// The relay's pace and bounds.
    pub relay: Relay,
    /// The consumer's pace and bounds.
    pub consumer: Consumer,
    /// What holds for all webhooks.
    pub http: Http,
    /// How long finished things are kept.
    pub retention: Retention,
    /// The admin port.
    pub admin: Admin,
    /// Log lines.
    pub log: Log,
    /// Queues by name.
    pub queues: BTreeMap<String, Queue>,
    /// Kinds by name; each one's queue exists.
    pub kinds: BTreeMap<String, Kind>,
}

impl Config {
    /// The consumer group in which this instance's relays read outcomes.
    #[must_use]
    pub fn outcome_group(&self) -> String {
        format!("{}.relay.{}", self.kafka.topic_prefix, self.instance.name)
    }
}

/// `[instance]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The instance's name, a part of the source of every message.
    pub name: String,
}

/// `[postgres]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postgres {
    /// Connection URL, with the password if there is one.
    pub url: Secret,
    /// The most connections that one process opens.
    pub max_connections: u32,
    /// `statement_timeout` of every session.
    pub statement_timeout: Duration,
    /// `lock_timeout` of the effect's steps: below a payer's `deadlock_timeout`, so that in a lock
    /// cycle the batch gives way and not the payer.
    pub lock_timeout: Duration,
    /// `idle_in_transaction_session_timeout`: how long a stopped process can hold a business row.
    pub idle_in_transaction_timeout: Duration,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// Further settings (GUCs) of every session, by name.
    pub options: BTreeMap<String, String>,
    /// The role that SQL handlers run as: without rights on our schema.
    pub handler_role: String,
}

impl Postgres {
    /// The URL for log lines: without user, password and query.
    #[must_use]
    pub fn redacted_url(&self) -> String {
        let url = self.url.expose();
        let Some((scheme, rest)) = url.split_once("://") else { return REDACTED.to_owned() };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password that was not percent-encoded can hold any of these signs: when in doubt, nothing.
        if query.contains('@') || address.matches('@').count() > 1 {
            return REDACTED.to_owned();
        }
        format!("{scheme}://{}", address.rsplit('@').next().unwrap_or(address))
    }
}

/// `[kafka]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kafka {
    /// `host:port` of one or more brokers to start from.
    pub brokers: Vec<String>,
    /// The first part of every topic's name.
    pub topic_prefix: String,
    /// How long librdkafka tries to deliver a message (`message.timeout.ms`).
    pub delivery_timeout: Duration,
    /// librdkafka properties that are passed through; the ones that dueline sets are refused here.
    pub properties: BTreeMap<String, Secret>,
}

impl Kafka {
    /// The brokers as `bootstrap.servers` wants them.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        self.brokers.join(",")
    }

    /// The librdkafka properties with their values, secrets among them: for the client, not for a log.
    #[must_use]
    pub fn exposed_properties(&self) -> BTreeMap<String, String> {
        let properties = self.properties.iter();
        properties.map(|(name, value)| (name.clone(), value.expose().to_owned())).collect()
    }
}

/// `[relay]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// How long nobody publishes a claimed task again.
    pub lease: Duration,
    /// What must lie between the end of a delivery and the end of its lease.
    pub lease_slack: Duration,
    /// The most tasks of one claim, all lanes together.
    pub batch_max: u32,
    /// The most messages that are claimed and not confirmed yet.
    pub max_in_flight: u32,
    /// The longest sleep of an idle relay between two polls.
    pub poll_pause: Duration,
    /// The shortest pause between rounds under load.
    pub busy_pause_min: Duration,
    /// The longest pause between rounds under load: rounds are paced by what they bring.
    pub busy_pause_max: Duration,
    /// The least that a round looks behind its watermark.
    pub window_min: Duration,
    /// The most that a round looks behind its watermark.
    pub window_max: Duration,
    /// The pause between two sweeps.
    pub sweep_interval: Duration,
    /// How often a relay shows that it lives.
    pub heartbeat_interval: Duration,
    /// After how long without a heartbeat another relay takes the lanes.
    pub takeover_after: Duration,
    /// How long after its due time an unfinished task is parked; a kind may say otherwise.
    pub age_limit: Duration,
    /// After how many consumed and unanswered deliveries a task is parked.
    pub unanswered_limit: u32,
    /// The most tasks a second that are published again after a takeover.
    pub takeover_rate: u32,
    /// The most that a clean stop takes.
    pub stop_timeout: Duration,
    /// After how long without being able to produce a relay hands its lanes over.
    pub hand_over_after: Duration,
}

/// `[consumer]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// The most messages of one transaction.
    pub batch_max: u32,
    /// How many batches of one tier run at once.
    pub workers_per_tier: u32,
    /// The most messages that are read ahead from one partition.
    pub buffer_per_partition: u32,
    /// The most that a handler takes for one batch.
    pub handler_timeout: Duration,
    /// `max.poll.interval.ms`
    pub max_poll_interval: Duration,
    /// `session.timeout.ms`
    pub session_timeout: Duration,
    /// How often offsets are committed.
    pub commit_interval: Duration,
    /// How often a message may be there when its consumer dies before it is failed for good.
    pub crash_limit: u32,
    /// The first pause when the environment is in trouble.
    pub environment_pause_min: Duration,
    /// The longest pause when the environment is in trouble.
    pub environment_pause_max: Duration,
    /// The most that a clean stop takes.
    pub stop_timeout: Duration,
}

/// `[http]`: what holds for all webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Networks that may be called although they are not public.
    pub allow_networks: Vec<IpNet>,
    /// Whether `http://` may be called.
    pub allow_plaintext: bool,
    /// The most calls that are under way to one host and port.
    pub concurrency_per_host: u32,
    /// After how many failed calls in a row a host gets one call at a time.
    pub breaker_failures: u32,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// The most bytes of a response that are read.
    pub max_response_bytes: u32,
    /// A file of certificates (PEM) that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
}

/// `[retention]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long finished tasks are kept.
    pub task: Duration,
    /// How long a key is remembered as handled.
    pub dedupe: Duration,
    /// How long the audit trail is kept.
    pub events: Duration,
    /// How long after its death a task may be replayed without `--force`.
    pub replay_window: Duration,
    /// The pause between two steps of the patrol that deletes what is older.
    pub patrol_interval: Duration,
    /// The most rows that one step deletes.
    pub patrol_batch: u32,
}

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where `/livez`, `/readyz` and `/metrics` are served (port 0: any free one), or nowhere.
    pub bind: Option<SocketAddr>,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// Filter directives: `info`, or `info,dueline_relay=debug`.
    pub level: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line, for machines.
    Json,
    /// Coloured text, for people.
    Pretty,
}

/// `[queues.<name>]`: topics, lanes and one handling group of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The queue's name.
    pub name: String,
    /// The first part of its topics' names, from `kafka.topic_prefix`.
    pub topic_prefix: String,
    /// Delay tiers, sorted by `max_delay`, at least one, names and delays unique.
    pub tiers: Vec<Tier>,
    /// Lanes per tier, 1 to 64.
    pub slots: u16,
    /// Partitions of each topic.
    pub partitions: i32,
    /// Copies of each partition.
    pub replication: i32,
    /// The one consumer group that handles this queue.
    pub group: String,
    /// Whether another team's consumers handle it: they answer with outcomes.
    pub outcomes: bool,
    /// How long the tier topics keep messages.
    pub topic_retention: Duration,
    /// How long the dead-letter topic keeps letters.
    pub dead_letter_retention: Duration,
}

impl Queue {
    /// The topic of a tier.
    #[must_use]
    pub fn topic(&self, tier: &str) -> String {
        name::tier_topic(&self.topic_prefix, &self.name, tier)
    }

    /// The dead-letter topic.
    #[must_use]
    pub fn dead_letter_topic(&self) -> String {
        name::dead_letter_topic(&self.topic_prefix, &self.name)
    }

    /// The topic of the outcomes, for a queue that another team handles.
    #[must_use]
    pub fn outcome_topic(&self) -> Option<String> {
        self.outcomes.then(|| name::outcome_topic(&self.topic_prefix, &self.name))
    }

    /// The topics of all tiers, in the order of the tiers; no other topic is among them.
    #[must_use]
    pub fn tier_topics(&self) -> Vec<String> {
        self.tiers.iter().map(|tier| self.topic(&tier.name)).collect()
    }

    /// How many lanes the queue has: tiers × slots.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.tiers.len() * usize::from(self.slots)
    }
}

/// `[kinds.<name>]`: one action, and how it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The kind's name.
    pub name: String,
    /// The queue it belongs to.
    pub queue: String,
    /// What carries it out, and so where its effect happens.
    pub handler: Handler,
    /// The pauses between attempts.
    pub retry: RetryPolicy,
    /// The most bytes of a task's payload.
    pub max_payload_bytes: u32,
    /// How long after its due time an unfinished task is parked.
    pub age_limit: Duration,
}

/// Where an effect happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// In the transaction that settles the task, in the deadline database.
    Here,
    /// Anywhere else, by somebody who begins it in the deadline database first.
    Elsewhere,
    /// Anywhere else, by another team that acts on a message whenever it reads it.
    Team,
}

impl Effect {
    /// The text that configuration and database use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
            Self::Team => "team",
        }
    }
}

/// What carries out a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// One set-based SQL statement over the relation `batch (ord, key, payload)`.
    Sql(String),
    /// A handler that is linked into the consumer's binary.
    Rust,
    /// A webhook.
    Http(Box<Webhook>),
    /// Another team's consumer, which answers with outcomes.
    Outcomes {
        /// Whether it calls `dueline.begin` before it acts.
        begins: bool,
    },
}

impl Handler {
    /// Where the effect of such a handler happens.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Sql(_) | Self::Rust => Effect::Here,
            Self::Http(_) | Self::Outcomes { begins: true } => Effect::Elsewhere,
            Self::Outcomes { begins: false } => Effect::Team,
        }
    }
}

/// `[kinds.<name>.http]`: a webhook that carries a kind out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// What is called: `https://…`, without a user and without a fragment.
    pub url: String,
    /// What signs each call, at least one: a receiver needs to know one of them.
    pub secrets: Vec<SigningKey>,
    /// The most that a call takes, from the connection to the end of its answer.
    pub timeout: Duration,
    /// Whether the receiver promises that a call with a key that it knows has no second effect.
    pub idempotent: bool,
    /// Further headers of each call, by name in small letters. Their values are secrets.
    pub headers: BTreeMap<String, Secret>,
    /// What a status means where it is not what it usually means.
    pub statuses: BTreeMap<u16, Answer>,
}

impl Webhook {
    /// How long a key is held for one call: the call, and what the database may take beside it.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.timeout + HOLD_MARGIN
    }
}

/// See [`Webhook::hold`].
const HOLD_MARGIN: Duration = Duration::from_secs(5);
