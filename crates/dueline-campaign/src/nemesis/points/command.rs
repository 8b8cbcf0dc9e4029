//! The points of the command `dueline`, which a person's replay of the dead gets to.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_failpoints::Point;
use dueline_testkit::{cli, wait};

use super::{Action, Tour};

/// How long it may take until there is somebody to be replayed.
const BOUND: Duration = Duration::from_secs(60);
/// The exit code of a command that a signal ended.
const SIGNAL: i32 = -1;
/// Those of a command that did what there was to do: all of it, or not what had changed meanwhile.
const WELL: [i32; 2] = [0, 4];
/// Tasks that died, and messages of which no task could be told.
const TASKS: &[&str] = &["dlq", "replay", "--kind", "curse", "--limit", "5"];
const MESSAGES: &[&str] =
    &["dlq", "replay", "--from", "topic", "--queue", "orders", "--reason", "undecodable"];

/// Each point by itself; answers what did not go as planned.
pub(super) async fn in_turn(tour: &Tour<'_>, points: &[&Point], action: Action) -> Vec<String> {
    let mut problems = Vec::new();
    for point in points {
        let number = tour.log.begin_named(action.done(point), action.done(point));
        let result = Box::pin(carry_out(tour, point, action)).await;
        tour.log.heal(number, &result);
        problems.extend(result.err().map(|error| format!("fail point {}: {error:#}", point.name)));
    }
    problems
}

/// The command until it gets to the point, and then once more, plainly, as who gave it would.
async fn carry_out(tour: &Tour<'_>, point: &Point, action: Action) -> Result<()> {
    let resends = point.name == "command.resent";
    let arguments = if resends { MESSAGES } else { TASKS };
    if resends {
        tour.send_garbage().await?;
    }
    let config = tour.stage.config_path();
    wait::until("the command to get there", BOUND, async || {
        let ended = cli::run_with(config, arguments, &[action.order(point)]).await?;
        let got_there = ended.stderr.contains(&action.last_words(point));
        let killed = ended.code == SIGNAL;
        ensure!(!killed || got_there, "it ended elsewhere: {}", ended.stderr);
        Ok(got_there && killed == (action == Action::Kill))
    })
    .await?;
    let again = cli::run(config, arguments).await?;
    ensure!(WELL.contains(&again.code), "then it ended with {}: {}", again.code, again.stderr);
    Ok(())
}
