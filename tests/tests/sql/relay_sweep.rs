//! The sweep: what it finds, and how its writes are guarded; parking; letters.

use std::time::Duration;

use anyhow::Result;
use dueline_core::letter::Reason;
use dueline_store::relay::{self, Again, Alarm, Found, Parking};

use super::relay_ground::{Ground, LEASE, beat};

const LONGEST: Duration = Duration::from_secs(3_600);

async fn page(ground: &Ground) -> Result<Vec<Alarm>> {
    Ok(relay::sweep_page(&ground.pool, &ground.spans(), 100, LONGEST).await?)
}

fn again(alarm: &Alarm) -> Again {
    Again { id: alarm.id, fence: alarm.fence, lease: LEASE, consumed: false }
}

#[tokio::test]
async fn h01_an_alarm_that_the_scan_missed_is_found_and_claimed() -> Result<()> {
    let ground = Ground::new().await?;
    let ids = ground.lay(ground.lanes[2], 3, -60_000).await?;
    ground.lay(ground.lanes[2], 3, 60_000).await?;
    let alarms = page(&ground).await?;
    assert_eq!(alarms.iter().map(|a| a.id).collect::<Vec<_>>(), ids);
    assert!(alarms.iter().all(|a| a.found == Found::Missed));
    let wanted: Vec<Again> = alarms.iter().map(again).collect();
    assert_eq!(relay::republish(&ground.pool, ground.epoch, &wanted).await?.len(), 3);
    assert_eq!(page(&ground).await?.len(), 0, "now they are leased");
    Ok(())
}

#[tokio::test]
async fn s02_the_sweep_pages_through_a_lane_by_keyset() -> Result<()> {
    let ground = Ground::new().await?;
    let ids = ground.lay(ground.lanes[0], 25, -60_000).await?;
    let mut spans = ground.spans();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let page = relay::sweep_page(&ground.pool, &spans, 10, LONGEST).await?;
        seen.extend(page.iter().map(|a| a.id));
        spans.retain_mut(|span| {
            let end = page.iter().find(|a| a.page_end && a.lane == span.cursor.lane);
            if let Some(end) = end {
                (span.cursor.at, span.cursor.id) = (end.next_at, end.id);
            }
            end.is_some()
        });
        if spans.is_empty() {
            break;
        }
    }
    assert_eq!(seen, ids);
    assert!(spans.is_empty());
    Ok(())
}

#[tokio::test]
async fn s04_a_lease_that_is_over_is_found_and_one_that_is_not_is_left() -> Result<()> {
    let ground = Ground::new().await?;
    let over = ground.claimed().await?;
    let running = ground.claimed().await?;
    ground.change_due(over.id, "lease_until = clock_timestamp() - interval '1 ms'").await?;
    let alarms = page(&ground).await?;
    assert_eq!(alarms.len(), 1);
    assert_eq!((alarms[0].id, alarms[0].found), (over.id, Found::LeaseOver));
    ground.change_due(running.id, "lease_until = clock_timestamp() + interval '2 hours'").await?;
    let too_long = page(&ground).await?;
    assert!(too_long.iter().any(|a| a.id == running.id && a.found == Found::LeaseOver), "H5");
    Ok(())
}

#[tokio::test]
async fn h06_what_a_dead_relay_had_not_confirmed_is_an_orphan() -> Result<()> {
    let ground = Ground::new().await?;
    let confirmed = ground.claimed().await?;
    let excepted = ground.claimed().await?;
    let unconfirmed = ground.claimed().await?;
    let mut last = beat();
    last.confirmed_upto = excepted.claimed_at;
    last.exceptions = vec![excepted.id];
    relay::heartbeat(&ground.pool, ground.epoch, &last).await?.expect("alive");
    assert_eq!(page(&ground).await?.len(), 0, "its owner lives");
    relay::end(&ground.pool, ground.epoch, "test", &last).await?;
    let orphans: Vec<i64> = page(&ground).await?.iter().map(|a| a.id).collect();
    assert_eq!(orphans, [excepted.id, unconfirmed.id]);
    sqlx::raw_sql("delete from dueline.relay").execute(&ground.pool).await?;
    let all: Vec<i64> = page(&ground).await?.iter().map(|a| a.id).collect();
    assert_eq!(all, [confirmed.id, excepted.id, unconfirmed.id], "nobody knows the owner");
    Ok(())
}

/// H36: the business reschedules between the sweep's reading and its write.
#[tokio::test]
async fn h36_a_reschedule_after_the_reading_is_neither_extended_nor_published() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    ground.change_due(claim.id, "lease_until = clock_timestamp() - interval '1 ms'").await?;
    let alarm = page(&ground).await?[0];
    ground.move_away(claim.id).await?;
    let published = relay::republish(&ground.pool, ground.epoch, &[again(&alarm)]).await?;
    assert!(published.is_empty());
    let extended = relay::extend(&ground.pool, &[(alarm.id, alarm.fence, LEASE)]).await?;
    assert!(extended.is_empty());
    let parking = Parking {
        id: alarm.id,
        fence: alarm.fence,
        reason: Reason::TooOld,
        error: "too old".into(),
    };
    assert!(relay::park(&ground.pool, &[parking]).await?.is_empty());
    assert!(!ground.alarm(claim.id).await?.1, "it waits for its new deadline");
    Ok(())
}

/// H36: even with the right fence nothing that rings later is published or leased.
#[tokio::test]
async fn h36_no_lease_reaches_into_an_alarm_of_the_future() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    ground.change_due(claim.id, "next_at = clock_timestamp() + interval '1 hour'").await?;
    let wanted = Again { id: claim.id, fence: claim.fence, lease: LEASE, consumed: false };
    assert!(relay::republish(&ground.pool, ground.epoch, &[wanted]).await?.is_empty());
    let extended = relay::extend(&ground.pool, &[(claim.id, claim.fence, LEASE)]).await?;
    assert!(extended.is_empty());
    Ok(())
}

#[tokio::test]
async fn h12_an_extension_counts_and_keeps_the_claim() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    let extended = relay::extend(&ground.pool, &[(claim.id, claim.fence, LEASE * 4)]).await?;
    assert_eq!(extended, [claim.id]);
    let row: (i16, i32, i32, bool, bool) = sqlx::query_as(
        "select extensions, fence, claim_no, claimed_at = $2,
                lease_until > clock_timestamp() + interval '200 seconds'
         from dueline.due where id = $1",
    )
    .bind(claim.id)
    .bind(dueline_store::Timestamptz(claim.claimed_at))
    .fetch_one(&ground.pool)
    .await?;
    assert_eq!(row, (1, claim.fence + 1, 1, true, true));
    Ok(())
}

#[tokio::test]
async fn h13_only_a_consumed_message_raises_unanswered() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    let mut wanted = Again { id: claim.id, fence: claim.fence, lease: LEASE, consumed: true };
    let again = relay::republish(&ground.pool, ground.epoch, &[wanted]).await?[0];
    assert_eq!((again.claim_no, again.fence), (2, claim.fence + 1));
    wanted.fence = again.fence;
    wanted.consumed = false;
    assert_eq!(relay::republish(&ground.pool, ground.epoch, &[wanted]).await?.len(), 1);
    let statement = "select unanswered from dueline.due where id = $1";
    let unanswered: i16 =
        sqlx::query_scalar(statement).bind(claim.id).fetch_one(&ground.pool).await?;
    assert_eq!(unanswered, 1);
    Ok(())
}

#[tokio::test]
async fn h18_the_sweep_never_waits_for_a_row_that_somebody_holds() -> Result<()> {
    let ground = Ground::new().await?;
    let held = ground.claimed().await?;
    let free = ground.claimed().await?;
    let mut consumer = ground.pool.begin().await?;
    sqlx::query("delete from dueline.due where id = $1")
        .bind(held.id)
        .execute(&mut *consumer)
        .await?;
    let wanted: Vec<Again> = [held, free]
        .iter()
        .map(|c| Again { id: c.id, fence: c.fence, lease: LEASE, consumed: false })
        .collect();
    let write = relay::republish(&ground.pool, ground.epoch, &wanted);
    let published = tokio::time::timeout(Duration::from_secs(5), write).await??;
    assert_eq!(published.iter().map(|c| c.id).collect::<Vec<_>>(), [free.id]);
    consumer.rollback().await?;
    Ok(())
}

#[tokio::test]
async fn d05_a_parked_task_is_dead_and_stranded_with_its_history() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    sqlx::query(
        "insert into dueline.task_event (task_id, step, generation, attempt, detail)
         values ($1, 'fail', 0, 1, '{\"error\": \"timeout\"}')",
    )
    .bind(claim.id)
    .execute(&ground.pool)
    .await?;
    let parking = Parking {
        id: claim.id,
        fence: claim.fence,
        reason: Reason::Unanswered,
        error: "nobody answered".into(),
    };
    let parked = relay::park(&ground.pool, std::slice::from_ref(&parking)).await?;
    assert_eq!((parked[0].id, parked[0].generation), (claim.id, 1));
    let row: (String, i32, i32, String, String, i32, bool) = sqlx::query_as(
        "select t.state, t.generation, t.fence, s.reason, s.queue, jsonb_array_length(s.history),
                exists (select from dueline.due d where d.id = t.id)
         from dueline.task t join dueline.stranded s using (id) where t.id = $1",
    )
    .bind(claim.id)
    .fetch_one(&ground.pool)
    .await?;
    let expected = ("dead", 1, claim.fence + 1, "unanswered", "orders", 1, false);
    assert_eq!(
        (row.0.as_str(), row.1, row.2, row.3.as_str(), row.4.as_str(), row.5, row.6),
        expected
    );
    assert!(relay::park(&ground.pool, &[parking]).await?.is_empty(), "once");
    Ok(())
}

#[tokio::test]
async fn h18_parking_passes_by_a_task_that_is_being_settled() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    let mut consumer = ground.pool.begin().await?;
    sqlx::query("select from dueline.task where id = $1 for update")
        .bind(claim.id)
        .execute(&mut *consumer)
        .await?;
    let parking =
        Parking { id: claim.id, fence: claim.fence, reason: Reason::TooOld, error: String::new() };
    let park = relay::park(&ground.pool, std::slice::from_ref(&parking));
    assert!(tokio::time::timeout(Duration::from_secs(5), park).await??.is_empty());
    consumer.rollback().await?;
    assert_eq!(relay::park(&ground.pool, &[parking]).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn d05_age_is_judged_by_the_kinds_limit_from_the_deadline() -> Result<()> {
    let ground = Ground::new().await?;
    let young = ground.claimed().await?;
    let old = ground.claimed().await?;
    sqlx::query("update dueline.task set due_at = due_at - interval '2 days' where id = $1")
        .bind(old.id)
        .execute(&ground.pool)
        .await?;
    let mut subjects = relay::subjects(&ground.pool, &[young.id, old.id]).await?;
    subjects.sort_by_key(|s| s.id);
    assert_eq!(subjects.iter().map(|s| s.too_old).collect::<Vec<_>>(), [false, true]);
    Ok(())
}

#[tokio::test]
async fn h15_a_missing_letter_is_found_after_a_grace_and_stamped_once() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    let parking =
        Parking { id: claim.id, fence: claim.fence, reason: Reason::TooOld, error: "old".into() };
    relay::park(&ground.pool, &[parking]).await?;
    assert!(relay::letters_missing(&ground.pool, LEASE, 10).await?.is_empty(), "within its grace");
    let missing = relay::letters_missing(&ground.pool, Duration::ZERO, 10).await?;
    assert_eq!((missing[0].id, missing[0].reason), (claim.id, Reason::TooOld));
    assert!(!relay::lettered(&ground.pool, claim.id, 0).await?, "another generation");
    assert!(relay::lettered(&ground.pool, claim.id, missing[0].generation).await?);
    assert!(!relay::lettered(&ground.pool, claim.id, missing[0].generation).await?);
    assert!(relay::letters_missing(&ground.pool, Duration::ZERO, 10).await?.is_empty());
    Ok(())
}
