//! The configuration of a stage: the user's values, with database, topics, queue and kind of our own.

use dueline_config::{Config, span};
use dueline_testkit::settings::{Settings, Value};

/// The queue of every stage.
pub(crate) const QUEUE: &str = "bench";
/// The kind of every stage.
pub(crate) const KIND: &str = "close_order";

/// The user's file again, without queues and kinds. Secrets are in it.
pub(crate) fn of_config(config: &Config, database_url: &str, topic_prefix: &str) -> Settings {
    let mut settings = Settings::new(database_url, &config.kafka.bootstrap_servers(), topic_prefix);
    settings.set("instance.name", "bench");
    // The log line that tells the admin port's address is one of level `info`.
    settings.set("log.level", "info");
    postgres(&mut settings, config);
    relay(&mut settings, config);
    consumer(&mut settings, config);
    let r = &config.retention;
    for (key, time) in [
        ("task", r.task),
        ("dedupe", r.dedupe),
        ("events", r.events),
        ("replay_window", r.replay_window),
        ("patrol_interval", r.patrol_interval),
    ] {
        settings.set(&format!("retention.{key}"), span::format(time));
    }
    settings.set("retention.patrol_batch", number(r.patrol_batch));
    settings.set("kafka.delivery_timeout", span::format(config.kafka.delivery_timeout));
    for (name, value) in config.kafka.exposed_properties() {
        settings.set(&format!("kafka.properties.{name}"), value);
    }
    settings.set(&format!("queues.{QUEUE}.group"), topic_prefix);
    settings.sql_kind(KIND, QUEUE, include_str!("../sql/close_order.sql"));
    settings
}

fn number(n: u32) -> Value {
    Value::from(i64::from(n))
}

fn postgres(settings: &mut Settings, config: &Config) {
    let p = &config.postgres;
    settings.set("postgres.max_connections", number(p.max_connections));
    settings.set("postgres.handler_role", p.handler_role.as_str());
    for (key, time) in [
        ("connect_timeout", p.connect_timeout),
        ("statement_timeout", p.statement_timeout),
        ("idle_in_transaction_timeout", p.idle_in_transaction_timeout),
        ("lock_timeout", p.lock_timeout),
    ] {
        settings.set(&format!("postgres.{key}"), span::format(time));
    }
    for (name, value) in &p.options {
        settings.set(&format!("postgres.options.{name}"), value.as_str());
    }
}

fn relay(settings: &mut Settings, config: &Config) {
    let r = &config.relay;
    for (key, time) in [
        ("lease", r.lease),
        ("lease_slack", r.lease_slack),
        ("poll_pause", r.poll_pause),
        ("busy_pause_min", r.busy_pause_min),
        ("busy_pause_max", r.busy_pause_max),
        ("window_min", r.window_min),
        ("window_max", r.window_max),
        ("sweep_interval", r.sweep_interval),
        ("heartbeat_interval", r.heartbeat_interval),
        ("takeover_after", r.takeover_after),
        ("age_limit", r.age_limit),
        ("stop_timeout", r.stop_timeout),
        ("hand_over_after", r.hand_over_after),
    ] {
        settings.set(&format!("relay.{key}"), span::format(time));
    }
    for (key, n) in [
        ("batch_max", r.batch_max),
        ("max_in_flight", r.max_in_flight),
        ("unanswered_limit", r.unanswered_limit),
        ("takeover_rate", r.takeover_rate),
    ] {
        settings.set(&format!("relay.{key}"), number(n));
    }
}

fn consumer(settings: &mut Settings, config: &Config) {
    let c = &config.consumer;
    for (key, time) in [
        ("handler_timeout", c.handler_timeout),
        ("max_poll_interval", c.max_poll_interval),
        ("session_timeout", c.session_timeout),
        ("commit_interval", c.commit_interval),
        ("environment_pause_min", c.environment_pause_min),
        ("environment_pause_max", c.environment_pause_max),
        ("stop_timeout", c.stop_timeout),
    ] {
        settings.set(&format!("consumer.{key}"), span::format(time));
    }
    for (key, n) in [
        ("batch_max", c.batch_max),
        ("workers_per_tier", c.workers_per_tier),
        ("buffer_per_partition", c.buffer_per_partition),
        ("crash_limit", c.crash_limit),
    ] {
        settings.set(&format!("consumer.{key}"), number(n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_values_stay_and_only_what_is_ours_differs() {
        let user = Config::from_toml_str(
            r#"
            [instance]
            name = "shop"
            [postgres]
            url = "postgres://a:secret@h/live"
            options = { work_mem = "64MB" }
            [kafka]
            brokers = "b:9092"
            [kafka.properties]
            security.protocol = "ssl"
            linger.ms = "7"
            [relay]
            lease = "45s"
            batch_max = 700
            busy_pause_max = "17ms"
            [consumer]
            workers_per_tier = 3
            [queues.orders]
            [kinds.remind]
            queue = "orders"
            rust = true
            "#,
        )
        .expect("is a configuration");
        let ours = of_config(&user, "postgres://h/dueline_bench_1", "bench-1").config();
        let ours = ours.expect("is a configuration");
        assert_eq!(ours.relay, user.relay);
        assert_eq!(ours.consumer, user.consumer);
        assert_eq!(ours.retention, user.retention);
        assert_eq!(ours.kafka.properties, user.kafka.properties);
        assert_eq!(ours.kafka.brokers, user.kafka.brokers);
        assert_eq!(ours.postgres.options, user.postgres.options);
        assert_eq!(ours.postgres.url.expose(), "postgres://h/dueline_bench_1");
        assert_eq!(ours.queues.keys().collect::<Vec<_>>(), [QUEUE]);
        assert_eq!(ours.kinds.keys().collect::<Vec<_>>(), [KIND]);
    }
}
