//! `list`: what is due when (C2).

use dueline_core::Micros;
use dueline_store::operate::pending::{self, DeadCount, PendingFilter, PendingTask, TierCount};
use serde_json::{Value, json};

use crate::args::ListArgs;
use crate::context::Context;
use crate::output::{self, Reply, or_dash, short};
use crate::task::span_text;

/// `dueline list`.
pub async fn list(context: &Context, args: &ListArgs) -> anyhow::Result<Reply> {
    let (pool, _) = context.checked().await?;
    let queue = args.queue.as_deref();
    let counts = pending::counts(&pool, queue).await?;
    let dead = pending::dead_counts(&pool, queue).await?;
    let filter = PendingFilter {
        queue: args.queue.clone(),
        kind: args.kind.clone(),
        until: args.until,
        after: args.after,
        limit: args.limit,
    };
    let tasks = if args.limit == 0 { Vec::new() } else { pending::list(&pool, &filter).await? };
    // A page that is not full is the last one.
    let full = tasks.len() == args.limit as usize && args.limit > 0;
    let cursor = tasks.last().filter(|_| full).map(|t| format!("{}/{}", t.next_at.0, t.id));
    let document = json!({
        "counts": counts.iter().map(count_document).collect::<Vec<_>>(),
        "dead": dead.iter().map(dead_document).collect::<Vec<_>>(),
        "tasks": tasks.iter().map(task_document).collect::<Vec<_>>(),
        "after": cursor,
    });
    let mut text = vec![counts_table(&counts), dead_table(&dead), tasks_table(&tasks)];
    text.extend(cursor.map(|cursor| format!("more: --after {cursor}")));
    text.retain(|part| !part.is_empty());
    Ok(Reply::new(document, text.join("\n\n")))
}

fn count_document(count: &TierCount) -> Value {
    json!({
        "queue": count.queue, "tier": count.tier, "waiting": count.waiting, "due": count.due,
        "published": count.published, "earliest": output::maybe_at(count.earliest),
    })
}

fn dead_document(count: &DeadCount) -> Value {
    json!({ "queue": count.queue, "dead": count.dead, "oldest": output::at(count.oldest) })
}

fn task_document(task: &PendingTask) -> Value {
    json!({
        "id": task.id, "queue": task.queue, "tier": task.tier, "kind": task.kind, "key": task.key,
        "due_at": output::at(task.due_at), "next_at": output::at(task.next_at),
        "lease_until": output::maybe_at(task.lease_until), "attempt": task.attempt,
        "last_error": task.last_error, "state": phase(task),
    })
}

fn phase(task: &PendingTask) -> &'static str {
    match (task.lease_until.is_some(), task.next_at <= task.now) {
        (true, _) => "published",
        (false, true) => "due",
        (false, false) => "waiting",
    }
}

fn counts_table(counts: &[TierCount]) -> String {
    let row = |c: &TierCount| {
        let earliest = c.earliest.map(|at| relative(at.0, c.now.0));
        vec![
            c.queue.clone(),
            c.tier.clone(),
            c.waiting.to_string(),
            c.due.to_string(),
            c.published.to_string(),
            or_dash(earliest),
        ]
    };
    let rows = counts.iter().map(row).collect();
    output::table(&["queue", "tier", "waiting", "due", "published", "earliest alarm"], rows)
}

fn dead_table(dead: &[DeadCount]) -> String {
    let row = |d: &DeadCount| vec![d.queue.clone(), d.dead.to_string(), short(d.oldest)];
    output::table(&["queue", "dead", "oldest"], dead.iter().map(row).collect())
}

fn tasks_table(tasks: &[PendingTask]) -> String {
    let row = |t: &PendingTask| {
        vec![
            t.id.to_string(),
            t.kind.clone(),
            t.key.clone(),
            t.tier.clone(),
            phase(t).to_owned(),
            relative(t.next_at.0, t.now.0),
            short(t.due_at),
            t.attempt.to_string(),
            or_dash(t.last_error.as_deref()),
        ]
    };
    let header = ["id", "kind", "key", "tier", "state", "alarm", "due", "attempt", "last error"];
    output::table(&header, tasks.iter().map(row).collect())
}

/// `in 5 m`, or `3 s ago`.
pub fn relative(at: Micros, now: Micros) -> String {
    if at > now {
        format!("in {}", span_text(at.since(now)))
    } else {
        format!("{} ago", span_text(now.since(at)))
    }
}
