//! Alarms that wait again: their messages were certainly not written.

use std::time::Instant;

use dueline_core::letter::Reason;
use dueline_store::StoreError;
use dueline_store::relay::{self, Parking};

use crate::publish::{Publisher, Ticket, locked};

/// Alarms of one statement.
const CHUNK: usize = 1_000;

/// An alarm that is to wait again.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub ticket: Ticket,
    /// Too large to be ever sent: parked instead.
    pub oversized: Option<String>,
    pub since: Instant,
}

impl Publisher {
    /// Makes alarms wait again whose messages were certainly not written. What the database does
    /// not take now is tried again until its lease is over.
    pub async fn release(&self) {
        let pending = std::mem::take(&mut *locked(&self.releases));
        if pending.is_empty() {
            return;
        }
        for chunk in pending.chunks(CHUNK) {
            if let Err(error) = self.release_chunk(chunk).await {
                let alarms = chunk.len();
                tracing::warn!(%error, alarms, "releasing alarms failed; trying again");
                let now = Instant::now();
                let young = |r: &&Release| now.duration_since(r.since) < self.settings.lease;
                locked(&self.releases).extend(chunk.iter().filter(young).cloned());
            }
        }
        self.wake.notify_one();
    }

    async fn release_chunk(&self, chunk: &[Release]) -> Result<(), StoreError> {
        let (large, plain): (Vec<&Release>, Vec<&Release>) =
            chunk.iter().partition(|release| release.oversized.is_some());
        if !large.is_empty() {
            self.park_oversized(&large).await?;
        }
        dueline_failpoints::reached("relay.releasing");
        let claims: Vec<(i64, i32)> = plain.iter().map(|r| (r.ticket.id, r.ticket.fence)).collect();
        let released = relay::release(self.sessions.pool(), &claims).await?;
        dueline_failpoints::reached("relay.released");
        tracing::info!(alarms = released.len(), of = claims.len(), "released: not written");
        let mut returned = locked(&self.returned);
        for release in plain {
            let ticket = &release.ticket;
            self.resolve(ticket.epoch, (ticket.claimed_at, ticket.id));
            returned.push((ticket.lane, ticket.next_at));
        }
        Ok(())
    }

    async fn park_oversized(&self, releases: &[&Release]) -> Result<(), StoreError> {
        let parking: Vec<Parking> = releases
            .iter()
            .map(|release| Parking {
                id: release.ticket.id,
                fence: release.ticket.fence,
                reason: Reason::Oversized,
                error: release.oversized.clone().unwrap_or_default(),
            })
            .collect();
        crate::sweep::park(self.sessions.pool(), &parking).await?;
        for release in releases {
            self.resolve(release.ticket.epoch, (release.ticket.claimed_at, release.ticket.id));
        }
        Ok(())
    }
}
