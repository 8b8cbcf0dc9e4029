//! A batch of one kind: run it, split it, charge the task that fails alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dueline_core::letter::Reason;
use dueline_store::StoreError;
use dueline_store::effect::{
    self, Batch, CrashMark, FailedTask, Failure, FailureRecord, Fate, Handling, Task, Trouble,
};
use dueline_webhook::Slot;

use super::MAX_FREE_RETRIES;
use crate::context::{Context, KindEffect, KindSpec};
use crate::message::{Message, Origin};
use crate::observe::{self, Labels};

/// The first pause before a row that was locked is looked at again; it doubles.
const MOVED_PAUSE: Duration = Duration::from_millis(20);
const MOVED_DOUBLINGS: u32 = 7;

/// What a batch says of its kind.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It came through; so many tasks failed by themselves.
    Worked { tasks: usize, poison: usize },
    /// The environment is in trouble.
    Trouble(String),
    /// The handler broke its contract.
    Contract(String),
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) struct BatchReport {
    /// Records whose offsets may be passed.
    pub finished: Vec<Origin>,
    /// Messages to be tried again.
    pub back: Vec<Message>,
    pub outcome: Outcome,
}

/// A batch under way.
pub(crate) struct BatchJob {
    pub(super) context: Arc<Context>,
    pub(super) kind: Arc<KindSpec>,
    pub(super) labels: Labels,
    source: Arc<str>,
    /// For calls: at least one for each message.
    pub(super) slots: Vec<Slot>,
    pub(super) heads: HashMap<i64, Origin>,
    repeats: HashMap<i64, Vec<Message>>,
    pub(super) report: BatchReport,
}

/// What to do next with a part of the batch.
enum Step {
    Settled,
    Split(Vec<Task>, Vec<Task>),
    Again(Vec<Task>),
    Halt(Vec<Task>, Outcome),
}

impl BatchJob {
    pub fn new(
        context: Arc<Context>,
        kind: Arc<KindSpec>,
        labels: Labels,
        source: Arc<str>,
        slots: Vec<Slot>,
    ) -> Self {
        let outcome = Outcome::Worked { tasks: 0, poison: 0 };
        let report = BatchReport { finished: Vec::new(), back: Vec::new(), outcome };
        let (heads, repeats) = (HashMap::new(), HashMap::new());
        Self { context, kind, labels, source, slots, heads, repeats, report }
    }

    /// Runs the batch to its end, or until the environment or the handler forbids to go on.
    pub async fn run(mut self, messages: Vec<Message>) -> BatchReport {
        let kind = Arc::clone(&self.kind);
        let tasks = self.reduce(messages);
        let repeated = self.repeats.values().map(Vec::len).sum();
        self.report.outcome = Outcome::Worked { tasks: tasks.len(), poison: 0 };
        match &kind.effect {
            KindEffect::Sql(handler) => self.run_here(handler.into(), tasks, repeated).await,
            KindEffect::Rust(effect) => self.run_here(effect.into(), tasks, repeated).await,
            KindEffect::Http(webhook) => self.run_calls(webhook, tasks, repeated).await,
        }
        self.report
    }

    /// The effect is part of the transaction that settles the tasks.
    async fn run_here(&mut self, handling: Handling<'_>, tasks: Vec<Task>, mut repeated: usize) {
        let mut parts = vec![tasks];
        while let Some(part) = parts.pop() {
            match self.step(handling, part, std::mem::take(&mut repeated)).await {
                Step::Settled => {}
                Step::Split(first, second) => parts.extend([second, first]),
                Step::Again(rest) => parts.push(rest),
                Step::Halt(part, outcome) => {
                    self.report.outcome = outcome;
                    parts.push(part);
                    parts.into_iter().flatten().for_each(|task| self.give_back(task, None));
                    break;
                }
            }
        }
    }

    /// Runs a lone message of a partition under suspicion: its mark is written before its handler and, when
    /// the handler came back, no longer counts as a try. A suspect runs when no other lone message does.
    pub async fn run_marked(
        self,
        message: Message,
        mark: CrashMark,
        is_suspect: bool,
    ) -> BatchReport {
        let suspicion = Arc::clone(&self.context.suspicion);
        let _turn = if is_suspect {
            (Some(suspicion.write().await), None)
        } else {
            (None, Some(suspicion.read().await))
        };
        let marks = self.context.marks.clone();
        if let Err(error) = marks.write(std::slice::from_ref(&mark)).await {
            let outcome = Outcome::Trouble(error.to_string());
            return BatchReport { finished: Vec::new(), back: vec![message], outcome };
        }
        dueline_failpoints::reached("consumer.lone.marked");
        let report = self.run(vec![message]).await;
        if report.finished.is_empty() {
            let mark = CrashMark { tries: (mark.tries - 1).max(1), ..mark };
            if let Err(error) = marks.write(&[mark]).await {
                tracing::warn!(%error, "a crash mark counts one try too many");
            }
        }
        report
    }

    /// A message that was there too often when its consumer died.
    pub async fn condemn(mut self, message: Message) -> BatchReport {
        let tasks = self.reduce(vec![message]);
        let failure = Failure::new("its handler kills the consumer", true);
        let failures = tasks.into_iter().map(|task| (task, failure.clone())).collect();
        if let Err((tasks, error)) = self.record(failures, Some(Reason::Crashes)).await {
            self.report.outcome = Outcome::Trouble(error.to_string());
            tasks.into_iter().for_each(|task| self.give_back(task, None));
        }
        self.report
    }

    /// One message per id: the youngest. The others speak of the same try, or of an older one.
    fn reduce(&mut self, messages: Vec<Message>) -> Vec<Task> {
        let mut best: HashMap<i64, Message> = HashMap::with_capacity(messages.len());
        for message in messages {
            let id = message.task.id;
            let Some(known) = best.remove(&id) else {
                best.insert(id, message);
                continue;
            };
            let age = |m: &Message| (m.task.generation, m.task.attempt);
            let (keep, repeat) =
                if age(&message) > age(&known) { (message, known) } else { (known, message) };
            best.insert(id, keep);
            self.repeats.entry(id).or_default().push(repeat);
        }
        let mut tasks = Vec::with_capacity(best.len());
        for (id, message) in best {
            self.heads.insert(id, message.origin);
            tasks.push(message.task);
        }
        tasks
    }

    async fn step(&mut self, handling: Handling<'_>, mut part: Vec<Task>, repeated: usize) -> Step {
        match self.attempt(handling, &mut part, repeated).await {
            Ok(fates) => {
                for task in part {
                    let fate = fates.get(&task.id).copied().unwrap_or(Fate::Moved);
                    self.conclude(task, fate);
                }
                Step::Settled
            }
            Err(Trouble::Items(failures)) => self.items_failed(part, failures).await,
            Err(Trouble::Batch(failure)) if part.len() == 1 => {
                let failures = part.into_iter().map(|task| (task, failure.clone())).collect();
                self.charge(failures, Vec::new()).await
            }
            Err(Trouble::Batch(failure)) => {
                tracing::debug!(
                    kind = &*self.kind.name,
                    tasks = part.len(),
                    error = failure.error,
                    "a batch failed: splitting it"
                );
                let second = part.split_off(part.len() / 2);
                Step::Split(part, second)
            }
            Err(Trouble::Environment { error, .. }) => Step::Halt(part, Outcome::Trouble(error)),
            Err(Trouble::Contract(reason)) => Step::Halt(part, Outcome::Contract(reason)),
        }
    }

    /// One run of the transaction, repeated while the database only asks for that.
    async fn attempt(
        &self,
        handler: Handling<'_>,
        part: &mut [Task],
        repeated: usize,
    ) -> Result<HashMap<i64, Fate>, Trouble> {
        let batch =
            Batch { queue: &self.context.queue, role: &self.context.role, handler, repeated };
        let mut free_retries = 0;
        loop {
            // The semaphore is never closed.
            let _connection = self.context.connections.acquire().await;
            let began = Instant::now();
            let result = batch.run_in(&self.context.sessions, part).await;
            self.labels.batch(part.len(), began.elapsed(), &result);
            match result {
                Err(Trouble::Environment { free: true, .. }) if free_retries < MAX_FREE_RETRIES => {
                    free_retries += 1;
                }
                result => return result,
            }
        }
    }

    /// Those that failed are charged; the rest runs again without them.
    async fn items_failed(&mut self, part: Vec<Task>, failures: Vec<(i64, Failure)>) -> Step {
        let mut by_id: HashMap<i64, Failure> = failures.into_iter().collect();
        let (mut failed, mut rest) = (Vec::new(), Vec::new());
        for task in part {
            match by_id.remove(&task.id) {
                Some(failure) => failed.push((task, failure)),
                None => rest.push(task),
            }
        }
        self.charge(failed, rest).await
    }

    async fn charge(&mut self, failed: Vec<(Task, Failure)>, rest: Vec<Task>) -> Step {
        if let Outcome::Worked { poison, .. } = &mut self.report.outcome {
            *poison += failed.len();
        }
        match self.record(failed, None).await {
            Ok(()) if rest.is_empty() => Step::Settled,
            Ok(()) => Step::Again(rest),
            Err((mut tasks, error)) => {
                tasks.extend(rest);
                Step::Halt(tasks, Outcome::Trouble(error.to_string()))
            }
        }
    }

    /// Writes failures to their rows. `doom` buries without an attempt.
    async fn record(
        &mut self,
        failed: Vec<(Task, Failure)>,
        doom: Option<Reason>,
    ) -> Result<(), (Vec<Task>, StoreError)> {
        let records: Vec<FailureRecord<'_>> =
            failed.iter().map(|(task, failure)| self.failure_record(task, failure, doom)).collect();
        let context = Arc::clone(&self.context);
        let answer = {
            let _connection = context.connections.acquire().await;
            effect::fail(context.sessions.pool(), &context.queue, &records).await
        };
        let reasons: Vec<Reason> = records.iter().map(|record| record.reason).collect();
        let written = match answer {
            Ok(written) => written,
            Err(error) => return Err((failed.into_iter().map(|(task, _)| task).collect(), error)),
        };
        for ((task, failure), reason) in failed.into_iter().zip(reasons) {
            let Some(row) = written.iter().find(|row| row.id == task.id) else {
                // Finished, cancelled or rescheduled meanwhile. The next run will see it at the guards; but
                // a condemned message has none, and would wait before its partition for ever.
                match doom {
                    Some(_) => self.finish(task.id),
                    None => self.give_back(task, Some(MOVED_PAUSE)),
                }
                continue;
            };
            observe::failure(&self.labels, &task, row, &failure.error, reason);
            if row.died_at.is_some() || dueline_failpoints::planted("letter-before-the-row") {
                self.tell_of_death(&task, row, (reason, &failure.error));
            }
            self.finish(task.id);
        }
        Ok(())
    }

    fn failure_record<'a>(
        &self,
        task: &'a Task,
        failure: &Failure,
        doom: Option<Reason>,
    ) -> FailureRecord<'a> {
        let failed_attempts = u32::try_from(task.attempt.saturating_add(1)).unwrap_or(u32::MAX);
        let permanent = failure.permanent || doom.is_some();
        let pause = (!permanent)
            .then(|| self.kind.retry.pause_after(failed_attempts, rand::random()))
            .flatten();
        let worn_out = if failure.permanent { Reason::Permanent } else { Reason::Exhausted };
        FailureRecord {
            task,
            failure: failure.clone(),
            pause,
            reason: doom.unwrap_or(worn_out),
            charge: doom.is_none(),
        }
    }

    pub(super) fn tell_of_death(&self, task: &Task, row: &FailedTask, why: (Reason, &str)) {
        if let Some(origin) = self.heads.get(&task.id) {
            self.context.letters.of_death(task, row, &self.source, &origin.record, why);
        }
    }

    pub(super) fn conclude(&mut self, task: Task, fate: Fate) {
        self.labels.fate(&task, fate);
        if fate == Fate::Moved {
            let moved = self.heads.get(&task.id).map_or(0, |origin| origin.moved);
            let pause = MOVED_PAUSE * 2_u32.pow(moved.min(MOVED_DOUBLINGS));
            self.give_back(task, Some(pause));
        } else {
            self.finish(task.id);
        }
    }

    pub(super) fn finish(&mut self, id: i64) {
        self.report.finished.extend(self.heads.remove(&id));
        let repeats = self.repeats.remove(&id).unwrap_or_default();
        self.report.finished.extend(repeats.into_iter().map(|message| message.origin));
    }

    pub(super) fn give_back(&mut self, task: Task, pause: Option<Duration>) {
        self.report.back.extend(self.repeats.remove(&task.id).unwrap_or_default());
        if let Some(mut origin) = self.heads.remove(&task.id) {
            origin.not_before = pause.map(|pause| Instant::now() + pause);
            origin.moved += u32::from(pause.is_some());
            self.report.back.push(Message { task, origin });
        }
    }
}
