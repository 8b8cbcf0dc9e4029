//! What was found, and how it stands against the goals.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::judge::Judgement;
use crate::stats::{Percentiles, Spread};

/// What a value is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Bound {
    /// The number of the bound.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Self::AtLeast(n) | Self::AtMost(n) => n,
        }
    }

    /// Whether `value` keeps it. What is no number does not.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

/// A value that has a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Its name in the JSON document.
    pub name: String,
    /// What was measured.
    pub value: f64,
    /// What it should be.
    pub bound: Bound,
}

impl Goal {
    /// Whether it is met.
    #[must_use]
    pub fn met(&self) -> bool {
        self.bound.holds(self.value)
    }
}

/// A line of a scenario's table: the values of all repeats.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub what: String,
    pub unit: &'static str,
    pub values: Vec<f64>,
}

/// What one scenario came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) lines: Vec<Line>,
    pub(crate) goals: Vec<Goal>,
    pub(crate) judgement: Judgement,
    /// How long it took, preparation included.
    pub(crate) seconds: f64,
}

impl Outcome {
    /// Of the scenario `name`, with nothing measured yet.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            lines: Vec::new(),
            goals: Vec::new(),
            judgement: Judgement::default(),
            seconds: 0.0,
        }
    }

    /// Adds a measured value: one more repeat of what is called the same. Names are snake_case, for they
    /// are keys of the JSON document too.
    pub(crate) fn measure(&mut self, what: impl Into<String>, unit: &'static str, value: f64) {
        let what = what.into();
        match self.lines.iter_mut().find(|line| line.what == what) {
            Some(line) => line.values.push(value),
            None => self.lines.push(Line { what, unit, values: vec![value] }),
        }
    }

    /// Adds the four percentiles of a lateness, in milliseconds, as `<what>_p50` and so on.
    pub(crate) fn percentiles(&mut self, what: &str, late: Percentiles) {
        for (name, value) in
            [("p50", late.p50), ("p99", late.p99), ("p999", late.p999), ("max", late.max)]
        {
            self.measure(format!("{what}_{name}"), "ms", value);
        }
    }

    /// The median of what was measured under this name.
    pub(crate) fn median(&self, what: &str) -> Option<f64> {
        let line = self.lines.iter().find(|line| line.what == what)?;
        Spread::of(&line.values).map(|spread| spread.median)
    }

    /// The median over the repeats of the quotient of two lines, each within its own repeat.
    pub(crate) fn ratio(&self, above: &str, below: &str) -> Option<f64> {
        let values = |what: &str| self.lines.iter().find(|line| line.what == what);
        let pairs = values(above)?.values.iter().zip(&values(below)?.values);
        let quotients: Vec<f64> = pairs.map(|(a, b)| a / b).collect();
        Spread::of(&quotients).map(|spread| spread.median)
    }

    /// Adds a goal; one whose value was not measured is left out.
    pub(crate) fn goal(&mut self, name: impl Into<String>, value: Option<f64>, bound: Bound) {
        self.goals.extend(value.map(|value| Goal { name: name.into(), value, bound }));
    }

    /// Adds what the judge found.
    pub(crate) fn judged(&mut self, judgement: Judgement) {
        self.judgement += judgement;
    }

    fn document(&self) -> Value {
        let mut document = Map::new();
        for line in &self.lines {
            let spread = Spread::of(&line.values);
            document.insert(
                line.what.clone(),
                json!({
                    "unit": line.unit,
                    "median": spread.map(|s| s.median),
                    "min": spread.map(|s| s.min),
                    "max": spread.map(|s| s.max),
                    "values": line.values,
                }),
            );
        }
        document.insert("judged".to_owned(), json!(self.judgement));
        document.insert("seconds".to_owned(), json!(self.seconds));
        Value::Object(document)
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machine and the services, as a JSON object.
    pub machine: Value,
    /// The scenarios, in the order in which they ran.
    pub outcomes: Vec<Outcome>,
    /// How long the whole run took, in seconds: scenarios, warming up before them, removing everything after
    /// them.
    pub seconds: f64,
}

impl Report {
    /// Every goal of the scenarios that ran, and those of correctness over all of them.
    #[must_use]
    pub fn goals(&self) -> Vec<Goal> {
        let mut goals: Vec<Goal> = self.outcomes.iter().flat_map(|o| o.goals.clone()).collect();
        let total = self.judgement();
        let faults =
            [("duplicates", total.duplicates), ("losses", total.losses), ("early", total.early)];
        goals.extend(faults.into_iter().map(|(name, n)| {
            #[allow(clippy::cast_precision_loss)]
            Goal { name: name.to_owned(), value: n as f64, bound: Bound::AtMost(0.0) }
        }));
        goals
    }

    /// What the judge found in all scenarios.
    pub(crate) fn judgement(&self) -> Judgement {
        self.outcomes.iter().fold(Judgement::default(), |mut sum, outcome| {
            sum += outcome.judgement;
            sum
        })
    }

    /// Whether nothing happened twice, too early or not at all. A goal of speed that is missed does not
    /// make a run fail: it says how it is.
    #[must_use]
    pub fn is_correct(&self) -> bool {
        self.judgement().is_clean()
    }

    /// The JSON document.
    #[must_use]
    pub fn document(&self) -> Value {
        let scenarios: BTreeMap<&str, Value> =
            self.outcomes.iter().map(|o| (o.name, o.document())).collect();
        let goals: BTreeMap<String, Value> = self
            .goals()
            .into_iter()
            .map(|g| {
                let met = g.met();
                (g.name, json!({ "value": g.value, "goal": g.bound.number(), "met": met }))
            })
            .collect();
        json!({
            "machine": self.machine,
            "scenarios": scenarios,
            "goals": goals,
            "seconds": self.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let mut outcome = Outcome::new("steady");
        for (ours, theirs) in [(80.0, 100.0), (90.0, 100.0), (70.0, 50.0)] {
            outcome.measure("tasks_per_s", "/s", ours);
            outcome.measure("same_sql_tasks_per_s", "/s", theirs);
        }
        let ratio = outcome.ratio("tasks_per_s", "same_sql_tasks_per_s");
        outcome.goal("steady_vs_same_sql", ratio, Bound::AtLeast(0.8));
        outcome.goal("never", outcome.ratio("tasks_per_s", "missing"), Bound::AtLeast(1.0));
        outcome
    }

    #[test]
    fn a_goal_is_met_or_not_and_absent_when_not_measured() {
        let outcome = outcome();
        assert_eq!(outcome.goals.len(), 1);
        assert!((outcome.goals[0].value - 0.9).abs() < 1e-9, "the median of 0.8, 0.9 and 1.4");
        assert!(outcome.goals[0].met());
        assert!(!Bound::AtMost(0.0).holds(1.0) && Bound::AtMost(0.0).holds(0.0));
        assert!(!Bound::AtLeast(1.0).holds(f64::NAN));
    }

    #[test]
    fn the_document_has_machine_scenarios_and_goals() {
        let mut outcome = outcome();
        outcome.seconds = 12.5;
        let machine = json!({ "cores": 2 });
        let mut report = Report { machine, outcomes: vec![outcome], seconds: 40.0 };
        let document = report.document();
        assert_eq!(document["machine"]["cores"], 2);
        assert_eq!(document["scenarios"]["steady"]["tasks_per_s"]["median"], 80.0);
        assert_eq!(
            (&document["scenarios"]["steady"]["seconds"], &document["seconds"]),
            (&json!(12.5), &json!(40.0))
        );
        assert_eq!(document["goals"]["steady_vs_same_sql"]["goal"], 0.8);
        assert_eq!(document["goals"]["steady_vs_same_sql"]["met"], true);
        assert_eq!(document["goals"]["losses"], json!({ "value": 0.0, "goal": 0.0, "met": true }));
        assert!(report.is_correct());
        report.outcomes[0].judged(Judgement { losses: 1, ..Judgement::default() });
        assert_eq!(report.document()["goals"]["losses"]["met"], false);
        assert!(!report.is_correct());
    }
}
