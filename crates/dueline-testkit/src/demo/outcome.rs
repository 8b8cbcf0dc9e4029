//! What came of it: the table, lateness, duplicates, invariants.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use dueline_core::{Micros, TaskState};
use serde::Serialize;

use super::actors::Ledger;
use super::stage::Stage;
use super::{Options, RELAY_DIES_AFTER};
use crate::checker::{self, Effect, Evidence, Finding, Task};

/// The layers that stop duplicates, in the order in which a message meets them.
const LAYERS: [&str; 5] = ["scan", "batch", "guard", "dedupe", "settle"];

/// How long before the first kill a task must be due to have escaped it.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// One queue and tier.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    queue: String,
    tier: String,
    scheduled: u64,
    done: u64,
    skipped: u64,
    cancelled: u64,
    /// How many were dead at some time.
    dead: u64,
    replayed: u64,
    lateness: Lateness,
}

impl Line {
    fn add(&mut self, task: &Task, tries: &Tries) {
        self.scheduled += 1;
        self.done += u64::from(task.state == TaskState::Done);
        self.skipped += u64::from(task.state == TaskState::Skipped);
        self.cancelled += u64::from(task.state == TaskState::Cancelled);
        self.dead += u64::from(tries.died.contains(&task.id));
        self.replayed += u64::from(tries.replayed.contains(&task.id));
        self.lateness.samples.extend(tries.lateness(task));
    }
}

/// From deadline to effect, of tasks that needed one try, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Lateness {
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    #[serde(skip)]
    samples: Vec<Duration>,
}

impl Lateness {
    fn settle(&mut self) {
        self.samples.sort_unstable();
        let ms = |quantile: f64| {
            // The nearest rank; quantiles of a few thousand samples need no interpolation.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            #[expect(clippy::cast_precision_loss)]
            let rank = (quantile * self.samples.len() as f64).ceil() as usize;
            let sample = self.samples.get(rank.saturating_sub(1));
            sample.map_or(0.0, |lateness| lateness.as_secs_f64() * 1e3)
        };
        (self.p50_ms, self.p99_ms, self.max_ms) = (ms(0.50), ms(0.99), ms(1.0));
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Outcome {
    seed: u64,
    orders: u32,
    kafka: &'static str,
    seconds: f64,
    queues: Vec<Line>,
    rescheduled: u64,
    paid: usize,
    paid_too_late: u64,
    dead_replayed: u64,
    /// Lateness of what was due before the first kill.
    undisturbed: Lateness,
    messages_published: usize,
    /// Messages for each try of each task that was published.
    messages_per_try: f64,
    duplicates_stopped: BTreeMap<String, i64>,
    invariants: Vec<Finding>,
    /// Whether every invariant holds.
    pub holds: bool,
}

impl Outcome {
    /// Gathers the evidence and judges it.
    pub async fn collect(
        stage: &Stage,
        ledger: &Ledger,
        options: &Options,
        dead_replayed: u64,
        took: Duration,
    ) -> Result<Self> {
        let mut evidence = checker::gather(&stage.pool, &stage.places).await?;
        evidence.heard.clone_from(&ledger.heard);
        evidence.business_objects = usize::try_from(options.orders)?;
        let effects: Vec<(String, String, i64)> =
            sqlx::query_as(include_str!("../../sql/demo/effects.sql"))
                .fetch_all(&stage.pool)
                .await?;
        evidence.effects = effects
            .into_iter()
            .map(|(kind, key, at)| Effect { kind, key, at: Micros(at) })
            .collect();
        evidence.contradictions =
            sqlx::query_scalar(include_str!("../../sql/demo/contradictions.sql"))
                .bind(&ledger.paid)
                .fetch_all(&stage.pool)
                .await?;
        let invariants = checker::judge(&evidence);
        let tries: HashSet<(i64, i32, i32)> = (evidence.published.iter())
            .filter_map(|record| record.envelope.as_ref())
            .map(|envelope| (envelope.task_id, envelope.generation, envelope.attempt))
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let messages_per_try = evidence.published.len() as f64 / tries.len().max(1) as f64;
        // What is due at the last moment is still under way when the relay dies.
        let first_kill = ledger.all_placed_at.plus(RELAY_DIES_AFTER).minus(UNDER_WAY);
        Ok(Self {
            seed: options.seed,
            orders: options.orders,
            kafka: stage.broker_name(),
            seconds: took.as_secs_f64(),
            queues: lines(&evidence),
            rescheduled: ledger.rescheduled,
            paid: ledger.paid.len(),
            paid_too_late: ledger.too_late,
            dead_replayed,
            messages_published: evidence.published.len(),
            messages_per_try,
            undisturbed: undisturbed(&evidence, first_kill),
            duplicates_stopped: checker::duplicates(&stage.pool).await?,
            holds: checker::all_hold(&invariants),
            invariants,
        })
    }

    /// Writes it for a person.
    pub fn print(&self) {
        println!("\n{}", self.table());
        println!(
            "lateness: deadline to effect in ms, of tasks that needed one try. The kills are in it: \
             what was\n          due before the first one has p50 {:.1}, p99 {:.1}, max {:.1} ms",
            self.undisturbed.p50_ms, self.undisturbed.p99_ms, self.undisturbed.max_ms
        );
        println!(
            "customers: {} paid, {} came too late and saw a closed order, {} got a new deadline",
            self.paid, self.paid_too_late, self.rescheduled
        );
        let stopped = |layer| self.duplicates_stopped.get(layer).copied().unwrap_or(0);
        let stops: Vec<String> = LAYERS.map(|l| format!("{l} {}", stopped(l))).to_vec();
        println!(
            "messages: {} published, {:.3} for each try; duplicates stopped by layer: {}",
            self.messages_published,
            self.messages_per_try,
            stops.join(", ")
        );
        println!("broker: {}; seed {}; {:.1} s in all\n", self.kafka, self.seed, self.seconds);
        for finding in &self.invariants {
            println!("{finding}");
        }
        let verdict = if self.holds { "All invariants hold." } else { "NOT all invariants hold." };
        println!("\n{verdict}");
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header([
            "queue",
            "tier",
            "scheduled",
            "done",
            "skipped",
            "cancelled",
            "dead",
            "replayed",
            "p50",
            "p99",
            "max",
        ]);
        for line in &self.queues {
            let counts =
                [line.scheduled, line.done, line.skipped, line.cancelled, line.dead, line.replayed];
            let late = [line.lateness.p50_ms, line.lateness.p99_ms, line.lateness.max_ms];
            let mut row = vec![line.queue.clone(), line.tier.clone()];
            row.extend(counts.map(|n| n.to_string()));
            row.extend(late.map(|ms| format!("{ms:.1}")));
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// Lateness of what was due, and took effect in one try, before `end`.
fn undisturbed(evidence: &Evidence, end: Micros) -> Lateness {
    let tries = Tries::of(evidence);
    let early = evidence.tasks.iter().filter(|task| task.due_at < end);
    let mut lateness = Lateness::default();
    lateness.samples.extend(early.filter_map(|task| tries.lateness(task)));
    lateness.settle();
    lateness
}

/// What happened to tasks besides their state.
struct Tries<'e> {
    died: HashSet<i64>,
    failed: HashSet<i64>,
    replayed: HashSet<i64>,
    effects: HashMap<(&'e str, &'e str), Micros>,
}

impl<'e> Tries<'e> {
    fn of(evidence: &'e Evidence) -> Self {
        let with_step = |wanted: fn(&checker::Event) -> bool| -> HashSet<i64> {
            let events = evidence.events.iter().filter(|event| wanted(event));
            events.map(|event| event.task_id).collect()
        };
        Self {
            died: with_step(|event| event.to == Some(TaskState::Dead)),
            failed: with_step(|event| event.step == "fail"),
            replayed: with_step(|event| event.step == "replay"),
            effects: evidence.effects.iter().map(|e| ((&*e.kind, &*e.key), e.at)).collect(),
        }
    }

    /// From deadline to effect, unless it took several tries.
    fn lateness<'a>(&'a self, task: &'a Task) -> Option<Duration> {
        if self.failed.contains(&task.id) || self.died.contains(&task.id) {
            return None;
        }
        let at = self.effects.get(&(&*task.kind, &*task.key))?;
        Some(at.since(task.due_at))
    }
}

/// One line for each queue and tier, and one for all.
fn lines(evidence: &Evidence) -> Vec<Line> {
    let tries = Tries::of(evidence);
    let mut lines: BTreeMap<(&str, &str), Line> = BTreeMap::new();
    let mut all = Line { queue: "all".into(), ..Line::default() };
    for task in &evidence.tasks {
        let line = lines.entry((&task.queue, &task.tier)).or_insert_with(|| Line {
            queue: task.queue.clone(),
            tier: task.tier.clone(),
            ..Line::default()
        });
        line.add(task, &tries);
        all.add(task, &tries);
    }
    let mut lines: Vec<Line> = lines.into_values().chain([all]).collect();
    lines.iter_mut().for_each(|line| line.lateness.settle());
    lines
}
