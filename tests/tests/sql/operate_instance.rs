//! Whose database it is: fresh, known, cloned, failed over, a standby (H21, H35).

use anyhow::Result;
use dueline_store::operate::instance::{self, SourceOrigin};
use dueline_store::{Pool, StoreError};
use dueline_tests::testkit::services::{Postgres, Standby};
use dueline_tests::testkit::{database::TestDatabase, wait};
use dueline_tests::{Bench, PATIENCE};

const NAME: &str = "shop";

fn refusal<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(StoreError::Refused(why)) => why,
        other => panic!("{other:?} instead of a refusal"),
    }
}

async fn last_id(pool: &Pool) -> Result<i64> {
    let statement = "select last_value from dueline.task_id_seq";
    Ok(sqlx::query_scalar(statement).fetch_one(pool).await?)
}

#[tokio::test]
async fn a_fresh_database_says_what_to_run_and_then_stays_the_same() -> Result<()> {
    let bench = Bench::new().await?;
    assert!(refusal(instance::check(&bench.pool, NAME).await).contains("dueline apply"));
    let made = instance::create(&bench.pool, NAME).await?;
    assert_eq!(instance::create(&bench.pool, NAME).await?, made);
    assert_eq!(instance::check(&bench.pool, NAME).await?, made);
    let source: String =
        sqlx::query_scalar("select dueline.source()").fetch_one(&bench.pool).await?;
    assert_eq!(made.source(), source, "SQL and Rust write the same source");
    let why = refusal(instance::check(&bench.pool, "other").await);
    assert!(why.contains("shop") && why.contains("instance.name"), "{why}");
    Ok(())
}

#[tokio::test]
async fn a_database_without_the_schema_says_what_to_run() -> Result<()> {
    let bench = Bench::new().await?;
    sqlx::raw_sql("drop schema dueline cascade").execute(&bench.pool).await?;
    assert!(refusal(instance::check(&bench.pool, NAME).await).contains("dueline migrate"));
    assert!(refusal(instance::create(&bench.pool, NAME).await).contains("dueline migrate"));
    Ok(())
}

#[tokio::test]
async fn h35_a_clone_is_refused_until_adopted_or_renewed() -> Result<()> {
    let bench = Bench::new().await?;
    let made = instance::create(&bench.pool, NAME).await?;
    let clone = "update dueline.instance set system_identifier = '1'";
    sqlx::query(clone).execute(&bench.pool).await?;
    let why = refusal(instance::check(&bench.pool, NAME).await);
    assert!(why.contains("instance adopt") && why.contains("instance renew"), "{why}");

    let before = last_id(&bench.pool).await?;
    let adopted = instance::adopt(&bench.pool).await?;
    assert_eq!(adopted, made, "the same instance on this cluster");
    assert!(last_id(&bench.pool).await? >= before + 1_000_000, "ids are not handed out again");
    assert_eq!(instance::check(&bench.pool, NAME).await?, made);

    sqlx::query(clone).execute(&bench.pool).await?;
    let renewed = instance::renew(&bench.pool, "copy").await?;
    assert_ne!(renewed.uuid, made.uuid);
    assert_eq!(renewed.name, "copy");
    assert_eq!(renewed.origin_of(&made.source()), SourceOrigin::Foreign);
    assert_eq!(instance::check(&bench.pool, "copy").await?, renewed);
    Ok(())
}

#[tokio::test]
async fn h35_a_new_timeline_moves_the_ids_on_once_whoever_notices() -> Result<()> {
    let bench = Bench::new().await?;
    instance::create(&bench.pool, NAME).await?;
    // As if the row had been written one timeline ago.
    let earlier = "alter table dueline.instance drop constraint instance_timeline_check;
                   update dueline.instance set timeline = timeline - 1";
    sqlx::raw_sql(earlier).execute(&bench.pool).await?;
    let before = last_id(&bench.pool).await?;
    let checks = (0..8).map(|_| {
        let pool = bench.pool.clone();
        tokio::spawn(async move { instance::check(&pool, NAME).await })
    });
    for check in checks.collect::<Vec<_>>() {
        assert_eq!(check.await??.timeline, 1);
    }
    let moved = last_id(&bench.pool).await? - before;
    assert!((1_000_000..1_000_010).contains(&moved), "moved by {moved}");
    Ok(())
}

#[tokio::test]
async fn a_schema_that_is_older_or_needs_newer_binaries_is_refused() -> Result<()> {
    let bench = Bench::new().await?;
    let made = instance::create(&bench.pool, NAME).await?;
    let older = "update dueline.instance set schema_version = schema_version - 1";
    sqlx::query(older).execute(&bench.pool).await?;
    assert!(refusal(instance::check(&bench.pool, NAME).await).contains("dueline migrate"));
    instance::record_schema(&bench.pool).await?;
    assert_eq!(instance::check(&bench.pool, NAME).await?, made);
    let newer = "update dueline.instance set oldest_binary = '99.0.0'";
    sqlx::query(newer).execute(&bench.pool).await?;
    assert!(refusal(instance::check(&bench.pool, NAME).await).contains("upgrade the binary"));
    Ok(())
}

#[tokio::test]
async fn h21_a_standby_is_refused_and_is_the_same_instance_once_promoted() -> Result<()> {
    let primary = tokio::task::spawn_blocking(Postgres::start).await??;
    let database = TestDatabase::create(&primary.url()).await?;
    let made = instance::create(&database.pool, NAME).await?;
    let before = last_id(&database.pool).await?;
    let standby = Standby::of(&primary, primary.port())?;
    let url = standby.url(database.name());
    let pool =
        wait::some("the standby to answer", PATIENCE, async || Ok(Pool::connect(&url).await.ok()))
            .await?;
    for outcome in [
        instance::check(&pool, NAME).await.map(drop),
        instance::create(&pool, NAME).await.map(drop),
        instance::adopt(&pool).await.map(drop),
        instance::check_primary(&pool).await,
    ] {
        assert!(refusal(outcome).contains("standby"));
    }
    sqlx::query("select pg_promote()").execute(&pool).await?;
    let promoted = instance::check(&pool, NAME).await?;
    assert_eq!((promoted.uuid, promoted.timeline), (made.uuid, made.timeline + 1));
    assert_eq!(promoted.origin_of(&made.source()), SourceOrigin::BeforeFailover);
    assert!(last_id(&pool).await? >= before + 1_000_000);
    assert_eq!(instance::check(&pool, NAME).await?, promoted);
    pool.close().await;
    Ok(())
}
