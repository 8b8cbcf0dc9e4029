//! Another team answers with outcomes: told in order, out of order, twice, late, forged, unreadable.

use std::time::Duration;

use anyhow::Result;
use dueline_core::letter::Reason;
use dueline_core::outcome::Verdict;
use dueline_core::{Envelope, KeyHash};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, Shop};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::consumer_support::{number, readiness};
use super::relay_support::{copies, letters};
use super::team_support::{Team, of, shop};

fn retry() -> Verdict {
    Verdict::Retry { reason: "the bank does not answer".into(), after_ms: None }
}

fn dead() -> Verdict {
    Verdict::Dead { reason: "no such account".into() }
}

async fn await_letters(shop: &Shop, count: usize) -> Result<Vec<dueline_core::DeadLetter>> {
    wait::some(&format!("{count} letters"), PATIENCE, async || {
        let letters = letters(shop).await?;
        Ok((letters.len() >= count).then_some(letters))
    })
    .await
}

#[tokio::test]
async fn q02_v1_what_a_team_says_becomes_of_its_tasks() -> Result<()> {
    let shop = shop().await?.start().await?;
    let team = Team::of(&shop)?;
    shop.schedule(KIND, 1..=4, Duration::ZERO).await?;
    for message in team.take(4).await? {
        let verdict = match message.key.as_str() {
            "1" => Verdict::Done,
            "2" => Verdict::Skipped,
            "3" => dead(),
            _ => retry(),
        };
        team.say(&message, verdict).await?;
    }
    shop.await_state(KIND, 1, "done", PATIENCE).await?;
    shop.await_state(KIND, 2, "skipped", PATIENCE).await?;
    let buried = shop.await_state(KIND, 3, "dead", PATIENCE).await?;
    assert_eq!((buried.attempt, buried.last_error.as_deref()), (1, Some("no such account")));
    // The relay writes the letter of a death that it made.
    let letter = await_letters(&shop, 1).await?.remove(0);
    assert_eq!((letter.reason, letter.error.as_str()), (Reason::Permanent, "no such account"));

    // Every retry comes as a message of the next try, until the kind's schedule is over.
    for attempt in 1..=3 {
        let again = team.take(1).await?.remove(0);
        assert_eq!((again.key.as_str(), again.attempt), ("4", attempt));
        team.say(&again, retry()).await?;
    }
    let exhausted = shop.await_state(KIND, 4, "dead", PATIENCE).await?;
    assert_eq!(exhausted.attempt, 4);
    let letters = await_letters(&shop, 2).await?;
    assert!(letters.iter().any(|letter| letter.reason == Reason::Exhausted), "{letters:?}");
    team.await_passed().await?;
    Ok(())
}

#[tokio::test]
async fn h12_a_team_that_works_for_longer_than_a_lease_says_so() -> Result<()> {
    let shop = shop().await?.start().await?;
    let team = Team::of(&shop)?;
    shop.schedule(KIND, 1..=1, Duration::ZERO).await?;
    let message = team.take(1).await?.remove(0);
    let lease = "select (extract(epoch from lease_until) * 1000)::bigint from dueline.due";
    let now = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
    let first = number(&shop, lease).await?;
    let mut before = first;
    while number(&shop, now).await? <= first {
        team.say(&message, Verdict::Working).await?;
        wait::until("the lease to go on", PATIENCE, async || {
            Ok(number(&shop, lease).await? > before)
        })
        .await?;
        before = number(&shop, lease).await?;
    }
    assert_eq!(
        number(&shop, "select claim_no::bigint from dueline.due").await?,
        1,
        "published once"
    );
    team.say(&message, Verdict::Done).await?;
    shop.await_state(KIND, 1, "done", PATIENCE).await?;
    Ok(())
}

#[tokio::test]
async fn c03_what_was_said_while_no_relay_ran_is_made_up_for() -> Result<()> {
    let mut shop = shop().await?.start().await?;
    let team = Team::of(&shop)?;
    shop.schedule(KIND, 1..=50, Duration::ZERO).await?;
    let messages = team.take(50).await?;
    shop.relay().kill();
    for message in &messages {
        team.say(message, Verdict::Done).await?;
    }
    shop.start_relay().await?;
    shop.await_count("done", 50, PATIENCE).await?;
    team.await_passed().await?;
    Ok(())
}

/// Its leases are over when a relay comes back: the answers are read before anybody is asked again.
#[tokio::test]
async fn h12_what_was_said_while_no_relay_ran_is_not_asked_for_again() -> Result<()> {
    let mut shop = shop().await?.start().await?;
    let team = Team::of(&shop)?;
    shop.schedule(KIND, 1..=30, Duration::ZERO).await?;
    let messages = team.take(30).await?;
    shop.relay().kill();
    for message in &messages {
        team.say(message, Verdict::Done).await?;
    }
    wait::until("every lease to be over", PATIENCE, async || {
        let running = "select count(*) from dueline.due where lease_until > clock_timestamp()";
        Ok(number(&shop, running).await? == 0)
    })
    .await?;
    shop.start_relay().await?;
    shop.await_count("done", 30, PATIENCE).await?;
    let copies = copies(&shop).await?;
    assert!(copies.len() == 30 && copies.values().all(|n| *n == 1), "{copies:?}");
    Ok(())
}

/// A key that somebody holds makes its outcome wait, and no other.
#[tokio::test]
async fn v1_a_key_that_is_held_holds_up_no_other_outcome() -> Result<()> {
    let shop = shop().await?.start().await?;
    let team = Team::of(&shop)?;
    shop.schedule(KIND, 1..=20, Duration::ZERO).await?;
    let messages = team.take(20).await?;
    let mut holder = shop.pool.begin().await?;
    sqlx::query(
        "insert into dueline.dedupe (key_hash, generation, attempt, outcome)
         values ($1, 0, 0, 'failed')",
    )
    .bind(messages[3].key_hash.as_uuid())
    .execute(&mut *holder)
    .await?;
    for message in &messages {
        team.say(message, Verdict::Done).await?;
    }
    shop.await_count("done", 19, PATIENCE).await?;
    holder.rollback().await?;
    shop.await_count("done", 20, PATIENCE).await?;
    team.await_passed().await?;
    Ok(())
}

/// Fail points in the way of outcomes, each struck once: nothing is lost, and nothing is settled twice.
#[tokio::test]
async fn h06_a_relay_dies_at_every_point_of_settling() -> Result<()> {
    for point in ["relay.outcomes.read", "relay.outcomes.settled", "relay.outcomes.lettered"] {
        let mut shop = shop().await?.without_relay().start().await?;
        let order = format!("{point}=1*return(kill)");
        let mut doomed =
            shop.program("dueline-relay", "doomed")?.env("FAILPOINTS", order).start()?;
        doomed.ready().await?;
        let team = Team::of(&shop)?;
        shop.schedule(KIND, 1..=20, Duration::ZERO).await?;
        for message in team.take(20).await? {
            team.say(&message, Verdict::Done).await?;
        }
        team.write(b"no outcome", &[]).await?;
        wait::until(&format!("the relay to die at {point}"), PATIENCE, async || {
            Ok(doomed.ended().is_some())
        })
        .await?;
        shop.start_relay().await?;
        shop.await_count("done", 20, PATIENCE).await?;
        team.await_passed().await?;
        let letters = await_letters(&shop, 1).await?;
        assert!(letters.iter().all(|l| l.reason == Reason::Undecodable), "{point}: {letters:?}");
        let twice = "select count(*) from dueline.task where attempt > 0 or generation > 0";
        assert_eq!(number(&shop, twice).await?, 0, "{point}");
    }
    Ok(())
}

#[tokio::test]
async fn h14_what_cannot_be_read_is_lettered_with_its_bytes_and_holds_up_nothing() -> Result<()> {
    let shop = shop().await?.set("queues.orders.partitions", 1).start().await?;
    let team = Team::of(&shop)?;
    shop.schedule(KIND, 1..=1, Duration::ZERO).await?;
    let message = team.take(1).await?.remove(0);
    let outcome = of(&message, Verdict::Done);
    let good = outcome.headers("1", "/billing");
    let good: Vec<(&str, &[u8])> = good.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
    let mut no_task = good.clone();
    no_task.retain(|(name, _)| *name != "ce_taskid");
    team.write(b"\xff\x00", &[]).await?;
    team.write(b"{", &good).await?;
    team.write(br#"{"outcome":"finished"}"#, &good).await?;
    team.write(br#"{"outcome":"done"}"#, &no_task).await?;
    // NUL, and what a terminal would obey: kept readable, in the row too.
    team.write(br#"{"outcome":"retry","reason":"\u0000\u001b[2Jno"}"#, &good).await?;
    let again = team.take(1).await?.remove(0);
    assert_eq!(again.attempt, 1);
    team.say(&again, Verdict::Done).await?;
    let done = shop.await_state(KIND, 1, "done", PATIENCE).await?;
    assert_eq!(done.last_error.as_deref(), Some("\u{fffd}\u{fffd}[2Jno"));
    let letters = await_letters(&shop, 4).await?;
    assert_eq!(letters.len(), 4);
    assert!(letters.iter().all(|letter| {
        letter.reason == Reason::Undecodable && letter.task.is_none() && letter.origin.is_some()
    }));
    team.await_passed().await?;
    Ok(())
}

#[tokio::test]
async fn h14_h35_a_newer_outcome_pauses_its_partition_and_a_foreign_one_is_passed() -> Result<()> {
    let mut shop = shop().await?.set("queues.orders.partitions", 1).start().await?;
    let team = Team::of(&shop)?;
    shop.schedule(KIND, 1..=2, Duration::ZERO).await?;
    let messages = team.take(2).await?;
    let mut foreign = of(&messages[0], Verdict::Done);
    foreign.instance = format!("dueline://other/{}/1", uuid::Uuid::new_v4());
    team.send(&foreign).await?;
    team.await_passed().await?;
    assert_eq!(shop.count("live").await?, 2, "another instance's outcome says nothing here");

    let newer = of(&messages[0], Verdict::Done);
    let headers = newer.headers("1", "/billing");
    let mut headers: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
    headers.push(("ce_duelineversion", b"2"));
    team.write(newer.body().as_bytes(), &headers).await?;
    team.say(&messages[1], Verdict::Done).await?;
    wait::until("the alarm", PATIENCE, async || {
        let text = readiness(shop.relay()).await?;
        Ok(text.contains("outcomes:") && text.contains("upgrade the relay"))
    })
    .await?;
    assert_eq!(shop.count("live").await?, 2, "what comes behind it waits");
    Ok(())
}

/// Duplicates, stale ones, forged ones and true ones, in any order and from two relays.
#[tokio::test]
async fn h37_v2_v9_outcomes_in_any_order_settle_each_task_once() -> Result<()> {
    let mut shop = shop().await?.start().await?;
    shop.start_relay().await?;
    let team = Team::of(&shop)?;
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    shop.schedule(KIND, 1..=60, Duration::ZERO).await?;
    let mut messages = team.take(60).await?;
    let done = |message: &Envelope| message.task_id % 2 == 0;
    let mut outcomes = Vec::new();
    for message in &messages {
        let truth = if done(message) { Verdict::Done } else { retry() };
        outcomes.extend((0..rng.random_range(1..4)).map(|_| of(message, truth.clone())));
        let mut forged = of(message, dead());
        match rng.random_range(0..4) {
            0 => forged.generation += 1,
            1 => forged.attempt += 7,
            2 => forged.key_hash = KeyHash::new("other", KIND, &message.key),
            _ => forged.task_id += 1_000_000,
        }
        outcomes.push(forged);
    }
    outcomes.shuffle(&mut rng);
    for outcome in &outcomes {
        team.send(outcome).await?;
    }
    // Whatever was said twice was counted once: exactly one further try.
    let second = team.take(30).await?;
    messages.retain(|message| !done(message));
    for message in &second {
        assert_eq!(message.attempt, 1, "task {}", message.task_id);
        team.say(message, Verdict::Done).await?;
    }
    // And the true end of the first try comes late, in the middle of it.
    for message in &messages {
        team.say(message, retry()).await?;
    }
    shop.await_count("done", 60, PATIENCE).await?;
    team.await_passed().await?;
    let charged = "select coalesce(sum(attempt), 0)::bigint from dueline.task";
    assert_eq!(number(&shop, charged).await?, 30);
    assert_eq!(
        number(&shop, "select count(*) from dueline.dedupe where outcome = 'done'").await?,
        60
    );
    assert_eq!(number(&shop, "select count(*) from dueline.stranded").await?, 0);
    Ok(())
}

#[tokio::test]
async fn h19_a_true_done_after_a_cancel_is_told_to_people() -> Result<()> {
    let mut shop = shop().await?.start().await?;
    let team = Team::of(&shop)?;
    shop.schedule(KIND, 1..=1, Duration::ZERO).await?;
    let message = team.take(1).await?.remove(0);
    assert_eq!(shop.cancel(KIND, 1).await?, "may_have_run");
    team.say(&message, Verdict::Done).await?;
    wait::until("the event", PATIENCE, async || {
        let event =
            "select count(*) from dueline.task_event where step = 'effect_of_old_generation'";
        Ok(number(&shop, event).await? == 1)
    })
    .await?;
    assert_eq!(shop.count("cancelled").await?, 1);
    wait::until("the log line", PATIENCE, async || {
        Ok(shop.relay().output()?.contains("an effect happened that was not wanted any more"))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn q02_our_consumer_leaves_another_teams_queue_alone() -> Result<()> {
    let shop = shop().await?.start().await?;
    let mut consumer =
        shop.program("dueline-consumer", "asked")?.args(["--queue", "orders"]).start()?;
    wait::until("the refusal", PATIENCE, async || Ok(consumer.ended().is_some())).await?;
    assert_eq!(consumer.ended().and_then(|status| status.code()), Some(78));
    assert!(consumer.output()?.contains("another team's"), "{}", consumer.log_tail());
    Ok(())
}
