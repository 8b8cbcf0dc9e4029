//! Webhooks: receivers that answer, refuse, hang, and die half-way; consumers that die around a call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use dueline_core::KeyHash;
use dueline_core::letter::Reason;
use dueline_tests::testkit::receiver::{Reaction, Received, Receiver};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, QUEUE, Shop, ShopBuilder};

use super::consumer_support::number;
use super::relay_support::letters;

/// A shop whose one kind is a webhook.
async fn shop(receiver: &Receiver, idempotent: bool) -> Result<ShopBuilder> {
    let mut builder = Shop::build().await?.set("relay.lease", "15s");
    let kind = format!("kinds.{KIND}");
    builder
        .settings()
        .remove(&format!("{kind}.sql"))
        .set_toml(&format!("{kind}.backoff"), r#"["100ms", "100ms", "100ms"]"#)
        .set(&format!("{kind}.http.url"), receiver.url())
        .set_toml(&format!("{kind}.http.secrets"), r#"["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]"#)
        .set(&format!("{kind}.http.timeout"), "1s")
        .set(&format!("{kind}.http.idempotent"), idempotent)
        .set("http.allow_plaintext", true)
        .set_toml("http.allow_networks", r#"["127.0.0.0/8"]"#);
    Ok(builder)
}

/// The business key that a call is about.
fn key(request: &Received) -> &str {
    request.header("ce-subject")
}

/// Calls by key.
fn calls(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for request in receiver.received() {
        *calls.entry(key(&request).to_owned()).or_default() += 1;
    }
    calls
}

#[tokio::test]
async fn q02_v1_what_a_receiver_answers_becomes_of_its_tasks() -> Result<()> {
    let receiver = Receiver::start(|request| match key(request) {
        "1" => Reaction::status(204),
        "2" => Reaction::status(410),
        "3" => Reaction::Answer(422, Vec::new(), "no such account".into()),
        _ => Reaction::status(429),
    })
    .await?;
    let shop = shop(&receiver, false).await?.start().await?;
    shop.schedule(KIND, 1..=4, Duration::ZERO).await?;
    shop.await_state(KIND, 1, "done", PATIENCE).await?;
    shop.await_state(KIND, 2, "skipped", PATIENCE).await?;
    let refused = shop.await_state(KIND, 3, "dead", PATIENCE).await?;
    assert_eq!(refused.last_error.as_deref(), Some("HTTP 422: no such account"));
    let exhausted = shop.await_state(KIND, 4, "dead", PATIENCE).await?;
    assert_eq!((refused.attempt, exhausted.attempt), (1, 4));
    let letters = wait::some("two letters", PATIENCE, async || {
        let letters = letters(&shop).await?;
        Ok((letters.len() >= 2).then_some(letters))
    })
    .await?;
    let reasons: Vec<Reason> = letters.iter().map(|letter| letter.reason).collect();
    assert!(reasons.contains(&Reason::Permanent) && reasons.contains(&Reason::Exhausted));

    let made = calls(&receiver);
    assert_eq!(made.values().copied().collect::<Vec<_>>(), [1, 1, 1, 4], "{made:?}");
    let received = receiver.received();
    let request = received.iter().find(|r| key(r) == "1").expect("a call");
    let hash = KeyHash::new(QUEUE, KIND, "1").to_string();
    assert_eq!(request.header("idempotency-key"), hash);
    assert_eq!(request.header("webhook-id"), hash);
    assert!(request.header("webhook-signature").starts_with("v1,"), "{request:?}");
    assert_eq!(request.header("ce-specversion"), "1.0");
    Ok(())
}

/// More at once than the host may have, and each of them once.
#[tokio::test]
async fn v2_many_calls_are_each_made_once_within_the_hosts_slots() -> Result<()> {
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_millis(20), 200)).await?;
    let shop = shop(&receiver, false).await?.set("http.concurrency_per_host", 4).start().await?;
    shop.schedule(KIND, 1..=200, Duration::ZERO).await?;
    shop.await_count("done", 200, PATIENCE).await?;
    let made = calls(&receiver);
    assert!(made.len() == 200 && made.values().all(|n| *n == 1), "{made:?}");
    Ok(())
}

/// A receiver that hangs, or that dies half-way: nobody knows what it did.
#[tokio::test]
async fn v2_a_call_without_an_answer_is_made_again_only_to_an_idempotent_receiver() -> Result<()> {
    for idempotent in [false, true] {
        let first = Arc::new(AtomicBool::new(true));
        let receiver = Receiver::start(move |request| match key(request) {
            "1" if first.swap(false, Ordering::SeqCst) => Reaction::Hang,
            "2" => Reaction::Close,
            "3" => Reaction::status(500),
            _ => Reaction::status(200),
        })
        .await?;
        let shop = shop(&receiver, idempotent).await?.start().await?;
        shop.schedule(KIND, 1..=3, Duration::ZERO).await?;
        for id in [2, 3] {
            shop.await_state(KIND, id, "dead", PATIENCE).await?;
        }
        let state = if idempotent { "done" } else { "dead" };
        shop.await_state(KIND, 1, state, PATIENCE).await?;
        let doubtful = "select count(*) from dueline.stranded where reason = 'outcome_unknown'";
        assert_eq!(number(&shop, doubtful).await?, if idempotent { 2 } else { 3 });
        let made: Vec<usize> = calls(&receiver).into_values().collect();
        assert_eq!(made, if idempotent { [2, 4, 4] } else { [1, 1, 1] });
    }
    Ok(())
}

/// V4: who cancels while a call runs is told so, and its failure honours the wish.
#[tokio::test]
async fn v4_a_cancel_during_a_call_says_that_it_runs() -> Result<()> {
    let receiver = Receiver::start(|_| Reaction::Hang).await?;
    let builder = shop(&receiver, true).await?.set(&format!("kinds.{KIND}.http.timeout"), "4s");
    let shop = builder.start().await?;
    shop.schedule(KIND, 1..=1, Duration::ZERO).await?;
    let begun = "select count(*) from dueline.dedupe where outcome = 'in_progress'";
    wait::until("the call", PATIENCE, async || Ok(number(&shop, begun).await? == 1)).await?;
    let receipt: String = sqlx::query_scalar("select (dueline.cancel($1, '1')).receipt")
        .bind(KIND)
        .fetch_one(&shop.pool)
        .await?;
    assert_eq!(receipt, "running");
    shop.await_state(KIND, 1, "cancelled", PATIENCE).await?;
    Ok(())
}

/// A consumer dies between the call and what is written of it.
#[tokio::test]
async fn h06_v2_a_consumer_dies_around_its_calls() -> Result<()> {
    for (point, idempotent, state, made) in [
        ("consumer.calls.begun", true, "done", 1),
        ("consumer.call.heard", true, "done", 2),
        ("consumer.call.heard", false, "dead", 1),
        ("consumer.calls.finished", false, "done", 1),
    ] {
        let receiver = Receiver::start(|_| Reaction::status(200)).await?;
        let builder = shop(&receiver, idempotent).await?.without_consumer();
        let mut shop = builder.set("consumer.session_timeout", "2s").start().await?;
        let order = format!("{point}=1*return(kill)");
        let mut doomed =
            shop.program("dueline-consumer", "doomed")?.env("FAILPOINTS", order).start()?;
        doomed.ready().await?;
        shop.schedule(KIND, 1..=1, Duration::ZERO).await?;
        wait::until(&format!("the consumer to die at {point}"), PATIENCE, async || {
            Ok(doomed.ended().is_some())
        })
        .await?;
        shop.start_consumer().await?;
        shop.await_state(KIND, 1, state, PATIENCE).await?;
        assert_eq!(calls(&receiver)["1"], made, "{point}");
        let doubtful = "select count(*) from dueline.stranded where reason = 'outcome_unknown'";
        assert_eq!(number(&shop, doubtful).await?, i64::from(state == "dead"), "{point}");
    }
    Ok(())
}

/// A host that is down costs the tasks that wait for it no attempt, and holds up no other kind.
#[tokio::test]
async fn h33_a_host_that_fails_gets_one_call_at_a_time() -> Result<()> {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let receiver = Receiver::start(move |_| {
        Reaction::status(if is_up.load(Ordering::SeqCst) { 200 } else { 503 })
    })
    .await?;
    let mut builder = shop(&receiver, false).await?;
    builder.settings().set_toml(
        &format!("kinds.{KIND}.backoff"),
        &format!("[{}]", vec!["\"1s\""; 20].join(", ")),
    );
    let builder = builder
        .kind(
            "pay",
            "update orders set status = 'paid' from batch
                      where orders.id = batch.key::bigint returning batch.ord",
        )
        .set("http.breaker_failures", 3)
        .set("http.concurrency_per_host", 2);
    let shop = builder.start().await?;
    shop.orders(1..=20).await?;
    shop.schedule(KIND, 1..=100, Duration::ZERO).await?;
    wait::until("the host to be found ailing", PATIENCE, async || {
        Ok(receiver.received().len() >= 5)
    })
    .await?;
    shop.schedule("pay", 1..=20, Duration::ZERO).await?;
    shop.await_count("done", 20, PATIENCE).await?;
    // The tries of the first calls, and one for each pause: not one of each task.
    let tried = number(&shop, "select count(*) from dueline.task where attempt > 0").await?;
    assert!(tried < 50, "{tried} tasks were tried");
    up.store(true, Ordering::SeqCst);
    shop.await_count("done", 120, PATIENCE).await?;
    Ok(())
}
