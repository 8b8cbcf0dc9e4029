//! Records through a real broker and a real consumer: each one is handled, dies through its row, is lettered
//! with its bytes, or is stale; and every task ends.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dueline_core::envelope::header;
use dueline_core::{DeadLetter, Envelope, Headers as _};
use dueline_kafka::{
    HeaderList, KafkaSettings, Outcome, OwnedRecord, Producer, ProducerConfig, Record, read_all,
};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, QUEUE, Shop};

use super::admin::{self, End};
use super::consumer_support::{Wire, committed, headers, number};
use super::dice::Dice;
use super::envelope::{Headers, spoil};
use super::harness::{KAFKA, Run};

/// The header by which a record is found again among the letters.
const TAG: &str = "x-fuzz-tag";
const PATIENCE: Duration = Duration::from_secs(120);
/// Large enough for JSON that is too deep for PostgreSQL.
const MAX_PAYLOAD: i64 = 524_288;

/// A record as it was sent.
struct Sent {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Headers,
    /// The task it was made of, if it was one.
    task: Option<i64>,
}

/// A record that is broken, stale or good. What would pause a partition is left out: newer versions and
/// unknown sources have tests of their own, and would hold up all that follows here.
fn record(dice: &mut Dice, wire: &Wire, tasks: &mut Vec<Envelope>) -> Sent {
    let own = if dice.one_in(2) { tasks.pop() } else { None };
    let task = own.as_ref().map(|envelope| envelope.task_id);
    let envelope = own.unwrap_or_else(|| wire.nobodys(&dice.below(50).to_string()));
    let mut spoiled = headers(&envelope);
    if dice.one_in(12) {
        spoiled.clear();
    } else if !dice.one_in(4) {
        spoil(dice, &mut spoiled);
        keep_in_motion(&mut spoiled, wire);
    }
    let value = match dice.below(5) {
        0 => Some(dice.bytes(300)),
        1 => Some(dice.json(40_000).into_bytes()),
        2 => Some(br#"{"reason": "late"}"#.to_vec()),
        3 => Some(dice.bent(r#"{"reason": "late"}"#).into_bytes()),
        _ => None,
    };
    let key = match dice.below(4) {
        0 => None,
        1 => Some(dice.bytes(600)),
        _ => Some(envelope.key.clone().into_bytes()),
    };
    // A header's name is a C string on its way.
    for (name, _) in &mut spoiled {
        *name = name.replace('\0', "");
    }
    Sent { key, value, headers: spoiled, task }
}

fn keep_in_motion(headers: &mut Headers, wire: &Wire) {
    let own = wire.source.as_bytes();
    headers.retain(|(name, value)| name != header::SOURCE || value == own);
    headers.retain(|(name, value)| {
        let newer = std::str::from_utf8(value).ok().and_then(|v| v.parse::<u32>().ok());
        name != header::VERSION || newer.is_none_or(|version| version <= 1)
    });
}

/// Where records of one partition end.
type Ends = BTreeMap<i32, i64>;

async fn send(producer: &Producer<()>, topic: &str, sent: &Sent, ends: &mut Ends) -> Result<()> {
    let record = Record {
        topic,
        key: sent.key.as_deref(),
        value: sent.value.as_deref(),
        headers: sent
            .headers
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_slice()))
            .collect::<HeaderList>(),
        timestamp_ms: None,
    };
    match producer.send_and_wait(record).await {
        Outcome::Delivered { partition, offset } => {
            let end = ends.entry(partition).or_default();
            *end = (*end).max(offset + 1);
            Ok(())
        }
        other => bail!("not sent: {other:?}"),
    }
}

async fn letters(shop: &Shop) -> Result<BTreeMap<Vec<u8>, OwnedRecord>> {
    let config = shop.settings.config()?;
    let settings = KafkaSettings::new(config.kafka.bootstrap_servers());
    let topic = config.queues[QUEUE].dead_letter_topic();
    tokio::task::spawn_blocking(move || {
        let mut found = BTreeMap::new();
        read_all(&settings, &topic, PATIENCE, |record| {
            if let Some(tag) = record.last_value(TAG) {
                found.insert(tag.to_vec(), record);
            }
            ControlFlow::Continue(())
        })?;
        anyhow::Ok(found)
    })
    .await?
}

/// The letter carries the record as it was, and says why.
fn is_whole(letter: &OwnedRecord, sent: &Sent) -> Result<&'static str> {
    ensure!(letter.key == sent.key && letter.value == sent.value, "other bytes: {letter:?}");
    let theirs = letter.headers.iter().filter(|(name, _)| !name.starts_with("dueline-letter-"));
    ensure!(theirs.eq(&sent.headers), "other headers: {:?}", letter.headers);
    let read = DeadLetter::read(letter).context("it is no letter")?;
    ensure!(!read.error.is_empty() && read.origin.is_some(), "it does not say why: {read:?}");
    Ok(if read.task.is_some() { "dead" } else { "lettered" })
}

/// What became of a record, when everything had its end.
fn judge(
    sent: &Sent,
    letter: Option<&OwnedRecord>,
    states: &BTreeMap<i64, String>,
) -> Result<&'static str> {
    if let Some(letter) = letter {
        return is_whole(letter, sent);
    }
    let state = sent.task.and_then(|id| states.get(&id)).map(String::as_str);
    match state {
        Some("done" | "skipped") => Ok("handled"),
        // Its letter was left to the relay, which knows the row and not the record.
        Some("dead") => Ok("dead"),
        Some(state) => bail!("its task is {state}"),
        None => {
            // Bent, it may tell of another task: one that had ended before it came.
            let of = Envelope::read_identity(&sent.headers).and_then(|(id, _)| states.get(&id));
            let read = Envelope::read(&sent.headers);
            ensure!(read.is_ok() || of.is_some(), "no letter of what cannot be read: {read:?}");
            Ok("stale")
        }
    }
}

/// Sends all records of the run; returns them with where each partition ends.
async fn send_all(
    shop: &Shop,
    wire: &Wire,
    run: &mut Run,
) -> Result<(Vec<(Sent, Duration)>, Ends)> {
    let settings = KafkaSettings::new(shop.settings.config()?.kafka.bootstrap_servers());
    let (producer, _reports) = Producer::new(&settings, &ProducerConfig::default())?;
    let mut tasks = wire.claim(shop).await?;
    let (mut all, mut ends) = (Vec::new(), Ends::new());
    while let Some(mut dice) = run.next() {
        let start = Instant::now();
        let mut sent = record(&mut dice, wire, &mut tasks);
        sent.headers.retain(|(name, _)| name != TAG);
        sent.headers.push((TAG.to_owned(), all.len().to_string().into_bytes()));
        send(&producer, &wire.topic, &sent, &mut ends).await?;
        all.push((sent, start.elapsed()));
    }
    Ok((all, ends))
}

/// The admin ports of both processes answer, whatever they are sent.
async fn pester(shop: &mut Shop) -> Result<()> {
    for service in shop.consumers.iter_mut().chain(&mut shop.relays) {
        let address = service.admin_address().await?;
        for case in 0..50 {
            let answer =
                admin::exchange(&address, &admin::request(&mut Dice::new(1, case)), End::Told)
                    .await?;
            admin::judge(&answer)?;
        }
        admin::is_well(&address).await?;
        ensure!(service.ended().is_none(), "{}", service.log_tail());
        ensure!(!service.output()?.contains("panicked"), "{}", service.log_tail());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h14_any_record_is_handled_or_lettered_whole_and_every_task_ends() -> Result<()> {
    let mut builder = Shop::build().await?;
    builder.settings().set(&format!("kinds.{KIND}.max_payload_bytes"), MAX_PAYLOAD);
    let mut shop = builder.without_relay().without_consumer().start().await?;
    let wire = Wire::of(&shop).await?;
    let mut run = Run::begin(KAFKA);
    let tasks = i64::try_from(KAFKA.cases() / 3)?;
    shop.orders(1..=tasks).await?;
    shop.schedule(KIND, 1..=tasks, Duration::ZERO).await?;
    let (all, ends) = send_all(&shop, &wire, &mut run).await?;
    shop.start_consumer().await?;
    wait::until("every offset to be passed", PATIENCE, async || {
        let passed = committed(&shop).await?;
        let at = |partition: &i32| passed.get(usize::try_from(*partition).ok()?).copied()?;
        Ok(ends.iter().all(|(partition, end)| at(partition) == Some(*end)))
    })
    .await
    .with_context(|| shop.consumers[0].log_tail())?;
    // What was stale, and what was never sent, is still to be done.
    shop.start_relay().await?;
    shop.await_count("live", 0, PATIENCE).await?;
    wait::until("all letters", PATIENCE, async || {
        let missing = "select count(*) from dueline.stranded where lettered_at is null";
        Ok(number(&shop, missing).await? == 0)
    })
    .await?;
    pester(&mut shop).await?;
    let letters = letters(&shop).await?;
    let states: Vec<(i64, String)> =
        sqlx::query_as("select id, state from dueline.task").fetch_all(&shop.pool).await?;
    let states = states.into_iter().collect();
    for (at, (sent, took)) in (0..).zip(&all) {
        let verdict = judge(sent, letters.get(at.to_string().as_bytes()), &states);
        let shown = || super::envelope::readable(&sent.headers);
        run.judge_later(at, verdict.with_context(shown), *took)?;
    }
    run.end(&["handled", "dead", "lettered", "stale"])
}
