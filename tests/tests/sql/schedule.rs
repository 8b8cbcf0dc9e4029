//! Scheduling one task: what is stored, what is refused, and time.

use std::time::Duration;

use anyhow::Result;
use dueline_core::{Micros, TaskState};
use dueline_store::client::{
    self, Deadline, OnConflict, ReceiptKind, RescheduleRequest, ScheduleRequest,
};
use dueline_store::{StoreError, Timestamptz};
use serde_json::json;
use sqlx::{Connection as _, Row as _};

use super::stage::{HALF_HOUR, HERE, Phase, Stage, refusal};

fn request(key: &str) -> ScheduleRequest {
    ScheduleRequest::new(HERE, key, Deadline::after(HALF_HOUR))
}

async fn now(stage: &Stage) -> Result<Micros> {
    Ok(stage.ask::<Timestamptz>("select clock_timestamp()").await?.into())
}

#[tokio::test]
async fn i01_a_key_is_scheduled_once() -> Result<()> {
    let stage = Stage::new().await?;
    let first = client::schedule(&stage.pool, &request("1").payload(json!({"total": 5}))).await?;
    assert_eq!(first.receipt, ReceiptKind::Scheduled);
    assert_eq!((first.state, first.generation), (Some(TaskState::Live), Some(0)));
    assert_eq!(first.tier.as_deref(), Some("1h"));
    let other = ScheduleRequest::new(HERE, "1", Deadline::after(Duration::from_secs(1)));
    let again = client::schedule(&stage.pool, &other.clone().payload(json!(7))).await?;
    assert_eq!(again.receipt, ReceiptKind::Kept);
    assert_eq!((again.id, again.due_at), (first.id, first.due_at));
    let view = client::get(&stage.pool, HERE, "1").await?.expect("there");
    assert_eq!(view.payload, Some(json!({"total": 5})));
    let error = client::schedule(&stage.pool, &other.on_conflict(OnConflict::Error)).await;
    let (state, text) = refusal(error);
    assert_eq!(state, "23505");
    assert!(text.contains("live") && text.contains("on_conflict"), "{text}");
    Ok(())
}

#[tokio::test]
async fn c01_an_upsert_takes_the_new_deadline_payload_and_headers() -> Result<()> {
    let stage = Stage::new().await?;
    let first = stage.plan(HERE, "1").await?;
    let later = ScheduleRequest::new(HERE, "1", Deadline::after(Duration::from_secs(86_400)))
        .payload(json!([1]))
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .on_conflict(OnConflict::Reschedule);
    let moved = client::schedule(&stage.pool, &later).await?;
    assert_eq!((moved.receipt, moved.id), (ReceiptKind::Rescheduled, first.id));
    assert_eq!((moved.generation, moved.tier.as_deref()), (Some(1), Some("1d")));
    let view = client::get(&stage.pool, HERE, "1").await?.expect("there");
    assert_eq!(view.payload, Some(json!([1])));
    assert!(view.headers.expect("headers")["traceparent"].is_string());
    assert_eq!(view.next_at, moved.due_at);
    // A plain reschedule keeps the payload.
    let plain = RescheduleRequest::new(HERE, "1", Deadline::after(HALF_HOUR)).reason("asked");
    client::reschedule(&stage.pool, &plain).await?;
    let view = client::get(&stage.pool, HERE, "1").await?.expect("there");
    assert_eq!(view.payload, Some(json!([1])));
    assert!(view.headers.is_some());
    Ok(())
}

#[tokio::test]
async fn i01_what_is_finished_is_not_opened_again_by_keep() -> Result<()> {
    let stage = Stage::new().await?;
    for phase in [Phase::Done, Phase::Dead] {
        let key = format!("{phase:?}");
        let id = stage.task_in(HERE, &key, phase).await?;
        let answer = stage.plan(HERE, &key).await?;
        assert_eq!((answer.receipt, answer.id), (ReceiptKind::Finished, Some(id)));
    }
    for phase in [Phase::Cancelled, Phase::Skipped] {
        let key = format!("{phase:?}");
        let id = stage.task_in(HERE, &key, phase).await?;
        let answer = client::schedule(&stage.pool, &request(&key).payload(json!("new"))).await?;
        assert_eq!((answer.receipt, answer.id), (ReceiptKind::Reopened, Some(id)));
        let view = client::get(&stage.pool, HERE, &key).await?.expect("there");
        assert_eq!((view.payload, view.attempt), (Some(json!("new")), 0));
    }
    Ok(())
}

#[tokio::test]
async fn t03_a_delay_runs_from_the_business_event() -> Result<()> {
    let stage = Stage::new().await?;
    let created = Micros::parse_rfc3339("2026-01-31T10:00:00.000001Z")?;
    let deadline = Deadline::after_event(created, HALF_HOUR);
    let receipt =
        client::schedule(&stage.pool, &ScheduleRequest::new(HERE, "late", deadline)).await?;
    assert_eq!(receipt.due_at, Some(created.plus(HALF_HOUR)));
    assert_eq!(receipt.tier.as_deref(), Some("1h"), "the tier is that of the requested delay");
    // The deadline is over, so the alarm rings now, and never in the past of its write.
    let view = client::get(&stage.pool, HERE, "late").await?.expect("there");
    assert!(view.next_at > Some(created.plus(Duration::from_secs(86_400))));
    assert!(view.next_at >= Some(view.created_at));
    let day: bool = stage
        .ask(
            "select set_config('timezone', 'Europe/Berlin', false) is not null
                and (dueline.schedule('close_order', 'dst', delay => interval '1 day',
                                      event_at => '2026-03-28 12:00:00+00')).due_at
                    = timestamptz '2026-03-29 12:00:00+00'",
        )
        .await?;
    assert!(day, "a day has 24 hours in every time zone");
    Ok(())
}

#[tokio::test]
async fn h03_h04_no_alarm_is_early_nor_in_the_past_of_its_write() -> Result<()> {
    let stage = Stage::new().await?;
    let mut connection = stage.connect().await?;
    let mut transaction = connection.begin().await?;
    // The passing of time is what is tested: `now()` stands still from here on.
    sqlx::query("select now(), pg_sleep(0.2)").execute(&mut *transaction).await?;
    for (n, delay) in
        [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(1)].into_iter().enumerate()
    {
        let before: Timestamptz =
            sqlx::query_scalar("select clock_timestamp()").fetch_one(&mut *transaction).await?;
        let request = ScheduleRequest::new(HERE, format!("{n}"), Deadline::after(delay));
        client::schedule(&mut *transaction, &request).await?;
        let row = sqlx::query(
            "select t.due_at, d.next_at, t.created_at from dueline.task t join dueline.due d using (id)
             where t.key = $1",
        )
        .bind(format!("{n}"))
        .fetch_one(&mut *transaction)
        .await?;
        let instant = |column: &str| row.try_get::<Timestamptz, _>(column).map(Micros::from);
        let micros = delay.as_nanos().div_ceil(1_000);
        let earliest = before.0.plus(Duration::from_micros(u64::try_from(micros)?));
        assert!(instant("due_at")? >= earliest, "{delay:?}");
        assert!(instant("next_at")? >= instant("due_at")?, "{delay:?}");
        assert!(instant("next_at")? >= before.0, "{delay:?}");
    }
    transaction.rollback().await?;
    Ok(())
}

#[tokio::test]
async fn t05_jitter_spreads_later_never_earlier() -> Result<()> {
    let stage = Stage::new().await?;
    let due_at = now(&stage).await?.plus(HALF_HOUR);
    let window = Duration::from_secs(60);
    let mut offsets = Vec::new();
    for n in 0..60 {
        let request =
            ScheduleRequest::new(HERE, format!("{n}"), Deadline::at(due_at)).jitter(window);
        let receipt = client::schedule(&stage.pool, &request).await?;
        let at = receipt.due_at.expect("due");
        assert!(at >= due_at && at <= due_at.plus(window), "{at}");
        offsets.push(at.since(due_at));
    }
    offsets.sort_unstable();
    assert!(offsets[5] < window / 2 && offsets[54] > window / 2, "{offsets:?}");
    Ok(())
}

#[tokio::test]
async fn refused_requests_say_what_to_do() -> Result<()> {
    let stage = Stage::new().await?;
    let cases: [(&str, &str); 20] = [
        ("'close_oder', 'k', delay => '1 s'", "close_order"),
        ("'x', 'k', delay => '1 s'", "dueline apply"),
        ("null, 'k', delay => '1 s'", "unknown kind"),
        ("'close_order', '', delay => '1 s'", "key"),
        ("'close_order', null, delay => '1 s'", "key"),
        ("'close_order', repeat('ü', 257), delay => '1 s'", "514 bytes"),
        ("'close_order', 'k'", "exactly one"),
        ("'close_order', 'k', due_at => now(), delay => '1 s'", "exactly one"),
        ("'close_order', 'k', due_at => 'infinity'", "infinity"),
        ("'close_order', 'k', due_at => '-infinity'", "infinity"),
        ("'close_order', 'k', due_at => '9999-01-01'", "out of range"),
        ("'close_order', 'k', delay => '1 s', event_at => 'infinity'", "event_at"),
        ("'close_order', 'k', delay => '-1 s'", "negative"),
        ("'close_order', 'k', delay => '1000 years'", "900 years"),
        ("'close_order', 'k', delay => '1 s', jitter => '-1 s'", "jitter"),
        ("'close_order', 'k', delay => '1 s', on_conflict => 'replace'", "reschedule or error"),
        (
            "'close_order', 'k', delay => '1 s', payload => to_jsonb(repeat('x', 8191))",
            "8193 bytes",
        ),
        ("'close_order', 'k', delay => '1 s', headers => '[]'", "object"),
        ("'close_order', 'k', delay => '1 s', headers => '{\"a\": 1}'", "string"),
        (
            "'close_order', 'k', delay => '1 s', headers => (select jsonb_object_agg(i, 'v')
            from generate_series(1, 33) i)",
            "32 headers",
        ),
    ];
    for (arguments, expected) in cases {
        let statement = format!("select dueline.schedule({arguments})");
        let result = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&stage.pool).await;
        let (state, text) = refusal(result.map_err(StoreError::from));
        assert_eq!(state, "22023", "{arguments}: {text}");
        assert!(text.contains(expected), "{arguments}: {text}");
        assert!(!text.contains("NULL"), "{arguments}: {text}");
    }
    let fits = request("k").payload(json!("x".repeat(8_190)));
    assert_eq!(client::schedule(&stage.pool, &fits).await?.receipt, ReceiptKind::Scheduled);
    Ok(())
}

#[tokio::test]
async fn a_missing_lane_or_tier_names_the_command_that_makes_it() -> Result<()> {
    let stage = Stage::new().await?;
    sqlx::query("delete from dueline.lane where queue = 'orders'").execute(&stage.pool).await?;
    let (state, text) = refusal(client::schedule(&stage.pool, &request("k")).await);
    assert_eq!(state, "55000");
    assert!(text.contains("dueline apply"), "{text}");
    sqlx::query("delete from dueline.tier where queue = 'orders'").execute(&stage.pool).await?;
    let (state, text) = refusal(client::schedule(&stage.pool, &request("k")).await);
    assert_eq!(state, "55000");
    assert!(text.contains("no tiers") && text.contains("dueline apply"), "{text}");
    assert_eq!(stage.count("live").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_hash_collision_is_told_and_changes_nothing() -> Result<()> {
    let stage = Stage::new().await?;
    stage.plan(HERE, "1").await?;
    // The same hash with another text: what a collision would look like.
    sqlx::query("update dueline.task set key = 'other'").execute(&stage.pool).await?;
    let move_it = RescheduleRequest::new(HERE, "1", Deadline::after(HALF_HOUR));
    for result in [
        client::schedule(&stage.pool, &request("1")).await,
        client::schedule(&stage.pool, &request("1").on_conflict(OnConflict::Reschedule)).await,
        client::reschedule(&stage.pool, &move_it).await,
        client::cancel(&stage.pool, HERE, "1", None).await,
    ] {
        let (state, text) = refusal(result);
        assert_eq!(state, "23505");
        assert!(text.contains("same key hash"), "{text}");
    }
    assert_eq!(stage.ask::<i32>("select generation from dueline.task").await?, 0);
    Ok(())
}
