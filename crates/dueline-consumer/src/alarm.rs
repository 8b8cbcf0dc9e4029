//! What is wrong, by component: the health registry knows fixed names only, but several queues, kinds and
//! partitions may be in trouble at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dueline_service::Health;

/// The most troubles of one component that are remembered.
const MAX_REASONS: usize = 1_000;

/// Alarms of a consumer; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Alarms {
    health: Health,
    reasons: Arc<Mutex<BTreeMap<(&'static str, String), String>>>,
}

/// Components that can be in trouble.
pub(crate) mod component {
    /// A member of the handling group.
    pub const KAFKA: &str = "kafka";
    /// The deadline database, or what a handler needs.
    pub const ENVIRONMENT: &str = "environment";
    /// A handler that broke its contract.
    pub const HANDLERS: &str = "handlers";
    /// A partition that waits for somebody.
    pub const PARTITIONS: &str = "partitions";
}

impl Alarms {
    pub fn new(health: Health) -> Self {
        let alarms = Self { health, reasons: Arc::default() };
        for name in [component::ENVIRONMENT, component::HANDLERS, component::PARTITIONS] {
            alarms.show(name);
        }
        alarms
    }

    /// Raises the alarm of `what` in a component, or changes its reason. Answers whether it is new.
    pub fn raise(&self, name: &'static str, what: &str, reason: impl Into<String>) -> bool {
        let new = {
            let mut reasons = self.lock();
            let key = (name, what.to_owned());
            let known = reasons.contains_key(&key);
            if known || reasons.len() < MAX_REASONS {
                reasons.insert(key, reason.into());
            }
            !known
        };
        self.show(name);
        new
    }

    /// Ends the alarm of `what`.
    pub fn clear(&self, name: &'static str, what: &str) {
        if self.lock().remove(&(name, what.to_owned())).is_some() {
            self.show(name);
        }
    }

    fn show(&self, name: &'static str) {
        let (first, others) = {
            let reasons = self.lock();
            let mut of_name = reasons.iter().filter(|((n, _), _)| *n == name);
            let first = of_name.next().map(|((_, what), reason)| format!("{what}: {reason}"));
            (first, of_name.count())
        };
        match first {
            None => self.health.set(name, Ok::<(), String>(())),
            Some(reason) if others == 0 => self.health.set(name, Err(reason)),
            Some(reason) => self.health.set(name, Err(format!("{reason} (and {others} more)"))),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(&'static str, String), String>> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_well_again_when_its_last_alarm_ends() {
        let health = Health::new();
        let alarms = Alarms::new(health.clone());
        assert!(health.readiness().ok);
        assert!(alarms.raise(component::HANDLERS, "close_order", "unknown ord"));
        assert!(!alarms.raise(component::HANDLERS, "close_order", "unknown ord"));
        assert!(alarms.raise(component::HANDLERS, "refund", "double ord"));
        assert!(health.readiness().text.contains("close_order: unknown ord (and 1 more)"));
        alarms.clear(component::HANDLERS, "close_order");
        assert!(!health.readiness().ok);
        alarms.clear(component::HANDLERS, "refund");
        assert!(health.readiness().ok);
    }
}
