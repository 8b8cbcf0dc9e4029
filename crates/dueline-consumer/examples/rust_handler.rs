//! A consumer with a handler in Rust: `cargo run --example rust_handler -- --config dueline.toml`.
//!
//! The kind `close_order` is declared in the configuration with `rust = true`. Its handler closes unpaid
//! orders, through the connection of the transaction that settles the tasks: either both happen or neither.
//! What a payload may ask for shows the other verdicts: `{"fail": "transient"}`, `{"fail": "permanent"}`.

use std::collections::HashSet;
use std::process::ExitCode;

use dueline_consumer::{EffectConnection, Handler, HandlerError, Task, Verdict, async_trait};

struct CloseOrder;

#[async_trait]
impl Handler for CloseOrder {
    async fn handle(
        &self,
        effect: &mut EffectConnection<'_>,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, HandlerError> {
        if let Some(task) = tasks.iter().find(|task| asks_for(task, "abort")) {
            // What no handler should do: it takes its consumer with it.
            eprintln!("aborting over {}", task.key);
            std::process::abort();
        }
        let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
        // The condition stands on the row that is updated, and that a payment updates too.
        let closed: Vec<String> = sqlx::query_scalar(
            "update orders set status = 'closed', closed_at = clock_timestamp(), times = times + 1 \
             where id = any($1::text[]::bigint[]) and status = 'unpaid' returning id::text",
        )
        .bind(&keys)
        .fetch_all(&mut **effect)
        .await?;
        let closed: HashSet<String> = closed.into_iter().collect();
        Ok(tasks.iter().map(|task| verdict(task, &closed)).collect())
    }
}

fn verdict(task: &Task, closed: &HashSet<String>) -> Verdict {
    if asks_for(task, "transient") {
        Verdict::Transient("asked to fail for now".to_owned())
    } else if asks_for(task, "permanent") {
        Verdict::Permanent("asked to fail for good".to_owned())
    } else if closed.contains(&task.key) {
        Verdict::Done
    } else {
        Verdict::Skipped
    }
}

fn asks_for(task: &Task, what: &str) -> bool {
    let Some(payload) = &task.payload else { return false };
    let payload: serde_json::Value = serde_json::from_str(payload.get()).unwrap_or_default();
    payload["fail"] == what
}

fn main() -> ExitCode {
    dueline_consumer::main_with(|consumer| consumer.handler("close_order", CloseOrder))
}
