//! What is going on: a bar on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sqlx::PgPool;
use tokio::time::Instant;

/// How often the counts are read.
const LOOK: Duration = Duration::from_millis(250);
/// How often they are written where there is no terminal.
const LINE: Duration = Duration::from_secs(2);

/// How many tasks are in each state.
pub async fn counts(pool: &PgPool) -> Result<BTreeMap<String, i64>> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as(include_str!("../../sql/demo/counts.sql")).fetch_all(pool).await?;
    Ok(rows.into_iter().collect())
}

/// Tells on standard error how far the demo is.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
}

impl Progress {
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} finished  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, began: Instant::now() }
    }

    /// A line that stays.
    pub fn say(&self, text: &str) {
        let line = format!("[{:6.1} s] {text}", self.began.elapsed().as_secs_f64());
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Shows the counts until no task of `total` is live.
    pub async fn watch(&self, pool: &PgPool, total: usize, timeout: Duration) -> Result<()> {
        let end = Instant::now() + timeout;
        let mut next_line = Instant::now() + LINE;
        self.bar.set_length(u64::try_from(total)?);
        loop {
            let counts = counts(pool).await?;
            let live = counts.get("live").copied().unwrap_or(0);
            let finished = counts.values().sum::<i64>() - live;
            let parts: Vec<String> =
                counts.iter().map(|(state, n)| format!("{state} {n}")).collect();
            let text = parts.join(", ");
            self.bar.set_position(u64::try_from(finished)?);
            self.bar.set_message(text.clone());
            if live == 0 {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!("{live} tasks are still live after {} s: {text}", timeout.as_secs());
            }
            if self.bar.is_hidden() && Instant::now() >= next_line {
                self.say(&text);
                next_line += LINE;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
