//! The fixture itself.

use anyhow::Result;
use dueline_tests::Bench;

#[tokio::test]
async fn a_fresh_database_has_the_schema_and_no_task() -> Result<()> {
    let bench = Bench::new().await?;
    assert_eq!(bench.count("live").await?, 0);
    bench.orders(1..=10).await?;
    assert!(bench.pay(3).await?);
    assert_eq!(bench.count_orders("unpaid").await?, 9);
    Ok(())
}

#[tokio::test]
async fn migrating_again_changes_nothing() -> Result<()> {
    let bench = Bench::new().await?;
    dueline_store::migrate(&bench.pool).await?;
    Ok(())
}
