//! `schedule`, `cancel`, `reschedule`, `get`.

use std::time::Duration;

use dueline_core::Micros;
use dueline_store::client::{
    self, Deadline, OnConflict, Receipt, ReceiptKind, RescheduleRequest, ScheduleRequest,
};
use serde_json::{Value, json};

use crate::args::{CancelArgs, Conflict, DeadlineArgs, KeyArgs, RescheduleArgs, ScheduleArgs};
use crate::context::Context;
use crate::exit;
use crate::output::{self, Reply, fail, or_dash, printable};

/// `dueline schedule`.
pub async fn schedule(context: &Context, args: ScheduleArgs) -> anyhow::Result<Reply> {
    let (pool, _) = context.checked().await?;
    let deadline = deadline(&args.deadline, args.event_at)?;
    let mut request =
        ScheduleRequest::new(args.kind, args.key, deadline).on_conflict(match args.on_conflict {
            Conflict::Keep => OnConflict::Keep,
            Conflict::Reschedule => OnConflict::Reschedule,
            Conflict::Error => OnConflict::Error,
        });
    if let Some(payload) = args.payload {
        request = request.payload(payload);
    }
    for (name, value) in args.header {
        request = request.header(name, value);
    }
    if let Some(window) = args.jitter {
        request = request.jitter(window);
    }
    Ok(receipt_reply(&client::schedule(&pool, &request).await?))
}

/// `dueline reschedule`.
pub async fn reschedule(context: &Context, args: RescheduleArgs) -> anyhow::Result<Reply> {
    let (pool, _) = context.checked().await?;
    let deadline = deadline(&args.deadline, args.event_at)?;
    let mut request = RescheduleRequest::new(args.kind, args.key, deadline);
    if let Some(payload) = args.payload {
        request = request.payload(payload);
    }
    if let Some(reason) = args.reason {
        request = request.reason(reason);
    }
    Ok(receipt_reply(&client::reschedule(&pool, &request).await?))
}

/// `dueline cancel`.
pub async fn cancel(context: &Context, args: &CancelArgs) -> anyhow::Result<Reply> {
    let (pool, _) = context.checked().await?;
    let reason = args.reason.as_deref();
    Ok(receipt_reply(&client::cancel(&pool, &args.kind, &args.key, reason).await?))
}

/// `dueline get`.
pub async fn get(context: &Context, args: &KeyArgs) -> anyhow::Result<Reply> {
    let (pool, _) = context.checked().await?;
    let Some(task) = client::get(&pool, &args.kind, &args.key).await? else {
        let text = format!("there is no task of kind {:?} with key {:?}", args.kind, args.key);
        return Err(fail(exit::NOT_FOUND, format!("{text}; `dueline why KEY` looks further")));
    };
    let instant = |at: Option<Micros>| at.map_or(Value::Null, output::at);
    let document = json!({
        "id": task.id, "queue": task.queue, "kind": task.kind, "key": task.key,
        "state": task.state, "phase": task.phase, "generation": task.generation,
        "attempt": task.attempt, "tier": task.tier, "due_at": output::at(task.due_at),
        "next_at": instant(task.next_at), "lease_until": instant(task.lease_until),
        "created_at": output::at(task.created_at), "published_at": instant(task.published_at),
        "finished_at": instant(task.finished_at), "last_error": task.last_error,
        "payload": task.payload, "headers": task.headers,
    });
    let mut text = String::new();
    if let Value::Object(fields) = &document {
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.push_str(&format!("{name:<13}{}\n", printable(&value.replace('\n', " "))));
        }
    }
    Ok(Reply::new(document, text))
}

fn deadline(args: &DeadlineArgs, event_at: Option<Micros>) -> anyhow::Result<Deadline> {
    match (args.delay, args.at) {
        (Some(delay), None) => Ok(Deadline::After { delay, event_at }),
        (None, Some(due_at)) => Ok(Deadline::At { due_at, event_at }),
        // The argument parser lets nothing else through.
        _ => Err(fail(exit::REFUSED, "give one of --in and --at")),
    }
}

/// A receipt for machines.
pub fn receipt_document(receipt: &Receipt) -> Value {
    json!({
        "receipt": receipt.receipt, "id": receipt.id, "kind": receipt.kind, "key": receipt.key,
        "state": receipt.state, "generation": receipt.generation,
        "due_at": receipt.due_at.map_or(Value::Null, output::at), "tier": receipt.tier,
    })
}

fn receipt_reply(receipt: &Receipt) -> Reply {
    let (words, code) = in_words(receipt.receipt);
    let mut text = format!("{}: {words}", receipt.receipt);
    if let (Some(id), Some(state)) = (receipt.id, receipt.state) {
        text.push_str(&format!("\ntask {id}, {state}, generation {}", or_dash(receipt.generation)));
        if let Some(due_at) = receipt.due_at {
            text.push_str(&format!(", due {due_at}, tier {}", or_dash(receipt.tier.as_deref())));
        }
    }
    Reply::new(receipt_document(receipt), text).code(code)
}

/// What a receipt means, and the exit code: it says whether what was asked for holds now.
pub fn in_words(receipt: ReceiptKind) -> (&'static str, u8) {
    use ReceiptKind as R;
    match receipt {
        R::Scheduled => ("a new task", exit::OK),
        R::Kept => ("it was there already and stays as it is", exit::OK),
        R::Reopened => ("it was cancelled or skipped, and waits again", exit::OK),
        R::Rescheduled => ("it has the new deadline", exit::OK),
        R::Cancelled => ("it will not run", exit::OK),
        R::PublishedWillBeDropped => ("done; a message is under way and will be dropped", exit::OK),
        R::MayHaveRun => ("done, but an earlier try may have had its effect", exit::OK),
        R::Running => ("its call is running: nothing was changed", exit::REFUSED),
        R::Finished => ("it is finished already: nothing was changed", exit::REFUSED),
        R::NotFound => ("there is no such task", exit::NOT_FOUND),
        R::Replayed => ("it is live again", exit::OK),
        R::Resolved => ("it counts as done", exit::OK),
        R::Discarded => ("it counts as cancelled", exit::OK),
        R::Stale => ("it has moved on since: nothing was changed", exit::REFUSED),
        R::Gone => ("there is no such task any more: nothing was changed", exit::REFUSED),
        R::Refused => (
            "it died longer ago than finished keys are remembered, so that it could happen twice: \
             nothing was changed; --force does it all the same",
            exit::REFUSED,
        ),
    }
}

/// A length of time as people say it: two units at most.
pub fn span_text(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{} ms", duration.as_millis());
    }
    let seconds = duration.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let start = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(3);
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (size, name) in units.iter().skip(start).take(2) {
        if rest >= *size {
            parts.push(format!("{} {name}", rest / size));
            rest %= size;
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        for (ms, text) in
            [(250, "250 ms"), (61_000, "1 m 1 s"), (3_600_000, "1 h"), (93_784_000, "1 d 2 h")]
        {
            assert_eq!(span_text(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn c01_a_receipt_that_changed_nothing_is_no_success() {
        for receipt in ReceiptKind::ALL {
            let (words, code) = in_words(receipt);
            let nothing = words.contains("nothing was changed") || words.contains("no such task");
            assert_eq!(nothing, code != exit::OK, "{receipt}");
        }
    }
}
