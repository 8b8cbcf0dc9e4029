//! From a claimed alarm and its body to a record.

use std::collections::BTreeMap;

use dueline_core::Envelope;
use dueline_core::envelope::{MAX_TASK_HEADERS, header};
use dueline_kafka::{HeaderList, Record};
use dueline_store::relay::{Body, Claimed};

/// How many headers an envelope has, about.
const ENVELOPE_HEADERS: usize = 16;

/// The task's own headers: names to texts. `schedule` refuses everything else; a row that was
/// written around it loses what cannot be sent, and nothing more.
pub(crate) fn own_headers(json: Option<&str>) -> BTreeMap<String, String> {
    let Some(json) = json else { return BTreeMap::new() };
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
    all.into_iter()
        .filter_map(|(name, value)| match value {
            serde_json::Value::String(text) => Some((name, text)),
            _ => None,
        })
        .take(MAX_TASK_HEADERS)
        .collect()
}

/// The record of one claim. `source` is the instance's.
pub(crate) fn record<'a>(
    topic: &'a str,
    source: &str,
    claim: &Claimed,
    body: &'a Body,
) -> Record<'a> {
    let mut own = own_headers(body.headers.as_deref());
    let envelope = Envelope {
        task_id: claim.id,
        source: source.to_owned(),
        kind: body.kind.clone(),
        key: body.key.clone(),
        key_hash: body.key_hash,
        generation: claim.generation,
        attempt: claim.attempt,
        delivery: claim.claim_no,
        due_at: body.due_at,
        claimed_at: claim.claimed_at,
        traceparent: own.remove(header::TRACEPARENT),
    };
    let mut headers = HeaderList::with_capacity(ENVELOPE_HEADERS + own.len());
    envelope.write_headers(|name, value| headers.push(name, value));
    for (name, value) in &own {
        headers.push(name, value.as_bytes());
    }
    Record {
        topic,
        key: Some(body.key.as_bytes()),
        value: body.payload.as_deref().map(str::as_bytes),
        headers,
        timestamp_ms: Some(claim.claimed_at.floor_ms()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_become_headers_and_a_broken_object_becomes_none() {
        let own = own_headers(Some(r#"{"tenant": "a", "n": 1, "x": null}"#));
        assert_eq!(own.into_iter().collect::<Vec<_>>(), [("tenant".to_owned(), "a".to_owned())]);
        assert!(own_headers(Some("[1]")).is_empty());
        assert!(own_headers(None).is_empty());
    }
}
