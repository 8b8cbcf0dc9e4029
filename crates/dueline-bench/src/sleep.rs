//! How precisely this machine sleeps: nobody can be more punctual than that.

use std::time::{Duration, Instant};

use crate::stats::Percentiles;

/// What a punctual program would sleep.
const NAP: Duration = Duration::from_millis(1);

/// How much longer than a millisecond a sleep of one lasts, in milliseconds, over `time`: asked of the
/// runtime's timer, whose own grain is a millisecond.
pub(crate) async fn precision(time: Duration) -> Option<Percentiles> {
    let end = Instant::now() + time;
    let mut late = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        tokio::time::sleep(NAP).await;
        late.push(1_000.0 * began.elapsed().saturating_sub(NAP).as_secs_f64());
    }
    Percentiles::of(&late)
}
