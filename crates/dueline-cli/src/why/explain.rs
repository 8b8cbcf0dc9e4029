//! The answer in words: a pure function of what was seen, so that each case has a test.

use std::time::Duration;

use dueline_core::Micros;
use dueline_store::operate::why::{Event, Facts};
use serde_json::{Value, json};

use crate::output::short;
use crate::task::span_text;

/// A task that is due for less than this is simply on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// Why a task is where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// One line: the answer.
    pub headline: String,
    /// What it follows from.
    pub details: Vec<String>,
    /// What to do, if anything.
    pub advice: Vec<String>,
}

/// Where the message of a published task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InTopic {
    /// The topic.
    pub topic: String,
    /// The group that handles it.
    pub group: String,
    /// The topic in which that group answers, when it is another team's.
    pub outcomes: Option<String>,
    /// What was seen.
    pub message: Message,
}

/// What the broker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// It could not be asked.
    Unknown {
        /// Why.
        error: String,
    },
    /// There is no such topic.
    NoTopic,
    /// The key's partition was looked at.
    Seen {
        /// The partition.
        partition: u32,
        /// Living members of the group.
        members: usize,
        /// The group's committed offset.
        committed: Option<i64>,
        /// The first offset that is still there.
        log_start: i64,
        /// The first record at or after the claim: the message, or one that came with it.
        offset: Option<i64>,
    },
}

impl InTopic {
    /// For machines.
    pub fn document(&self) -> Value {
        let mut document = json!({ "topic": self.topic, "group": self.group });
        match &self.message {
            Message::Unknown { error } => document["error"] = json!(error),
            Message::NoTopic => document["error"] = json!("the topic does not exist"),
            Message::Seen { partition, members, committed, log_start, offset } => {
                document["partition"] = json!(partition);
                document["members"] = json!(members);
                document["committed"] = json!(committed);
                document["log_start"] = json!(log_start);
                document["offset"] = json!(offset);
            }
        }
        document
    }
}

/// Explains. `takeover_after` is how long a relay may be silent before another one takes its lanes.
pub fn explain(
    facts: &Facts,
    events: &[Event],
    in_topic: Option<&InTopic>,
    takeover_after: Duration,
) -> Explanation {
    match facts.state.as_str() {
        "live" => live(facts, in_topic, takeover_after),
        "dead" => dead(facts),
        _ => finished(facts, events),
    }
}

fn finished(facts: &Facts, events: &[Event]) -> Explanation {
    let at = facts.finished_at.map_or_else(|| "?".to_owned(), short);
    let headline = match facts.state.as_str() {
        "done" => format!("done at {at}: its effect happened"),
        "skipped" => {
            format!("skipped at {at}: its condition did not hold any more, nothing was left to do")
        }
        "cancelled" => format!("cancelled at {at}{}", by_whom(events, "cancelled")),
        other => format!("{other} at {at}"),
    };
    let mut explanation = Explanation { headline, ..Explanation::default() };
    if facts.state == "done" {
        let late = facts.finished_at.map(|at| at.0.since(facts.due_at.0));
        let late = late.map(|late| format!("{} after it was due", span_text(late)));
        explanation.details.extend(late);
        let verdict = by_whom(events, "done");
        if !verdict.is_empty() {
            explanation.details.push(format!("decided{verdict}"));
        }
    } else {
        explanation.advice.push("scheduling the key again opens it again".to_owned());
    }
    explanation
}

/// The last event that led to a state: ` by ann (reason)`; empty when nobody wrote one.
fn by_whom(events: &[Event], state: &str) -> String {
    let Some(event) = events.iter().rev().find(|e| e.to_state.as_deref() == Some(state)) else {
        return String::new();
    };
    let detail: Value =
        event.detail.as_deref().and_then(|d| serde_json::from_str(d).ok()).unwrap_or_default();
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    let who = text("who").unwrap_or(&event.actor);
    let reason = text("reason").map_or(String::new(), |reason| format!(": {reason}"));
    format!(" by {who}{reason}")
}

fn dead(facts: &Facts) -> Explanation {
    let reason = facts.dead_reason.as_deref().unwrap_or("unknown");
    let words = match reason {
        "exhausted" => "its last attempt failed",
        "permanent" => "trying again cannot help, said its handler or the database",
        "crashes" => "its handler kills the consumer",
        "too_old" => "it stayed unfinished beyond its age limit",
        "unanswered" => "its message was consumed again and again, and nobody answered",
        "outcome_unknown" => "a call ended without a known outcome and must not be repeated",
        "undecodable" => "its message could not be read",
        "unknown_kind" => "no handler is configured for its kind",
        "oversized" => "its payload is larger than the limit",
        other => other,
    };
    let at = facts.died_at.map_or_else(|| "?".to_owned(), short);
    let attempts = facts.dead_attempts.unwrap_or(facts.attempt);
    let mut explanation = Explanation {
        headline: format!("dead since {at} after {attempts} failed attempts: {words} ({reason})"),
        ..Explanation::default()
    };
    let error = facts.dead_error.as_deref().filter(|e| !e.is_empty());
    explanation.details.extend(error.map(|error| format!("error: {error}")));
    if facts.lettered_at.is_none() {
        explanation.details.push("its dead letter is not written yet".to_owned());
    }
    let id = facts.id;
    explanation.advice.push(format!("once the cause is mended: dueline dlq replay {id}"));
    explanation.advice.push(format!(
        "or, if it did happen, dueline dlq resolve {id} --reason …; if it is \
         not wanted, dueline dlq discard {id} --reason …"
    ));
    explanation
}

fn live(facts: &Facts, in_topic: Option<&InTopic>, takeover_after: Duration) -> Explanation {
    let Some(next_at) = facts.next_at else {
        return Explanation {
            headline: "live, but without an alarm: this must not be".to_owned(),
            advice: vec!["please report it; rescheduling the task gives it an alarm".to_owned()],
            ..Explanation::default()
        };
    };
    let mut explanation = match facts.lease_until {
        Some(lease_until) => published(facts, lease_until.0, in_topic, takeover_after),
        None if next_at > facts.now => waiting(facts, next_at.0),
        None => overdue(facts, next_at.0, takeover_after),
    };
    if facts.attempt > 0 {
        let error = facts.last_error.as_deref().unwrap_or("no error text");
        let (attempt, max) = (facts.attempt, facts.max_attempts);
        explanation.details.push(format!("attempt {attempt} of {max} failed: {error}"));
    }
    explanation
}

fn waiting(facts: &Facts, next_at: Micros) -> Explanation {
    let left = span_text(next_at.since(facts.now.0));
    let headline = if next_at <= facts.due_at.0 {
        format!("not due yet: due in {left}, at {next_at}")
    } else if facts.attempt > 0 {
        let error = facts.last_error.as_deref().unwrap_or("an unknown error");
        format!("in backoff after error \"{error}\": next attempt in {left}, at {next_at}")
    } else {
        format!("waiting: its alarm rings in {left}, at {next_at}")
    };
    Explanation { headline, ..Explanation::default() }
}

fn overdue(facts: &Facts, next_at: Micros, takeover_after: Duration) -> Explanation {
    let late = facts.now.0.since(next_at);
    let by = span_text(late);
    let mut explanation = Explanation::default();
    if let Some((why, advice)) = owner_trouble(facts, takeover_after) {
        explanation.headline = format!("overdue by {by}: {why}");
        explanation.advice.push(advice);
    } else if late < ON_ITS_WAY {
        explanation.headline = format!("due for {by}: about to be published");
    } else {
        let owner = facts.owner_name.as_deref().unwrap_or("?");
        explanation.headline =
            format!("overdue by {by}: relay {owner} is alive and has not come to it: a backlog");
        explanation.advice.push("dueline list shows what is due before it".to_owned());
    }
    explanation
}

/// Why nobody walks the task's lane, and what to do; `None` when its owner is well.
fn owner_trouble(facts: &Facts, takeover_after: Duration) -> Option<(String, String)> {
    let start = "start dueline-relay, or look at its logs".to_owned();
    let Some(lane) = facts.lane else {
        let advice = "run dueline apply: it makes the lanes".to_owned();
        return Some(("its lane does not exist".to_owned(), advice));
    };
    if facts.open_relays == 0 {
        return Some((format!("no relay is running, so nobody owns its lane {lane}"), start));
    }
    let name = facts.owner_name.as_deref().unwrap_or("?");
    if facts.lane_epoch.is_none() || facts.owner_ended_at.is_some() {
        let ended = facts.owner_ended_why.as_deref();
        let ended =
            ended.map_or(String::new(), |why| format!(" (the last one, {name}, ended: {why})"));
        let advice = "a running relay takes it within seconds; else ".to_owned() + &start;
        return Some((format!("no relay owns its lane {lane}{ended}"), advice));
    }
    let silent = facts.owner_heartbeat_at.map(|at| facts.now.0.since(at.0));
    if let Some(silent) = silent.filter(|silent| *silent > takeover_after) {
        let silent = span_text(silent);
        return Some((
            format!("relay {name}, which owns its lane {lane}, has been silent for {silent}"),
            "another running relay takes over; if there is none, ".to_owned() + &start,
        ));
    }
    let error = facts.owner_cannot_produce.as_deref()?;
    Some((
        format!("relay {name} cannot produce to Kafka: {error}"),
        "mend the broker, or its topics and rights; nothing is lost meanwhile".to_owned(),
    ))
}

fn published(
    facts: &Facts,
    lease_until: Micros,
    in_topic: Option<&InTopic>,
    takeover_after: Duration,
) -> Explanation {
    let now = facts.now.0;
    let since = facts.claimed_at.map_or(Duration::ZERO, |at| now.since(at.0));
    let age = span_text(since);
    let again = if lease_until > now {
        format!(
            "its lease ends in {}: then it is looked at again",
            span_text(lease_until.since(now))
        )
    } else {
        let over = span_text(now.since(lease_until));
        format!("its lease ended {over} ago: the relay's sweep publishes it again")
    };
    let mut explanation = match in_topic {
        None => Explanation { headline: format!("published {age} ago"), ..Explanation::default() },
        Some(in_topic) => in_words(in_topic, &age),
    };
    explanation.details.push(again);
    if lease_until <= now
        && let Some((why, advice)) = owner_trouble(facts, takeover_after)
    {
        explanation.details.push(why);
        explanation.advice.push(advice);
    }
    if let Some(unanswered) = facts.unanswered.filter(|n| *n > 0) {
        explanation.details.push(format!("consumed {unanswered} times without an answer"));
    }
    explanation
}

fn in_words(in_topic: &InTopic, age: &str) -> Explanation {
    let InTopic { topic, group, outcomes, message } = in_topic;
    let mut explanation = Explanation::default();
    let start = match outcomes {
        None => format!("start dueline-consumer for group {group}, or look at its logs"),
        Some(_) => format!("another team handles it: ask those who run group {group}"),
    };
    match message {
        Message::Unknown { error } => {
            explanation.headline =
                format!("published {age} ago; where its message is, Kafka does not say");
            explanation.details.push(error.clone());
            explanation.advice.push("check kafka.brokers and that the broker runs".to_owned());
        }
        Message::NoTopic => {
            explanation.headline = format!("published {age} ago, but topic {topic} does not exist");
            explanation.advice.push("run dueline apply: it makes the topics".to_owned());
        }
        Message::Seen { partition, offset: None, .. } => {
            explanation.headline = format!(
                "claimed {age} ago, but no message has come to {topic}[{partition}] since: it is \
                 on its way, or lost"
            );
        }
        Message::Seen { partition, members, committed, log_start, offset: Some(offset) } => {
            let position = committed.unwrap_or(*log_start).max(*log_start);
            let place = format!("{topic}[{partition}]");
            if *offset < position {
                explanation.headline =
                    format!("published {age} ago and consumed from {place}, but not answered yet");
                explanation
                    .details
                    .push(format!("group {group} is at offset {position}, beyond it"));
                if let Some(outcomes) = outcomes {
                    explanation.details.push(format!(
                        "another team handles it, and no outcome in {outcomes} has settled it: it \
                         still works on it, or the outcome is lost or cannot be read (see the \
                         dead letters)"
                    ));
                }
            } else {
                let lag = offset - position;
                let until = if *members == 0 {
                    format!(", and group {group} has no members: no consumer is running")
                } else {
                    String::new()
                };
                explanation.headline =
                    format!("published {age} ago and waiting at lag {lag} in {place}{until}");
                explanation.details.push(format!(
                    "group {group} has {members} members and is at offset {position}; the \
                     message is at {offset} or just after"
                ));
            }
            if *members == 0 {
                explanation.advice.push(start);
            }
        }
    }
    explanation
}

#[cfg(test)]
mod tests;
