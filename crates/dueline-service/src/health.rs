//! Which parts of a process are ready, and whether its loops still turn.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most characters of a reason.
const MAX_REASON_CHARS: usize = 300;

/// The health of one process; clones share it.
///
/// A process is *ready* when every component is; it is *live* while every watched loop ticks within
/// its bound. Names are fixed texts, so that the registry cannot grow with the data.
#[derive(Clone, Default)]
pub struct Health {
    inner: Arc<Mutex<Registry>>,
}

#[derive(Default)]
struct Registry {
    components: BTreeMap<&'static str, Result<(), String>>,
    loops: BTreeMap<&'static str, Arc<Beat>>,
}

struct Beat {
    started: Instant,
    bound: Duration,
    /// When the last tick was, in milliseconds since `started`.
    ticked_ms: AtomicU64,
}

impl Beat {
    fn silence(&self) -> Duration {
        let ticked = Duration::from_millis(self.ticked_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(ticked)
    }
}

/// A loop's end of its registration. Dropping it ends the watch: a loop that returned is not hung.
pub struct Pulse {
    name: &'static str,
    beat: Arc<Beat>,
    health: Health,
}

impl Pulse {
    /// Says that the loop still turns. One relaxed store: cheap enough for every turn.
    pub fn tick(&self) {
        let elapsed = u64::try_from(self.beat.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.ticked_ms.store(elapsed, Ordering::Relaxed);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let mut registry = self.health.lock();
        // A newer registration of the same name stays.
        if registry.loops.get(self.name).is_some_and(|beat| Arc::ptr_eq(beat, &self.beat)) {
            registry.loops.remove(self.name);
        }
    }
}

/// An answer to "ready?" or "live?": one line per part, `name: ok` or `name: reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether every part is well.
    pub ok: bool,
    /// One line per part, in the order of the names.
    pub text: String,
}

impl Health {
    /// A registry without parts, which is ready and live.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that a component is well, or why it is not. Register each one as not ready before the
    /// admin port opens, or a process is ready before it has tried anything.
    ///
    /// A reason is shown to whoever can reach the admin port: put no secret into it. It is shortened
    /// and made one line.
    pub fn set(&self, component: &'static str, state: Result<(), impl std::fmt::Display>) {
        let state = state.map_err(|reason| one_line(&reason.to_string()));
        let previous = self.lock().components.insert(component, state.clone());
        if previous.as_ref() == Some(&state) {
            return;
        }
        match state {
            Ok(()) => tracing::info!(component, "ready"),
            Err(reason) => tracing::warn!(component, reason, "not ready"),
        }
    }

    /// Forgets a component.
    pub fn remove(&self, component: &'static str) {
        self.lock().components.remove(component);
    }

    /// Watches a loop that promises to tick at least once in `bound`, from now on.
    #[must_use]
    pub fn watch(&self, name: &'static str, bound: Duration) -> Pulse {
        let beat = Arc::new(Beat { started: Instant::now(), bound, ticked_ms: AtomicU64::new(0) });
        self.lock().loops.insert(name, Arc::clone(&beat));
        Pulse { name, beat, health: self.clone() }
    }

    /// Whether every component is ready.
    #[must_use]
    pub fn readiness(&self) -> Verdict {
        let registry = self.lock();
        verdict(
            registry.components.iter().map(|(name, state)| (*name, state.as_ref().err().cloned())),
        )
    }

    /// Whether every watched loop ticked within its bound.
    #[must_use]
    pub fn liveness(&self) -> Verdict {
        let registry = self.lock();
        verdict(registry.loops.iter().map(|(name, beat)| {
            let silence = beat.silence();
            let hung = silence > beat.bound;
            let reason = || format!("no tick for {silence:.1?}, its bound is {:?}", beat.bound);
            (*name, hung.then(reason))
        }))
    }

    /// A panic elsewhere leaves a map of whole values behind: it can be read on.
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn verdict(parts: impl Iterator<Item = (&'static str, Option<String>)>) -> Verdict {
    let mut verdict = Verdict { ok: true, text: String::new() };
    for (name, reason) in parts {
        verdict.ok &= reason.is_none();
        let _ = writeln!(verdict.text, "{name}: {}", reason.as_deref().unwrap_or("ok"));
    }
    if verdict.text.is_empty() {
        verdict.text.push_str("ok\n");
    }
    verdict
}

fn one_line(text: &str) -> String {
    text.chars().take(MAX_REASON_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_component_makes_the_process_not_ready_and_says_why() {
        let health = Health::new();
        assert!(health.readiness().ok);
        health.set("kafka", Ok::<(), String>(()));
        health.set("postgres", Err("connection refused\nsecond line"));
        let verdict = health.readiness();
        assert!(!verdict.ok);
        assert_eq!(verdict.text, "kafka: ok\npostgres: connection refused second line\n");
        health.set("postgres", Ok::<(), String>(()));
        assert!(health.readiness().ok);
    }

    #[test]
    fn a_loop_that_does_not_tick_within_its_bound_is_not_live() {
        let health = Health::new();
        let hung = health.watch("scan", Duration::ZERO);
        let turning = health.watch("sweep", Duration::from_secs(3_600));
        while hung.beat.silence().is_zero() {
            std::hint::spin_loop();
        }
        turning.tick();
        let verdict = health.liveness();
        assert!(!verdict.ok);
        assert!(verdict.text.starts_with("scan: no tick for"), "{}", verdict.text);
        assert!(verdict.text.ends_with("sweep: ok\n"), "{}", verdict.text);
        drop(hung);
        assert!(health.liveness().ok, "a loop that returned is not hung");
    }

    #[test]
    fn a_tick_restarts_the_bound() {
        let health = Health::new();
        let pulse = health.watch("scan", Duration::from_secs(60));
        while pulse.beat.silence() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        pulse.tick();
        assert!(pulse.beat.silence() < Duration::from_millis(2));
    }

    #[test]
    fn a_second_watch_of_one_name_outlives_the_first() {
        let health = Health::new();
        let first = health.watch("scan", Duration::from_secs(60));
        let second = health.watch("scan", Duration::from_secs(60));
        drop(first);
        assert!(health.liveness().text.contains("scan"));
        drop(second);
        assert!(!health.liveness().text.contains("scan"));
    }
}
