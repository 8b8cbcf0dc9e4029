//! The campaign's configuration: everything short, so that a fault costs seconds.

use std::time::Duration;

use dueline_testkit::settings::Settings;

/// How long a claimed task is left alone.
pub const LEASE: Duration = Duration::from_secs(5);
/// After how long without polling a consumer loses its partitions.
pub const MAX_POLL: Duration = Duration::from_secs(6);

/// Three queues: orders that are closed unless paid, refunds by a gateway that fails, parcels by a
/// handler in Rust.
pub fn campaign(database_url: &str, brokers: &str, topic_prefix: &str) -> Settings {
    let mut settings = Settings::new(database_url, brokers, topic_prefix);
    settings.set("instance.name", "campaign");
    for (queue, tiers) in [
        ("orders", r#"[{ name = "2s", max_delay = "2s" }, { name = "90d", max_delay = "90d" }]"#),
        ("refunds", r#"[{ name = "3s", max_delay = "3s" }, { name = "90d", max_delay = "90d" }]"#),
        ("parcels", r#"[{ name = "90d", max_delay = "90d" }]"#),
    ] {
        settings.set_toml(&format!("queues.{queue}.tiers"), tiers);
        settings.set(&format!("queues.{queue}.slots"), 2);
        settings.set(&format!("queues.{queue}.partitions"), 2);
    }
    settings.sql_kind("close_order", "orders", include_str!("../../sql/close_order.sql"));
    settings.sql_kind("refund", "refunds", include_str!("../../sql/refund.sql"));
    settings.sql_kind("curse", "refunds", include_str!("../../sql/curse.sql"));
    settings.set("kinds.ship.queue", "parcels").set("kinds.ship.rust", true);
    for kind in ["close_order", "refund", "curse", "ship"] {
        settings.set(&format!("kinds.{kind}.backoff"), ["300ms", "600ms", "1s"]);
    }
    settings.set("relay.lease", format!("{}s", LEASE.as_secs())).set("relay.lease_slack", "500ms");
    settings.set("kafka.delivery_timeout", "3s");
    settings.set("relay.heartbeat_interval", "300ms").set("relay.takeover_after", "1500ms");
    settings.set("relay.sweep_interval", "500ms").set("relay.hand_over_after", "4s");
    settings.set("consumer.handler_timeout", "2s").set("consumer.session_timeout", "2s");
    settings.set("consumer.max_poll_interval", format!("{}s", MAX_POLL.as_secs()));
    settings.set("consumer.commit_interval", "200ms");
    settings.set("consumer.environment_pause_max", "1s");
    settings.set("postgres.statement_timeout", "4s").set("postgres.connect_timeout", "3s");
    settings.set("postgres.idle_in_transaction_timeout", "3s");
    settings.set("postgres.max_connections", 12);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_one_that_starts() {
        let config = campaign("postgres://h:1/d", "a:1", "t1").config().expect("is accepted");
        assert_eq!(config.relay.lease, LEASE);
        assert_eq!(config.kinds.len(), 4);
    }
}
