//! Ownership of lanes: registration, heartbeat, takeover, hand-over; the topics as they were seen.

use std::time::Duration;

use anyhow::Result;
use dueline_core::Micros;
use dueline_store::relay;

use super::relay_ground::{Ground, beat};

const AFTER: Duration = Duration::from_secs(3);

/// Makes a relay look as if it had been silent for a minute.
async fn silence(ground: &Ground, epoch: i64) -> Result<()> {
    sqlx::query(
        "update dueline.relay set heartbeat_at = heartbeat_at - interval '1 minute'
         where epoch = $1",
    )
    .bind(epoch)
    .execute(&ground.pool)
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_lane_has_one_owner() -> Result<()> {
    let ground = Ground::new().await?;
    let other = relay::register(&ground.pool, "two", "0").await?;
    let taken = relay::take_free(&ground.pool, other, &ground.lanes, 8).await?;
    assert!(taken.is_empty(), "all are owned");
    let given = relay::give(&ground.pool, ground.epoch, &ground.lanes[..3]).await?;
    assert_eq!(given.len(), 3);
    assert_eq!(relay::give(&ground.pool, ground.epoch, &ground.lanes[..3]).await?, [] as [i32; 0]);
    let taken = relay::take_free(&ground.pool, other, &ground.lanes, 2).await?;
    assert_eq!(taken.len(), 2, "at most as many as asked for");
    Ok(())
}

#[tokio::test]
async fn a_silent_relay_is_taken_over_once_with_its_watermark() -> Result<()> {
    let ground = Ground::new().await?;
    let mut last = beat();
    last.watermark = Micros(1_700_000_000_000_000);
    relay::heartbeat(&ground.pool, ground.epoch, &last).await?.expect("alive");
    let one = relay::register(&ground.pool, "two", "0").await?;
    let two = relay::register(&ground.pool, "three", "0").await?;
    let take = async |by| relay::take_over(&ground.pool, by, ground.epoch, 1, AFTER).await;
    assert_eq!(take(one).await?, None, "it is not silent");
    silence(&ground, ground.epoch).await?;
    let observed = relay::observe(&ground.pool, AFTER).await?;
    let overdue: Vec<i64> = observed.iter().filter(|r| r.overdue).map(|r| r.epoch).collect();
    assert_eq!(overdue, [ground.epoch]);
    let taken = take(one).await?.expect("it is dead");
    assert_eq!((taken.lanes.len(), taken.watermark), (8, last.watermark));
    assert_eq!(take(two).await?, None, "somebody was quicker");
    assert_eq!(relay::heartbeat(&ground.pool, ground.epoch, &last).await?, None, "told so");
    let owners = relay::lanes(&ground.pool).await?;
    assert!(owners.iter().all(|lane| lane.owner == Some(one)));
    Ok(())
}

#[tokio::test]
async fn a_sign_of_life_after_the_last_look_prevents_the_takeover() -> Result<()> {
    let ground = Ground::new().await?;
    let other = relay::register(&ground.pool, "two", "0").await?;
    relay::heartbeat(&ground.pool, ground.epoch, &beat()).await?.expect("alive");
    silence(&ground, ground.epoch).await?;
    let taken = relay::take_over(&ground.pool, other, ground.epoch, 0, AFTER).await?;
    assert_eq!(taken, None, "heartbeat 1 came after heartbeat 0 was seen");
    Ok(())
}

#[tokio::test]
async fn h08_a_dead_relay_claims_nothing_more() -> Result<()> {
    let ground = Ground::new().await?;
    ground.lay(ground.lanes[0], 3, -1_000).await?;
    let other = relay::register(&ground.pool, "two", "0").await?;
    silence(&ground, ground.epoch).await?;
    relay::take_over(&ground.pool, other, ground.epoch, 0, AFTER).await?.expect("dead");
    assert_eq!(ground.claim(10).await?.claimed.len(), 0);
    let taken = relay::take_free(&ground.pool, ground.epoch, &ground.lanes, 8).await?;
    assert!(taken.is_empty(), "the dead take nothing");
    Ok(())
}

#[tokio::test]
async fn h32_a_clean_end_frees_the_lanes() -> Result<()> {
    let ground = Ground::new().await?;
    assert_eq!(relay::end(&ground.pool, ground.epoch, "stopped", &beat()).await?, 8);
    assert_eq!(relay::end(&ground.pool, ground.epoch, "stopped", &beat()).await?, 0);
    let lanes = relay::lanes(&ground.pool).await?;
    assert!(lanes.iter().all(|lane| lane.owner.is_none()));
    assert!(relay::observe(&ground.pool, AFTER).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn h11_a_topic_is_the_same_only_since_it_last_changed() -> Result<()> {
    let ground = Ground::new().await?;
    let names = ["t".to_owned()];
    let see = async |id: &str, partitions| {
        relay::topic_seen(&ground.pool, "t", id, partitions).await?;
        anyhow::Ok(relay::topics_seen(&ground.pool, &names).await?.remove(0))
    };
    let first = see("a", 4).await?;
    assert_eq!(see("a", 4).await?, first, "nothing changed");
    let widened = see("a", 8).await?;
    assert!(widened.since > first.since);
    let renewed = see("b", 8).await?;
    assert!(renewed.since > widened.since && renewed.topic_id == "b");
    Ok(())
}
