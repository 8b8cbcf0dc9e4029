//! What is wrong, by component: the health registry knows fixed names only, but several queues, kinds and
//! partitions may be in trouble at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dueline_service::Health;

/// The most troubles of one component that are remembered.
const MAX_REASONS: usize = 1_000;

/// By component and what of it is in trouble.
type Reasons = BTreeMap<(&'static str, String), String>;

/// Alarms of a consumer; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Alarms {
    health: Health,
    reasons: Arc<Mutex<Reasons>>,
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
        let reasons = alarms.lock();
        for name in [component::ENVIRONMENT, component::HANDLERS, component::PARTITIONS] {
            alarms.show(&reasons, name);
        }
        drop(reasons);
        alarms
    }

    /// Raises the alarm of `what` in a component, or changes its reason. Answers whether it is new.
    pub fn raise(&self, name: &'static str, what: &str, reason: impl Into<String>) -> bool {
        let mut reasons = self.lock();
        let key = (name, what.to_owned());
        let known = reasons.contains_key(&key);
        if known || reasons.len() < MAX_REASONS {
            reasons.insert(key, reason.into());
        }
        self.show(&reasons, name);
        !known
    }

    /// Ends the alarm of `what`.
    pub fn clear(&self, name: &'static str, what: &str) {
        let mut reasons = self.lock();
        if reasons.remove(&(name, what.to_owned())).is_some() {
            self.show(&reasons, name);
        }
    }

    /// Tells the health registry. The caller holds the lock: what is shown last must be what came last.
    fn show(&self, reasons: &Reasons, name: &'static str) {
        let mut of_name = reasons.iter().filter(|((n, _), _)| *n == name);
        let first = of_name.next().map(|((_, what), reason)| format!("{what}: {reason}"));
        let others = of_name.count();
        match first {
            None => self.health.set(name, Ok::<(), String>(())),
            Some(reason) if others == 0 => self.health.set(name, Err(reason)),
            Some(reason) => self.health.set(name, Err(format!("{reason} (and {others} more)"))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reasons> {
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

    /// Two queues that join at the same instant once left "joining the group" behind for good.
    #[test]
    fn alarms_that_end_at_the_same_instant_leave_none_behind() {
        let health = Health::new();
        let alarms = Alarms::new(health.clone());
        let together = std::sync::Barrier::new(2);
        for round in 0..2_000 {
            std::thread::scope(|scope| {
                for what in ["orders", "refunds"] {
                    let (alarms, together) = (&alarms, &together);
                    scope.spawn(move || {
                        alarms.raise(component::KAFKA, what, "joining the group");
                        together.wait();
                        alarms.clear(component::KAFKA, what);
                    });
                }
            });
            assert!(health.readiness().ok, "round {round}: {}", health.readiness().text);
        }
    }
}
