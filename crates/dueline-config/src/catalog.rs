//! The catalog of work: `[queues.<name>]` and `[kinds.<name>]`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dueline_core::name::{self, MAX_TOPIC_LEN, OUTCOME_SUFFIX, RESERVED_TIER_NAMES, nearest};
use dueline_core::tier::{default_tiers, rocketmq_tiers};
use dueline_core::{RetryPolicy, Tier};
use toml::Value;

use crate::check::{YEARS, days};
use crate::model::{Handler, Kind, MAX_LANES, Queue};
use crate::read::{Report, Section, bracketed};
use crate::span;
use crate::topics;
use crate::webhook;

/// The most bytes of a consumer group's name.
const MAX_GROUP_BYTES: usize = 255;
/// The most tiers of one queue.
const MAX_TIERS: usize = 64;
/// The most pauses of one backoff.
const MAX_BACKOFF: usize = 32;
/// The most bytes of a handler's statement.
const MAX_SQL_BYTES: usize = 64 * 1_024;

/// Reads all queues and checks the number of lanes that they share.
pub(crate) fn queues(root: &mut Section, prefix: &str) -> BTreeMap<String, Queue> {
    let report = root.report;
    let queues = root.each("queues", |name, section| queue(name, section, prefix));
    let lanes: usize = queues.values().map(Queue::lanes).sum();
    if lanes > MAX_LANES {
        report.add(format!(
            "queues: there are {lanes} lanes (tiers × slots of all queues), at most {MAX_LANES} are \
             allowed: use fewer slots or fewer tiers"
        ));
    }
    queues
}

/// What holds between queues and kinds: who handles a queue, and no topic's name twice.
pub(crate) fn agree(
    report: &Report,
    queues: &mut BTreeMap<String, Queue>,
    kinds: &BTreeMap<String, Kind>,
) {
    for queue in queues.values_mut() {
        let of_queue = || kinds.values().filter(|kind| kind.queue == queue.name);
        let teams = |kind: &&Kind| matches!(kind.handler, Handler::Outcomes { .. });
        queue.outcomes = of_queue().any(|kind| teams(&kind));
        if let Some(other) = of_queue().find(|kind| queue.outcomes && !teams(kind)) {
            report.add(format!(
                "queues.{}: another team handles it (`outcomes = true`), and kind {} is not that \
                 team's: one consumer group handles a queue, so give {} a queue of its own",
                queue.name, other.name, other.name
            ));
        }
    }
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for topic in queues.values().flat_map(topics::of_queue) {
        let normal = topic.resource_name().replace('.', "-");
        // The same name twice is a tier given twice, which its queue has reported.
        let other = seen.insert(normal, topic.name.clone());
        if let Some(other) = other.filter(|other| *other != topic.name) {
            report.add(format!(
                "queues: the topics {other} and {} differ only in `.`, `_` and `-`, which Kafka and \
                 Kubernetes do not tell apart: rename a queue or a tier",
                topic.name
            ));
        }
    }
}

fn queue(name: &str, section: &mut Section, prefix: &str) -> Queue {
    if let Err(error) = name::check_name("queue", name) {
        section.report.wrong(&section.path, error);
    }
    let tiers = tiers(section);
    let longest = tiers.iter().map(|t| t.name.len()).max().unwrap_or(0);
    let topic_len = prefix.len() + name.len() + longest.max(OUTCOME_SUFFIX.len()) + 2;
    if topic_len > MAX_TOPIC_LEN {
        section.report.add(format!(
            "{}: its topic names have {topic_len} characters, Kafka allows {MAX_TOPIC_LEN}: shorten \
             kafka.topic_prefix or the names",
            section.path
        ));
    }
    let group = section.text("group", &format!("{prefix}.{name}"));
    if group.is_empty() || group.len() > MAX_GROUP_BYTES || group.chars().any(char::is_control) {
        section.wrong("group", format!("expected 1 to {MAX_GROUP_BYTES} printable bytes"));
    }
    Queue {
        name: name.to_owned(),
        topic_prefix: prefix.to_owned(),
        tiers,
        slots: section.number("slots", 4, 1..=64),
        partitions: section.number("partitions", 4, 1..=1_000),
        replication: section.number("replication", 1, 1..=32),
        group,
        outcomes: false,
        topic_retention: section.span("topic_retention", days(7), Duration::from_secs(60)..=YEARS),
        dead_letter_retention: section.span(
            "dead_letter_retention",
            days(14),
            Duration::from_secs(60)..=YEARS,
        ),
    }
}

/// `"default"`, `"rocketmq"`, or a list of `{ name, max_delay }`; sorted by delay.
fn tiers(section: &mut Section) -> Vec<Tier> {
    let items = match section.take("tiers") {
        None => return default_tiers(),
        Some(Value::Array(items)) => items,
        Some(Value::String(text)) => match (text.as_str(), bracketed(&text)) {
            ("default", _) => return default_tiers(),
            ("rocketmq", _) => return rocketmq_tiers(),
            (_, Some(items)) => items,
            _ => Vec::new(),
        },
        Some(_) => Vec::new(),
    };
    if items.is_empty() || items.len() > MAX_TIERS {
        section.wrong(
            "tiers",
            format!(
                "expected \"default\", \"rocketmq\", or 1 to {MAX_TIERS} tiers such as \
                 {{ name = \"1m\", max_delay = \"1m\" }}"
            ),
        );
        return default_tiers();
    }
    let report = section.report;
    let path = section.path_of("tiers");
    let mut tiers: Vec<Tier> = items
        .into_iter()
        .enumerate()
        .filter_map(|(index, item)| tier(report, &format!("{path}[{index}]"), item))
        .collect();
    tiers.sort_by_key(|tier| tier.max_delay);
    for pair in tiers.windows(2) {
        if pair[0].max_delay == pair[1].max_delay {
            let [a, b] = [&pair[0].name, &pair[1].name];
            report.wrong(&path, format!("{a} and {b} have the same max_delay"));
        }
    }
    let mut names = BTreeSet::new();
    for tier in tiers.iter().filter(|tier| !names.insert(&tier.name)) {
        report.wrong(&path, format!("there are two tiers named {}", tier.name));
    }
    tiers
}

fn tier(report: &Report, path: &str, item: Value) -> Option<Tier> {
    let Value::Table(table) = item else {
        report.wrong(path, "expected { name = …, max_delay = … }");
        return None;
    };
    Section::read(report, path, table, |section: &mut Section| {
        let name = required(section, "name");
        let name = name.filter(|name| match tier_name(name) {
            Ok(()) => true,
            Err(reason) => {
                section.wrong("name", reason);
                false
            }
        });
        let max_delay = section.span_opt("max_delay", Duration::from_millis(1)..=YEARS);
        if max_delay.is_none() {
            missing(section, "max_delay");
        }
        Some(Tier { name: name?, max_delay: max_delay? })
    })
}

fn tier_name(name: &str) -> Result<(), String> {
    if RESERVED_TIER_NAMES.contains(&name) {
        return Err(format!("`{name}` is kept for another topic of the queue"));
    }
    name::check_name("tier", name).map_err(|e| e.to_string())
}

/// Reads all kinds; each one's queue must exist.
pub(crate) fn kinds(
    root: &mut Section,
    queues: &BTreeMap<String, Queue>,
    age_limit: Duration,
) -> BTreeMap<String, Kind> {
    root.each("kinds", |name, section| kind(name, section, queues, age_limit))
}

fn kind(
    name: &str,
    section: &mut Section,
    queues: &BTreeMap<String, Queue>,
    age_limit: Duration,
) -> Kind {
    if let Err(error) = name::check_name("kind", name) {
        section.report.wrong(&section.path, error);
    }
    let queue = required(section, "queue");
    if let Some(queue) = queue.as_ref().filter(|queue| !queues.contains_key(*queue)) {
        let hint = match nearest(queue, queues.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add a section [queues.{queue}]"),
        };
        section.wrong("queue", format!("there is no queue {queue:?}; {hint}"));
    }
    Kind {
        name: name.to_owned(),
        queue: queue.unwrap_or_default(),
        handler: handler(section),
        retry: RetryPolicy { backoff: backoff(section) },
        max_payload_bytes: section.number("max_payload_bytes", 8_192, 1..=524_288),
        age_limit: section
            .span_opt("age_limit", Duration::from_secs(1)..=YEARS)
            .unwrap_or(age_limit),
    }
}

/// Exactly one of the ways to carry a kind out.
fn handler(section: &mut Section) -> Handler {
    let sql = section.text_opt("sql");
    let rust = section.flag("rust", false);
    let outcomes = section.flag("outcomes", false);
    let http = section.section_opt("http", webhook::kind);
    let begins = section.flag("begin", false);
    if begins && !outcomes {
        section.wrong("begin", "it belongs to `outcomes = true`: the team calls `dueline.begin`");
    }
    match (sql, rust, outcomes, http) {
        (Some(sql), false, false, None) => {
            if sql.trim().is_empty() || sql.len() > MAX_SQL_BYTES || sql.contains('\0') {
                section
                    .wrong("sql", format!("expected one statement, at most {MAX_SQL_BYTES} bytes"));
            }
            Handler::Sql(sql)
        }
        (None, true, false, None) => Handler::Rust,
        (None, false, false, Some(webhook)) => Handler::Http(Box::new(webhook)),
        (None, false, true, None) => Handler::Outcomes { begins },
        (None, false, false, None) => {
            if !["sql", "http"].iter().any(|key| section.report.has_failed(&section.path_of(key))) {
                let path = &section.path;
                section.report.add(format!(
                    "{path}: nothing carries it out: give `sql` (one statement), a section \
                     [{path}.http] for a webhook, `rust = true` for a handler that is linked into the \
                     consumer, or `outcomes = true` for another team's consumers"
                ));
            }
            Handler::Rust
        }
        _ => {
            let path = &section.path;
            section.report.add(format!(
                "{path}: sql, http, rust = true and outcomes = true exclude each other: keep one"
            ));
            Handler::Rust
        }
    }
}

fn backoff(section: &mut Section) -> Vec<Duration> {
    let texts = section.texts("backoff", &["3s", "10s", "30s"]);
    if texts.len() > MAX_BACKOFF {
        section.wrong("backoff", format!("expected at most {MAX_BACKOFF} pauses"));
    }
    let mut pauses = Vec::with_capacity(texts.len());
    for text in texts.iter().take(MAX_BACKOFF) {
        match span::parse(text) {
            Some(pause) if pause <= days(30) => pauses.push(pause),
            Some(_) => section.wrong("backoff", "a pause is at most 30d"),
            None => section
                .wrong("backoff", format!("expected pauses such as \"3s\", found {text:.40?}")),
        }
    }
    pauses
}

pub(crate) fn required(section: &mut Section, key: &'static str) -> Option<String> {
    let text = section.text_opt(key);
    if text.is_none() {
        missing(section, key);
    }
    text
}

/// Reports a key that has no value, unless it has one that was wrong.
pub(crate) fn missing(section: &Section, key: &str) {
    let path = section.path_of(key);
    if !section.report.has_failed(&path) {
        section.report.add(format!("{path}: is missing"));
    }
}
