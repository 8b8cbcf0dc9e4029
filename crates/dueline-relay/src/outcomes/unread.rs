//! What another team may have said, and nobody has read yet.
//!
//! A message that its team has consumed without an answer is published again when its lease ends. After an
//! outage of the relays the answer stands in the outcome topic all the same: as long as something there is
//! unread that was written before the lease ended, the lease goes on instead (H12).

use dueline_core::Micros;
use dueline_kafka::{KafkaError, Verdict};

use crate::shared::Shared;

/// Turns *consumed* into *waiting* where the answer may be unread in `topic`. `claims` says when each was
/// claimed. When the broker cannot be asked, nothing is decided.
pub(crate) async fn wait_for_unread(
    shared: &Shared,
    topic: &str,
    claims: &[Option<Micros>],
    verdicts: &mut [Verdict],
) {
    let consumed = claims.iter().zip(verdicts.iter()).filter(|(_, v)| **v == Verdict::Consumed);
    // The last of them had until then; whoever had less is waited for a little longer than needed.
    let Some(claimed) = consumed.filter_map(|(claimed, _)| *claimed).max() else { return };
    let ended = claimed.plus(shared.config.relay.lease).floor_ms();
    let verdict = match has_unread(shared, topic, ended).await {
        Ok(false) => return,
        Ok(true) => Verdict::Waiting { committed: true },
        Err(error) => Verdict::Unknown(error),
    };
    for slot in verdicts.iter_mut().filter(|slot| **slot == Verdict::Consumed) {
        *slot = verdict.clone();
    }
}

/// Whether a record written before `ms` has not been passed yet.
async fn has_unread(shared: &Shared, topic: &str, ms: i64) -> Result<bool, KafkaError> {
    let view = shared.admin.group_view(&shared.config.outcome_group(), topic).await?;
    let later = shared.admin.offsets_for_times(topic, ms).await?;
    let ends = shared.admin.watermarks(topic).await?;
    Ok(ends.iter().enumerate().any(|(partition, ends)| {
        let of = |offsets: &[Option<i64>]| offsets.get(partition).copied().flatten();
        let position = of(&view.committed).unwrap_or(ends.low).max(ends.low);
        position < of(&later).unwrap_or(ends.high)
    }))
}
