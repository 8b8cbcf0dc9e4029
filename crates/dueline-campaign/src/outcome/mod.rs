//! What came of it: the evidence, its judgement, and the report.

mod report;
pub mod timeline;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use dueline_testkit::checker::{self, Call, Effect, Evidence, Finding, Told};
use serde::Serialize;

use crate::evidence::Archive;
use crate::nemesis::Done;
use crate::stage::{Ended, Stage};
use timeline::Entry;

/// What the campaign's handlers fail with by themselves. A handler in Rust that takes too long may be slow or
/// have met an outage: nobody can tell, and the product charges it.
const OWN_FAILURES: [&str; 7] = [
    "the payment gateway did not answer",
    "invalid input syntax for type numeric",
    "division by zero",
    "the courier is not there yet",
    "the parcel is broken",
    "the handler panicked",
    "the handler took longer than",
];
/// The most tasks whose story is told.
const MAX_STORIES: usize = 8;

/// Recovery from one kind of fault.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Recovery {
    /// How often it was done.
    pub count: usize,
    /// How often it could not be done as planned.
    pub troubles: usize,
    /// Seconds from the healing until everything that was due before was finished: half of the
    /// faults took no longer.
    pub p50_s: Option<f64>,
    /// The longest.
    pub max_s: Option<f64>,
    /// How often no other fault began before the recovery.
    pub alone: usize,
    /// The longest of those.
    pub alone_max_s: Option<f64>,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// What everything was drawn from.
    pub seed: u64,
    /// The command that does it again.
    pub command: String,
    /// From the first fault to the end of the last.
    pub seconds: f64,
    /// Faults that this machine cannot do.
    pub left_out: Vec<String>,
    /// Tasks by their final state.
    pub tasks: BTreeMap<String, usize>,
    /// Effects in the ledger.
    pub effects: usize,
    /// Messages in the topics, with those of topics that were deleted.
    pub messages: usize,
    /// Clients' calls: answered, failed, unknown.
    pub calls: [usize; 3],
    /// How often each layer stopped a duplicate.
    pub duplicates_stopped: BTreeMap<String, i64>,
    /// By kind of fault.
    pub recovery: BTreeMap<String, Recovery>,
    /// Seconds from the end of the last fault until nothing was left to do.
    pub drained_s: Option<f64>,
    /// The nemesis's log.
    pub faults: Vec<Done>,
    /// Processes that ended though nobody stopped them, by process and status.
    pub ended: Vec<Ended>,
    /// V1 to V9.
    pub invariants: Vec<Finding>,
    /// What went wrong beside the invariants.
    pub problems: Vec<String>,
    /// The stories of tasks that break an invariant.
    pub stories: BTreeMap<String, Vec<Entry>>,
    /// Whether every invariant holds and nothing else went wrong.
    pub holds: bool,
}

/// What the campaign knows when it is over.
pub struct Known {
    /// What everything was drawn from.
    pub seed: u64,
    /// The command that does it again.
    pub command: String,
    /// From the first fault to the end of the last.
    pub took: Duration,
    /// Faults that this machine cannot do.
    pub left_out: Vec<String>,
    /// The nemesis's log.
    pub faults: Vec<Done>,
    /// How long it took until nothing was left to do, if that came.
    pub drained: Option<Duration>,
    /// What went wrong beside the invariants.
    pub problems: Vec<String>,
}

/// Reads what the checker asks for: tables, topics, offsets, the ledger, and what was noted.
///
/// # Errors
/// When a service does not answer.
pub async fn evidence(stage: &Stage, archive: &Archive, mut calls: Vec<Call>) -> Result<Evidence> {
    let mut evidence = checker::gather(stage.pool(), stage.places()).await?;
    let notes = archive.notes();
    calls.extend(notes.calls);
    evidence.lost = notes.lost;
    evidence.moved_offsets = notes.moved;
    evidence.probes = notes.probes;
    let effects: Vec<(String, String, i64)> =
        sqlx::query_as(include_str!("../../sql/workload/effects.sql"))
            .fetch_all(stage.pool())
            .await?;
    let effects = effects.into_iter().map(|(kind, key, at)| Effect { kind, key, at: Micros(at) });
    evidence.effects = effects.collect();
    let payers = |told: &Told| -> Vec<i64> {
        let calls = calls.iter().filter(|call| call.wish == "pay" && call.told == *told);
        calls.filter_map(|call| call.key.parse().ok()).collect()
    };
    let contradictions: Vec<(String, String)> =
        sqlx::query_as(include_str!("../../sql/workload/contradictions.sql"))
            .bind(payers(&Told::Did))
            .bind(payers(&Told::TooLate))
            .fetch_all(stage.pool())
            .await?;
    evidence.contradictions = contradictions.into_iter().map(|(what, _)| what).collect();
    let orders: i64 =
        sqlx::query_scalar("select count(*) from shop.orders").fetch_one(stage.pool()).await?;
    evidence.business_objects = usize::try_from(orders)?;
    evidence.own_failures = OWN_FAILURES.to_vec();
    evidence.calls = calls;
    Ok(evidence)
}

impl Outcome {
    /// Judges the evidence, and tells the stories of what is wrong.
    ///
    /// # Errors
    /// When a service does not answer.
    pub async fn of(stage: &Stage, evidence: &Evidence, known: Known) -> Result<Self> {
        let invariants = checker::judge(evidence);
        let mut stories = BTreeMap::new();
        let subjects = invariants.iter().flat_map(|finding| &finding.subjects);
        for (kind, key) in subjects.take(MAX_STORIES) {
            let story = timeline::of(stage, evidence, &known.faults, (kind, key)).await?;
            stories.insert(format!("{kind} of {key}"), story);
        }
        let mut tasks = BTreeMap::new();
        for task in &evidence.tasks {
            *tasks.entry(task.state.to_string()).or_default() += 1;
        }
        let count = |wanted: fn(&Told) -> bool| {
            evidence.calls.iter().filter(|call| wanted(&call.told)).count()
        };
        Ok(Self {
            seed: known.seed,
            command: known.command,
            seconds: known.took.as_secs_f64(),
            left_out: known.left_out,
            tasks,
            effects: evidence.effects.len(),
            messages: evidence.published.len() + evidence.lost.len(),
            calls: [
                count(|t| !matches!(t, Told::Failed(_) | Told::Unknown(_))),
                count(|t| matches!(t, Told::Failed(_))),
                count(|t| matches!(t, Told::Unknown(_))),
            ],
            duplicates_stopped: checker::duplicates(stage.pool()).await?,
            recovery: recoveries(&known.faults),
            drained_s: known.drained.map(|time| time.as_secs_f64()),
            holds: checker::all_hold(&invariants) && known.problems.is_empty(),
            faults: known.faults,
            ended: stage.ends(),
            invariants,
            problems: known.problems,
            stories,
        })
    }
}

fn recoveries(faults: &[Done]) -> BTreeMap<String, Recovery> {
    let mut by_kind: BTreeMap<String, (Recovery, Vec<f64>)> = BTreeMap::new();
    for fault in faults {
        let (recovery, times) = by_kind.entry(fault.kind.clone()).or_default();
        recovery.count += 1;
        recovery.troubles += usize::from(fault.trouble.is_some());
        let Some(time) = fault.recovery().map(|time| time.as_secs_f64()) else { continue };
        times.push(time);
        if is_alone(fault, faults) {
            recovery.alone += 1;
            recovery.alone_max_s = Some(recovery.alone_max_s.unwrap_or(0.0).max(time));
        }
    }
    let settle = |(kind, (mut recovery, mut times)): (String, (Recovery, Vec<f64>))| {
        times.sort_by(f64::total_cmp);
        recovery.p50_s = times.get(times.len().saturating_sub(1) / 2).copied();
        recovery.max_s = times.last().copied();
        (kind, recovery)
    };
    by_kind.into_iter().map(settle).collect()
}

/// Whether every other fault was recovered from before this one began, or began after its recovery.
fn is_alone(fault: &Done, faults: &[Done]) -> bool {
    let Some(recovered) = fault.recovered_at else { return false };
    faults.iter().all(|other| {
        let over = other.recovered_at.is_some_and(|recovered| recovered < fault.began_at);
        other.number == fault.number || over || other.began_at > recovered
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(number: usize, began: i64, healed: i64, recovered: i64) -> Done {
        Done {
            number,
            kind: "relay killed".into(),
            fault: String::new(),
            began_at: Micros(began * 1_000_000),
            healed_at: Some(Micros(healed * 1_000_000)),
            recovered_at: Some(Micros(recovered * 1_000_000)),
            trouble: None,
        }
    }

    #[test]
    fn recovery_is_counted_from_the_healing() {
        let faults = [done(1, 0, 2, 5), done(2, 4, 6, 7), done(3, 20, 21, 30)];
        let recovery = &recoveries(&faults)["relay killed"];
        assert_eq!((recovery.count, recovery.p50_s, recovery.max_s), (3, Some(3.0), Some(9.0)));
        assert_eq!((recovery.alone, recovery.alone_max_s), (1, Some(9.0)));
    }
}
