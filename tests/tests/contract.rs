//! Suite `downstream`, its part without services: what docs/contract says and what the code does are the same.
//!
//! A header, a reason, an outcome or a bound that is changed on one side only fails here. The same vectors are
//! gone through by the clients in `examples/`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use dueline_core::envelope::EnvelopeError;
use dueline_core::letter::{DeadTask, Origin, Reason};
use dueline_core::outcome::{MAX_ID_BYTES, MAX_RETRY_AFTER_MS, Verdict};
use dueline_core::{DeadLetter, Envelope, KeyHash, Micros, Outcome, name, partition};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/contract")
}

fn document(path: &str) -> Result<Value> {
    let text = std::fs::read_to_string(folder().join(path)).with_context(|| path.to_owned())?;
    serde_json::from_str(&text).with_context(|| path.to_owned())
}

/// The members of an array in a document.
fn each<'v>(of: &'v Value, member: &str) -> Result<&'v Vec<Value>> {
    let items = of[member].as_array().with_context(|| format!("{member} is no list"))?;
    ensure!(!items.is_empty(), "{member} is empty");
    Ok(items)
}

fn texts(of: &Value) -> Option<BTreeSet<&str>> {
    of.as_array()?.iter().map(Value::as_str).collect()
}

type Headers = Vec<(String, Vec<u8>)>;

/// A record's headers, as a vector has them.
fn headers(vector: &Value) -> Result<Headers> {
    let pairs = vector["record"]["headers"].as_array().context("headers")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let pair = |pair: &Value| Some((text(&pair[0])?, text(&pair[1])?.into_bytes()));
    pairs.iter().map(|p| pair(p).context("a header is a name and a value")).collect()
}

fn value(vector: &Value) -> Option<&[u8]> {
    vector["record"]["value"].as_str().map(str::as_bytes)
}

fn shown(headers: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    headers.into_iter().map(|(name, value)| (name, text(value))).collect()
}

/// That an error is of the class that a vector says, and names the header.
fn is_as_said(vector: &Value, error: &EnvelopeError) -> Result<()> {
    let (class, header) = match error {
        EnvelopeError::Missing(name) => ("missing", Some(*name)),
        EnvelopeError::Malformed { name, .. } => ("malformed", Some(*name)),
        EnvelopeError::Body { .. } => ("body", None),
        EnvelopeError::Newer(_) => ("newer", Some("ce_duelineversion")),
    };
    ensure!(vector["error"] == class, "{vector}: {error}");
    ensure!(vector["header"].as_str() == header, "{vector}: {error}");
    Ok(())
}

#[test]
fn q02_keys_go_to_the_partitions_that_javas_client_chooses() -> Result<()> {
    for vector in each(&document("vectors/partition.json")?, "vectors")? {
        let key = vector["key"].as_str().context("a key")?;
        let partitions = u32::try_from(vector["partitions"].as_u64().context("a number")?)?;
        let expected = vector["partition"].as_u64();
        let partition = partition::partition_for(key.as_bytes(), partitions);
        assert_eq!(Some(u64::from(partition)), expected, "{vector}");
    }
    Ok(())
}

#[test]
fn i02_the_key_hash_is_that_of_queue_kind_and_key() -> Result<()> {
    for vector in each(&document("vectors/key-hash.json")?, "vectors")? {
        let part = |name: &str| vector[name].as_str().context("a text");
        let hash = KeyHash::new(part("queue")?, part("kind")?, part("key")?);
        assert_eq!(hash.to_string(), part("key_hash")?, "{vector}");
    }
    Ok(())
}

fn envelope_of(reads: &Value) -> Result<Envelope> {
    let text = |name: &str| reads[name].as_str().map(str::to_owned).context("a text");
    let number = |name: &str| anyhow::Ok(i32::try_from(reads[name].as_i64().context("a number")?)?);
    Ok(Envelope {
        task_id: reads["task_id"].as_i64().context("a number")?,
        source: text("source")?,
        kind: text("kind")?,
        key: text("key")?,
        key_hash: KeyHash::from_hex(&text("key_hash")?).context("a hash")?,
        generation: number("generation")?,
        attempt: number("attempt")?,
        delivery: number("delivery")?,
        due_at: Micros::parse_rfc3339(&text("due_at")?)?,
        claimed_at: Micros::parse_rfc3339(&text("claimed_at")?)?,
        traceparent: reads["traceparent"].as_str().map(str::to_owned),
    })
}

#[test]
fn h14_task_messages_read_and_write_as_the_vectors_say() -> Result<()> {
    let vectors = document("vectors/task.json")?;
    for vector in each(&vectors, "valid")? {
        let envelope = envelope_of(&vector["reads"])?;
        let headers = headers(vector)?;
        assert_eq!(Envelope::read(&headers).as_ref(), Ok(&envelope), "{vector}");
        if vector["writes"] == true {
            let mut written = Headers::new();
            envelope.write_headers(|n, v| written.push((n.to_owned(), v.to_vec())));
            assert_eq!(shown(written), shown(headers), "{vector}");
        }
    }
    for vector in each(&vectors, "invalid")? {
        let error = Envelope::read(&headers(vector)?).expect_err("an invalid one");
        is_as_said(vector, &error)?;
    }
    Ok(())
}

/// An outcome as a vector tells what was read.
fn told(outcome: &Outcome) -> Value {
    json!({
        "instance": outcome.instance, "task_id": outcome.task_id,
        "key_hash": outcome.key_hash.to_string(),
        "generation": outcome.generation, "attempt": outcome.attempt,
        "outcome": outcome.verdict.as_str(), "reason": outcome.verdict.reason(),
        "retry_after_ms": outcome.verdict.retry_after_ms(),
    })
}

#[test]
fn h14_outcomes_read_and_write_as_the_vectors_say() -> Result<()> {
    let vectors = document("vectors/outcome.json")?;
    for vector in each(&vectors, "valid")? {
        let outcome = Outcome::read(&headers(vector)?, value(vector))?;
        assert_eq!(told(&outcome), vector["reads"], "{vector}");
        if vector["writes"] == true {
            let written = outcome.headers("o-1", "/billing").into_iter();
            let written = written.map(|(name, value)| (name.to_owned(), value.into_bytes()));
            assert_eq!(shown(written), shown(headers(vector)?), "{vector}");
            let expected: Value = serde_json::from_slice(value(vector).context("a value")?)?;
            assert_eq!(serde_json::from_str::<Value>(&outcome.body())?, expected, "{vector}");
        }
    }
    for vector in each(&vectors, "invalid")? {
        let error = Outcome::read(&headers(vector)?, value(vector)).expect_err("an invalid one");
        is_as_said(vector, &error)?;
    }
    Ok(())
}

fn letter_of(reads: &Value) -> Result<DeadLetter> {
    let text = |of: &Value| of.as_str().map(str::to_owned).context("a text");
    let number = |of: &Value| anyhow::Ok(i32::try_from(of.as_i64().context("a number")?)?);
    let task = &reads["task"];
    let origin = &reads["origin"];
    Ok(DeadLetter {
        reason: Reason::parse(&text(&reads["reason"])?).context("a reason")?,
        error: text(&reads["error"])?,
        queue: text(&reads["queue"])?,
        at: Micros::parse_rfc3339(&text(&reads["at"])?)?,
        task: match task.is_null() {
            true => None,
            false => Some(DeadTask {
                source: text(&task["source"])?,
                task_id: task["task_id"].as_i64().context("a number")?,
                generation: number(&task["generation"])?,
                kind: text(&task["kind"])?,
                key: text(&task["key"])?,
                key_hash: KeyHash::from_hex(&text(&task["key_hash"])?).context("a hash")?,
                attempts: number(&task["attempts"])?,
            }),
        },
        origin: match origin.is_null() {
            true => None,
            false => Some(Origin {
                topic: text(&origin["topic"])?,
                partition: number(&origin["partition"])?,
                offset: origin["offset"].as_i64().context("a number")?,
            }),
        },
    })
}

#[test]
fn d04_dead_letters_read_and_write_as_the_vectors_say() -> Result<()> {
    let vectors = document("vectors/letter.json")?;
    for vector in each(&vectors, "valid")? {
        let letter = letter_of(&vector["reads"])?;
        let headers = headers(vector)?;
        assert_eq!(DeadLetter::read(&headers).as_ref(), Some(&letter), "{vector}");
        let written = letter.headers().into_iter();
        let written: Headers =
            written.map(|(name, value)| (name.to_owned(), value.into_bytes())).collect();
        let sorted = |headers: Headers| shown(headers).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(sorted(written), sorted(headers), "{vector}");
    }
    for vector in each(&vectors, "invalid")? {
        assert_eq!(DeadLetter::read(&headers(vector)?), None, "{vector}");
    }
    Ok(())
}

/// That a schema names exactly these headers, and asks for exactly these.
fn names(schema: &Value, written: &BTreeSet<&str>, optional: &[&str]) {
    let known: BTreeSet<&str> =
        schema["properties"].as_object().expect("properties").keys().map(String::as_str).collect();
    assert_eq!(known, *written, "{}", schema["title"]);
    let asked: BTreeSet<&str> =
        written.iter().copied().filter(|name| !optional.contains(name)).collect();
    assert_eq!(texts(&schema["required"]), Some(asked), "{}", schema["title"]);
}

#[test]
fn every_header_that_is_written_is_in_the_schemas_and_no_other() -> Result<()> {
    let task = document("vectors/task.json")?;
    let envelope = envelope_of(&task["valid"][0]["reads"])?;
    let mut written = Vec::new();
    envelope.write_headers(|name, _| written.push(name.to_owned()));
    let written: BTreeSet<&str> = written.iter().map(String::as_str).collect();
    names(&document("schemas/task.headers.json")?, &written, &["traceparent"]);

    let vectors = document("vectors/outcome.json")?;
    let outcome = &vectors["valid"][0];
    let outcome = Outcome::read(&headers(outcome)?, value(outcome))?;
    let written = outcome.headers("o-1", "/billing");
    let written = written.iter().map(|(name, _)| *name).collect();
    names(&document("schemas/outcome.headers.json")?, &written, &["content-type"]);

    let vectors = document("vectors/letter.json")?;
    let letter = letter_of(&vectors["valid"][0]["reads"])?;
    let without = DeadLetter { task: None, origin: None, ..letter.clone() };
    let written = letter.headers();
    let always: Vec<&str> = without.headers().iter().map(|(name, _)| *name).collect();
    let written: BTreeSet<&str> = written.iter().map(|(name, _)| *name).collect();
    let optional: Vec<&str> =
        written.iter().copied().filter(|name| !always.contains(name)).collect();
    names(&document("schemas/letter.headers.json")?, &written, &optional);
    Ok(())
}

#[test]
fn values_and_bounds_in_the_schemas_are_the_codes() -> Result<()> {
    let letters = document("schemas/letter.headers.json")?;
    let reasons = &letters["properties"]["dueline-letter-reason"]["enum"];
    assert_eq!(texts(reasons), Some(Reason::ALL.iter().map(|reason| reason.as_str()).collect()));
    let body = document("schemas/outcome.body.json")?;
    let (reason, after_ms) = (String::new(), None);
    let verdicts = [
        Verdict::Done,
        Verdict::Skipped,
        Verdict::Retry { reason: reason.clone(), after_ms },
        Verdict::Dead { reason },
        Verdict::Working,
    ];
    let outcomes = &body["properties"]["outcome"]["enum"];
    assert_eq!(texts(outcomes), Some(verdicts.iter().map(Verdict::as_str).collect()));
    assert_eq!(body["properties"]["retry_after_ms"]["maximum"], MAX_RETRY_AFTER_MS);
    let own = document("schemas/outcome.headers.json")?;
    for header in ["ce_id", "ce_source"] {
        assert_eq!(own["properties"][header]["maxLength"], MAX_ID_BYTES, "{header}");
    }
    Ok(())
}

#[test]
fn the_asyncapi_document_names_our_topics_and_every_schema() -> Result<()> {
    let text = std::fs::read_to_string(folder().join("asyncapi.yaml"))?;
    let (prefix, queue) = ("{prefix}", "{queue}");
    for topic in [
        name::tier_topic(prefix, queue, "{tier}"),
        name::outcome_topic(prefix, queue),
        name::dead_letter_topic(prefix, queue),
    ] {
        assert!(text.contains(&format!("address: '{topic}'\n")), "{topic}");
    }
    let mut unused: BTreeSet<String> = std::fs::read_dir(folder().join("schemas"))?
        .map(|file| Ok(file?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    for reference in text.split("$ref: './schemas/").skip(1) {
        let file = reference.split('\'').next().unwrap_or_default();
        assert!(folder().join("schemas").join(file).is_file(), "{file} is missing");
        unused.remove(file);
    }
    assert!(unused.is_empty(), "in no channel: {unused:?}");
    Ok(())
}
