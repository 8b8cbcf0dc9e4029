//! The clerk: looks after the dead, as a person would.

use std::time::Duration;

use dueline_testkit::checker::Call;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Uuid;

use super::pace::Pace;
use super::session::{Outcome, Receipt, Session};
use crate::clock;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(1_500);
/// What it signs its calls with.
const NAME: &str = "clerk";

/// A dead task: id, generation, key hash, kind, key.
type Dead = (i64, i32, Uuid, String, String);

/// Replays (after mending the cause), resolves or discards, until the pace ends.
pub async fn run(seed: u64, options: PgConnectOptions, pace: Pace) -> Vec<Call> {
    let mut rng = StdRng::seed_from_u64(!seed);
    let mut session = Session::new(options.application_name(NAME));
    let mut calls = Vec::new();
    while !pace.is_over() {
        tokio::time::sleep(LOOK).await;
        let found = session.transact(async |c| {
            let stranded = include_str!("../../sql/workload/stranded.sql");
            sqlx::query_as::<_, Dead>(stranded).fetch_all(c).await
        });
        let Outcome::Done(found) = found.await else { continue };
        for dead in found {
            let wish = match rng.random_range(0..100) {
                0..40 => "replay",
                40..60 => "resolve",
                60..80 => "discard",
                _ => continue,
            };
            calls.push(act(&mut session, dead, wish).await);
        }
    }
    calls
}

async fn act(session: &mut Session, dead: Dead, wish: &'static str) -> Call {
    let (id, generation, key_hash, kind, key) = dead;
    let asked_at = clock::now();
    let outcome = session.transact(async |c| {
        let statement = match wish {
            "replay" => include_str!("../../sql/workload/replay.sql"),
            "resolve" => include_str!("../../sql/workload/resolve.sql"),
            _ => include_str!("../../sql/workload/discard.sql"),
        };
        if wish == "replay" && kind == "refund" {
            let refund: i64 = key.parse().unwrap_or_default();
            let repair = sqlx::query(include_str!("../../sql/workload/repair.sql")).bind(refund);
            repair.execute(&mut *c).await?;
        }
        let mut query = sqlx::query_as(statement).bind(id).bind(generation);
        if wish == "replay" {
            query = query.bind(key_hash);
        }
        query.fetch_one(c).await
    });
    let told = Outcome::<Receipt>::told(outcome.await);
    Call { kind, key, who: NAME.to_owned(), wish, asked_at, told_at: clock::now(), told }
}
