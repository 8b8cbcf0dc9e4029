//! From what was typed to what is ready to run: every key with its default and its range.

use std::net::SocketAddr;
use std::time::Duration;

use dueline_core::name;

use crate::error::ConfigError;
use crate::layer::Typed;
use crate::model::{
    Admin, Config, Consumer, Instance, Kafka, Log, LogFormat, Postgres, Relay, Retention,
};
use crate::read::{Report, Section};
use crate::secret::Secret;
use crate::{catalog, inequality, webhook};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
const fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}
pub(crate) const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}
/// Longer than any retention that makes sense; it keeps sums far from overflowing.
pub(crate) const YEARS: Duration = days(3_660);

/// librdkafka properties that dueline sets itself, and what to do instead of passing them.
const OWN_PROPERTIES: [(&str, &str); 21] = [
    ("bootstrap.servers", "set kafka.brokers"),
    ("metadata.broker.list", "set kafka.brokers"),
    ("message.timeout.ms", "set kafka.delivery_timeout"),
    ("delivery.timeout.ms", "set kafka.delivery_timeout"),
    ("max.poll.interval.ms", "set consumer.max_poll_interval"),
    ("session.timeout.ms", "set consumer.session_timeout"),
    ("group.id", "set queues.<name>.group"),
    ("acks", "a task counts as published only when all replicas have it"),
    ("request.required.acks", "a task counts as published only when all replicas have it"),
    ("enable.idempotence", "producers are always idempotent"),
    ("transactional.id", "the database transaction is the only one"),
    ("partitioner", "always murmur2_random, as Java's producers hash keys"),
    ("auto.offset.reset", "always earliest: a lost offset must skip no message"),
    ("enable.auto.commit", "offsets follow the database's commit"),
    ("enable.auto.offset.store", "offsets follow the database's commit"),
    ("auto.commit.interval.ms", "set consumer.commit_interval"),
    ("partition.assignment.strategy", "always cooperative-sticky"),
    ("group.protocol", "the classic protocol with cooperative-sticky is used"),
    ("enable.partition.eof", "the consumer does not use it"),
    ("isolation.level", "readers of our topics see what is written"),
    ("log.queue", "logs go through dueline's own"),
];

/// Session settings that dueline sets itself.
const OWN_OPTIONS: [(&str, &str); 6] = [
    ("statement_timeout", "set postgres.statement_timeout"),
    ("lock_timeout", "set postgres.lock_timeout"),
    ("idle_in_transaction_session_timeout", "set postgres.idle_in_transaction_timeout"),
    ("default_transaction_isolation", "READ COMMITTED is what the guards are made for"),
    ("default_transaction_read_only", "dueline writes"),
    ("search_path", "names are always qualified"),
];

impl Config {
    /// Checks what was typed; every problem is reported.
    pub(crate) fn check(typed: Typed) -> Result<Self, ConfigError> {
        let Typed { table, origins, problems } = typed;
        let report = Report::new(origins, problems);
        let config = Section::read(&report, "", table, |root| {
            let kafka = root.section("kafka", kafka);
            let relay = root.section("relay", relay);
            let mut queues = catalog::queues(root, &kafka.topic_prefix);
            let kinds = catalog::kinds(root, &queues, relay.age_limit);
            catalog::agree(root.report, &mut queues, &kinds);
            Self {
                instance: root.section("instance", instance),
                postgres: root.section("postgres", postgres),
                consumer: root.section("consumer", consumer),
                http: root.section("http", webhook::http),
                retention: root.section("retention", retention),
                admin: root.section("admin", admin),
                log: root.section("log", log),
                kafka,
                relay,
                queues,
                kinds,
            }
        });
        inequality::check(&config, &report);
        webhook::agree(&config, &report);
        match report.into_problems() {
            problems if problems.is_empty() => Ok(config),
            problems => Err(ConfigError::Invalid(problems)),
        }
    }
}

fn instance(section: &mut Section) -> Instance {
    let check = |text: &str| match name::check_name("instance", text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    };
    Instance { name: section.parsed("name", "dueline", check).unwrap_or_default() }
}

fn postgres(section: &mut Section) -> Postgres {
    let url = section.text("url", "postgres://127.0.0.1:5432/dueline");
    if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
        // The value is not shown: it may hold a password.
        section.wrong("url", "expected postgres://user:password@host:port/database");
    }
    let options = section.pass_through("options");
    refuse_own(section, "options", options.keys(), &OWN_OPTIONS);
    Postgres {
        url: Secret::new(url),
        max_connections: section.number("max_connections", 16, 2..=1_000),
        statement_timeout: section.span("statement_timeout", s(30), s(1)..=s(3_600)),
        lock_timeout: section.span("lock_timeout", ms(250), ms(50)..=ms(300)),
        idle_in_transaction_timeout: section.span(
            "idle_in_transaction_timeout",
            s(15),
            s(1)..=s(3_600),
        ),
        connect_timeout: section.span("connect_timeout", s(10), ms(100)..=s(300)),
        options,
        handler_role: section.parsed("handler_role", "dueline_handler", role).unwrap_or_default(),
    }
}

fn role(text: &str) -> Result<String, String> {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    let rest = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if first && rest && text.len() <= name::MAX_NAME_LEN {
        Ok(text.to_owned())
    } else {
        Err("expected a role name of a-z, 0-9 and `_`".to_owned())
    }
}

fn kafka(section: &mut Section) -> Kafka {
    let brokers = section.texts("brokers", &["127.0.0.1:9092"]);
    if brokers.is_empty() && !section.report.has_failed(&section.path_of("brokers")) {
        section.wrong("brokers", "expected at least one host:port");
    }
    for broker in &brokers {
        let port = broker.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.and_then(|(_, port)| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
            section.wrong("brokers", format!("expected host:port, found {broker:?}"));
        }
    }
    let properties = section.pass_through("properties");
    refuse_own(section, "properties", properties.keys(), &OWN_PROPERTIES);
    Kafka {
        brokers,
        topic_prefix: section.parsed("topic_prefix", "dueline", prefix).unwrap_or_default(),
        delivery_timeout: section.span("delivery_timeout", s(30), s(1)..=s(900)),
        properties: properties.into_iter().map(|(k, v)| (k, Secret::new(v))).collect(),
    }
}

fn prefix(text: &str) -> Result<String, String> {
    for part in text.split('.') {
        name::check_name("topic prefix", part).map_err(|e| e.to_string())?;
    }
    Ok(text.to_owned())
}

fn refuse_own<'k>(
    section: &Section,
    key: &str,
    typed: impl Iterator<Item = &'k String>,
    own: &[(&str, &str)],
) {
    for name in typed {
        if let Some((_, instead)) = own.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)) {
            section.wrong(&format!("{key}.{name}"), format!("dueline sets this itself: {instead}"));
        }
    }
}

fn relay(section: &mut Section) -> Relay {
    Relay {
        lease: section.span("lease", s(60), s(2)..=s(3_600)),
        lease_slack: section.span("lease_slack", s(10), ms(100)..=s(600)),
        batch_max: section.number("batch_max", 1_000, 100..=1_000),
        max_in_flight: section.number("max_in_flight", 20_000, 1_000..=1_000_000),
        poll_pause: section.span("poll_pause", ms(150), ms(10)..=s(60)),
        busy_pause_min: section.span("busy_pause_min", ms(1), ms(0)..=s(1)),
        busy_pause_max: section.span("busy_pause_max", ms(25), ms(1)..=s(1)),
        window_min: section.span("window_min", ms(300), ms(10)..=s(60)),
        window_max: section.span("window_max", s(30), ms(100)..=s(3_600)),
        sweep_interval: section.span("sweep_interval", s(2), ms(200)..=s(60)),
        heartbeat_interval: section.span("heartbeat_interval", ms(500), ms(50)..=s(30)),
        takeover_after: section.span("takeover_after", s(3), ms(500)..=s(300)),
        age_limit: section.span("age_limit", days(1), s(1)..=YEARS),
        unanswered_limit: section.number("unanswered_limit", 10, 1..=1_000),
        takeover_rate: section.number("takeover_rate", 2_000, 1..=1_000_000),
        stop_timeout: section.span("stop_timeout", s(15), s(1)..=s(300)),
        hand_over_after: section.span("hand_over_after", s(30), s(1)..=s(3_600)),
    }
}

fn consumer(section: &mut Section) -> Consumer {
    Consumer {
        batch_max: section.number("batch_max", 1_000, 1..=1_000),
        workers_per_tier: section.number("workers_per_tier", 2, 1..=64),
        buffer_per_partition: section.number("buffer_per_partition", 2_000, 1..=100_000),
        handler_timeout: section.span("handler_timeout", s(10), ms(100)..=s(3_600)),
        max_poll_interval: section.span("max_poll_interval", s(60), s(1)..=days(1)),
        session_timeout: section.span("session_timeout", s(10), s(1)..=s(1_800)),
        commit_interval: section.span("commit_interval", ms(500), ms(10)..=s(60)),
        crash_limit: section.number("crash_limit", 3, 2..=100),
        environment_pause_min: section.span("environment_pause_min", ms(200), ms(10)..=s(60)),
        environment_pause_max: section.span("environment_pause_max", s(10), ms(10)..=s(600)),
        stop_timeout: section.span("stop_timeout", s(15), s(1)..=s(300)),
    }
}

fn retention(section: &mut Section) -> Retention {
    Retention {
        task: section.span("task", days(30), s(60)..=YEARS),
        dedupe: section.span("dedupe", days(30), s(60)..=YEARS),
        events: section.span("events", days(90), s(60)..=YEARS),
        replay_window: section.span("replay_window", days(14), s(1)..=YEARS),
        patrol_interval: section.span("patrol_interval", s(1), ms(50)..=s(3_600)),
        patrol_batch: section.number("patrol_batch", 2_000, 100..=100_000),
    }
}

fn admin(section: &mut Section) -> Admin {
    let parse = |text: &str| match text {
        "off" => Ok(None),
        _ => text
            .parse::<SocketAddr>()
            .map(Some)
            .map_err(|_| "expected address:port such as \"127.0.0.1:0\", or \"off\"".to_owned()),
    };
    let bind = section.parsed("bind", "127.0.0.1:0", parse).flatten();
    let allow_public = section.flag("allow_public", false);
    if let Some(address) = bind.filter(|a| !a.ip().is_loopback() && !allow_public) {
        section.wrong(
            "bind",
            format!(
                "{address} is reachable from other machines, and the port has no password: use a \
                 loopback address, or set admin.allow_public = true behind a firewall"
            ),
        );
    }
    Admin { bind }
}

fn log(section: &mut Section) -> Log {
    let format = section.parsed("format", "json", |text| match text {
        "json" => Ok(LogFormat::Json),
        "pretty" => Ok(LogFormat::Pretty),
        _ => Err("expected \"json\" or \"pretty\"".to_owned()),
    });
    Log { format: format.unwrap_or(LogFormat::Json), level: section.text("level", "info") }
}
