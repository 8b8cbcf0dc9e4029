//! H27, H30: what is demanded of a connection, and what a scrape of the metrics costs.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_tests::testkit::process::Service;
use dueline_tests::{KIND, PATIENCE, Shop};

/// Keys that must not become series.
const KEYS: i64 = 10_000;

/// TLS that is asked for is never left out in silence: our servers here have none.
#[tokio::test]
async fn h27_a_server_without_tls_is_refused_when_tls_is_demanded() -> Result<()> {
    let shop = Shop::build().await?.without_relay().without_consumer().start().await?;
    shop.dueline(&["list"]).await?.ok()?;
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = format!("postgres.url={}?sslmode={mode}", shop.url());
        let output = shop.dueline(&["list", "--set", &url]).await?;
        let said = output.stderr.to_lowercase();
        ensure!(
            output.code != 0 && (said.contains("tls") || said.contains("ssl")),
            "{mode}: {said}"
        );
    }
    let secured = "kafka.properties.security.protocol=ssl";
    let output = shop.dueline(&["apply", "--set", secured]).await?;
    ensure!(output.code != 0, "a broker without TLS was talked to: {}", output.stdout);
    Ok(())
}

/// A key is never a label: as many series after ten thousand keys as after a few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h30_ten_thousand_keys_make_no_more_series() -> Result<()> {
    let mut shop = Shop::start().await?;
    shop.orders(1..=KEYS).await?;
    // More than a batch, so that what happens seldom happened.
    shop.schedule(KIND, 1..=2_000, Duration::ZERO).await?;
    shop.await_quiet(PATIENCE).await?;
    let before = (series(shop.relay()).await?, series(shop.consumer()).await?);
    shop.schedule(KIND, 2_001..=KEYS, Duration::ZERO).await?;
    shop.await_quiet(PATIENCE).await?;
    let after = (series(shop.relay()).await?, series(shop.consumer()).await?);
    for (before, after) in [(before.0, after.0), (before.1, after.1)] {
        let new: Vec<_> = after.difference(&before).collect();
        ensure!(!after.is_empty() && new.len() <= 20, "{} new series: {new:#?}", new.len());
    }
    Ok(())
}

/// The names and labels that a scrape shows.
async fn series(service: &mut Service) -> Result<BTreeSet<String>> {
    let (status, body) = service.get("/metrics").await?;
    ensure!(status == 200);
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect())
}
