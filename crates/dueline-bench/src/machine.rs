//! What the figures were measured on.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::settings;
use crate::stats::Spread;

/// How often the disk is asked.
const FLUSHES: usize = 50;
/// A page of PostgreSQL.
const PAGE: [u8; 8_192] = [1; 8_192];

/// Describes machine and services. The first answer of the server comes here: a service that is not there
/// is found out before anything is measured.
pub(crate) async fn describe(bench: &Bench) -> Result<Value> {
    let settings: Vec<(String, String)> = sqlx::query_as(include_str!("../sql/machine.sql"))
        .fetch_all(&bench.server)
        .await
        .context("PostgreSQL does not answer")?;
    let settings: serde_json::Map<String, Value> =
        settings.into_iter().map(|(name, value)| (name, value.into())).collect();
    let commit = commit_micros(bench).await?;
    let flush = tokio::task::spawn_blocking(flush_micros).await??;
    let kafka = &bench.config.kafka;
    let stage = settings::of_config(&bench.config, "postgres://", "bench").config()?;
    let queue = &stage.queues[settings::QUEUE];
    Ok(json!({
        "cores": std::thread::available_parallelism()?.get(),
        "memory_mb": memory_mb(),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "fdatasync_us": flush,
        "commit_us": commit,
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "version": env!("CARGO_PKG_VERSION"),
        "postgres": settings,
        "kafka": {
            "brokers": kafka.brokers.len(),
            "partitions_per_topic": queue.partitions,
            "replication": queue.replication,
            "acks": "all",
            "idempotence": true,
        },
    }))
}

fn memory_mb() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? / 1_024)
}

/// The median of a write of one page with `fdatasync`, in the folder for temporary files.
fn flush_micros() -> Result<Option<f64>> {
    let mut file: File = tempfile::tempfile()?;
    let mut times = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        let began = Instant::now();
        file.rewind()?;
        file.write_all(&PAGE)?;
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Spread::of(&times).map(|spread| spread.median))
}

/// The median of a tiny commit, round trip included.
async fn commit_micros(bench: &Bench) -> Result<Option<f64>> {
    let mut connection = bench.server.acquire().await?;
    let mut times = Vec::with_capacity(FLUSHES);
    for _ in 0..FLUSHES {
        let began = Instant::now();
        sqlx::query(include_str!("../sql/commit.sql")).execute(&mut *connection).await?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Spread::of(&times).map(|spread| spread.median))
}
