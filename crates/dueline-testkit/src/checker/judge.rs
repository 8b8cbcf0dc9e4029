//! The judge: one function for each invariant.

use std::collections::{HashMap, HashSet};
use std::fmt;

use dueline_core::{Micros, TaskState};
use serde::Serialize;

use super::calls;
use super::evidence::{Answer, Event, Evidence, Published, Task};
use super::probe::Passed;
use super::story::{wrong_row, wrong_story};

/// The most examples that a finding keeps.
const MAX_EXAMPLES: usize = 5;

/// What the evidence says of one invariant.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// `V1` … `V9`.
    pub invariant: &'static str,
    /// What it demands.
    pub says: &'static str,
    /// How many things were looked at.
    pub checked: usize,
    /// How many of them break it.
    pub violations: usize,
    /// The first few of those, in words.
    pub examples: Vec<String>,
    /// The tasks that those are about, where they can be told, by kind and key.
    pub subjects: Vec<(String, String)>,
}

/// A line of the verdict, and one for each example.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.violations == 0 { "holds" } else { "VIOLATED" };
        let counts = match self.violations {
            0 => format!("{} checked", self.checked),
            n => format!("{n} of {} checked", self.checked),
        };
        write!(f, "{}  {verdict:8}  {} ({counts})", self.invariant, self.says)?;
        for example in &self.examples {
            write!(f, "\n              {example}")?;
        }
        Ok(())
    }
}

impl Finding {
    fn new(invariant: &'static str, says: &'static str) -> Self {
        let (examples, subjects) = (Vec::new(), Vec::new());
        Self { invariant, says, checked: 0, violations: 0, examples, subjects }
    }

    /// Looks at one thing; `wrong` is why it breaks the invariant.
    fn look(&mut self, wrong: Option<String>) {
        self.look_at(None, wrong);
    }

    /// [`Self::look`] at something that is about one task.
    fn look_at(&mut self, of: Option<(&str, &str)>, wrong: Option<String>) {
        self.checked += 1;
        if let Some(wrong) = wrong {
            self.violations += 1;
            if self.examples.len() < MAX_EXAMPLES {
                self.examples.push(wrong);
                let subject = of.map(|(kind, key)| (kind.to_owned(), key.to_owned()));
                self.subjects.extend(subject.filter(|subject| !self.subjects.contains(subject)));
            }
        }
    }

    fn demand(&mut self, holds: bool, wrong: impl FnOnce() -> String) {
        self.look((!holds).then(wrong));
    }

    pub(super) fn demand_of(
        &mut self,
        of: (&str, &str),
        holds: bool,
        wrong: impl FnOnce() -> String,
    ) {
        self.look_at(Some(of), (!holds).then(wrong));
    }
}

/// The evidence, sorted by what is asked of it.
pub(super) struct Index<'e> {
    pub evidence: &'e Evidence,
    tasks: HashMap<i64, &'e Task>,
    pub by_key: HashMap<(&'e str, &'e str), &'e Task>,
    effects: HashMap<(&'e str, &'e str), Vec<Micros>>,
    events: HashMap<i64, Vec<&'e Event>>,
}

impl<'e> Index<'e> {
    fn new(evidence: &'e Evidence) -> Self {
        let mut index = Self {
            evidence,
            tasks: evidence.tasks.iter().map(|t| (t.id, t)).collect(),
            by_key: evidence.tasks.iter().map(|t| ((&*t.kind, &*t.key), t)).collect(),
            effects: HashMap::new(),
            events: HashMap::new(),
        };
        for effect in &evidence.effects {
            index.effects.entry((&effect.kind, &effect.key)).or_default().push(effect.at);
        }
        for event in &evidence.events {
            index.events.entry(event.task_id).or_default().push(event);
        }
        index
    }

    pub fn effects_of<'a>(&'a self, kind: &'a str, key: &'a str) -> &'a [Micros] {
        self.effects.get(&(kind, key)).map_or(&[], Vec::as_slice)
    }

    fn events_of(&self, id: i64) -> &[&'e Event] {
        self.events.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// Judges all nine.
#[must_use]
pub fn judge(evidence: &Evidence) -> Vec<Finding> {
    let index = Index::new(evidence);
    let mut findings = vec![
        v1(&index),
        v2(&index),
        v3(&index),
        v4(&index),
        v5(&index),
        v6(&index),
        v7(&index),
        v8(&index),
        v9(&index),
    ];
    let [v1, _, v3, v4, ..] = findings.as_mut_slice() else { return findings };
    calls::judge(&index, v1, v3, v4);
    findings
}

fn key_of(task: &Task) -> (&str, &str) {
    (&task.kind, &task.key)
}

pub(super) fn name(task: &Task) -> String {
    format!("task {} ({} of {})", task.id, task.kind, task.key)
}

fn v1(index: &Index) -> Finding {
    let mut finding = Finding::new("V1", "every acknowledged task ends, or is cancelled");
    for heard in &index.evidence.heard {
        if matches!(heard.answer, Answer::Scheduled(_)) {
            let exists = index.by_key.contains_key(&(&*heard.kind, &*heard.key));
            finding.demand_of((&heard.kind, &heard.key), exists, || {
                format!("{} of {} is lost", heard.kind, heard.key)
            });
        }
    }
    for task in &index.evidence.tasks {
        let stranded = task.state != TaskState::Dead || task.stranded.is_some();
        finding.demand_of(key_of(task), task.state != TaskState::Live && stranded, || {
            format!("{} is {} and not stranded", name(task), task.state)
        });
    }
    finding
}

fn v2(index: &Index) -> Finding {
    let mut finding =
        Finding::new("V2", "at most one effect per key, and one for each that is done");
    for ((kind, key), times) in &index.effects {
        finding.demand_of((kind, key), times.len() == 1, || {
            format!("{kind} of {key} took effect {} times", times.len())
        });
    }
    for task in &index.evidence.tasks {
        let happened = !index.effects_of(&task.kind, &task.key).is_empty();
        // A person may resolve a dead task whose effect happened by other means.
        let resolved = index.events_of(task.id).iter().any(|event| event.step == "resolve");
        let agrees = resolved || happened == (task.state == TaskState::Done);
        finding.demand_of(key_of(task), agrees, || {
            let what = if happened { "took effect" } else { "had no effect" };
            format!("{} is {} and {what}", name(task), task.state)
        });
    }
    finding
}

fn v3(index: &Index) -> Finding {
    let mut finding = Finding::new("V3", "no effect and no publish before the due time");
    for record in index.evidence.published.iter().chain(&index.evidence.lost) {
        let Some(envelope) = &record.envelope else { continue };
        let of = (&*envelope.kind, &*envelope.key);
        finding.demand_of(of, envelope.claimed_at >= envelope.due_at, || {
            let early = envelope.due_at.since(envelope.claimed_at);
            format!("task {} was published {early:?} early", envelope.task_id)
        });
    }
    for task in &index.evidence.tasks {
        for at in index.effects_of(&task.kind, &task.key) {
            finding.demand_of(key_of(task), *at >= task.due_at, || {
                format!("{} took effect {:?} early", name(task), task.due_at.since(*at))
            });
        }
    }
    finding
}

fn v4(index: &Index) -> Finding {
    let mut finding = Finding::new("V4", "a cancel or reschedule that was granted is kept");
    for heard in &index.evidence.heard {
        let effects = index.effects_of(&heard.kind, &heard.key);
        let of = (&*heard.kind, &*heard.key);
        match heard.answer {
            Answer::Cancelled => finding.demand_of(of, effects.is_empty(), || {
                format!("{} of {} was cancelled and took effect", heard.kind, heard.key)
            }),
            Answer::Rescheduled(due) => {
                finding.demand_of(of, effects.iter().all(|at| *at >= due), || {
                    format!("{} of {} took effect before its new deadline", heard.kind, heard.key)
                });
            }
            Answer::Scheduled(_) | Answer::Unknown => {}
        }
    }
    finding
}

fn v5(index: &Index) -> Finding {
    let mut finding = Finding::new("V5", "never both paid and closed");
    finding.checked = index.evidence.business_objects;
    finding.violations = index.evidence.contradictions.len();
    finding.examples = index.evidence.contradictions.iter().take(MAX_EXAMPLES).cloned().collect();
    finding
}

fn v6(index: &Index) -> Finding {
    let mut finding = Finding::new("V6", "dead tasks, stranded rows, letters and attempts agree");
    let letters: HashSet<(i64, i32)> =
        index.evidence.letters.iter().filter_map(|letter| letter.task).collect();
    for task in &index.evidence.tasks {
        finding.look_at(Some(key_of(task)), wrong_death(task, &letters));
        let wrong = wrong_attempts(task, index.events_of(task.id));
        finding.look_at(Some(key_of(task)), wrong);
        let own = &index.evidence.own_failures;
        let wrong = index.events_of(task.id).iter().find_map(|event| outage(task, event, own));
        finding.look_at(Some(key_of(task)), wrong);
    }
    for (id, generation) in &letters {
        let died =
            |event: &&Event| event.to == Some(TaskState::Dead) && event.generation == *generation;
        finding.demand(index.events_of(*id).iter().any(died), || {
            format!(
                "a letter tells of a death of task {id} in generation {generation} that was none"
            )
        });
    }
    finding
}

fn wrong_death(task: &Task, letters: &HashSet<(i64, i32)>) -> Option<String> {
    let dead = task.state == TaskState::Dead;
    match &task.stranded {
        Some(_) if !dead => Some(format!("{} is stranded and {}", name(task), task.state)),
        None if dead => Some(format!("{} is dead and not stranded", name(task))),
        Some(row) if row.generation != task.generation || row.attempts != task.attempt => {
            Some(format!("{} and its stranded row differ", name(task)))
        }
        Some(row) if !row.lettered => Some(format!("the letter of {} is not stamped", name(task))),
        Some(_) if !letters.contains(&(task.id, task.generation)) => {
            Some(format!("{} is dead without a letter", name(task)))
        }
        _ => None,
    }
}

/// An attempt is charged for a failure of the task's own, and for no outage.
fn outage(task: &Task, event: &Event, own: &[&str]) -> Option<String> {
    let error = event.error.as_deref().filter(|_| event.step == "fail" && !own.is_empty())?;
    let charged = || format!("{} was charged for an outage: {error}", name(task));
    (!own.iter().any(|text| error.contains(text))).then(charged)
}

/// The attempts on the row are the failures since it was last made live.
fn wrong_attempts(task: &Task, events: &[&Event]) -> Option<String> {
    let mut failures = 0;
    for event in events {
        match event.step.as_str() {
            "fail" => failures += 1,
            "open" | "reschedule" | "replay" => failures = 0,
            _ => {}
        }
    }
    (task.attempt != failures)
        .then(|| format!("{} has attempt {}, but {failures} failures", name(task), task.attempt))
}

fn v7(index: &Index) -> Finding {
    let mut finding = Finding::new("V7", "an offset passes a message only when it is answered");
    let committed: HashMap<(&str, i32), i64> = (index.evidence.offsets.iter())
        .filter_map(|o| Some(((&*o.topic, o.partition), o.committed?)))
        .collect();
    let lettered: HashSet<(&str, i32, i64)> = (index.evidence.letters.iter())
        .filter_map(|letter| letter.origin.as_ref())
        .map(|(topic, partition, offset)| (topic.as_str(), *partition, *offset))
        .collect();
    let moved: HashMap<(&str, i32), i64> = (index.evidence.moved_offsets.iter())
        .map(|(topic, partition, offset)| ((topic.as_str(), *partition), *offset))
        .collect();
    for record in &index.evidence.published {
        let place = (&*record.topic, record.partition);
        let passed = committed.get(&place).is_some_and(|offset| record.offset < *offset);
        if !passed || moved.get(&place).is_some_and(|offset| record.offset < *offset) {
            continue;
        }
        let place = format!("{}[{}]@{}", record.topic, record.partition, record.offset);
        let Some(envelope) = &record.envelope else {
            let known = lettered.contains(&self::place(record));
            finding
                .demand(known, || format!("{place} was passed, unreadable and without a letter"));
            continue;
        };
        // Live, published by exactly this message, and nobody will answer it any more.
        let open = index.tasks.get(&envelope.task_id).and_then(|task| task.alarm.as_ref());
        let unanswered = open.is_some_and(|alarm| {
            alarm.leased
                && alarm.generation == envelope.generation
                && alarm.attempt == envelope.attempt
                && alarm.claim_no == envelope.delivery
        });
        finding.demand_of((&envelope.kind, &envelope.key), !unanswered, || {
            format!("{place} was passed, but task {} is not answered", envelope.task_id)
        });
    }
    passed_meanwhile(index, &mut finding);
    finding
}

/// Where a record stands: topic, partition, offset.
fn place(record: &Published) -> (&str, i32, i64) {
    (&record.topic, record.partition, record.offset)
}

/// What was seen while work went on.
fn passed_meanwhile(index: &Index, finding: &mut Finding) {
    let probes = &index.evidence.probes;
    finding.checked += probes.checked - probes.passed.len();
    // A broker that is killed soon after it deleted records has them again, below an offset that had to jump over
    // them: nobody can answer what is deleted.
    let lost: HashSet<_> = index.evidence.lost.iter().map(place).collect();
    for Passed { record, committed, .. } in &probes.passed {
        let Some(envelope) = record.envelope.as_ref().filter(|_| !lost.contains(&place(record)))
        else {
            continue;
        };
        finding.demand_of((&envelope.kind, &envelope.key), false, || {
            let place = format!("{}[{}]@{}", record.topic, record.partition, record.offset);
            format!("{place} was passed by {committed} while its claim was open")
        });
    }
}

fn v8(index: &Index) -> Finding {
    let mut finding = Finding::new("V8", "the backlog is drained");
    let live = index.evidence.tasks.iter().filter(|task| task.state == TaskState::Live).count();
    finding.demand(live == 0, || format!("{live} tasks are still live"));
    for offset in &index.evidence.offsets {
        let reached = offset.committed.unwrap_or(offset.low);
        finding.demand(reached >= offset.end, || {
            format!(
                "group {} lags {} behind in {}[{}]",
                offset.group,
                offset.end - reached,
                offset.topic,
                offset.partition
            )
        });
    }
    finding
}

fn v9(index: &Index) -> Finding {
    let mut finding = Finding::new("V9", "only allowed transitions, and tables that agree");
    for orphan in &index.evidence.orphans {
        finding.look(Some(format!("{orphan} has no task")));
    }
    for task in &index.evidence.tasks {
        finding.look_at(Some(key_of(task)), wrong_row(task));
        let wrong = wrong_story(task, index.events_of(task.id));
        finding.look_at(Some(key_of(task)), wrong);
    }
    finding
}
