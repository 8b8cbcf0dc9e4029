//! What to run, and how large.

use std::time::Duration;

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Scheduling and settling at constant backlog.
    Steady,
    /// Settling what was scheduled before.
    Drain,
    /// How late tasks are at a fixed rate, and what an idle relay costs.
    Lateness,
    /// The same with millions of tasks waiting.
    Pending,
    /// `steady` while a transaction elsewhere keeps vacuum from cleaning.
    Pinned,
    /// Everything due at once in one tier, and a trickle in another.
    Burst,
    /// Several databases, several relays.
    Scale,
    /// Another team handles the tasks, and answers with outcomes.
    Outcomes,
    /// Scheduling alone.
    Schedule,
}

impl Scenario {
    /// All, in the order in which they run.
    pub const ALL: [Self; 9] = [
        Self::Steady,
        Self::Drain,
        Self::Schedule,
        Self::Lateness,
        Self::Pending,
        Self::Pinned,
        Self::Burst,
        Self::Scale,
        Self::Outcomes,
    ];

    /// The name that is typed and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Drain => "drain",
            Self::Lateness => "lateness",
            Self::Pending => "pending",
            Self::Pinned => "pinned",
            Self::Burst => "burst",
            Self::Scale => "scale",
            Self::Outcomes => "outcomes",
            Self::Schedule => "schedule",
        }
    }
}

impl std::str::FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|s| s.as_str()).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// These scenarios; none is all of them.
    pub scenarios: Vec<Scenario>,
    /// Smaller and shorter, once instead of three times: to see whether something changed much.
    pub quick: bool,
    /// How often everything is measured; `None`: three times, or once when `quick`.
    pub repeats: Option<usize>,
    /// Scales counts, and times down to a second: 1.0 but in tests of the bench itself.
    pub scale: f64,
}

impl Options {
    /// The chosen scenarios, in the order in which they run, each once.
    #[must_use]
    pub fn chosen(&self) -> Vec<Scenario> {
        let all = self.scenarios.is_empty();
        Scenario::ALL.into_iter().filter(|s| all || self.scenarios.contains(s)).collect()
    }

    /// How often everything is measured, at least once.
    #[must_use]
    pub fn repeats(&self) -> usize {
        self.repeats.unwrap_or(if self.quick { 1 } else { 3 }).max(1)
    }

    /// The same for a scenario that needs no more than `most`, unless somebody asked for a number.
    #[must_use]
    pub fn at_most(&self, most: usize) -> usize {
        if self.repeats.is_some() { self.repeats() } else { self.repeats().min(most) }
    }

    /// A number of tasks.
    #[must_use]
    pub fn count(&self, full: u32, quick: u32) -> i64 {
        let n = f64::from(if self.quick { quick } else { full });
        #[allow(clippy::cast_possible_truncation)]
        let scaled = (n * self.scale).round() as i64;
        scaled.max(100)
    }

    /// A length of time of a measurement, in seconds.
    #[must_use]
    pub fn seconds(&self, full: u32, quick: u32) -> Duration {
        let n = f64::from(if self.quick { quick } else { full });
        Duration::from_secs_f64((n * self.scale.clamp(0.0, 1.0)).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(quick: bool, scale: f64) -> Options {
        Options { scenarios: vec![Scenario::Drain, Scenario::Steady], quick, repeats: None, scale }
    }

    #[test]
    fn scenarios_run_in_one_order_whatever_was_typed() {
        assert_eq!(options(true, 1.0).chosen(), [Scenario::Steady, Scenario::Drain]);
        let all = Options { scenarios: Vec::new(), ..options(true, 1.0) };
        assert_eq!(all.chosen(), Scenario::ALL);
        assert_eq!("burst".parse(), Ok(Scenario::Burst));
        assert!("bursts".parse::<Scenario>().is_err());
    }

    #[test]
    fn sizes_follow_quick_and_scale() {
        assert_eq!(options(false, 1.0).count(1_000_000, 200_000), 1_000_000);
        assert_eq!(options(true, 0.01).count(1_000_000, 200_000), 2_000);
        assert_eq!(options(true, 0.01).seconds(10, 4), Duration::from_secs(1));
        assert_eq!(options(false, 1.0).seconds(10, 4), Duration::from_secs(10));
        assert_eq!((options(false, 1.0).repeats(), options(true, 1.0).repeats()), (3, 1));
        let five = Options { repeats: Some(5), ..options(false, 1.0) };
        assert_eq!((options(false, 1.0).at_most(2), five.at_most(2)), (2, 5));
    }
}
