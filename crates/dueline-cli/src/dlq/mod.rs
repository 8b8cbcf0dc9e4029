//! `dlq`: the dead, from the stranded table or from the dead-letter topics, alike.

mod act;
mod pace;
mod source;
mod table;
mod topic;

use dueline_core::letter::Reason;
use dueline_store::operate;
use dueline_store::operate::dead::{self, DeadFilter, KeyPattern};
use serde_json::{Value, json};

use crate::args::{ActArgs, DlqCommand, From, Selection, VerdictArgs};
use crate::context::Context;
use crate::exit;
use crate::output::{self, Reply, fail, printable, short};
use act::{Act, Actor};
use source::{Dead, Found};

/// `dueline dlq …`.
pub async fn dlq(context: &Context, command: DlqCommand) -> anyhow::Result<Reply> {
    match command {
        DlqCommand::List { select, reason } => list(context, &select, reason).await,
        DlqCommand::Show { id } => show(context, id).await,
        DlqCommand::Replay { select, reason, act, force } => {
            deal(context, &select, reason, act, Act::Replay { force }).await
        }
        DlqCommand::Resolve(args) => verdict(context, args, |reason| Act::Resolve { reason }).await,
        DlqCommand::Discard(args) => verdict(context, args, |reason| Act::Discard { reason }).await,
    }
}

async fn verdict(
    context: &Context,
    args: VerdictArgs,
    act: impl FnOnce(String) -> Act,
) -> anyhow::Result<Reply> {
    deal(context, &args.select, args.died_of, args.act, act(args.reason)).await
}

async fn list(
    context: &Context,
    select: &Selection,
    reason: Option<Reason>,
) -> anyhow::Result<Reply> {
    let found = find(context, select, reason).await?;
    let mut text = output::table(&HEADER, found.dead.iter().map(Dead::row).collect());
    if text.is_empty() {
        text = "nobody is dead here".to_owned();
    }
    if let Some(cursor) = &found.more {
        text.push_str(&format!("\n\nmore: --after {cursor}"));
    }
    let dead: Vec<Value> = found.dead.iter().map(Dead::document).collect();
    let document = json!({ "dead": dead, "after": found.more, "unreadable": found.unreadable });
    Ok(Reply::new(document, text))
}

const HEADER: [&str; 8] = ["id", "died", "queue", "kind", "key", "reason", "attempts", "error"];

/// Selects from where it was asked.
async fn find(
    context: &Context,
    select: &Selection,
    reason: Option<Reason>,
) -> anyhow::Result<Found> {
    let (pool, _) = context.checked().await?;
    let now = operate::now(&pool).await?;
    let filter = DeadFilter {
        queue: select.queue.clone(),
        kind: select.kind.clone(),
        since: select.since.map(|when| when.instant(now)),
        until: select.until.map(|when| when.instant(now)),
        reason: reason.map(|r| r.as_str().to_owned()),
        key: select.key.clone().map(KeyPattern::new),
    };
    match select.from {
        From::Table => table::find(&pool, select, &filter).await,
        From::Topic => topic::find(context, select, &filter).await,
    }
}

async fn deal(
    context: &Context,
    select: &Selection,
    reason: Option<Reason>,
    args: ActArgs,
    act: Act,
) -> anyhow::Result<Reply> {
    if !select.is_narrowed() && reason.is_none() && !args.all {
        return Err(fail(
            exit::REFUSED,
            "this would act on all the dead: name ids, narrow it by --queue, --kind, --key, --since, \
             --until or the reason, or say --all (--dry-run shows what it would be)",
        ));
    }
    let found = find(context, select, reason).await?;
    if let Some(id) = select.ids.iter().find(|id| !found.dead.iter().any(|d| d.id() == Some(**id)))
    {
        let text =
            format!("task {id} is not among the dead: nothing was done; `dueline why KEY` tells");
        return Err(fail(exit::NOT_FOUND, text));
    }
    if args.dry_run {
        return Ok(preview(&found, &act));
    }
    let mut actor = Actor::new(context, act, args.who, args.rate).await?;
    let done = actor.all(&found.dead).await;
    actor.close().await;
    let (results, stopped) = done;
    let mut reply = report(&found, &results);
    if let Some(error) = stopped {
        let cursor = results.last().map_or("the beginning", |r| r.cursor.as_str());
        return Err(error.context(format!(
            "stopped after {} of {}; go on with --after {cursor}",
            results.len(),
            found.dead.len()
        )));
    }
    if results.iter().any(|r| !r.changed) {
        reply = reply.code(exit::REFUSED);
    }
    Ok(reply)
}

fn preview(found: &Found, act: &Act) -> Reply {
    let rows = found.dead.iter().map(Dead::row).collect();
    let count = found.dead.len();
    let text = format!(
        "{}\n\nwould {} {count}; nothing was done",
        output::table(&HEADER, rows),
        act.name()
    );
    let dead: Vec<Value> = found.dead.iter().map(Dead::document).collect();
    let document = json!({
        "dry_run": true, "act": act.name(), "would": count, "dead": dead, "after": found.more,
    });
    Reply::new(document, text)
}

fn report(found: &Found, results: &[act::Outcome]) -> Reply {
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for result in results {
        *counts.entry(result.receipt.as_str()).or_default() += 1;
    }
    let mut text: Vec<String> = counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
    if text.is_empty() {
        text.push("nobody is dead here".to_owned());
    }
    for result in results.iter().filter(|r| !r.changed) {
        text.push(printable(&format!("{}: {}: {}", result.name, result.receipt, result.words)));
    }
    text.extend(found.more.iter().map(|cursor| format!("more: --after {cursor}")));
    let results: Vec<Value> = results.iter().map(act::Outcome::document).collect();
    let document = json!({
        "dry_run": false, "counts": counts, "results": results, "after": found.more,
        "unreadable": found.unreadable,
    });
    Reply::new(document, text.join("\n"))
}

async fn show(context: &Context, id: i64) -> anyhow::Result<Reply> {
    let (pool, _) = context.checked().await?;
    let found = table::by_id(&pool, id).await?;
    let (Some(task), Some(detail)) = (found, dead::detail(&pool, id).await?) else {
        return Err(fail(exit::NOT_FOUND, format!("task {id} is not dead: dueline why KEY")));
    };
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let history = parse(&detail.history);
    let mut text = format!(
        "task {id}: {} {:?} in queue {}\ndied    {} of {}\nerror   {}\n\
         letter  {}\ngeneration {}, {} failed attempts",
        task.kind,
        task.key,
        task.queue,
        short(task.died_at),
        task.reason,
        task.error,
        task.lettered_at.map_or("not written yet".to_owned(), short),
        task.generation,
        task.attempts,
    );
    for attempt in history.as_array().into_iter().flatten() {
        text.push_str(&format!("\n  {attempt}"));
    }
    let mut document = Dead::Task(task).document();
    document["history"] = history;
    document["payload"] = detail.payload.as_deref().map(parse).unwrap_or_default();
    document["headers"] = detail.headers.as_deref().map(parse).unwrap_or_default();
    Ok(Reply::new(document, printable(&text)))
}
