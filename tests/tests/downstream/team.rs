//! What the team says becomes of its tasks, and no order is charged twice.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use dueline_core::letter::Reason;
use dueline_kafka::{Admin, KafkaSettings, testing};
use dueline_tests::testkit::process::{Program, Service};
use dueline_tests::testkit::wait;
use dueline_tests::{KIND, PATIENCE, QUEUE, Shop};

use super::consumer_support::number;
use super::relay_support::letters;
use super::team_support::{Team, shop};

const TEAM_ENV: &str = "DUELINE_TEAM";
const BROKER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// The team's command with a shop's topics and a ledger of its own.
fn team(shop: &Shop) -> Result<Program> {
    let command = std::env::var(TEAM_ENV).with_context(|| {
        format!("{TEAM_ENV} is not set: `./scripts/test downstream` sets it for each language")
    })?;
    let mut words = command.split_whitespace().map(str::to_owned);
    let config = shop.settings.config()?;
    let queue = &config.queues[QUEUE];
    let tiers: Vec<&str> = queue.tiers.iter().map(|tier| tier.name.as_str()).collect();
    let program = Program {
        name: "team".to_owned(),
        path: PathBuf::from(words.next().context("an empty command")?),
        arguments: words.collect(),
        environment: Vec::new(),
        log: shop.folder().join("team.log"),
    };
    Ok(program.args([
        format!("--brokers={}", config.kafka.bootstrap_servers()),
        format!("--prefix={}", config.kafka.topic_prefix),
        format!("--queue={QUEUE}"),
        format!("--tiers={}", tiers.join(",")),
        format!("--group={}", queue.group),
        format!("--ledger={}", shop.folder().join("ledger").display()),
    ]))
}

/// What the team charged: cents by account, and how many charges that were.
fn charges(team: &Program) -> Result<(BTreeMap<String, i64>, usize)> {
    let output = Command::new(&team.path).args(&team.arguments).arg("--charges").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let mut accounts = BTreeMap::new();
    for line in text.lines() {
        let (account, cents) = line.split_once(' ').context("`account cents`")?;
        *accounts.entry(account.to_owned()).or_default() += cents.parse::<i64>()?;
    }
    Ok((accounts, text.lines().count()))
}

/// Schedules further orders that are due now, one for each payload; keys count from 1.
async fn schedule(shop: &Shop, payloads: &[&str]) -> Result<()> {
    let first = number(shop, "select count(*) from dueline.task").await?;
    let keys: Vec<String> = (first + 1..).take(payloads.len()).map(|n| n.to_string()).collect();
    sqlx::query(
        "select dueline.schedule_many($1, $2, delays => array[interval '0'],
                                      payloads => (select array_agg(p::jsonb) from unnest($3::text[]) p))",
    )
    .bind(KIND)
    .bind(keys)
    .bind(payloads)
    .execute(&shop.pool)
    .await?;
    Ok(())
}

async fn await_count(shop: &Shop, service: &mut Service, state: &str, count: i64) -> Result<()> {
    let counted = shop.await_count(state, count, PATIENCE).await;
    counted.with_context(|| format!("the team's log:\n{}", service.log_tail()))
}

/// Asks a team to stop; a JVM that was asked to answers 143, whatever it did then.
fn stop(service: &mut Service) {
    let clean = service.stop().is_some_and(|status| matches!(status.code(), Some(0 | 143)));
    assert!(clean, "{}", service.log_tail());
}

#[tokio::test]
async fn q02_v1_what_the_team_says_becomes_of_its_tasks() -> Result<()> {
    let shop = shop().await?.start().await?;
    let program = team(&shop)?;
    let mut payloads = vec![r#"{"cents": 500}"#; 40];
    payloads.extend([r#"{"cents": 0}"#; 10]);
    payloads.extend([r#"{"cents": 7, "busy": true}"#; 10]);
    payloads.extend([r#"{"order": "é, without an amount"}"#; 5]);
    schedule(&shop, &payloads).await?;
    let mut service = program.start()?;
    await_count(&shop, &mut service, "done", 50).await?;
    await_count(&shop, &mut service, "skipped", 10).await?;
    await_count(&shop, &mut service, "dead", 5).await?;
    let retried = "select count(*) from dueline.task where state = 'done' and attempt = 1";
    assert_eq!(number(&shop, retried).await?, 10, "the bank answered at the second try");
    let letters = wait::some("the letters", PATIENCE, async || {
        let letters = letters(&shop).await?;
        Ok((letters.len() >= 5).then_some(letters))
    })
    .await?;
    for letter in letters {
        assert_eq!(letter.reason, Reason::Permanent);
        assert_eq!(letter.error, "the order has no amount");
    }
    stop(&mut service);
    let (accounts, count) = charges(&program)?;
    assert_eq!((accounts.len(), count), (50, 50), "one charge an order");
    assert_eq!(accounts.values().sum::<i64>(), 40 * 500 + 10 * 7);
    Ok(())
}

#[tokio::test]
async fn v2_a_team_that_is_killed_and_given_everything_again_charges_each_order_once() -> Result<()>
{
    let shop = shop().await?.start().await?;
    let program = team(&shop)?;
    schedule(&shop, &[r#"{"cents": 1}"#; 200]).await?;
    let mut first = program.start()?;
    wait::until("the team to be in the middle of it", PATIENCE, async || {
        Ok(shop.count("done").await? > 0)
    })
    .await?;
    first.kill();
    schedule(&shop, &[r#"{"cents": 1}"#; 200]).await?;
    let mut second = program.start()?;
    await_count(&shop, &mut second, "done", 400).await?;
    stop(&mut second);

    // Every message again, from the start of every topic.
    let config = shop.settings.config()?;
    let queue = &config.queues[QUEUE];
    let admin = Admin::new(&KafkaSettings::new(config.kafka.bootstrap_servers()), BROKER_TIMEOUT)?;
    let mut ends = Vec::new();
    for topic in queue.tier_topics() {
        let high: Vec<i64> = admin.watermarks(&topic).await?.iter().map(|ends| ends.high).collect();
        testing::set_offsets(&admin, &queue.group, &topic, &vec![0; high.len()]).await?;
        ends.push((topic, high));
    }
    let mut third = program.start()?;
    wait::until("everything to be handled again", PATIENCE, async || {
        for (topic, high) in &ends {
            let committed = admin.group_view(&queue.group, topic).await?.committed;
            let passed = committed.iter().zip(high).all(|(c, high)| c.unwrap_or(0) >= *high);
            if !passed {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
    .with_context(|| format!("the team's log:\n{}", third.log_tail()))?;
    stop(&mut third);
    Team::of(&shop)?.await_passed().await?;
    let (accounts, count) = charges(&program)?;
    assert_eq!((accounts.len(), count), (400, 400), "one charge an order");
    assert_eq!((shop.count("done").await?, shop.count("live").await?), (400, 0));
    let known =
        "select coalesce(sum(n), 0)::bigint from dueline.duplicate_stop where layer = 'dedupe'";
    assert!(number(&shop, known).await? >= 400, "the second outcomes were known");
    Ok(())
}
