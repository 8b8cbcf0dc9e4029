//! What both sources give.

use dueline_core::DeadLetter;
use dueline_core::letter::DeadTask as LetteredTask;
use dueline_kafka::OwnedRecord;
use dueline_store::operate::dead::DeadTask;
use serde_json::{Value, json};

use crate::output::{self, maybe_at, short};

/// A selection.
#[derive(Debug, Default)]
pub struct Found {
    /// In the order in which they are dealt with.
    pub dead: Vec<Dead>,
    /// The cursor of the next page, when the limit cut this one off.
    pub more: Option<String>,
    /// Records of the topic that are no letters of ours.
    pub unreadable: u64,
}

/// One of the dead.
#[derive(Debug)]
pub enum Dead {
    /// A row of the stranded table.
    Task(DeadTask),
    /// A letter of the dead-letter topic.
    Letter(Box<Letter>),
}

/// A letter, where it was read, and the cursor behind it.
#[derive(Debug)]
pub struct Letter {
    /// What it says.
    pub letter: DeadLetter,
    /// The record, with the original message.
    pub record: OwnedRecord,
    /// Reading on from here begins after this letter.
    pub cursor: String,
}

impl Dead {
    /// The task's id; `None` for a message without a row.
    pub fn id(&self) -> Option<i64> {
        match self {
            Self::Task(task) => Some(task.id),
            Self::Letter(l) => l.letter.task.as_ref().map(|t| t.task_id),
        }
    }

    /// A line of a table for people.
    pub fn row(&self) -> Vec<String> {
        match self {
            Self::Task(task) => vec![
                task.id.to_string(),
                short(task.died_at),
                task.queue.clone(),
                task.kind.clone(),
                task.key.clone(),
                task.reason.clone(),
                task.attempts.to_string(),
                first_line(&task.error),
            ],
            Self::Letter(l) => {
                let task = l.letter.task.as_ref();
                let text = |get: fn(&LetteredTask) -> String| task.map_or("-".to_owned(), get);
                vec![
                    task.map_or_else(|| l.place(), |t| t.task_id.to_string()),
                    short(l.letter.at),
                    l.letter.queue.clone(),
                    text(|t| t.kind.clone()),
                    text(|t| t.key.clone()),
                    l.letter.reason.as_str().to_owned(),
                    text(|t| t.attempts.to_string()),
                    first_line(&l.letter.error),
                ]
            }
        }
    }

    /// For machines.
    pub fn document(&self) -> Value {
        match self {
            Self::Task(task) => json!({
                "from": "table", "id": task.id, "queue": task.queue, "kind": task.kind,
                "key": task.key, "generation": task.generation, "attempts": task.attempts,
                "reason": task.reason, "error": task.error, "died_at": output::at(task.died_at),
                "lettered_at": maybe_at(task.lettered_at), "due_at": output::at(task.due_at),
            }),
            Self::Letter(l) => {
                let task = l.letter.task.as_ref();
                let origin = l.letter.origin.as_ref().map(
                    |o| json!({ "topic": o.topic, "partition": o.partition, "offset": o.offset }),
                );
                json!({
                    "from": "topic", "id": task.map(|t| t.task_id), "queue": l.letter.queue,
                    "kind": task.map(|t| &t.kind), "key": task.map(|t| &t.key),
                    "source": task.map(|t| &t.source), "generation": task.map(|t| t.generation),
                    "attempts": task.map(|t| t.attempts), "reason": l.letter.reason.as_str(),
                    "error": l.letter.error, "died_at": output::at(l.letter.at), "origin": origin,
                    "topic": &*l.record.topic, "partition": l.record.partition,
                    "offset": l.record.offset,
                })
            }
        }
    }

    /// What it is called in a report.
    pub fn name(&self) -> String {
        match self {
            Self::Task(task) => format!("task {}", task.id),
            Self::Letter(l) => match &l.letter.task {
                Some(task) => format!("task {}", task.task_id),
                None => format!("message {}", l.place()),
            },
        }
    }

    /// Going on from here begins after this one.
    pub fn cursor(&self) -> String {
        match self {
            Self::Task(task) => format!("{}/{}", task.died_at.0, task.id),
            Self::Letter(l) => l.cursor.clone(),
        }
    }
}

impl Letter {
    fn place(&self) -> String {
        format!("{}[{}]@{}", self.record.topic, self.record.partition, self.record.offset)
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(80).collect()
}
