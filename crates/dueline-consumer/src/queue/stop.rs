//! A clean stop (H32): finish what is under way, commit, leave the group, within a bound.

use dueline_kafka::{Event, TopicPartition};
use tokio::time::Instant;

use super::QueueLoop;
use crate::error::ConsumerError;

impl QueueLoop {
    pub(super) async fn stop(mut self) -> Result<(), ConsumerError> {
        let end = Instant::now() + self.bounds.stop_timeout;
        tracing::info!(queue = self.context.queue, jobs = self.jobs.len(), "finishing");
        // What is in hand and not under way was never begun: others will read it.
        self.broken.clear();
        while let Ok(Some(done)) = tokio::time::timeout_at(end, self.jobs.join_next()).await {
            self.on_done(done)?;
        }
        if !self.jobs.is_empty() {
            tracing::warn!(jobs = self.jobs.len(), "jobs are left to their leases");
            self.jobs.abort_all();
        }
        let clean: Vec<TopicPartition> = self
            .partitions
            .values()
            .filter(|partition| partition.under_way == 0)
            .map(|partition| partition.name.clone())
            .collect();
        dueline_failpoints::reached("consumer.stop.drained");
        self.clear_all_marks(&clean).await;
        dueline_failpoints::reached("consumer.stop.unmarked");
        self.revokes.clear();
        let left = end.saturating_duration_since(Instant::now());
        self.leave(left.max(std::time::Duration::from_secs(1))).await;
        dueline_failpoints::reached("consumer.left");
        self.context.letters.drain(end.saturating_duration_since(Instant::now())).await;
        Ok(())
    }

    async fn leave(&mut self, timeout: std::time::Duration) {
        let closing = self.consumer.close(timeout);
        tokio::pin!(closing);
        let result = loop {
            tokio::select! {
                result = &mut closing => break result,
                event = self.consumer.next_event() => match event {
                    Some(Event::Revoked(_, ack)) => ack.done(),
                    Some(_) => {}
                    None => break closing.await,
                },
            }
        };
        match result {
            Ok(()) => tracing::info!(queue = self.context.queue, "left the group"),
            Err(error) => tracing::warn!(%error, queue = self.context.queue, "leaving the group"),
        }
    }
}
