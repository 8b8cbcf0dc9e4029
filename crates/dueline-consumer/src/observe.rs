//! Metrics and log lines about tasks. Labels come from the configuration, never from a task's data.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dueline_core::letter::Reason;
use dueline_core::webhook::Answer;
use dueline_store::effect::{FailedTask, Fate, Task, Trouble};
use metrics::{Counter, Histogram, counter, histogram};

/// The metrics of one kind in one tier, looked up once.
#[derive(Clone)]
pub(crate) struct Labels(Arc<Handles>);

struct Handles {
    queue: String,
    batches: Counter,
    batch_size: Histogram,
    handler_seconds: Histogram,
    lateness_seconds: Histogram,
    done: Counter,
    skipped: Counter,
    early: Counter,
    moved: Counter,
    stale: Counter,
    known: Counter,
    failed_task: Counter,
    failed_environment: Counter,
    failed_handler: Counter,
    retried: Counter,
    dead: Counter,
    postponed: Counter,
    cancelled: Counter,
    /// By answer, in the order of [`Answer::ALL`].
    calls: [Counter; Answer::ALL.len()],
    call_seconds: Histogram,
}

impl Labels {
    pub fn new(queue: &str, tier: &str, kind: &str) -> Self {
        let names = |name: &'static str, label: &'static str, value: &'static str| {
            counter!(
                name, "queue" => queue.to_owned(), "tier" => tier.to_owned(),
                "kind" => kind.to_owned(), label => value
            )
        };
        let plain = |name: &'static str| {
            counter!(
                name, "queue" => queue.to_owned(), "tier" => tier.to_owned(),
                "kind" => kind.to_owned()
            )
        };
        let spread = |name: &'static str| {
            histogram!(
                name, "queue" => queue.to_owned(), "tier" => tier.to_owned(),
                "kind" => kind.to_owned()
            )
        };
        let task = |value| names("dueline_consumer_tasks_total", "outcome", value);
        let failed = |value| names("dueline_consumer_batch_failures_total", "whose", value);
        let stopped = |value| names("dueline_consumer_duplicates_total", "layer", value);
        Self(Arc::new(Handles {
            queue: queue.to_owned(),
            batches: plain("dueline_consumer_batches_total"),
            batch_size: spread("dueline_consumer_batch_size"),
            handler_seconds: spread("dueline_consumer_handler_seconds"),
            lateness_seconds: spread("dueline_consumer_lateness_seconds"),
            done: task("done"),
            skipped: task("skipped"),
            early: task("early"),
            moved: task("moved"),
            retried: task("failed"),
            dead: task("dead"),
            postponed: task("postponed"),
            cancelled: task("cancelled"),
            calls: Answer::ALL
                .map(|answer| names("dueline_consumer_calls_total", "answer", answer.as_str())),
            call_seconds: spread("dueline_consumer_call_seconds"),
            stale: stopped("guard"),
            known: stopped("dedupe"),
            failed_task: failed("task"),
            failed_environment: failed("environment"),
            failed_handler: failed("handler"),
        }))
    }

    /// One run of a batch's transaction.
    pub fn batch(&self, size: usize, took: Duration, result: &Result<HashMap<i64, Fate>, Trouble>) {
        let handles = &self.0;
        handles.batches.increment(1);
        #[allow(clippy::cast_precision_loss)]
        handles.batch_size.record(size as f64);
        handles.handler_seconds.record(took.as_secs_f64());
        match result {
            Ok(_) => {}
            Err(Trouble::Items(_) | Trouble::Batch(_)) => handles.failed_task.increment(1),
            Err(Trouble::Environment { .. }) => handles.failed_environment.increment(1),
            Err(Trouble::Contract(_)) => handles.failed_handler.increment(1),
        }
    }

    /// One call of a webhook.
    pub fn call(&self, answer: Answer, took: Duration) {
        let place = Answer::ALL.iter().position(|known| *known == answer);
        if let Some(counter) = place.and_then(|place| self.0.calls.get(place)) {
            counter.increment(1);
        }
        self.0.call_seconds.record(took.as_secs_f64());
    }

    /// Somebody else calls for it: it comes again when that is over.
    pub fn postponed(&self, task: &Task) {
        self.0.postponed.increment(1);
        tracing::debug!(id = task.id, kind = &*task.kind, key = task.key, "somebody else calls");
    }

    /// Its call failed, and it had been asked to be cancelled meanwhile.
    pub fn cancelled(&self, task: &Task) {
        self.0.cancelled.increment(1);
        tracing::debug!(
            id = task.id,
            kind = &*task.kind,
            key = task.key,
            state = "cancelled",
            "task settled"
        );
    }

    /// What became of one task.
    pub fn fate(&self, task: &Task, fate: Fate) {
        let handles = &self.0;
        let state = match fate {
            Fate::Done(at) => {
                handles.done.increment(1);
                handles.lateness_seconds.record(at.since(task.due_at).as_secs_f64());
                "done"
            }
            Fate::Skipped => {
                handles.skipped.increment(1);
                "skipped"
            }
            Fate::Known => {
                handles.known.increment(1);
                "done"
            }
            Fate::Stale => {
                handles.stale.increment(1);
                "stale"
            }
            Fate::Early => {
                handles.early.increment(1);
                "live"
            }
            Fate::Moved => {
                handles.moved.increment(1);
                "live"
            }
        };
        tracing::debug!(
            id = task.id, kind = &*task.kind, key = task.key, attempt = task.attempt, state,
            fate = ?fate, "task settled"
        );
    }
}

/// A failure that stands on its row.
pub(crate) fn failure(labels: &Labels, task: &Task, row: &FailedTask, error: &str, reason: Reason) {
    if row.died_at.is_some() {
        labels.0.dead.increment(1);
        buried(&labels.0.queue, task, row, error, reason);
    } else {
        labels.0.retried.increment(1);
        tracing::warn!(
            id = task.id,
            kind = &*task.kind,
            key = task.key,
            attempt = row.attempt,
            state = "live",
            error,
            "task failed and will be tried again"
        );
    }
}

/// A death.
pub(crate) fn buried(queue: &str, task: &Task, row: &FailedTask, error: &str, reason: Reason) {
    counter!(
        "dueline_consumer_dead_total", "queue" => queue.to_owned(), "reason" => reason.as_str()
    )
    .increment(1);
    tracing::error!(
        id = task.id,
        kind = &*task.kind,
        key = task.key,
        attempt = row.attempt,
        state = "dead",
        reason = reason.as_str(),
        error,
        "task is dead"
    );
}
