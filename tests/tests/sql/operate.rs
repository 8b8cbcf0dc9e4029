//! Apply: the configuration becomes rows, and what leaves it takes nothing with it (H38).

use std::time::Duration;

use anyhow::Result;
use dueline_config::Config;
use dueline_store::StoreError;
use dueline_store::operate::apply::{apply, plan};
use dueline_store::operate::plan::{Action, Plan};
use dueline_tests::testkit::wait;
use dueline_tests::{Bench, PATIENCE};
use sqlx::Connection as _;

const KIND: &str = "close_order";
const TIERS: &[(&str, &str)] = &[("fast", "1m"), ("mid", "1h"), ("slow", "90d")];

/// One queue, one kind.
fn shop(slots: u16, tiers: &[(&str, &str)]) -> Result<Config> {
    let tiers: Vec<String> = tiers
        .iter()
        .map(|(name, delay)| format!("{{ name = \"{name}\", max_delay = \"{delay}\" }}"))
        .collect();
    Ok(Config::from_toml_str(&format!(
        "[queues.orders]\nslots = {slots}\ntiers = [{}]\n\
         [kinds.{KIND}]\nqueue = \"orders\"\nsql = \"select 1\"\n",
        tiers.join(", ")
    ))?)
}

/// A database with this configuration applied.
async fn applied(config: &Config) -> Result<Bench> {
    let bench = Bench::new().await?;
    let done = apply(&bench.pool, config).await?;
    assert_eq!(done.refusals().count(), 0);
    Ok(bench)
}

async fn number(bench: &Bench, statement: &'static str) -> Result<i64> {
    Ok(sqlx::query_scalar(statement).fetch_one(&bench.pool).await?)
}

/// Every alarm is in a lane that exists, of the queue, with the slot that a scheduler would choose now.
async fn assert_well_placed(bench: &Bench, alarms: i64) -> Result<()> {
    let placed = "
        select count(*)
        from dueline.due d
        join dueline.task t using (id)
        join dueline.lane l on l.lane = d.lane
        join dueline.queue q on q.name = l.queue
        where l.slot = dueline.slot_for(t.key_hash, q.slots)";
    assert_eq!(number(bench, placed).await?, alarms);
    assert_eq!(number(bench, "select count(*) from dueline.due").await?, alarms);
    Ok(())
}

fn actions(plan: &Plan, action: Action) -> Vec<(&str, &str)> {
    let of = plan.items.iter().filter(|i| i.action == action);
    of.map(|i| (i.what, i.name.as_str())).collect()
}

#[tokio::test]
async fn apply_makes_everything_from_nothing_and_then_nothing() -> Result<()> {
    let bench = Bench::new().await?;
    let config = shop(4, TIERS)?;
    let planned = plan(&bench.pool, &config).await?;
    assert!(planned.items.iter().all(|i| i.action == Action::Create), "{planned:?}");
    assert_eq!(number(&bench, "select count(*) from dueline.lane").await?, 0, "a plan only plans");
    assert_eq!(apply(&bench.pool, &config).await?, planned, "the plan is what apply does");
    assert_eq!(number(&bench, "select count(*) from dueline.lane").await?, 12);
    let again = apply(&bench.pool, &config).await?;
    assert!(!again.has_changes(), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn apply_widens_slots_and_tiers_while_tasks_wait() -> Result<()> {
    let bench = applied(&shop(1, &[("fast", "1m")])?).await?;
    bench.schedule(KIND, 1..=50, Duration::from_secs(30)).await?;
    let wider = shop(4, TIERS)?;
    let planned = plan(&bench.pool, &wider).await?;
    assert_eq!(apply(&bench.pool, &wider).await?, planned);
    assert_eq!(actions(&planned, Action::Change), [("queue", "orders"), ("lanes", "orders/fast")]);
    assert_eq!(number(&bench, "select count(*) from dueline.lane").await?, 12);
    // What waited stays where it is: its lane is still walked.
    let lost = "select count(*) from dueline.due d where not exists (
                    select from dueline.lane l where l.lane = d.lane)";
    assert_eq!(number(&bench, lost).await?, 0);
    bench.schedule(KIND, 51..=90, Duration::from_secs(1_800)).await?;
    let mid =
        "select count(*) from dueline.due d join dueline.lane l using (lane) where l.tier = 'mid'";
    assert_eq!(number(&bench, mid).await?, 40);
    Ok(())
}

#[tokio::test]
async fn h38_fewer_slots_move_the_alarms_and_keep_their_leases() -> Result<()> {
    let bench = applied(&shop(8, TIERS)?).await?;
    bench.schedule(KIND, 1..=200, Duration::from_secs(30)).await?;
    let lease = "
        update dueline.due set lease_until = clock_timestamp() + interval '1 minute',
               claimed_at = clock_timestamp(), claim_epoch = 1, claim_no = 1
        where id % 2 = 0";
    sqlx::query(lease).execute(&bench.pool).await?;
    let fewer = shop(2, TIERS)?;
    let planned = plan(&bench.pool, &fewer).await?;
    let moves = planned.items.iter().find(|i| i.detail.contains("alarms move to other slots"));
    assert!(moves.is_some(), "{planned:?}");
    assert_eq!(apply(&bench.pool, &fewer).await?, planned);
    assert_well_placed(&bench, 200).await?;
    assert_eq!(number(&bench, "select count(*) from dueline.lane").await?, 6);
    let leased = "select count(*) from dueline.due where lease_until is not null";
    assert_eq!(number(&bench, leased).await?, 100, "the topic is the same: a lease goes on");
    assert!(!apply(&bench.pool, &fewer).await?.has_changes());
    Ok(())
}

#[tokio::test]
async fn h38_a_removed_tier_moves_its_alarms_and_ends_their_leases() -> Result<()> {
    let bench = applied(&shop(2, TIERS)?).await?;
    bench.schedule(KIND, 1..=60, Duration::from_secs(1_800)).await?;
    let lease = "
        update dueline.due set lease_until = clock_timestamp() + interval '1 minute', fence = 5,
               claimed_at = clock_timestamp(), claim_epoch = 1, claim_no = 1, extensions = 2";
    sqlx::query(lease).execute(&bench.pool).await?;
    let done = apply(&bench.pool, &shop(2, &[("fast", "1m"), ("slow", "90d")])?).await?;
    assert!(actions(&done, Action::Remove).contains(&("tier", "orders/mid")), "{done:?}");
    assert_well_placed(&bench, 60).await?;
    let moved = "
        select count(*) from dueline.due d join dueline.lane l using (lane)
        where l.tier = 'slow' and d.lease_until is null and d.extensions = 0 and d.fence = 6";
    assert_eq!(number(&bench, moved).await?, 60, "nobody reads the old topic any more");
    assert_eq!(number(&bench, "select count(*) from dueline.tier").await?, 2);
    let ranks = "select count(*) from dueline.tier where rank in (0, 1)";
    assert_eq!(number(&bench, ranks).await?, 2);
    Ok(())
}

#[tokio::test]
async fn h38_a_schedule_in_an_open_transaction_is_not_left_in_a_removed_lane() -> Result<()> {
    let bench = applied(&shop(8, &[("slow", "90d")])?).await?;
    let mut connection = bench.connect().await?;
    let mut open = connection.begin().await?;
    let many = "select count(dueline.schedule('close_order', n::text, delay => '1 hour'))
                from generate_series(1, 40) n";
    sqlx::query(many).execute(&mut *open).await?;
    let pool = bench.pool.clone();
    let fewer = shop(1, &[("slow", "90d")])?;
    let running = tokio::spawn(async move { apply(&pool, &fewer).await });
    wait::until("the first half of apply", PATIENCE, async || {
        Ok(number(&bench, "select slots::bigint from dueline.queue").await? == 1)
    })
    .await?;
    // Others schedule meanwhile, without waiting for the open transaction or for apply.
    assert_eq!(bench.schedule(KIND, 101..=110, Duration::from_secs(3_600)).await?, 10);
    assert!(!running.is_finished(), "lanes stay while somebody may still commit into them");
    assert_eq!(number(&bench, "select count(*) from dueline.lane").await?, 8);
    open.commit().await?;
    let done = running.await??;
    assert_eq!(done.refusals().count(), 0);
    assert_eq!(number(&bench, "select count(*) from dueline.lane").await?, 1);
    assert_well_placed(&bench, 50).await
}

#[tokio::test]
async fn h38_queues_and_kinds_with_tasks_stay_and_nothing_else_is_done() -> Result<()> {
    let bench = applied(&shop(2, TIERS)?).await?;
    bench.schedule(KIND, 1..=3, Duration::from_secs(30)).await?;
    let other = Config::from_toml_str("[queues.other]\n")?;
    let refused = apply(&bench.pool, &other).await?;
    assert_eq!(actions(&refused, Action::Refuse), [("queue", "orders"), ("kind", KIND)]);
    for item in refused.refusals() {
        assert!(item.detail.contains('3') && item.detail.contains("cancel"), "{item:?}");
    }
    assert_eq!(number(&bench, "select count(*) from dueline.queue").await?, 1, "nothing was done");
    for id in 1..=3 {
        bench.cancel(KIND, id).await?;
    }
    let done = apply(&bench.pool, &other).await?;
    assert_eq!(done.refusals().count(), 0, "{done:?}");
    assert_eq!(number(&bench, "select count(*) from dueline.kind").await?, 0);
    let gone = "select count(*) from dueline.lane where queue = 'orders'";
    assert_eq!(number(&bench, gone).await?, 0);
    assert!(!apply(&bench.pool, &other).await?.has_changes());
    Ok(())
}

#[tokio::test]
async fn a_kind_with_tasks_does_not_change_its_queue() -> Result<()> {
    let bench = applied(&shop(2, TIERS)?).await?;
    bench.schedule(KIND, 1..=1, Duration::from_secs(30)).await?;
    let moved = Config::from_toml_str(&format!(
        "[queues.orders]\n[queues.other]\n[kinds.{KIND}]\nqueue = \"other\"\nsql = \"select 1\"\n"
    ))?;
    let refused = apply(&bench.pool, &moved).await?;
    assert_eq!(actions(&refused, Action::Refuse), [("kind", KIND)]);
    bench.cancel(KIND, 1).await?;
    let done = apply(&bench.pool, &moved).await?;
    assert!(actions(&done, Action::Change).contains(&("kind", KIND)), "{done:?}");
    let queue: String =
        sqlx::query_scalar("select queue from dueline.kind").fetch_one(&bench.pool).await?;
    assert_eq!(queue, "other");
    Ok(())
}

#[tokio::test]
async fn s06_two_applies_do_not_run_at_once() -> Result<()> {
    let bench = Bench::new().await?;
    let mut other = bench.connect().await?;
    sqlx::query(include_str!("../../../crates/dueline-store/sql/operate/apply_lock.sql"))
        .execute(&mut other)
        .await?;
    let config = shop(1, TIERS)?;
    match apply(&bench.pool, &config).await {
        Err(StoreError::Refused(why)) => assert!(why.contains("another"), "{why}"),
        outcome => panic!("{outcome:?}"),
    }
    other.close().await?;
    wait::until("the lock to be free", PATIENCE, async || {
        Ok(apply(&bench.pool, &config).await.is_ok())
    })
    .await
}
