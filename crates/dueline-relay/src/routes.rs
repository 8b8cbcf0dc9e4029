//! Where the tasks of a lane go: its queue's and tier's topic.

use std::collections::BTreeMap;
use std::sync::Arc;

use dueline_config::Config;
use dueline_store::relay::Lane;
use metrics::{Counter, Histogram};

/// One tier of one queue. The metric handles are kept here, so that counting a message costs no
/// look-up.
pub(crate) struct Route {
    /// The queue.
    pub queue: String,
    /// The tier's topic.
    pub topic: String,
    /// The queue's handling group.
    pub group: String,
    /// The topic in which that group answers, when it is another team's.
    pub outcomes: Option<String>,
    /// Due → claimed.
    pub lateness: Histogram,
    /// Due → acknowledged by the broker.
    pub acknowledged: Histogram,
    /// Claims.
    pub claimed: Counter,
    /// Delivery reports: delivered.
    pub published: Counter,
    /// Delivery reports: certainly not written.
    pub released: Counter,
    /// Delivery reports: unknown.
    pub unknown: Counter,
    /// Publications beside the first one.
    pub republished: Counter,
    /// Publications that the topic made needless.
    pub suppressed: Counter,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("topic", &self.topic).finish()
    }
}

impl Route {
    fn new(queue: &str, tier: &str, topic: String, group: &str, outcomes: Option<String>) -> Self {
        let labels = || [("queue", queue.to_owned()), ("tier", tier.to_owned())];
        let counter = |name: &'static str| metrics::counter!(name, &labels());
        Self {
            queue: queue.to_owned(),
            topic,
            group: group.to_owned(),
            outcomes,
            lateness: metrics::histogram!("dueline_relay_lateness_seconds", &labels()),
            acknowledged: metrics::histogram!(
                "dueline_relay_acknowledged_lateness_seconds",
                &labels()
            ),
            claimed: counter("dueline_relay_claimed_total"),
            published: counter("dueline_relay_published_total"),
            released: counter("dueline_relay_released_total"),
            unknown: counter("dueline_relay_unknown_total"),
            republished: counter("dueline_relay_republished_total"),
            suppressed: counter("dueline_relay_suppressed_total"),
        }
    }

    #[cfg(test)]
    pub fn for_tests(queue: &str, tier: &str) -> Arc<Self> {
        Arc::new(Self::new(queue, tier, format!("t.{queue}.{tier}"), "g", None))
    }
}

/// The routes of a configuration.
#[derive(Debug)]
pub(crate) struct Routes {
    by_tier: BTreeMap<(String, String), Arc<Route>>,
}

impl Routes {
    pub fn new(config: &Config) -> Self {
        let mut by_tier = BTreeMap::new();
        for queue in config.queues.values() {
            for tier in &queue.tiers {
                let topic = queue.topic(&tier.name);
                let outcomes = queue.outcome_topic();
                let route = Route::new(&queue.name, &tier.name, topic, &queue.group, outcomes);
                by_tier.insert((queue.name.clone(), tier.name.clone()), Arc::new(route));
            }
        }
        Self { by_tier }
    }

    /// `None`: the lane's queue or tier is not in the configuration.
    pub fn of(&self, lane: &Lane) -> Option<&Arc<Route>> {
        self.by_tier.get(&(lane.queue.clone(), lane.tier.clone()))
    }

    /// Every tier topic.
    pub fn topics(&self) -> Vec<String> {
        self.by_tier.values().map(|route| route.topic.clone()).collect()
    }
}
