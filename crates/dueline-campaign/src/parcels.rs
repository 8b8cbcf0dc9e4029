//! The handler in Rust: ships parcels, and fails as their payloads ask for.

use std::collections::HashSet;

use dueline_consumer::{EffectConnection, Handler, HandlerError, Task, Verdict, async_trait};
use serde::{Deserialize, Serialize};

/// The kind that it handles.
pub const KIND: &str = "ship";

/// How the last words of a consumer begin that a parcel aborts.
pub const ABORTING: &str = "aborting over";

/// How a parcel is going to fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// It does not.
    #[default]
    None,
    /// Until it was tried so often.
    Tries(i32),
    /// For good, at the first try.
    Broken,
    /// Its handler panics.
    Panic,
    /// Its handler takes the whole consumer with it.
    Abort,
}

/// What a parcel's payload says.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Label {
    /// How it is going to fail.
    #[serde(default)]
    pub flaw: Flaw,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Ship;

#[async_trait]
impl Handler for Ship {
    async fn handle(
        &self,
        effect: &mut EffectConnection<'_>,
        tasks: &[Task],
    ) -> Result<Vec<Verdict>, HandlerError> {
        if let Some(task) = tasks.iter().find(|task| flaw(task) == Flaw::Abort) {
            // What no handler should do.
            eprintln!("{ABORTING} {}", task.key);
            std::process::abort();
        }
        assert!(tasks.iter().all(|task| flaw(task) != Flaw::Panic), "a parcel that panics");
        let keys: Vec<&str> = tasks.iter().map(|task| task.key.as_str()).collect();
        // Without a condition of its own: only dueline keeps it from happening twice.
        let shipped: Vec<String> = sqlx::query_scalar(include_str!("../sql/ship.sql"))
            .bind(&keys)
            .fetch_all(&mut **effect)
            .await?;
        let shipped: HashSet<&str> = shipped.iter().map(String::as_str).collect();
        Ok(tasks.iter().map(|task| verdict(task, &shipped)).collect())
    }
}

fn verdict(task: &Task, shipped: &HashSet<&str>) -> Verdict {
    match flaw(task) {
        Flaw::Tries(tries) if task.attempt < tries => {
            Verdict::Transient("the courier is not there yet".to_owned())
        }
        Flaw::Broken => Verdict::Permanent("the parcel is broken".to_owned()),
        _ if shipped.contains(task.key.as_str()) => Verdict::Done,
        _ => Verdict::Skipped,
    }
}

fn flaw(task: &Task) -> Flaw {
    let payload = task.payload.as_ref();
    payload.and_then(|p| serde_json::from_str::<Label>(p.get()).ok()).unwrap_or_default().flaw
}
