//! `sweep --once`: one whole relay round from cron, for lanes that no living relay owns (L5).

use dueline_relay::{Relay, RelayError};
use dueline_service::{Health, shutdown};
use serde_json::json;

use crate::context::Context;
use crate::exit;
use crate::output::{Reply, fail};

/// `dueline sweep --once`. A signal ends the round early and cleanly.
pub async fn once(context: &Context) -> anyhow::Result<Reply> {
    let stop = shutdown::on_signal()?;
    let relay = Relay::connect(context.config.clone(), Health::new()).await.map_err(refused)?;
    let done = relay.run_once(stop).await.map_err(refused)?;
    let swept = done.swept;
    let document = json!({
        "lanes": done.lanes, "claimed": done.claimed, "letters": done.letters,
        "missed": swept.missed, "orphans": swept.orphans, "republished": swept.republished,
        "extended": swept.extended, "parked": swept.parked,
    });
    let mut text = format!(
        "{} lanes walked, {} tasks published\nsweep: {} missed, {} orphans, {} republished, {} extended, \
         {} parked\n{} dead letters written",
        done.lanes,
        done.claimed,
        swept.missed,
        swept.orphans,
        swept.republished,
        swept.extended,
        swept.parked,
        done.letters
    );
    if done.lanes == 0 {
        text.push_str("\nall lanes belong to living relays: there was nothing to do");
    }
    Ok(Reply::new(document, text))
}

fn refused(error: RelayError) -> anyhow::Error {
    if error.is_refusal() { fail(exit::CONFIG, error.to_string()) } else { error.into() }
}
