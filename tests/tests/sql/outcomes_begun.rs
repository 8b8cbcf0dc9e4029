//! `dueline.begin`, `dueline.complete` and `dueline.fail`: a team with access to the deadline database, in its own transaction.

use anyhow::Result;
use dueline_core::KeyHash;
use sqlx::PgConnection;

use super::stage::{ELSEWHERE, Phase, QUEUE, Stage};

/// One try of a task, as its message names it.
struct Try {
    id: i64,
    key: &'static str,
}

impl Try {
    async fn of(stage: &Stage, key: &'static str) -> Result<Self> {
        let id = stage.task_in(ELSEWHERE, key, Phase::Leased).await?;
        // `Phase::Leased` of a task that is due in half an hour: let it be due.
        let due = "update dueline.task set due_at = clock_timestamp() where id = $1";
        sqlx::query(due).bind(id).execute(&stage.pool).await?;
        Ok(Self { id, key })
    }

    async fn complete(
        &self,
        db: &mut PgConnection,
        token: Option<&str>,
        outcome: &str,
    ) -> sqlx::Result<String> {
        sqlx::query_scalar("select dueline.complete($1, $2, 0, 0, $3::uuid, $4)")
            .bind(self.id)
            .bind(KeyHash::new(QUEUE, ELSEWHERE, self.key).as_uuid())
            .bind(token)
            .bind(outcome)
            .fetch_one(db)
            .await
    }

    async fn fail(
        &self,
        db: &mut PgConnection,
        token: Option<&str>,
        doubtful: bool,
    ) -> sqlx::Result<String> {
        sqlx::query_scalar(
            "select dueline.fail($1, $2, 0, 0, 'no answer', $3::uuid, doubtful => $4)",
        )
        .bind(self.id)
        .bind(KeyHash::new(QUEUE, ELSEWHERE, self.key).as_uuid())
        .bind(token)
        .bind(doubtful)
        .fetch_one(db)
        .await
    }

    /// Verdict and token.
    async fn begin(&self, db: &mut PgConnection) -> sqlx::Result<(String, Option<String>, bool)> {
        sqlx::query_as("select verdict, token::text, may_have_run from dueline.begin($1, $2, 0, 0)")
            .bind(self.id)
            .bind(KeyHash::new(QUEUE, ELSEWHERE, self.key).as_uuid())
            .fetch_one(db)
            .await
    }

    /// Somebody has begun it, until `ends` from now.
    async fn begun(&self, stage: &Stage, token: &str, ends: &str) -> Result<()> {
        let statement = "insert into dueline.dedupe (key_hash, generation, attempt, outcome, token, until)
                         values ($1, 0, 0, 'in_progress', $2::uuid, clock_timestamp() + $3::interval)";
        sqlx::query(statement)
            .bind(KeyHash::new(QUEUE, ELSEWHERE, self.key).as_uuid())
            .bind(token)
            .bind(ends)
            .execute(&stage.pool)
            .await?;
        Ok(())
    }
}

const MINE: &str = "11111111-1111-4111-8111-111111111111";
const OTHERS: &str = "22222222-2222-4222-8222-222222222222";

async fn cancel(stage: &Stage, key: &str) -> Result<String> {
    let receipt = sqlx::query_scalar("select (dueline.cancel($1, $2)).receipt");
    Ok(receipt.bind(ELSEWHERE).bind(key).fetch_one(&stage.pool).await?)
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(|code| code.into_owned())
}

#[tokio::test]
async fn v2_effect_and_complete_are_one_transaction() -> Result<()> {
    let stage = Stage::new().await?;
    stage.orders(1..=2).await?;
    let close = "update orders set status = 'closed', times = times + 1 where id = 1";
    let task = Try::of(&stage, "1").await?;
    let mut lost = stage.pool.begin().await?;
    sqlx::query(close).execute(&mut *lost).await?;
    assert_eq!(task.complete(&mut lost, None, "done").await?, "done");
    lost.rollback().await?;
    assert_eq!((stage.count("done").await?, stage.count_orders("closed").await?), (0, 0));
    let mut kept = stage.pool.begin().await?;
    sqlx::query(close).execute(&mut *kept).await?;
    assert_eq!(task.complete(&mut kept, None, "done").await?, "done");
    kept.commit().await?;
    assert_eq!((stage.count("done").await?, stage.count_orders("closed").await?), (1, 1));
    // A redelivery: its effect is rolled back with the refusal.
    let mut again = stage.pool.begin().await?;
    sqlx::query(close).execute(&mut *again).await?;
    let error = task.complete(&mut again, None, "done").await.expect_err("a second time");
    assert_eq!(code(&error).as_deref(), Some("DLS02"), "{error}");
    again.rollback().await?;
    let times: i32 =
        sqlx::query_scalar("select times from orders where id = 1").fetch_one(&stage.pool).await?;
    assert_eq!(times, 1);
    Ok(())
}

#[tokio::test]
async fn v4_complete_after_a_cancel_or_a_move_raises() -> Result<()> {
    let stage = Stage::new().await?;
    for (key, change) in [
        ("1", "select dueline.cancel('refund', '1')"),
        ("2", "select dueline.reschedule('refund', '2', delay => '1 hour')"),
    ] {
        let task = Try::of(&stage, key).await?;
        sqlx::query(change).execute(&stage.pool).await?;
        let mut db = stage.pool.acquire().await?;
        let error = task.complete(&mut db, None, "done").await.expect_err("it has moved");
        assert_eq!(code(&error).as_deref(), Some("DLS01"), "{error}");
        let error = task.fail(&mut db, None, false).await.expect_err("it has moved");
        assert_eq!(code(&error).as_deref(), Some("DLS01"), "{error}");
    }
    let kept: i64 =
        sqlx::query_scalar("select count(*) from dueline.dedupe").fetch_one(&stage.pool).await?;
    assert_eq!(kept, 0, "a refusal leaves nothing");
    Ok(())
}

#[tokio::test]
async fn v3_complete_before_the_deadline_raises() -> Result<()> {
    let stage = Stage::new().await?;
    let id = stage.task_in(ELSEWHERE, "1", Phase::Leased).await?;
    let mut db = stage.pool.acquire().await?;
    let error = Try { id, key: "1" }.complete(&mut db, None, "done").await.expect_err("early");
    assert!(error.to_string().contains("is not due before"), "{error}");
    Ok(())
}

#[tokio::test]
async fn v9_only_the_token_that_counts_may_speak() -> Result<()> {
    let stage = Stage::new().await?;
    let mut db = stage.pool.acquire().await?;
    let task = Try::of(&stage, "1").await?;
    task.begun(&stage, OTHERS, "1 minute").await?;
    for token in [None, Some(MINE)] {
        let error = task.complete(&mut db, token, "done").await.expect_err("somebody else's");
        assert_eq!(code(&error).as_deref(), Some("DLS01"), "{error}");
        let error = task.fail(&mut db, token, false).await.expect_err("somebody else's");
        assert_eq!(code(&error).as_deref(), Some("DLS01"), "{error}");
    }
    assert_eq!(task.complete(&mut db, Some(OTHERS), "done").await?, "done");

    // A token whose time is over is still its own, as long as nobody has taken over.
    let task = Try::of(&stage, "2").await?;
    task.begun(&stage, MINE, "-1 second").await?;
    assert_eq!(task.fail(&mut db, Some(MINE), false).await?, "retry");
    let task = Try::of(&stage, "3").await?;
    let error = task.complete(&mut db, Some(MINE), "done").await;
    assert_eq!(error.expect("no row: nothing was begun, nothing is taken"), "done");
    Ok(())
}

#[tokio::test]
async fn d02_a_doubtful_failure_makes_its_death_say_so() -> Result<()> {
    let stage = Stage::new().await?;
    sqlx::query("update dueline.kind set backoff_ms = '{}' where name = $1")
        .bind(ELSEWHERE)
        .execute(&stage.pool)
        .await?;
    let mut db = stage.pool.acquire().await?;
    assert_eq!(Try::of(&stage, "1").await?.fail(&mut db, None, true).await?, "dead");
    assert_eq!(Try::of(&stage, "2").await?.fail(&mut db, None, false).await?, "dead");
    let reasons: Vec<String> =
        sqlx::query_scalar("select reason from dueline.stranded order by key")
            .fetch_all(&stage.pool)
            .await?;
    assert_eq!(reasons, ["outcome_unknown", "exhausted"]);
    Ok(())
}

#[tokio::test]
async fn v1_a_skip_forgets_the_key_and_wrong_arguments_are_refused_in_words() -> Result<()> {
    let stage = Stage::new().await?;
    let mut db = stage.pool.acquire().await?;
    let task = Try::of(&stage, "1").await?;
    assert_eq!(task.complete(&mut db, None, "skipped").await?, "skipped");
    let rows: i64 =
        sqlx::query_scalar("select count(*) from dueline.dedupe").fetch_one(&stage.pool).await?;
    assert_eq!((rows, stage.count("skipped").await?), (0, 1));
    for statement in [
        "select dueline.complete(1, gen_random_uuid(), 0, 0, outcome => 'finished')",
        "select dueline.fail(1, gen_random_uuid(), 0, 0, '')",
        "select dueline.fail(1, gen_random_uuid(), null, 0, 'x')",
        "select dueline.complete(1, null, 0, 0)",
        "select dueline.begin(null, gen_random_uuid(), 0, 0)",
        "select dueline.fail(1, gen_random_uuid(), 0, 0, 'x', retry_after => '-1 s')",
        "select dueline.fail(1, gen_random_uuid(), 0, 0, 'x', retry_after => '8 days')",
    ] {
        let refused = sqlx::query(statement).execute(&mut *db).await.expect_err(statement);
        assert_eq!(code(&refused).as_deref(), Some("22023"), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn v2_v4_one_at_a_time_begins_and_a_cancel_sees_it() -> Result<()> {
    let stage = Stage::new().await?;
    let mut db = stage.pool.acquire().await?;
    let task = Try::of(&stage, "1").await?;
    let (verdict, token, may_have_run) = task.begin(&mut db).await?;
    assert_eq!((verdict.as_str(), may_have_run), ("begun", false));
    assert_eq!(task.begin(&mut db).await?.0, "in_progress");
    assert_eq!(cancel(&stage, "1").await?, "running");
    assert_eq!(
        task.fail(&mut db, token.as_deref(), false).await?,
        "cancelled",
        "the wish is honoured"
    );
    assert_eq!(cancel(&stage, "1").await?, "cancelled", "it failed for certain: nothing happened");
    assert_eq!(task.begin(&mut db).await?.0, "stale");

    let task = Try::of(&stage, "2").await?;
    let token = task.begin(&mut db).await?.1;
    let lease = "select count(*) from dueline.due d join dueline.dedupe k on true
                 where d.id = $1 and k.outcome = 'in_progress' and d.lease_until > k.until";
    let outlasts: i64 = sqlx::query_scalar(lease).bind(task.id).fetch_one(&mut *db).await?;
    assert_eq!(outlasts, 1, "nobody publishes it again while it runs");
    assert_eq!(task.complete(&mut db, token.as_deref(), "done").await?, "done");
    assert_eq!(cancel(&stage, "2").await?, "finished");
    Ok(())
}

#[tokio::test]
async fn v2_who_takes_over_a_call_that_never_ended_is_told_so() -> Result<()> {
    let stage = Stage::new().await?;
    let mut db = stage.pool.acquire().await?;
    let task = Try::of(&stage, "1").await?;
    task.begun(&stage, OTHERS, "-1 second").await?;
    let (verdict, token, may_have_run) = task.begin(&mut db).await?;
    assert_eq!((verdict.as_str(), may_have_run), ("begun", true));
    let error = task.complete(&mut db, Some(OTHERS), "done").await.expect_err("its time is over");
    assert_eq!(code(&error).as_deref(), Some("DLS01"), "{error}");
    // And whatever comes of it: that some call ended unknown sticks.
    assert_eq!(task.fail(&mut db, token.as_deref(), false).await?, "retry");
    let unknown: bool =
        sqlx::query_scalar("select unknown from dueline.dedupe").fetch_one(&mut *db).await?;
    assert!(unknown);
    Ok(())
}

#[tokio::test]
async fn v1_begin_settles_what_is_done_and_sends_what_failed_again() -> Result<()> {
    let stage = Stage::new().await?;
    let mut db = stage.pool.acquire().await?;
    for (key, outcome, finished, expected) in
        [("1", "done", "clock_timestamp()", "done"), ("2", "failed", "null", "failed")]
    {
        let task = Try::of(&stage, key).await?;
        let row = format!(
            "insert into dueline.dedupe (key_hash, generation, attempt, outcome, finished_at)
             values ($1, 0, 0, '{outcome}', {finished})"
        );
        let hash = KeyHash::new(QUEUE, ELSEWHERE, key).as_uuid();
        sqlx::query(sqlx::AssertSqlSafe(row)).bind(hash).execute(&mut *db).await?;
        assert_eq!(task.begin(&mut db).await?.0, expected);
    }
    assert_eq!((stage.count("done").await?, stage.count("live").await?), (1, 1));
    let early = Try { id: stage.task_in(ELSEWHERE, "3", Phase::Leased).await?, key: "3" };
    assert_eq!(early.begin(&mut db).await?.0, "early");
    let waits: i64 = sqlx::query_scalar(
        "select count(*) from dueline.due where id = $1 and lease_until is null",
    )
    .bind(early.id)
    .fetch_one(&mut *db)
    .await?;
    assert_eq!(waits, 1);
    for lasting in ["0 s", "11 minutes"] {
        let refused = sqlx::query("select dueline.begin(1, gen_random_uuid(), 0, 0, $1::interval)")
            .bind(lasting)
            .execute(&mut *db)
            .await
            .expect_err(lasting);
        assert_eq!(code(&refused).as_deref(), Some("22023"), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn v4_a_cancel_in_the_middle_of_begin_is_seen_or_sees_it() -> Result<()> {
    let stage = Stage::new().await?;
    for n in 0..20 {
        let key: &'static str = Box::leak(n.to_string().into_boxed_str());
        let task = Try::of(&stage, key).await?;
        let (mut one, mut two) = (stage.pool.acquire().await?, stage.pool.acquire().await?);
        let cancel = sqlx::query_scalar::<_, String>("select (dueline.cancel($1, $2)).receipt")
            .bind(ELSEWHERE)
            .bind(key);
        let (begun, receipt) = tokio::join!(task.begin(&mut one), cancel.fetch_one(&mut *two));
        let (begun, receipt) = (begun?.0, receipt?);
        match receipt.as_str() {
            "running" => assert_eq!(begun, "begun"),
            _ => assert_eq!(begun, "stale", "{receipt}"),
        }
    }
    let left: i64 = sqlx::query_scalar(
        "select count(*) from dueline.dedupe k join dueline.task t using (key_hash) where t.state = 'cancelled'",
    )
    .fetch_one(&stage.pool)
    .await?;
    assert_eq!(left, 0, "what did not begin leaves nothing");
    Ok(())
}
