//! Calls of a webhook: keys are taken, calls made, and what was heard is written down. No transaction is open and
//! nothing is locked while a receiver works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dueline_core::letter::Reason;
use dueline_core::webhook::{Answer, http_header};
use dueline_service::backoff::Pauses;
use dueline_store::StoreError;
use dueline_store::effect::{
    Beginning, EndedCall, Ending, Failure, Fate, Heard, Task, begin_calls, finish_calls,
};
use dueline_webhook::{Call, Reply, Webhook};
use tokio::task::{JoinError, JoinSet};
use uuid::Uuid;

use super::batch::{BatchJob, Outcome};
use crate::observe;

/// How long a database that does not answer, or a row that somebody holds, is told again what was heard. What is not
/// told by then is told by nobody: the key is free when its time is over, and the call counts as one without an answer.
pub(crate) const TELL_FOR: Duration = Duration::from_secs(30);
/// Pauses between two times of telling.
const TELL_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// A call that is over, or need not be made.
struct Ended {
    task: Task,
    heard: Heard,
    /// Nobody knows whether it had an effect.
    doubtful: bool,
    reason: String,
    retry_after: Option<Duration>,
}

impl Ended {
    fn new(task: Task, heard: Heard, doubtful: bool, reason: &str) -> Self {
        // Short enough for the row, and without what it cannot hold.
        let reason = Failure::new(reason, false).error;
        Self { task, heard, doubtful, reason, retry_after: None }
    }

    fn by_reply(task: Task, reply: &Reply, idempotent: bool) -> Self {
        let (heard, doubtful) = match reply.answer {
            Answer::Done => (Heard::Done, false),
            Answer::Skipped => (Heard::Skipped, false),
            Answer::Transient => (Heard::Retry, false),
            Answer::Permanent => (Heard::Dead, false),
            // Called once more, it could have a second effect.
            Answer::Unknown if !idempotent => (Heard::Dead, true),
            Answer::Unknown => (Heard::Retry, true),
        };
        Self { retry_after: reply.retry_after, ..Self::new(task, heard, doubtful, &reply.reason) }
    }
}

impl BatchJob {
    /// There is a slot for each task. Costs an attempt only those that were called.
    pub(super) async fn run_calls(
        &mut self,
        webhook: &Arc<Webhook>,
        tasks: Vec<Task>,
        repeated: usize,
    ) {
        let asked = Instant::now();
        let (token, beginnings) = match self.begin(webhook, &tasks, repeated).await {
            Ok(begun) => begun,
            Err(error) => {
                self.report.outcome = Outcome::Trouble(error.to_string());
                tasks.into_iter().for_each(|task| self.give_back(task, None));
                return;
            }
        };
        dueline_failpoints::reached("consumer.calls.begun");
        // The keys are ours from before the answer.
        let limit = webhook.hold().saturating_sub(asked.elapsed());
        let (mut calls, mut ended) = (JoinSet::new(), Vec::new());
        for (task, beginning) in tasks.into_iter().zip(beginnings) {
            match beginning {
                Beginning::Begun { may_have_run: true } if !webhook.is_idempotent() => {
                    let reason = "an earlier call ended without an answer";
                    ended.push(Ended::new(task, Heard::Dead, true, reason));
                }
                Beginning::Begun { .. } => self.start_call(&mut calls, webhook, task, limit),
                Beginning::Failed => {
                    let reason = "its call had failed, and the row was held at that moment";
                    ended.push(Ended::new(task, Heard::Retry, false, reason));
                }
                Beginning::InProgress => {
                    self.labels.postponed(&task);
                    self.finish(task.id);
                }
                Beginning::Known => self.conclude(task, Fate::Known),
                Beginning::Early => self.conclude(task, Fate::Early),
                Beginning::Stale => self.conclude(task, Fate::Stale),
                Beginning::Moved => self.conclude(task, Fate::Moved),
            }
        }
        // Of those that are not called.
        self.slots.clear();
        // Bounded: every call is. What ends while others are written down is written down together.
        loop {
            if ended.is_empty() {
                let Some(next) = calls.join_next().await else { break };
                ended.push(unwrapped(next));
            }
            while let Some(next) = calls.try_join_next() {
                ended.push(unwrapped(next));
            }
            self.tell(token, std::mem::take(&mut ended)).await;
        }
        let host = webhook.host();
        if host.is_ailing() && matches!(self.report.outcome, Outcome::Worked { .. }) {
            let error = format!("{} fails or does not answer: one call at a time", host.name());
            self.report.outcome = Outcome::Trouble(error);
        }
    }

    async fn begin(
        &self,
        webhook: &Webhook,
        tasks: &[Task],
        repeated: usize,
    ) -> Result<(Uuid, Vec<Beginning>), StoreError> {
        let tasks: Vec<&Task> = tasks.iter().collect();
        // The semaphore is never closed.
        let _connection = self.context.connections.acquire().await;
        let pool = self.context.sessions.pool();
        begin_calls(pool, &self.context.queue, &tasks, webhook.hold(), repeated).await
    }

    fn start_call(
        &mut self,
        calls: &mut JoinSet<Ended>,
        webhook: &Arc<Webhook>,
        task: Task,
        limit: Duration,
    ) {
        let slot = self.slots.pop();
        let call = self.call(&task);
        let (webhook, labels) = (Arc::clone(webhook), self.labels.clone());
        calls.spawn(async move {
            let began = Instant::now();
            let reply = webhook.call(call, limit).await;
            drop(slot);
            labels.call(reply.answer, began.elapsed());
            dueline_failpoints::reached("consumer.call.heard");
            Ended::by_reply(task, &reply, webhook.is_idempotent())
        });
    }

    fn call(&self, task: &Task) -> Call {
        let headers = self.heads.get(&task.id).map(|origin| &origin.record.headers);
        Call {
            idempotency_key: task.key_hash.to_string(),
            headers: headers
                .into_iter()
                .flatten()
                .filter_map(|(name, value)| http_header(name, value))
                .collect(),
            body: task.payload.as_ref().map_or_else(Vec::new, |json| json.get().into()),
        }
    }

    /// Writes down what was heard, and what follows from it.
    async fn tell(&mut self, token: Uuid, mut ended: Vec<Ended>) {
        let mut pauses = Pauses::new(TELL_PAUSES.0, TELL_PAUSES.1);
        let until = Instant::now() + TELL_FOR;
        loop {
            let trouble = match self.finish_calls(token, &ended).await {
                Ok(endings) => {
                    dueline_failpoints::reached("consumer.calls.finished");
                    let both = std::mem::take(&mut ended).into_iter().zip(endings);
                    ended = both.filter_map(|(call, ending)| self.follow(call, &ending)).collect();
                    "rows that somebody holds".to_owned()
                }
                Err(error) => error.to_string(),
            };
            if ended.is_empty() {
                return;
            }
            if Instant::now() >= until {
                tracing::error!(calls = ended.len(), trouble, "answers could not be written down");
                ended.into_iter().for_each(|call| self.give_back(call.task, None));
                self.report.outcome = Outcome::Trouble(trouble);
                return;
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }

    async fn finish_calls(&self, token: Uuid, ended: &[Ended]) -> Result<Vec<Ending>, StoreError> {
        let calls: Vec<EndedCall<'_>> = ended
            .iter()
            .map(|call| EndedCall {
                task: &call.task,
                token,
                heard: call.heard,
                doubtful: call.doubtful,
                reason: &call.reason,
                retry_after: call.retry_after,
            })
            .collect();
        let _connection = self.context.connections.acquire().await;
        finish_calls(self.context.sessions.pool(), &calls).await
    }

    /// What follows from an ending; the call comes back when it must be told again.
    fn follow(&mut self, call: Ended, ending: &Ending) -> Option<Ended> {
        let task = &call.task;
        match ending {
            Ending::Moved => return Some(call),
            Ending::Done(at) => self.labels.fate(task, Fate::Done(*at)),
            Ending::Skipped => self.labels.fate(task, Fate::Skipped),
            Ending::Stale => self.labels.fate(task, Fate::Stale),
            Ending::Cancelled => self.labels.cancelled(task),
            Ending::Failed(row, reason) => {
                let reason = reason.unwrap_or(Reason::Exhausted);
                observe::failure(&self.labels, task, row, &call.reason, reason);
                if row.died_at.is_some() {
                    self.tell_of_death(task, row, (reason, &call.reason));
                }
            }
        }
        self.finish(task.id);
        None
    }
}

/// A panic in a call is one of its batch.
fn unwrapped(call: Result<Ended, JoinError>) -> Ended {
    call.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
