//! `dueline apply`: whatever queues, tiers and kinds are accepted, the database takes, or says why not.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use dueline_config::Config;
use dueline_store::operate::{apply, instance};
use dueline_store::{Pool, StoreError};
use dueline_tests::Bench;

use super::dice::Dice;
use super::harness::{APPLY, Run};

/// Queues, tiers and kinds of a few names, so that most of them were there before in another shape.
fn catalog(dice: &mut Dice) -> String {
    let mut text = String::new();
    // Two that are mostly there, since removing a queue with tasks is refused, and two that come and go.
    let mut queues = Vec::new();
    for (queue, missing) in [("orders", 24), ("mail", 24), ("a_b", 3), ("0", 3)] {
        if !dice.one_in(missing) {
            queues.push(queue);
        }
    }
    for queue in &queues {
        let tiers = tiers(dice);
        let slots = if dice.one_in(20) { 64 } else { 1 + dice.below(4) };
        text += &format!("[queues.{queue}]\ntiers = {tiers}\nslots = {slots}\n");
        if dice.one_in(12) {
            text += &format!("group = {}\n", serde_json::Value::from(dice.text_without_nul()));
        }
    }
    for (kind, home) in [("close", "orders"), ("remind", "mail"), ("k-1", "mail")] {
        // Moving a kind that has tasks is refused, and so is leaving it out.
        let stays = queues.contains(&home) && !dice.one_in(24);
        if queues.is_empty() || dice.one_in(24) {
            continue;
        }
        let queue = if stays { home } else { *dice.pick(&queues) };
        let backoff = ["[]", "[\"1ms\"]", "[\"0\", \"30d\"]", "[\"3s\", \"10s\"]"];
        let age = ["1s", "3000d", "1d", "1h30m"];
        let bytes = ["1", "524288", "8192"];
        text += &format!(
            "[kinds.{kind}]\nqueue = \"{queue}\"\nrust = true\nbackoff = {}\nage_limit = \"{}\"\n\
             max_payload_bytes = {}\n",
            dice.pick(&backoff),
            dice.pick(&age),
            dice.pick(&bytes),
        );
    }
    // The age limit must fit what is remembered.
    text + "[retention]\ntask = \"3660d\"\ndedupe = \"3660d\"\nreplay_window = \"1s\"\n"
}

fn tiers(dice: &mut Dice) -> String {
    const NAMES: [&str; 7] = ["fast", "slow", "10s", "1m", "a", "b", "0"];
    match dice.below(16) {
        0 => "\"default\"".to_owned(),
        1 => "\"rocketmq\"".to_owned(),
        _ => {
            let first = dice.below(NAMES.len());
            let tier = |n: usize, delay: &str| {
                format!(
                    "{{ name = {:?}, max_delay = {delay:?} }}",
                    NAMES[(first + n) % NAMES.len()]
                )
            };
            let delays = ["1ms", "1m", "90d", "3660d"];
            let tiers: Vec<String> =
                (0..=dice.below(3)).map(|n| tier(n, delays[n.min(3)])).collect();
            format!("[{}]", tiers.join(", "))
        }
    }
}

/// Some tasks, so that what is removed is in use.
async fn schedule(pool: &Pool, config: &Config, dice: &mut Dice) -> Result<()> {
    for kind in config.kinds.keys() {
        let delay = dice.below(200_000);
        let statement = "select dueline.schedule($1, $2, delay => $3 * interval '1 minute')";
        let key = dice.below(30).to_string();
        sqlx::query(statement).bind(kind).bind(key).bind(delay as f64).execute(pool).await?;
    }
    if dice.one_in(4) {
        sqlx::raw_sql(
            "with d as (delete from dueline.due returning id, fence)
             update dueline.task t set state = 'cancelled', finished_at = clock_timestamp(),
                    generation = t.generation + 1, fence = d.fence + 1
             from d where d.id = t.id",
        )
        .execute(pool)
        .await?;
    }
    Ok(())
}

async fn one(bench: &Bench, dice: &mut Dice) -> Result<&'static str> {
    let text = catalog(dice);
    dice.show(|| text.clone());
    let config = match Config::from_toml_str(&text) {
        Ok(config) => config,
        Err(_) => return Ok("not accepted"),
    };
    let plan = match apply::apply(&bench.pool, &config).await {
        Ok(plan) => plan,
        // Lanes that are not empty in time: everything works on, and the next apply goes on.
        Err(StoreError::Refused(text)) => {
            ensure!(text.len() > 10);
            return Ok("refused");
        }
        Err(error) => return Err(error).context("an accepted configuration"),
    };
    let left = apply::plan(&bench.pool, &config).await?;
    if let Some(refusal) = plan.refusals().next() {
        ensure!(!refusal.detail.is_empty(), "refused without a reason: {refusal:?}");
        return Ok("refused");
    }
    ensure!(!left.has_changes(), "applied, and there is still something to do: {left:?}");
    schedule(&bench.pool, &config, dice).await?;
    let homeless = "select count(*) from dueline.due d left join dueline.lane l using (lane)
                    where l.lane is null";
    let homeless: i64 = sqlx::query_scalar(homeless).fetch_one(&bench.pool).await?;
    ensure!(homeless == 0, "{homeless} alarms are in no lane");
    Ok("applied")
}

#[tokio::test]
async fn any_accepted_catalog_is_applied_or_refused_with_a_reason() -> Result<()> {
    let bench = Bench::new().await?;
    instance::create(&bench.pool, "fuzz").await?;
    let mut run = Run::begin(APPLY);
    while let Some(dice) = run.next() {
        let mut dice = dice.showing();
        let start = Instant::now();
        let verdict = one(&bench, &mut dice).await;
        run.judge(verdict.with_context(|| dice.shown()), start.elapsed())?;
    }
    run.end(&["applied", "refused"])
}
