//! What fails: the connection between any two statements, the handler, a task for good.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dueline_core::letter::Reason;
use dueline_store::effect::{
    Effect, Failure, FailureRecord, Fate, Task, Trouble, Verdict, fail, identify, lettered,
};
use dueline_store::{Pool, PoolSettings};
use dueline_tests::testkit::proxy::TcpProxy;
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, QUEUE};

use super::effect::{Lab, close_in_code, is_done, run_on, settings};

/// Ends the backend of our own transaction where it is armed: before or after each statement, at COMMIT.
const BOMBS: &str = "
create table bomb (armed text);
create function blow_up() returns trigger language plpgsql security definer as $$
begin
    if exists (select from public.bomb where armed = tg_name) then
        perform pg_terminate_backend(pg_backend_pid());
    end if;
    return null;
end $$;
create trigger before_dedupe before insert on dueline.dedupe for each statement execute function blow_up();
create trigger after_dedupe after insert on dueline.dedupe for each statement execute function blow_up();
create trigger before_effect before update on orders for each statement execute function blow_up();
create trigger after_effect after update on orders for each statement execute function blow_up();
create trigger before_settle before update on dueline.task for each statement execute function blow_up();
create trigger after_settle after update on dueline.task for each statement execute function blow_up();
create trigger before_silence before delete on dueline.due for each statement execute function blow_up();
create trigger after_silence after delete on dueline.due for each statement execute function blow_up();
create constraint trigger at_commit after update on orders deferrable initially deferred
    for each row execute function blow_up();
";

#[tokio::test]
async fn h16_a_connection_that_dies_between_any_two_statements_leaves_nothing_half_done()
-> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=4).await?;
    let mut tasks = lab.publish(1..=4).await?;
    sqlx::raw_sql(BOMBS).execute(&lab.pool).await?;
    let handler = lab.close_order().await?;
    let before = lab.snapshot().await?;
    for place in [
        "before_dedupe",
        "after_dedupe",
        "before_effect",
        "after_effect",
        "before_settle",
        "after_settle",
        "before_silence",
        "after_silence",
        "at_commit",
    ] {
        sqlx::query("insert into bomb values ($1)").bind(place).execute(&lab.pool).await?;
        let trouble = lab.run(&handler, &mut tasks).await.expect_err(place);
        assert!(matches!(trouble, Trouble::Environment { .. }), "{place}: {trouble:?}");
        assert_eq!(lab.snapshot().await?, before, "{place}");
        sqlx::query("truncate bomb").execute(&lab.pool).await?;
    }
    let fates = lab.run(&handler, &mut tasks).await.expect("no trouble any more");
    assert!(fates.values().all(|fate| is_done(*fate)));
    assert_eq!(lab.number("select count(*) from orders where times = 1").await?, 4);
    Ok(())
}

/// Closes its orders in code, so that COMMIT is a message of its own.
struct CloseInCode;

#[async_trait::async_trait]
impl Effect for CloseInCode {
    async fn apply(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, Trouble> {
        close_in_code(connection, tasks).await;
        Ok(vec![Verdict::Done; tasks.len()])
    }
}

/// A pool whose connections pass a proxy.
async fn behind_a_proxy(lab: &Lab) -> Result<(Pool, TcpProxy)> {
    let url = lab.url();
    let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next()).context("a url")?;
    let proxy = TcpProxy::start(server.parse()?).await?;
    Ok((Lab::connect(&url.replace(server, &proxy.address().to_string()))?, proxy))
}

#[tokio::test]
async fn h20_a_commit_of_unknown_fate_is_looked_up_on_a_new_connection() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=3).await?;
    let mut tasks = lab.publish(1..=3).await?;
    let (pool, proxy) = behind_a_proxy(&lab).await?;
    proxy.cut_after("COMMIT");
    let fates = run_on(&pool, &CloseInCode, &mut tasks).await.expect("it was committed");
    assert!(proxy.has_cut());
    assert!(fates.values().all(|fate| is_done(*fate)));
    assert_eq!(lab.number("select count(*) from orders where times = 1").await?, 3);
    Ok(())
}

/// A batch in one call: its answer is lost, and nobody knows whether the server had begun, or has ended.
#[tokio::test]
async fn h20_an_answer_that_is_lost_is_looked_up_and_the_batch_may_run_again() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=3).await?;
    let mut tasks = lab.publish(1..=3).await?;
    let handler = lab.close_order().await?;
    let (pool, proxy) = behind_a_proxy(&lab).await?;
    // In the arguments of the call, not in its text: that is parsed before.
    proxy.cut_after("status = 'closed'");
    match run_on(&pool, &handler, &mut tasks).await {
        Ok(fates) => assert!(fates.values().all(|fate| is_done(*fate)), "{fates:?}"),
        Err(trouble) => assert!(matches!(trouble, Trouble::Environment { .. }), "{trouble:?}"),
    }
    assert!(proxy.has_cut());
    // Whether the server ran it, runs it yet, or gives it up because somebody looks at its rows: running it
    // again is always right.
    let ended = wait::until("the batch to end", PATIENCE, async || {
        match run_on(&pool, &handler, &mut tasks.clone()).await {
            Ok(fates) => Ok(fates.values().all(|f| is_done(*f) || *f == Fate::Stale)),
            Err(Trouble::Environment { .. }) => Ok(false),
            Err(trouble) => bail!("{trouble:?}"),
        }
    });
    ended.await?;
    assert_eq!(lab.count("done").await?, 3);
    assert_eq!(lab.number("select count(*) from orders where times = 1").await?, 3);
    Ok(())
}

/// Stops, as a process under SIGSTOP does, once it holds the business row.
struct Stopped;

#[async_trait::async_trait]
impl Effect for Stopped {
    async fn apply(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, Trouble> {
        close_in_code(connection, tasks).await;
        tokio::time::sleep(LONGER_THAN_IDLING).await;
        Ok(vec![Verdict::Done; tasks.len()])
    }
}

const LONGER_THAN_IDLING: Duration = Duration::from_secs(4);

#[tokio::test]
async fn h34_code_that_stops_holds_up_a_payer_no_longer_than_the_timeout() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let mut tasks = lab.publish(1..=1).await?;
    let idle = Duration::from_secs(1);
    let settings = PoolSettings { idle_in_transaction_timeout: idle, ..settings(&lab.url()) };
    let pool = dueline_store::connect_for_batches(&settings)?;
    // Not a session of ours: it waits for locks as long as it takes.
    let mut payer = lab.connect().await?;
    let pay = async {
        let held = "select count(*) from pg_stat_activity where state = 'idle in transaction'
                    and datname = current_database() and xact_start is not null";
        wait::until("the effect", PATIENCE, async || Ok(lab.number(held).await? > 0)).await?;
        let began = std::time::Instant::now();
        sqlx::query("update orders set status = 'paid'").execute(&mut payer).await?;
        anyhow::Ok(began.elapsed())
    };
    let (trouble, waited) = tokio::join!(run_on(&pool, &Stopped, &mut tasks), pay);
    assert!(matches!(trouble, Err(Trouble::Environment { .. })), "{trouble:?}");
    assert!(waited? < LONGER_THAN_IDLING, "the payer waited for the handler to go on");
    assert_eq!((lab.count_orders("paid").await?, lab.count("live").await?), (1, 1));
    Ok(())
}

/// A handler that raises this SQLSTATE for order 3, on the way through PL/pgSQL.
fn raising(state: &str) -> String {
    format!(
        "update orders set status = 'closed', times = orders.times + raise_for(orders.id, '{state}')
           from batch where orders.id = batch.key::bigint and orders.status = 'unpaid'
         returning batch.ord"
    )
}

const RAISE: &str = "
create function raise_for(id bigint, state text) returns integer language plpgsql as $$
begin
    if id = 3 then raise exception 'on purpose' using errcode = state; end if;
    return 1;
end $$";

#[tokio::test]
async fn d02_a_sqlstate_decides_whose_fault_it_is_and_whether_it_is_for_good() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=3).await?;
    let mut tasks = lab.publish(1..=3).await?;
    sqlx::raw_sql(RAISE).execute(&lab.pool).await?;
    let before = lab.snapshot().await?;
    for (state, permanent) in
        [("22012", true), ("23514", true), ("P0001", false), ("DLP01", true), ("DLT01", false)]
    {
        let trouble = lab.run(&lab.handler(&raising(state)).await?, &mut tasks).await;
        match trouble {
            Err(Trouble::Batch(failure)) => assert_eq!(failure.permanent, permanent, "{state}"),
            other => panic!("{state}: {other:?}"),
        }
        assert_eq!(lab.snapshot().await?, before);
    }
    for state in ["55P03", "57014", "53100", "42P01", "25006", "08006"] {
        let trouble = lab.run(&lab.handler(&raising(state)).await?, &mut tasks).await;
        assert!(matches!(trouble, Err(Trouble::Environment { free: false, .. })), "{state}");
    }
    for state in ["40P01", "40001"] {
        let trouble = lab.run(&lab.handler(&raising(state)).await?, &mut tasks).await;
        assert!(matches!(trouble, Err(Trouble::Environment { free: true, .. })), "{state}");
    }
    assert_eq!(lab.snapshot().await?, before, "no attempt was charged");
    Ok(())
}

#[tokio::test]
async fn d02_a_deferred_constraint_that_speaks_at_commit_is_the_tasks_fault() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let mut tasks = lab.publish(1..=1).await?;
    sqlx::raw_sql(
        "create function refuse() returns trigger language plpgsql as $$
         begin raise exception 'not closable' using errcode = '23514'; end $$;
         create constraint trigger refuse after update on orders deferrable initially deferred
             for each row execute function refuse()",
    )
    .execute(&lab.pool)
    .await?;
    let before = lab.snapshot().await?;
    let trouble = lab.run(&lab.close_order().await?, &mut tasks).await.expect_err("refused");
    assert!(matches!(trouble, Trouble::Batch(Failure { permanent: true, .. })), "{trouble:?}");
    assert_eq!(lab.snapshot().await?, before);
    Ok(())
}

fn record(task: &Task, pause: Option<Duration>, reason: Reason, charge: bool) -> FailureRecord<'_> {
    let failure = Failure::new("gateway timeout", pause.is_none());
    FailureRecord { task, failure, pause, reason, charge }
}

#[tokio::test]
async fn d03_attempts_next_time_and_error_stand_on_the_row() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let task = lab.publish(1..=1).await?.remove(0);
    let fence = lab.number("select fence::bigint from dueline.due").await?;
    let pause = Duration::from_secs(10);
    let failed =
        fail(&lab.pool, QUEUE, &[record(&task, Some(pause), Reason::Exhausted, true)]).await?;
    assert_eq!(
        (failed[0].attempt, failed[0].generation, failed[0].died_at),
        (1, task.generation, None)
    );
    let row = lab.task(KIND, 1).await?.context("the task")?;
    assert_eq!((row.state.as_str(), row.attempt, row.leased), ("live", 1, false));
    assert_eq!(row.last_error.as_deref(), Some("gateway timeout"));
    assert_eq!(lab.number("select fence::bigint from dueline.due").await?, fence + 1);
    let waits = "select count(*) from dueline.due where attempt = 1 and unanswered = 0
                 and next_at between clock_timestamp() + interval '9 s' and clock_timestamp() + interval '10 s'";
    assert_eq!(lab.number(waits).await?, 1);
    // The same failure again: its guard no longer holds.
    let before = lab.snapshot().await?;
    let again =
        fail(&lab.pool, QUEUE, &[record(&task, Some(pause), Reason::Exhausted, true)]).await?;
    assert!(again.is_empty());
    assert_eq!(lab.snapshot().await?, before);
    Ok(())
}

#[tokio::test]
async fn d04_the_exhausted_are_stranded_with_their_whole_history() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let mut task = lab.publish(1..=1).await?.remove(0);
    for _ in 0..3 {
        let pause = Some(Duration::ZERO);
        fail(&lab.pool, QUEUE, &[record(&task, pause, Reason::Exhausted, true)]).await?;
        task = lab.claim().await?.remove(0);
    }
    assert_eq!(task.attempt, 3);
    let fence = lab.number("select fence::bigint from dueline.due").await?;
    let dead = fail(&lab.pool, QUEUE, &[record(&task, None, Reason::Exhausted, true)]).await?;
    assert_eq!((dead[0].attempt, dead[0].generation), (4, task.generation + 1));
    assert!(dead[0].died_at.is_some());
    let row = lab.task(KIND, 1).await?.context("the task")?;
    assert_eq!((row.state.as_str(), row.attempt, row.generation), ("dead", 4, task.generation + 1));
    assert_eq!(lab.number("select count(*) from dueline.due").await?, 0);
    assert_eq!(lab.number("select fence::bigint from dueline.task").await?, fence + 1);
    let history = "select count(*) from dueline.stranded s, jsonb_array_elements(s.history) h
                   where s.attempts = 4 and s.reason = 'exhausted' and s.lettered_at is null
                     and h ->> 'error' = 'gateway timeout'";
    assert_eq!(lab.number(history).await?, 4);
    assert!(lettered(&lab.pool, task.id, task.generation + 1).await?);
    assert!(!lettered(&lab.pool, task.id, task.generation + 1).await?, "once is enough");
    assert!(!lettered(&lab.pool, task.id, task.generation).await?);
    Ok(())
}

#[tokio::test]
async fn h13_a_crash_costs_no_attempt() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let task = lab.publish(1..=1).await?.remove(0);
    let dead = fail(&lab.pool, QUEUE, &[record(&task, None, Reason::Crashes, false)]).await?;
    assert_eq!((dead[0].attempt, dead[0].generation), (0, task.generation + 1));
    let noted = "select count(*) from dueline.task_event where step = 'die' and to_state = 'dead'";
    assert_eq!(lab.number(noted).await?, 1);
    assert_eq!(
        lab.number("select count(*) from dueline.stranded where reason = 'crashes'").await?,
        1
    );
    Ok(())
}

#[tokio::test]
async fn h14_the_row_of_a_broken_message_is_found_only_while_it_is_published() -> Result<()> {
    let lab = Lab::new().await?;
    lab.orders(1..=1).await?;
    let task = lab.publish(1..=1).await?.remove(0);
    let row = identify(&lab.pool, task.id).await?.context("the row")?;
    assert_eq!((row.key_hash, row.published), (task.key_hash, true));
    lab.cancel(KIND, 1).await?;
    assert!(!identify(&lab.pool, task.id).await?.context("the row")?.published);
    assert!(identify(&lab.pool, task.id + 1_000).await?.is_none());
    Ok(())
}

/// A handler in Rust that does what it must not.
struct Misbehaved(&'static str);

#[async_trait::async_trait]
impl Effect for Misbehaved {
    async fn apply(
        &self,
        connection: &mut sqlx::PgConnection,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, Trouble> {
        let mut verdicts = vec![Verdict::Done; tasks.len()];
        match self.0 {
            "commits" => drop(sqlx::query("commit").execute(connection).await),
            "swallows" => drop(sqlx::query("select 1 / 0").execute(connection).await),
            "miscounts" => drop(verdicts.pop()),
            "fails one" => verdicts[1] = Verdict::Transient("not now".to_owned()),
            _ => {}
        }
        Ok(verdicts)
    }
}

#[tokio::test]
async fn h39_a_rust_handler_that_breaks_its_contract_is_stopped_and_nothing_is_lost() -> Result<()>
{
    let lab = Lab::new().await?;
    lab.orders(1..=3).await?;
    let mut tasks = lab.publish(1..=3).await?;
    let before = lab.snapshot().await?;
    let trouble = lab.run(&Misbehaved("miscounts"), &mut tasks).await;
    assert!(matches!(trouble, Err(Trouble::Contract(_))), "{trouble:?}");
    let trouble = lab.run(&Misbehaved("swallows"), &mut tasks).await;
    assert!(matches!(trouble, Err(Trouble::Batch(_))), "{trouble:?}");
    let trouble = lab.run(&Misbehaved("fails one"), &mut tasks).await;
    let Err(Trouble::Items(failed)) = trouble else { panic!("{trouble:?}") };
    assert_eq!(failed.len(), 1);
    assert_eq!(lab.snapshot().await?, before);
    let trouble = lab.run(&Misbehaved("commits"), &mut tasks).await;
    assert!(matches!(trouble, Err(Trouble::Contract(_))), "{trouble:?}");
    assert_eq!(lab.count("live").await?, 3, "nothing is settled by a transaction that ended");
    Ok(())
}
