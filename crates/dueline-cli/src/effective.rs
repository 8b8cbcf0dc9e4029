//! `config check`: the configuration as it is in force, without secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use dueline_config::{Config, Handler, Kind, LogFormat, Queue, Webhook, span};
use serde_json::{Value, json};

use crate::context::Context;
use crate::output::Reply;

/// What is shown instead of a secret.
const REDACTED: &str = "<redacted>";

/// `dueline config check`. Problems have ended the command before this.
pub fn show(context: &Context) -> anyhow::Result<Reply> {
    let document = effective(&context.config);
    let toml = toml::to_string_pretty(&document)?;
    Ok(Reply::new(json!({ "config": document, "problems": [] }), toml))
}

fn time(duration: Duration) -> Value {
    Value::from(span::format(duration))
}

/// Every key as it would be typed. What may be a secret is replaced.
fn effective(config: &Config) -> Value {
    let mut document = json!({
        "instance": { "name": config.instance.name },
        "postgres": postgres(config),
        "kafka": kafka(config),
        "relay": relay(config),
        "consumer": consumer(config),
        "http": http(config),
        "retention": retention(config),
        "admin": { "bind": config.admin.bind.map_or("off".to_owned(), |a| a.to_string()) },
        "log": {
            "level": config.log.level,
            "format": match config.log.format {
                LogFormat::Json => "json",
                LogFormat::Pretty => "pretty",
            },
        },
    });
    let queues: BTreeMap<_, _> = config.queues.iter().map(|(n, q)| (n, queue(q))).collect();
    let kinds: BTreeMap<_, _> = config.kinds.iter().map(|(n, k)| (n, kind(k))).collect();
    document["queues"] = json!(queues);
    document["kinds"] = json!(kinds);
    document
}

fn postgres(config: &Config) -> Value {
    let p = &config.postgres;
    json!({
        "url": p.redacted_url(),
        "max_connections": p.max_connections,
        "connect_timeout": time(p.connect_timeout),
        "statement_timeout": time(p.statement_timeout),
        "idle_in_transaction_timeout": time(p.idle_in_transaction_timeout),
        "lock_timeout": time(p.lock_timeout),
        "handler_role": p.handler_role,
        "options": p.options,
    })
}

fn kafka(config: &Config) -> Value {
    let k = &config.kafka;
    let hidden: BTreeMap<_, _> = k.properties.keys().map(|name| (name, REDACTED)).collect();
    json!({
        "brokers": k.brokers,
        "topic_prefix": k.topic_prefix,
        "delivery_timeout": time(k.delivery_timeout),
        "properties": hidden,
    })
}

fn relay(config: &Config) -> Value {
    let r = &config.relay;
    json!({
        "lease": time(r.lease),
        "lease_slack": time(r.lease_slack),
        "batch_max": r.batch_max,
        "max_in_flight": r.max_in_flight,
        "poll_pause": time(r.poll_pause),
        "busy_pause_min": time(r.busy_pause_min),
        "busy_pause_max": time(r.busy_pause_max),
        "window_min": time(r.window_min),
        "window_max": time(r.window_max),
        "sweep_interval": time(r.sweep_interval),
        "heartbeat_interval": time(r.heartbeat_interval),
        "takeover_after": time(r.takeover_after),
        "takeover_rate": r.takeover_rate,
        "age_limit": time(r.age_limit),
        "unanswered_limit": r.unanswered_limit,
        "hand_over_after": time(r.hand_over_after),
        "stop_timeout": time(r.stop_timeout),
    })
}

fn consumer(config: &Config) -> Value {
    let c = &config.consumer;
    json!({
        "batch_max": c.batch_max,
        "workers_per_tier": c.workers_per_tier,
        "buffer_per_partition": c.buffer_per_partition,
        "handler_timeout": time(c.handler_timeout),
        "max_poll_interval": time(c.max_poll_interval),
        "session_timeout": time(c.session_timeout),
        "commit_interval": time(c.commit_interval),
        "crash_limit": c.crash_limit,
        "environment_pause_min": time(c.environment_pause_min),
        "environment_pause_max": time(c.environment_pause_max),
        "stop_timeout": time(c.stop_timeout),
    })
}

fn http(config: &Config) -> Value {
    let h = &config.http;
    let networks: Vec<String> = h.allow_networks.iter().map(ToString::to_string).collect();
    let mut document = json!({
        "allow_networks": networks,
        "allow_plaintext": h.allow_plaintext,
        "concurrency_per_host": h.concurrency_per_host,
        "breaker_failures": h.breaker_failures,
        "connect_timeout": time(h.connect_timeout),
        "max_response_bytes": h.max_response_bytes,
    });
    if let Some(file) = &h.ca_file {
        document["ca_file"] = json!(file);
    }
    document
}

fn retention(config: &Config) -> Value {
    let r = &config.retention;
    json!({
        "task": time(r.task),
        "dedupe": time(r.dedupe),
        "events": time(r.events),
        "replay_window": time(r.replay_window),
        "patrol_interval": time(r.patrol_interval),
        "patrol_batch": r.patrol_batch,
    })
}

fn queue(queue: &Queue) -> Value {
    let tiers: Vec<Value> = queue
        .tiers
        .iter()
        .map(|t| json!({ "name": t.name, "max_delay": time(t.max_delay) }))
        .collect();
    json!({
        "slots": queue.slots,
        "partitions": queue.partitions,
        "replication": queue.replication,
        "group": queue.group,
        "topic_retention": time(queue.topic_retention),
        "dead_letter_retention": time(queue.dead_letter_retention),
        "tiers": tiers,
    })
}

fn kind(kind: &Kind) -> Value {
    let backoff: Vec<Value> = kind.retry.backoff.iter().map(|d| time(*d)).collect();
    let mut document = json!({
        "queue": kind.queue,
        "backoff": backoff,
        "max_payload_bytes": kind.max_payload_bytes,
        "age_limit": time(kind.age_limit),
    });
    match &kind.handler {
        Handler::Sql(statement) => document["sql"] = json!(statement),
        Handler::Rust => document["rust"] = json!(true),
        Handler::Http(hook) => document["http"] = webhook(hook),
        Handler::Outcomes { begins } => {
            document["outcomes"] = json!(true);
            document["begin"] = json!(begins);
        }
    }
    document
}

fn webhook(webhook: &Webhook) -> Value {
    let hidden = |name| (name, REDACTED);
    let headers: BTreeMap<_, _> = webhook.headers.keys().map(hidden).collect();
    let statuses: BTreeMap<_, _> =
        webhook.statuses.iter().map(|(code, answer)| (code.to_string(), answer.as_str())).collect();
    json!({
        "url": webhook.url,
        "secrets": vec![REDACTED; webhook.secrets.len()],
        "timeout": time(webhook.timeout),
        "idempotent": webhook.idempotent,
        "headers": headers,
        "statuses": statuses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [postgres]
        url = "postgres://ann:hunter2@db.example:5432/shop"
        [kafka.properties]
        "sasl.password" = "hunter3"
        [queues.orders]
        [kinds.close_order]
        queue = "orders"
        sql = "select 1"
    "#;

    #[test]
    fn h26_no_secret_is_shown() {
        let config = Config::from_toml_str(TEXT).unwrap_or_else(|e| panic!("{e}"));
        let shown = effective(&config);
        let toml = toml::to_string_pretty(&shown).expect("is TOML");
        for text in [shown.to_string(), toml] {
            assert!(!text.contains("hunter"), "{text}");
            assert!(text.contains("db.example") && text.contains("sasl.password"), "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_used_as_a_configuration() {
        let config = Config::from_toml_str(TEXT).unwrap_or_else(|e| panic!("{e}"));
        let mut shown = effective(&config);
        shown["kafka"]["properties"] = json!({});
        let toml = toml::to_string_pretty(&shown).expect("is TOML");
        let again = Config::from_toml_str(&toml).unwrap_or_else(|e| panic!("{e}\n{toml}"));
        assert_eq!(again.queues, config.queues);
        assert_eq!(again.kinds, config.kinds);
        assert_eq!((again.relay, again.consumer), (config.relay, config.consumer));
    }
}
