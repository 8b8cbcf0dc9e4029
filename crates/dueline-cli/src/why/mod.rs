//! `why`: everything about a key, and in words why its task has not run.

mod broker;
mod explain;

use dueline_store::operate::why::{self, Event, Facts};
use dueline_store::{Pool, operate::instance::Instance};
use serde_json::{Value, json};

use crate::args::WhyArgs;
use crate::context::Context;
use crate::exit;
use crate::output::{self, Reply, fail, maybe_at, printable, short};
use explain::{Explanation, InTopic};

/// `dueline why KEY`.
pub async fn why(context: &Context, args: &WhyArgs) -> anyhow::Result<Reply> {
    let (pool, instance) = context.checked().await?;
    let found = why::find(&pool, &args.key, args.kind.as_deref()).await?;
    if found.is_empty() {
        return Err(unknown(&pool, args).await?);
    }
    let mut documents = Vec::new();
    let mut text = Vec::new();
    for facts in &found {
        let events = why::events(&pool, facts.id).await?;
        let in_topic = broker::look(context, facts).await;
        let explanation = explain::explain(
            facts,
            &events,
            in_topic.as_ref(),
            context.config.relay.takeover_after,
        );
        documents.push(document(&instance, facts, &events, in_topic.as_ref(), &explanation));
        text.push(page(facts, &events, &explanation));
    }
    Ok(Reply::new(json!({ "tasks": documents }), text.join("\n\n")))
}

/// What to say of a key that no task has.
async fn unknown(pool: &Pool, args: &WhyArgs) -> anyhow::Result<anyhow::Error> {
    let mut text = match &args.kind {
        None => format!("no task has the key {:?}", args.key),
        Some(kind) => format!("no task of kind {kind:?} has the key {:?}", args.key),
    };
    let kinds = why::kind_names(pool).await?;
    if let Some(kind) = args.kind.as_ref().filter(|kind| !kinds.contains(kind)) {
        let near = dueline_core::name::nearest(kind, kinds.iter().map(String::as_str));
        text.push_str(&match near {
            Some(near) => format!("; there is no such kind: did you mean `{near}`?"),
            None => format!("; there is no such kind: there are {}", kinds.join(", ")),
        });
    } else if let Some(near) = why::nearest_key(pool, &args.key).await?.filter(|n| *n != args.key) {
        text.push_str(&format!("; did you mean {near:?}?"));
    } else {
        text.push_str(
            ": it was never scheduled (or its transaction rolled back), or its retention is over",
        );
    }
    Ok(fail(exit::NOT_FOUND, text))
}

fn page(facts: &Facts, events: &[Event], explanation: &Explanation) -> String {
    let mut text = format!(
        "{} {:?} (task {}, queue {}, generation {}, attempt {})\n{}",
        facts.kind,
        facts.key,
        facts.id,
        facts.queue,
        facts.generation,
        facts.attempt,
        printable(&explanation.headline)
    );
    for line in &explanation.details {
        text.push_str(&format!("\n  {}", printable(line)));
    }
    for line in &explanation.advice {
        text.push_str(&format!("\n  → {}", printable(line)));
    }
    text.push_str(&format!("\n\n{}", history(facts, events)));
    text
}

fn history(facts: &Facts, events: &[Event]) -> String {
    let mut rows =
        vec![(facts.created_at, "scheduled".to_owned(), format!("due {}", short(facts.due_at)))];
    for event in events {
        let state = event.to_state.as_deref().unwrap_or("");
        let detail = event.detail.as_deref().filter(|d| *d != "{}").unwrap_or("");
        rows.push((event.at, event.step.clone(), format!("{state} by {} {detail}", event.actor)));
    }
    if let Some(at) = facts.claimed_at.or(facts.published_at) {
        let claim = facts.claim_no.map_or(String::new(), |no| format!("claim {no}"));
        rows.push((at, "published".to_owned(), claim));
    }
    let told = events.iter().any(|e| e.to_state.as_ref() == Some(&facts.state));
    if let Some(at) = facts.finished_at.filter(|_| !told) {
        rows.push((at, facts.state.clone(), facts.last_error.clone().unwrap_or_default()));
    }
    rows.sort_by_key(|row| row.0);
    let rows = rows.into_iter().map(|(at, what, detail)| vec![short(at), what, detail]).collect();
    output::table(&["when", "what", "detail"], rows)
}

fn document(
    instance: &Instance,
    facts: &Facts,
    events: &[Event],
    in_topic: Option<&InTopic>,
    explanation: &Explanation,
) -> Value {
    let parsed = |text: &Option<String>| {
        text.as_deref().and_then(|t| serde_json::from_str::<Value>(t).ok()).unwrap_or_default()
    };
    json!({
        "source": instance.source(),
        "why": explanation.headline, "details": explanation.details, "advice": explanation.advice,
        "id": facts.id, "queue": facts.queue, "kind": facts.kind, "key": facts.key,
        "tier": facts.tier, "state": facts.state, "generation": facts.generation,
        "attempt": facts.attempt, "max_attempts": facts.max_attempts,
        "now": output::at(facts.now), "due_at": output::at(facts.due_at),
        "created_at": output::at(facts.created_at), "published_at": maybe_at(facts.published_at),
        "finished_at": maybe_at(facts.finished_at), "last_error": facts.last_error,
        "payload": parsed(&facts.payload), "headers": parsed(&facts.headers),
        "alarm": facts.next_at.map(|next_at| json!({
            "next_at": output::at(next_at), "lease_until": maybe_at(facts.lease_until),
            "claimed_at": maybe_at(facts.claimed_at), "claim_no": facts.claim_no,
            "claim_epoch": facts.claim_epoch, "unanswered": facts.unanswered,
            "extensions": facts.extensions,
        })),
        "lane": facts.lane.map(|lane| json!({
            "lane": lane, "tier": facts.lane_tier, "slot": facts.slot, "epoch": facts.lane_epoch,
            "owner": facts.owner_name, "heartbeat_at": maybe_at(facts.owner_heartbeat_at),
            "ended_at": maybe_at(facts.owner_ended_at),
            "cannot_produce": facts.owner_cannot_produce,
        })),
        "topic": in_topic.map(InTopic::document),
        "dedupe": facts.dedupe_outcome.as_ref().map(|outcome| json!({
            "outcome": outcome, "finished_at": maybe_at(facts.dedupe_finished_at),
            "until": maybe_at(facts.dedupe_until),
        })),
        "dead": facts.died_at.map(|died_at| json!({
            "reason": facts.dead_reason, "error": facts.dead_error,
            "attempts": facts.dead_attempts, "died_at": output::at(died_at),
            "lettered_at": maybe_at(facts.lettered_at), "history": parsed(&facts.dead_history),
        })),
        "events": events.iter().map(|e| json!({
            "at": output::at(e.at), "step": e.step, "from": e.from_state, "to": e.to_state,
            "generation": e.generation, "attempt": e.attempt, "actor": e.actor,
            "detail": parsed(&e.detail),
        })).collect::<Vec<_>>(),
    })
}
