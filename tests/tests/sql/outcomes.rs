//! What other teams say of their tasks: `dueline.settle_outcomes`, as the relay calls it.

use std::time::Duration;

use anyhow::Result;
use dueline_core::outcome::Verdict;
use dueline_core::{KeyHash, Outcome};
use dueline_store::client;
use dueline_store::relay::{Settled, settle_outcomes};

use super::stage::{HALF_HOUR, Phase, QUEUE, Stage, TEAM};

/// The lease that `working` asks for.
const LEASE: Duration = Duration::from_secs(300);

pub fn says(id: i64, key: &str, generation: i32, attempt: i32, verdict: Verdict) -> Outcome {
    let instance = "dueline://shop/0/1".to_owned();
    let key_hash = KeyHash::new(QUEUE, TEAM, key);
    Outcome { instance, task_id: id, key_hash, generation, attempt, verdict }
}

fn retry(after_ms: Option<u64>) -> Verdict {
    Verdict::Retry { reason: "no answer from the bank".into(), after_ms }
}

fn dead() -> Verdict {
    Verdict::Dead { reason: "no such account".into() }
}

async fn settle(stage: &Stage, outcomes: &[Outcome]) -> Result<Vec<Settled>> {
    let mut connection = stage.pool.acquire().await?;
    let outcomes: Vec<&Outcome> = outcomes.iter().collect();
    Ok(settle_outcomes(&mut connection, &outcomes, LEASE).await?)
}

async fn one(stage: &Stage, outcome: Outcome) -> Result<Settled> {
    Ok(settle(stage, &[outcome]).await?[0])
}

async fn number(stage: &Stage, statement: &'static str) -> Result<i64> {
    Ok(sqlx::query_scalar(statement).fetch_one(&stage.pool).await?)
}

async fn state(stage: &Stage, id: i64) -> Result<String> {
    let statement = "select state from dueline.task where id = $1";
    Ok(sqlx::query_scalar(statement).bind(id).fetch_one(&stage.pool).await?)
}

#[tokio::test]
async fn v1_v9_each_outcome_of_the_present_try_does_what_it_says() -> Result<()> {
    let stage = Stage::new().await?;
    for (key, verdict, settled, becomes) in [
        ("done", Verdict::Done, Settled::Done, "done"),
        ("skipped", Verdict::Skipped, Settled::Skipped, "skipped"),
        ("retry", retry(None), Settled::Retry, "live"),
        ("dead", dead(), Settled::Dead, "dead"),
        ("working", Verdict::Working, Settled::Working, "live"),
    ] {
        let id = stage.task_in(TEAM, key, Phase::Leased).await?;
        let fence = stage.picture(id).await?["due"]["fence"].as_i64();
        assert_eq!(one(&stage, says(id, key, 0, 0, verdict)).await?, settled, "{key}");
        assert_eq!(state(&stage, id).await?, becomes, "{key}");
        let after = stage.picture(id).await?;
        let due = &after["due"];
        assert_eq!(due.is_null(), becomes != "live", "{key}: an alarm exactly while it lives");
        if becomes == "live" {
            assert_eq!(
                due["fence"].as_i64(),
                fence.map(|f| f + 1),
                "{key}: every write has its fence"
            );
        }
    }
    let remembered = "select count(*) from dueline.dedupe where outcome = 'done'";
    assert_eq!(number(&stage, remembered).await?, 1, "only an effect is remembered");
    let stranded =
        "select count(*) from dueline.stranded where reason = 'permanent' and lettered_at is null
                    and error = 'no such account' and jsonb_array_length(history) = 1";
    assert_eq!(number(&stage, stranded).await?, 1);
    let waits = "select count(*) from dueline.task t join dueline.due d using (id)
                 where t.key = 'retry' and t.attempt = 1 and d.attempt = 1 and d.lease_until is null
                   and d.next_at between clock_timestamp() - interval '5 s' and clock_timestamp() + interval '3 s'";
    assert_eq!(number(&stage, waits).await?, 1, "full jitter over the first pause, 3 s");
    let lease = "select count(*) from dueline.task t join dueline.due d using (id)
                 where t.key = 'working' and d.lease_until > clock_timestamp() + interval '290 s'";
    assert_eq!(number(&stage, lease).await?, 1);
    Ok(())
}

#[tokio::test]
async fn i02_a_duplicate_changes_nothing() -> Result<()> {
    let stage = Stage::new().await?;
    for (key, verdict, again) in [
        ("done", Verdict::Done, Settled::Known),
        ("skipped", Verdict::Skipped, Settled::Stale),
        ("retry", retry(None), Settled::Stale),
        ("dead", dead(), Settled::Stale),
    ] {
        let id = stage.task_in(TEAM, key, Phase::Leased).await?;
        let outcome = says(id, key, 0, 0, verdict);
        one(&stage, outcome.clone()).await?;
        let before = stage.picture(id).await?;
        assert_eq!(one(&stage, outcome).await?, again, "{key}");
        assert_eq!(stage.picture(id).await?, before, "{key}");
    }
    Ok(())
}

#[tokio::test]
async fn h37_a_true_done_is_never_thrown_away() -> Result<()> {
    let stage = Stage::new().await?;
    // It failed its first try, says the row; the outcome of an earlier delivery says that it did happen.
    let id = stage.task_in(TEAM, "late", Phase::Retry).await?;
    assert_eq!(one(&stage, says(id, "late", 0, 0, Verdict::Done)).await?, Settled::Done);
    assert_eq!(state(&stage, id).await?, "done");

    // Moved to a later deadline while it was with the team.
    let id = stage.task_in(TEAM, "moved", Phase::Leased).await?;
    let later = client::RescheduleRequest::new(TEAM, "moved", client::Deadline::after(HALF_HOUR));
    client::reschedule(&stage.pool, &later).await?;
    assert_eq!(one(&stage, says(id, "moved", 0, 0, Verdict::Done)).await?, Settled::OldGeneration);
    assert_eq!(state(&stage, id).await?, "done");

    // Cancelled, dead, skipped: the row stays what it is, and an event tells, once.
    for phase in [Phase::Cancelled, Phase::Dead, Phase::Skipped] {
        let key = format!("{phase:?}");
        let id = stage.task_in(TEAM, &key, phase).await?;
        let before = state(&stage, id).await?;
        for expected in [Settled::WithoutTask, Settled::WithoutTask] {
            assert_eq!(one(&stage, says(id, &key, 0, 0, Verdict::Done)).await?, expected, "{key}");
        }
        assert_eq!(state(&stage, id).await?, before, "{key}");
    }
    let events = "select count(*) from dueline.task_event where step = 'effect_of_old_generation'";
    assert_eq!(number(&stage, events).await?, 4);
    let remembered = "select count(*) from dueline.dedupe where outcome = 'done'";
    assert_eq!(number(&stage, remembered).await?, 5, "its key has no second effect");
    Ok(())
}

#[tokio::test]
async fn v2_a_key_that_is_done_is_settled_by_whatever_is_said_next() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(TEAM, "again", Phase::Cancelled).await?;
    one(&stage, says(id, "again", 0, 0, Verdict::Done)).await?;
    // Opened anew, published anew, and the team says that there was nothing to do: it knows the key.
    stage.plan(TEAM, "again").await?;
    stage.put(id, Phase::Leased).await?;
    assert_eq!(one(&stage, says(id, "again", 2, 0, Verdict::Skipped)).await?, Settled::Skipped);
    let kept = "select count(*) from dueline.dedupe where outcome = 'done'";
    assert_eq!(number(&stage, kept).await?, 1, "that an effect happened is not forgotten");
    Ok(())
}

#[tokio::test]
async fn v9_what_speaks_of_another_try_or_of_no_task_changes_nothing() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(TEAM, "1", Phase::Retry).await?;
    let before = stage.picture(id).await?;
    let mut other_key = says(id, "1", 0, 1, Verdict::Done);
    other_key.key_hash = KeyHash::new(QUEUE, TEAM, "2");
    for (outcome, expected) in [
        (says(id, "1", 0, 0, retry(None)), Settled::Stale),
        (says(id, "1", 0, 0, dead()), Settled::Stale),
        (says(id, "1", 0, 0, Verdict::Working), Settled::Stale),
        (says(id, "1", 0, 2, retry(None)), Settled::Unknown),
        (says(id, "1", 1, 0, Verdict::Done), Settled::Unknown),
        (says(id, "1", 0, 2, Verdict::Done), Settled::Unknown),
        (says(id, "1", i32::MAX, i32::MAX, dead()), Settled::Unknown),
        (says(id, "1", -1, 0, Verdict::Done), Settled::Unknown),
        (says(id + 1_000, "1", 0, 0, Verdict::Done), Settled::Unknown),
        (other_key, Settled::Unknown),
    ] {
        assert_eq!(one(&stage, outcome.clone()).await?, expected, "{outcome:?}");
        assert_eq!(stage.picture(id).await?, before, "{outcome:?}");
    }
    assert_eq!(number(&stage, "select count(*) from dueline.dedupe").await?, 0);
    Ok(())
}

#[tokio::test]
async fn d01_d04_failures_follow_the_kinds_schedule_and_then_the_task_is_dead() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(TEAM, "1", Phase::Leased).await?;
    for attempt in 0..4 {
        let expected = if attempt < 3 { Settled::Retry } else { Settled::Dead };
        assert_eq!(one(&stage, says(id, "1", 0, attempt, retry(None))).await?, expected);
        if attempt < 3 {
            stage.put(id, Phase::Leased).await?;
        }
    }
    let dead = "select count(*) from dueline.stranded
                where reason = 'exhausted' and attempts = 4 and jsonb_array_length(history) = 4";
    assert_eq!(number(&stage, dead).await?, 1);

    let id = stage.task_in(TEAM, "2", Phase::Leased).await?;
    assert_eq!(one(&stage, says(id, "2", 0, 0, retry(Some(600_000)))).await?, Settled::Retry);
    let later =
        "select count(*) from dueline.due where next_at > clock_timestamp() + interval '590 s'
                 and next_at < clock_timestamp() + interval '601 s'";
    assert_eq!(number(&stage, later).await?, 1, "never sooner than it asks for");
    Ok(())
}

#[tokio::test]
async fn h19_a_wish_to_cancel_is_honoured_by_a_failure() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(TEAM, "1", Phase::Leased).await?;
    let wish = "update dueline.task set cancel_wished_at = clock_timestamp() where id = $1";
    sqlx::query(wish).bind(id).execute(&stage.pool).await?;
    assert_eq!(one(&stage, says(id, "1", 0, 0, retry(None))).await?, Settled::Cancelled);
    assert_eq!(state(&stage, id).await?, "cancelled");
    let receipt = client::cancel(&stage.pool, TEAM, "1", None).await?.receipt;
    assert_eq!(receipt, client::ReceiptKind::MayHaveRun, "nobody saw the team begin");
    Ok(())
}

#[tokio::test]
async fn v1_a_row_that_somebody_holds_holds_up_no_other() -> Result<()> {
    let stage = Stage::new().await?;
    let mut outcomes = Vec::new();
    for key in ["1", "2", "3"] {
        let id = stage.task_in(TEAM, key, Phase::Leased).await?;
        outcomes.push(says(id, key, 0, 0, Verdict::Done));
    }
    outcomes.push(says(1_000_000, "4", 0, 0, Verdict::Done));
    let mut payer = stage.pool.begin().await?;
    sqlx::query("select from dueline.task where key = '2' for update").execute(&mut *payer).await?;
    use Settled::{Done, Known, Locked, Unknown};
    assert_eq!(settle(&stage, &outcomes).await?, [Done, Locked, Done, Unknown]);
    payer.rollback().await?;
    assert_eq!(settle(&stage, &outcomes).await?, [Known, Done, Known, Unknown]);
    Ok(())
}

#[tokio::test]
async fn v1_a_thousand_outcomes_are_one_statement() -> Result<()> {
    let stage = Stage::new().await?;
    let mut outcomes = Vec::new();
    for n in 0..300 {
        let key = n.to_string();
        let id = stage.task_in(TEAM, &key, Phase::Leased).await?;
        let verdict = match n % 3 {
            0 => Verdict::Done,
            1 => Verdict::Skipped,
            _ => retry(None),
        };
        outcomes.push(says(id, &key, 0, 0, verdict));
    }
    outcomes.reverse();
    let settled = settle(&stage, &outcomes).await?;
    for (outcome, settled) in outcomes.iter().zip(settled) {
        assert_eq!(settled.as_str(), outcome.verdict.as_str());
    }
    assert_eq!((stage.count("done").await?, stage.count("skipped").await?), (100, 100));
    assert_eq!(number(&stage, "select count(*) from dueline.due").await?, 100);
    Ok(())
}

#[tokio::test]
async fn h02_outcomes_are_settled_by_index_whatever_the_tables_hold() -> Result<()> {
    let stage = Stage::new().await?;
    stage.schedule(TEAM, 1..=2_000, Duration::ZERO).await?;
    sqlx::raw_sql("analyze dueline.task; analyze dueline.due").execute(&stage.pool).await?;
    let mut connection = stage.pool.acquire().await?;
    let scans = "select coalesce(sum(seq_scan), 0)::bigint from pg_stat_xact_user_tables
                 where schemaname = 'dueline' and relname in ('task', 'due', 'dedupe')";
    let ids: Vec<(i64, String)> =
        sqlx::query_as("select id, key from dueline.task order by id limit 500")
            .fetch_all(&mut *connection)
            .await?;
    let outcomes: Vec<Outcome> =
        ids.iter().map(|(id, key)| says(*id, key, 0, 0, Verdict::Done)).collect();
    let outcomes: Vec<&Outcome> = outcomes.iter().collect();
    for statement in [
        "set enable_seqscan = off",
        "set enable_bitmapscan = off",
        "set enable_hashjoin = off",
        "set enable_mergejoin = off",
        "set plan_cache_mode = force_generic_plan",
        "begin",
    ] {
        sqlx::query(statement).execute(&mut *connection).await?;
    }
    let before: i64 = sqlx::query_scalar(scans).fetch_one(&mut *connection).await?;
    let settled = settle_outcomes(&mut connection, &outcomes, LEASE).await?;
    assert!(settled.iter().all(|s| *s == Settled::Done));
    let after: i64 = sqlx::query_scalar(scans).fetch_one(&mut *connection).await?;
    assert_eq!(after, before, "a sequential scan");
    sqlx::query("rollback").execute(&mut *connection).await?;
    Ok(())
}
