//! The difference between configuration and database: pure, so that a plan can be tested as a value.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dueline_config::{Config, Kind, Queue, span};
use dueline_core::tier::tier_for;

use super::{Actual, COUNT_LIMIT, InUse, KindRow, LaneRow, QueueRow, TierRow};
use crate::operate::plan::{Action, PlanItem};

/// Lanes that are to go, and where their alarms go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drain {
    pub lanes: Vec<i32>,
    pub queue: String,
    /// The tier whose lanes these are.
    pub from: String,
    /// The tier that takes the alarms; `None` when the queue goes: then there must be none.
    pub to: Option<String>,
    /// The line of the plan that tells of it.
    item: usize,
}

/// A plan, and what is needed to carry it out.
#[derive(Debug, Default)]
pub(super) struct Diff {
    pub items: Vec<PlanItem>,
    pub drains: Vec<Drain>,
    /// Queue and tier.
    pub leaving_tiers: Vec<(String, String)>,
    pub leaving_queues: Vec<String>,
    pub leaving_kinds: Vec<String>,
    /// Kinds that are to leave the configuration or their queue, as the database has them: allowed only
    /// when no task needs them.
    pub doubtful_kinds: Vec<KindRow>,
    occupied_queues: BTreeMap<String, i64>,
}

/// A configured kind as its row.
pub(super) fn kind_row(kind: &Kind) -> KindRow {
    let ms = |d: &Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
    KindRow {
        name: kind.name.clone(),
        queue: kind.queue.clone(),
        effect: kind.handler.effect().as_str().to_owned(),
        backoff_ms: kind.retry.backoff.iter().map(ms).collect(),
        max_payload_bytes: i32::try_from(kind.max_payload_bytes).unwrap_or(i32::MAX),
        age_limit_us: micros(kind.age_limit),
    }
}

/// What is to be done so that `actual` becomes what `config` says. Counts are filled in by the caller.
pub(super) fn diff(config: &Config, actual: &Actual) -> Diff {
    let mut diff = Diff::default();
    for queue in config.queues.values() {
        diff.queue(queue, actual);
    }
    for row in actual.queues.iter().filter(|q| !config.queues.contains_key(&q.name)) {
        diff.leaving_queue(row, actual);
    }
    for kind in config.kinds.values() {
        diff.kind(kind, actual);
    }
    for row in actual.kinds.iter().filter(|k| !config.kinds.contains_key(&k.name)) {
        diff.doubtful_kinds.push(row.clone());
    }
    diff
}

impl Diff {
    fn item(&mut self, what: &'static str, name: String, action: Action, detail: String) {
        self.items.push(PlanItem::new(what, name, action, detail));
    }

    fn queue(&mut self, queue: &Queue, actual: &Actual) {
        let row = actual.queues.iter().find(|q| q.name == queue.name);
        let (action, detail) = match row {
            None => (Action::Create, format!("group {}, {} slots", queue.group, queue.slots)),
            Some(row) => changed(vec![
                change("slots", row.slots, i32::from(queue.slots)),
                change("group", row.consumer_group.clone(), queue.group.clone()),
            ]),
        };
        self.item("queue", queue.name.clone(), action, detail);
        for (rank, tier) in (0_i32..).zip(&queue.tiers) {
            let row = actual.tiers.iter().find(|t| t.queue == queue.name && t.name == tier.name);
            let delay = span::format(tier.max_delay);
            let (action, detail) = match row {
                None => (Action::Create, format!("delays up to {delay}")),
                Some(row) => changed(vec![
                    change("max_delay", span::format(as_duration(row)), delay),
                    change("rank", row.rank, rank),
                ]),
            };
            self.item("tier", format!("{}/{}", queue.name, tier.name), action, detail);
            self.lanes(queue, &tier.name, actual);
        }
        let leaving =
            actual.tiers.iter().filter(|t| t.queue == queue.name && !has_tier(queue, &t.name));
        for row in leaving {
            self.leaving_tier(queue, row, actual);
        }
    }

    fn lanes(&mut self, queue: &Queue, tier: &str, actual: &Actual) {
        let slots = i32::from(queue.slots);
        let name = format!("{}/{tier}", queue.name);
        let there: Vec<&LaneRow> =
            actual.lanes.iter().filter(|l| l.queue == queue.name && l.tier == tier).collect();
        let present: BTreeSet<i32> = there.iter().map(|l| l.slot).collect();
        let missing = (0..slots).filter(|slot| !present.contains(slot)).count();
        let (action, detail) = match (missing, there.is_empty()) {
            (0, _) => (Action::Keep, format!("{slots} lanes")),
            (_, true) => (Action::Create, format!("{slots} lanes")),
            (_, false) => (Action::Change, format!("{missing} more, {slots} lanes in all")),
        };
        self.item("lanes", name.clone(), action, detail);
        let excess: Vec<i32> = there.iter().filter(|l| l.slot >= slots).map(|l| l.lane).collect();
        if !excess.is_empty() {
            let detail = format!("{} lanes beyond slot {}", excess.len(), slots - 1);
            self.drain(excess, &queue.name, tier, Some(tier.to_owned()), ("lanes", name), detail);
        }
    }

    fn leaving_tier(&mut self, queue: &Queue, row: &TierRow, actual: &Actual) {
        let to = tier_for(&queue.tiers, as_duration(row)).map(|t| t.name.clone());
        let lanes = lanes_of(actual, &queue.name, &row.name);
        let name = format!("{}/{}", queue.name, row.name);
        let detail = "no longer configured".to_owned();
        self.leaving_tiers.push((queue.name.clone(), row.name.clone()));
        self.drain(lanes, &queue.name, &row.name, to, ("tier", name), detail);
    }

    fn leaving_queue(&mut self, row: &QueueRow, actual: &Actual) {
        self.leaving_queues.push(row.name.clone());
        let detail = "no longer configured".to_owned();
        self.item("queue", row.name.clone(), Action::Remove, detail.clone());
        for tier in actual.tiers.iter().filter(|t| t.queue == row.name) {
            let lanes = lanes_of(actual, &row.name, &tier.name);
            let name = format!("{}/{}", row.name, tier.name);
            self.leaving_tiers.push((row.name.clone(), tier.name.clone()));
            self.drain(lanes, &row.name, &tier.name, None, ("tier", name), detail.clone());
        }
    }

    fn drain(
        &mut self,
        lanes: Vec<i32>,
        queue: &str,
        from: &str,
        to: Option<String>,
        (what, name): (&'static str, String),
        detail: String,
    ) {
        self.item(what, name, Action::Remove, detail);
        let item = self.items.len() - 1;
        let (queue, from) = (queue.to_owned(), from.to_owned());
        self.drains.push(Drain { lanes, queue, from, to, item });
    }

    /// Says how many alarms a drain has to move.
    pub fn note_alarms(&mut self, drain: usize, alarms: i64) {
        let Drain { queue, from, to, item, .. } = &self.drains[drain];
        let Some(line) = self.items.get_mut(*item) else { return };
        match to {
            Some(to) if to != from => {
                line.detail.push_str(&format!("; {} alarms move to tier {to}", shown(alarms)));
            }
            Some(_) => {
                line.detail.push_str(&format!("; {} alarms move to other slots", shown(alarms)));
            }
            None => *self.occupied_queues.entry(queue.clone()).or_default() += alarms,
        }
    }

    /// A queue goes only when nothing waits in it: nobody else would handle its kinds.
    pub fn refuse_occupied_queues(&mut self) {
        for (queue, alarms) in self.occupied_queues.iter().filter(|(_, alarms)| **alarms > 0) {
            let line = self.items.iter_mut().find(|i| i.what == "queue" && i.name == *queue);
            if let Some(line) = line {
                line.action = Action::Refuse;
                line.detail = format!(
                    "it is no longer configured, but {} live tasks are in it: keep it until they are \
                     finished, or cancel them",
                    shown(*alarms)
                );
            }
        }
    }

    fn kind(&mut self, kind: &Kind, actual: &Actual) {
        let wanted = kind_row(kind);
        let Some(row) = actual.kinds.iter().find(|k| k.name == kind.name) else {
            let detail = format!("queue {}, effect {}", wanted.queue, wanted.effect);
            return self.item("kind", wanted.name, Action::Create, detail);
        };
        if row.queue != wanted.queue {
            self.doubtful_kinds.push(row.clone());
            return;
        }
        let (action, detail) = changed(kind_changes(row, &wanted));
        self.item("kind", wanted.name, action, detail);
    }

    /// Decides on a kind that leaves its queue or the configuration.
    pub fn judge_kind(&mut self, row: &KindRow, in_use: InUse, config: &Config) {
        let wanted = config.kinds.get(&row.name).map(kind_row);
        let why = match &wanted {
            None => "it is no longer configured".to_owned(),
            Some(kind) => format!("it would move from queue {} to {}", row.queue, kind.queue),
        };
        let name = row.name.clone();
        if in_use.live > 0 || in_use.dead > 0 {
            let detail = format!(
                "{why}, but {} live and {} dead tasks belong to it: keep it until they are finished; \
                 cancel what is not wanted, and replay, resolve or discard the dead (`dueline dlq`)",
                shown(in_use.live),
                shown(in_use.dead)
            );
            return self.item("kind", name, Action::Refuse, detail);
        }
        match wanted {
            None => {
                self.leaving_kinds.push(name.clone());
                self.item("kind", name, Action::Remove, "no longer configured".to_owned());
            }
            Some(wanted) => {
                let mut changes = kind_changes(row, &wanted);
                changes.insert(0, change("queue", row.queue.clone(), wanted.queue));
                let (action, detail) = changed(changes);
                let note =
                    "keys that it finished in the old queue are not remembered in the new one";
                self.item("kind", name, action, format!("{detail}; {note}"));
            }
        }
    }
}

fn kind_changes(row: &KindRow, wanted: &KindRow) -> Vec<Option<String>> {
    let list = |ms: &[i64]| format!("{ms:?} ms");
    let age = |us: i64| span::format(Duration::from_micros(u64::try_from(us).unwrap_or(0)));
    vec![
        change("effect", row.effect.clone(), wanted.effect.clone()),
        change("backoff", list(&row.backoff_ms), list(&wanted.backoff_ms)),
        change("max_payload_bytes", row.max_payload_bytes, wanted.max_payload_bytes),
        change("age_limit", age(row.age_limit_us), age(wanted.age_limit_us)),
    ]
}

fn change<T: PartialEq + std::fmt::Display>(name: &str, from: T, to: T) -> Option<String> {
    (from != to).then(|| format!("{name} {from} → {to}"))
}

fn changed(changes: Vec<Option<String>>) -> (Action, String) {
    let changes: Vec<String> = changes.into_iter().flatten().collect();
    if changes.is_empty() {
        (Action::Keep, String::new())
    } else {
        (Action::Change, changes.join(", "))
    }
}

fn has_tier(queue: &Queue, tier: &str) -> bool {
    queue.tiers.iter().any(|t| t.name == tier)
}

fn lanes_of(actual: &Actual, queue: &str, tier: &str) -> Vec<i32> {
    let of = actual.lanes.iter().filter(|l| l.queue == queue && l.tier == tier);
    of.map(|l| l.lane).collect()
}

fn as_duration(row: &TierRow) -> Duration {
    Duration::from_micros(u64::try_from(row.max_delay_us).unwrap_or(0))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn shown(count: i64) -> String {
    if count >= COUNT_LIMIT { format!("more than {}", COUNT_LIMIT - 1) } else { count.to_string() }
}
