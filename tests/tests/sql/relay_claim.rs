//! The claim: budget, fairness, order, guards; the release.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use dueline_store::relay::{self, Cursor};

use super::relay_ground::{Ground, LEASE, NO_END};

#[tokio::test]
async fn s03_one_budget_is_shared_among_the_lanes_that_have_due_work() -> Result<()> {
    let ground = Ground::new().await?;
    for lane in &ground.lanes[..4] {
        ground.lay(*lane, 100, -1_000).await?;
    }
    let round = ground.claim(40).await?;
    assert_eq!((round.claimed.len(), round.ready_lanes, round.share), (40, 4, 10));
    let mut per_lane: BTreeMap<i32, usize> = BTreeMap::new();
    for claim in &round.claimed {
        *per_lane.entry(claim.lane).or_default() += 1;
    }
    assert!(per_lane.values().all(|count| *count == 10), "{per_lane:?}");
    assert_eq!(ground.leased().await?, 40);
    Ok(())
}

#[tokio::test]
async fn s03_a_budget_smaller_than_the_lanes_serves_the_oldest() -> Result<()> {
    let ground = Ground::new().await?;
    for (index, lane) in ground.lanes.iter().enumerate() {
        ground.lay(*lane, 5, -10_000 + 100 * i64::try_from(index)?).await?;
    }
    let round = ground.claim(3).await?;
    assert!(round.lanes_left_out);
    let lanes: Vec<i32> = round.claimed.iter().map(|claim| claim.lane).collect();
    assert_eq!(lanes, ground.lanes[..3]);
    Ok(())
}

#[tokio::test]
async fn q01_a_flood_in_one_lane_does_not_hold_up_another() -> Result<()> {
    let ground = Ground::new().await?;
    ground.lay(ground.lanes[0], 5_000, -60_000).await?;
    let one = ground.lay(ground.lanes[7], 1, -10).await?[0];
    let round = ground.claim(100).await?;
    assert!(round.claimed.iter().any(|claim| claim.id == one));
    assert!(round.claimed.len() >= 51, "the flood has its own half: {}", round.claimed.len());
    Ok(())
}

#[tokio::test]
async fn v03_nothing_is_claimed_before_it_is_due() -> Result<()> {
    let ground = Ground::new().await?;
    ground.lay(ground.lanes[0], 10, 60_000).await?;
    let due = ground.lay(ground.lanes[0], 1, -5).await?;
    let round = ground.claim(100).await?;
    assert_eq!(round.claimed.iter().map(|c| c.id).collect::<Vec<_>>(), due);
    assert!(round.claimed[0].claimed_at >= round.claimed[0].next_at);
    let (next, now) = relay::next_due(&ground.pool, &ground.beginning(&ground.lanes)).await?;
    assert!(next.expect("ten wait").since(now) > Duration::from_secs(50));
    Ok(())
}

#[tokio::test]
async fn h05_nothing_is_claimed_beyond_what_the_steady_clock_allows() -> Result<()> {
    let ground = Ground::new().await?;
    ground.lay(ground.lanes[0], 10, -1_000).await?;
    let cursors = ground.beginning(&ground.lanes);
    let (_, now) = relay::next_due(&ground.pool, &cursors).await?;
    let horizon = now.minus(Duration::from_secs(30));
    let round = relay::claim(&ground.pool, ground.epoch, &cursors, 10, LEASE, horizon).await?;
    assert_eq!(round.claimed.len(), 0);
    Ok(())
}

#[tokio::test]
async fn l02_the_oldest_come_first_and_no_batch_looks_behind_its_cursor() -> Result<()> {
    let ground = Ground::new().await?;
    let lane = ground.lanes[0];
    let ids = ground.lay(lane, 30, -1_000).await?;
    let mut cursor = ground.beginning(&[lane]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let round = relay::claim(&ground.pool, ground.epoch, &cursor, 10, LEASE, NO_END).await?;
        let last = round.claimed.last().expect("ten");
        cursor = vec![Cursor { lane, at: last.next_at, id: last.id }];
        seen.extend(round.claimed.iter().map(|claim| claim.id));
    }
    assert_eq!(seen, ids);
    // Behind the cursor: found only by a round that starts before it.
    let late = ground.lay(lane, 1, -5_000).await?;
    let round = relay::claim(&ground.pool, ground.epoch, &cursor, 10, LEASE, NO_END).await?;
    assert_eq!(round.claimed.len(), 0);
    let round = ground.claim(10).await?;
    assert_eq!(round.claimed.iter().map(|c| c.id).collect::<Vec<_>>(), late);
    Ok(())
}

#[tokio::test]
async fn s04_a_claim_leases_numbers_and_fences_and_is_not_repeated() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    assert_eq!((claim.fence, claim.claim_no, claim.generation, claim.attempt), (1, 1, 0, 0));
    assert_eq!(ground.claim(10).await?.claimed.len(), 0, "it is leased");
    let (epoch, extensions, left): (i64, i16, bool) = sqlx::query_as(
        "select claim_epoch, extensions, lease_until > clock_timestamp() + '50 seconds'
         from dueline.due where id = $1",
    )
    .bind(claim.id)
    .fetch_one(&ground.pool)
    .await?;
    assert_eq!((epoch, extensions, left), (ground.epoch, 0, true));
    Ok(())
}

#[tokio::test]
async fn s05_a_relay_claims_in_its_own_lanes_only() -> Result<()> {
    let ground = Ground::new().await?;
    ground.lay(ground.lanes[0], 5, -1_000).await?;
    let other = relay::register(&ground.pool, "two", "0").await?;
    assert_eq!(ground.claim_as(other, 10, LEASE).await?.claimed.len(), 0);
    Ok(())
}

#[tokio::test]
async fn h18_a_claim_passes_by_what_somebody_holds() -> Result<()> {
    let ground = Ground::new().await?;
    let ids = ground.lay(ground.lanes[0], 5, -1_000).await?;
    let mut payer = ground.pool.begin().await?;
    sqlx::query("select from dueline.due where id = $1 for update")
        .bind(ids[0])
        .execute(&mut *payer)
        .await?;
    let claim = tokio::time::timeout(Duration::from_secs(5), ground.claim(10)).await??;
    assert_eq!(claim.claimed.len(), 4);
    payer.rollback().await?;
    assert_eq!(ground.claim(10).await?.claimed.len(), 1);
    Ok(())
}

#[tokio::test]
async fn h08_a_release_acts_only_under_the_fence_that_it_saw() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    assert_eq!(relay::release(&ground.pool, &[(claim.id, claim.fence - 1)]).await?, [] as [i64; 0]);
    assert_eq!(ground.alarm(claim.id).await?, (claim.fence, true));
    let released = relay::release(&ground.pool, &[(claim.id, claim.fence)]).await?;
    assert_eq!(released, [claim.id]);
    assert_eq!(ground.alarm(claim.id).await?, (claim.fence + 1, false));
    assert_eq!(relay::release(&ground.pool, &[(claim.id, claim.fence + 1)]).await?, [] as [i64; 0]);
    let again = ground.claim(10).await?.claimed[0];
    assert_eq!((again.claim_no, again.fence), (2, claim.fence + 2));
    Ok(())
}

/// H36: the business reschedules between the claim and the reading of the bodies.
#[tokio::test]
async fn h36_a_body_read_after_a_reschedule_is_of_another_generation() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    ground.move_away(claim.id).await?;
    let bodies = relay::bodies(&ground.pool, &[claim.id]).await?;
    assert_ne!(bodies[0].generation, claim.generation, "the relay leaves it out");
    assert_eq!(relay::release(&ground.pool, &[(claim.id, claim.fence)]).await?, [] as [i64; 0]);
    assert_eq!(ground.claim(10).await?.claimed.len(), 0, "its newer alarm rings in an hour");
    Ok(())
}

#[tokio::test]
async fn c01_a_cancelled_task_has_no_body() -> Result<()> {
    let ground = Ground::new().await?;
    let claim = ground.claimed().await?;
    sqlx::raw_sql(
        "delete from dueline.due;
         update dueline.task set state = 'cancelled', generation = 1, fence = 9,
                                 finished_at = clock_timestamp()",
    )
    .execute(&ground.pool)
    .await?;
    assert!(relay::bodies(&ground.pool, &[claim.id]).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_claim_with_nothing_due_tells_the_clock() -> Result<()> {
    let ground = Ground::new().await?;
    let round = ground.claim(10).await?;
    assert!(round.claimed.is_empty() && round.ready_lanes == 0 && round.now > Micros(0));
    assert_eq!(relay::next_due(&ground.pool, &ground.beginning(&ground.lanes)).await?.0, None);
    Ok(())
}
