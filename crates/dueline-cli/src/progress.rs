//! Long work shows a bar on a terminal, and plain lines elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The pause between two plain lines.
const LINE_PAUSE: Duration = Duration::from_secs(2);

/// Progress on standard error.
pub struct Progress {
    what: &'static str,
    bar: Option<ProgressBar>,
    done: u64,
    last_line: Instant,
}

impl Progress {
    /// Work of unknown or bounded length: `limit` is the most that there can be.
    pub fn new(what: &'static str, limit: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(limit), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg} {pos} {wide_bar} {elapsed}") {
                bar.set_style(style);
            }
            bar.set_message(what);
            bar
        });
        Self { what, bar, done: 0, last_line: Instant::now() }
    }

    /// One more. `cursor` lets the work go on from here when it is interrupted.
    pub fn step(&mut self, cursor: &str) {
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.last_line.elapsed() >= LINE_PAUSE => {
                self.last_line = Instant::now();
                let line = format!("{} {}; --after {cursor} goes on here", self.what, self.done);
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
