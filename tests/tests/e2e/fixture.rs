//! The shop itself, from schedule to effect.

use std::time::Duration;

use anyhow::Result;
use dueline_tests::{KIND, PATIENCE, Shop};

#[tokio::test]
async fn unpaid_orders_are_closed_and_paid_ones_are_not() -> Result<()> {
    let shop = Shop::start().await?;
    shop.orders(1..=100).await?;
    assert_eq!(shop.schedule(KIND, 1..=100, Duration::from_secs(1)).await?, 100);
    assert!(shop.pay(7).await?);
    assert_eq!(shop.cancel(KIND, 8).await?, "cancelled");
    shop.await_quiet(PATIENCE).await?;
    assert_eq!(shop.count("done").await?, 98);
    assert_eq!(shop.count("skipped").await?, 1);
    assert_eq!(shop.count("cancelled").await?, 1);
    assert_eq!(shop.count_orders("closed").await?, 98);
    assert_eq!(shop.count_orders("paid").await?, 1);
    Ok(())
}
