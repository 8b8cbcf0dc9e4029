//! The retention patrol: deletes what is finished long ago, a stretch of blocks at a time.
//!
//! Config: `[retention]`. One relay at a time walks (a transaction-level advisory lock), and its
//! position is kept, so that a restart does not begin anew.

use std::time::{Duration, Instant};

use dueline_service::CancellationToken;
use dueline_store::relay::{self, Purge, Purged};

use crate::error::RelayError;
use crate::shared::Shared;

/// Blocks (8 KiB each) of a table that one step looks at.
const BLOCKS: i64 = 1_000;
/// After a walk over everything that deleted nothing, the next begins after so many intervals.
const CALM: u32 = 30;
/// A step that found more than it may delete is followed by the next after so many times its
/// duration.
const REST: u32 = 4;

/// Patrols until `stop`.
pub(crate) async fn run(shared: &Shared, stop: &CancellationToken) {
    let interval = shared.config.retention.patrol_interval;
    while !stop.is_cancelled() {
        let began = Instant::now();
        let pause = match run_once(shared).await {
            Ok(purged) if purged.more => (began.elapsed() * REST).min(interval),
            Ok(purged) if purged.wrapped && purged.is_empty() => interval * CALM,
            Ok(_) => interval,
            Err(error) => {
                tracing::warn!(%error, "the retention patrol stopped; the next step goes on");
                interval.max(Duration::from_secs(5))
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// One step over each table.
///
/// # Errors
/// When the database refuses or cannot be reached.
pub(crate) async fn run_once(shared: &Shared) -> Result<Purged, RelayError> {
    let retention = &shared.config.retention;
    let purge = Purge {
        dedupe: retention.dedupe,
        task: retention.task,
        events: retention.events,
        blocks: BLOCKS,
        limit: i32::try_from(retention.patrol_batch).unwrap_or(i32::MAX),
    };
    let purged = relay::purge(&shared.pool, &purge).await?;
    dueline_failpoints::reached("relay.patrol.committed");
    for (table, count) in
        [("dedupe", purged.dedupe), ("task", purged.task), ("task_event", purged.events)]
    {
        metrics::counter!("dueline_relay_purged_total", "table" => table).increment(count);
    }
    Ok(purged)
}
