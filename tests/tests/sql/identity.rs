//! Hash, slot and tier: the database agrees with `dueline-core`.

use std::time::Duration;

use anyhow::Result;
use dueline_core::{KeyHash, Tier, tier};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::stage::Stage;

/// Texts that a hash over bytes could get wrong.
const ODD: [&str; 9] = [
    "",
    "\\",
    "\\x41",
    "\\\\x",
    "\\000",
    "ü€😀",
    "a\nb\tc",
    "'; drop table x; --",
    "\u{fffd}\u{301}",
];

fn random_text(rng: &mut SmallRng) -> String {
    let length = rng.random_range(0..40);
    (0..length)
        .map(|_| match rng.random_range(0..4) {
            0 => '\\',
            1 => char::from(rng.random_range(1..128_u8)),
            2 => rng.random::<char>(),
            _ => rng.random_range('a'..='z'),
        })
        .filter(|c| *c != '\0')
        .collect()
}

#[tokio::test]
async fn i02_the_key_hash_and_the_slot_are_those_of_the_core() -> Result<()> {
    let stage = Stage::new().await?;
    let seed: u64 = rand::random();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut keys: Vec<String> = ODD.into_iter().map(str::to_owned).collect();
    keys.extend((0..2_000).map(|_| random_text(&mut rng)));
    let rows: Vec<(String, uuid::Uuid, i32)> = sqlx::query_as(
        "select k, h, dueline.slot_for(h, 7)
         from unnest($1::text[]) k, lateral (select dueline.key_hash(k, k || 'ü', k || k)) l (h)",
    )
    .bind(&keys)
    .fetch_all(&stage.pool)
    .await?;
    assert_eq!(rows.len(), keys.len());
    for (key, hash, slot) in rows {
        let expected = KeyHash::new(&key, &format!("{key}ü"), &format!("{key}{key}"));
        assert_eq!(expected.as_uuid(), hash, "seed {seed}, key {key:?}");
        assert_eq!(u32::try_from(slot)?, expected.slot(7), "seed {seed}, key {key:?}");
    }
    Ok(())
}

#[tokio::test]
async fn q01_the_tier_is_that_of_the_core() -> Result<()> {
    let stage = Stage::new().await?;
    let tiers: Vec<Tier> = tier::default_tiers();
    let mut micros: Vec<i64> = vec![0, 1];
    for tier in &tiers {
        let edge = i64::try_from(tier.max_delay.as_micros())?;
        micros.extend([edge - 1, edge, edge + 1]);
    }
    let rows: Vec<(i64, String, String)> = sqlx::query_as(
        "select m, dueline.tier_for('orders', m * interval '1 microsecond'), r.tier
         from unnest($1::bigint[]) m,
              dueline.route('close_order', 'k', m * interval '1 microsecond') r",
    )
    .bind(&micros)
    .fetch_all(&stage.pool)
    .await?;
    for (delay, by_name, routed) in rows {
        let expected = tier::tier_for(&tiers, Duration::from_micros(u64::try_from(delay)?));
        let expected = expected.expect("there are tiers").name.as_str();
        assert_eq!((by_name.as_str(), routed.as_str()), (expected, expected), "{delay} µs");
    }
    let negative: String =
        stage.ask("select dueline.tier_for('orders', interval '-1 hour')").await?;
    assert_eq!(negative, "10s");
    Ok(())
}

#[tokio::test]
async fn q01_many_tasks_get_the_tiers_and_lanes_of_single_ones() -> Result<()> {
    let stage = Stage::new().await?;
    let odd: i64 = stage
        .ask(
            "with delays as (
                 select i, (d * interval '1 second') + m * interval '1 microsecond' as delay
                 from unnest(array[0, 10, 60, 600, 3600, 86400, 604800, 7776000, 99999999])
                          with ordinality u (d, n),
                      unnest(array[-1, 0, 1]) m, lateral (select n * 10 + m as i) x
                 where d + m >= 0
             ),
             many as materialized (
                 select r.* from dueline.schedule_many('close_order',
                     (select array_agg('many' || i order by i) from delays),
                     delays => (select array_agg(delay order by i) from delays)) r
             )
             select count(*)
             from many m
             join (select i, delay, row_number() over (order by i) as ord from delays) d using (ord),
                  dueline.route('close_order', m.key, d.delay) r
             where r.tier is distinct from m.tier
                or dueline.tier_for('orders', d.delay) is distinct from m.tier",
        )
        .await?;
    assert_eq!(odd, 0);
    let misplaced: i64 = stage
        .ask(
            "select count(*) from dueline.task t join dueline.due d using (id)
             where d.lane is distinct from dueline.lane_for('orders', t.tier, t.key_hash)",
        )
        .await?;
    assert_eq!(misplaced, 0);
    Ok(())
}
