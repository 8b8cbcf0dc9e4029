//! The five states of a task, and which step may lead from which to which.
//!
//! ```text
//!                 fail, early, postpone, reschedule
//!                        ┌─────┐
//!   schedule ──────────▶ live ─┴──▶ done
//!     ▲  ▲                │  │ └──▶ skipped ──┐
//!     │  └── replay ─ dead│◀─┘                │ schedule (opens again)
//!     │               │   └──────▶ cancelled ─┤
//!     └───────────────┼───────────────────────┘
//!                     └─ resolve ▶ done, discard ▶ cancelled
//! ```
//!
//! `live` is shown to people as *scheduled* while its alarm waits and as *published* while leased.

use std::fmt;
use std::str::FromStr;

/// The state of a task row. The database's CHECK constraint lists the same five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Waiting for its deadline, or published and not answered yet.
    Live,
    /// The effect happened.
    Done,
    /// The handler's condition did not hold: there was nothing left to do.
    Skipped,
    /// Cancelled before its effect.
    Cancelled,
    /// Exhausted, failed for good, or parked; a row in `stranded` says why.
    Dead,
}

impl TaskState {
    /// Every state, in the order of the diagram.
    pub const ALL: [Self; 5] = [Self::Live, Self::Done, Self::Skipped, Self::Cancelled, Self::Dead];

    /// The text stored in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
        }
    }

    /// Whether `step` may be taken from this state, and the state that it leads to.
    #[must_use]
    pub fn after(self, step: Step) -> Option<Self> {
        use Step as S;
        match (self, step) {
            (Self::Live, S::Done) => Some(Self::Done),
            (Self::Live, S::Skip) => Some(Self::Skipped),
            (Self::Live, S::Claim | S::Fail | S::Early | S::Postpone | S::Reschedule)
            | (Self::Skipped | Self::Cancelled, S::Open | S::Reschedule)
            | (Self::Dead, S::Replay | S::Reschedule) => Some(Self::Live),
            (Self::Live, S::Die | S::Park) => Some(Self::Dead),
            (Self::Live | Self::Dead, S::Cancel) | (Self::Dead, S::Discard) => {
                Some(Self::Cancelled)
            }
            (Self::Dead, S::Resolve) => Some(Self::Done),
            _ => None,
        }
    }

    /// Whether `step` makes older messages stale (it adds one to `generation`).
    #[must_use]
    pub fn renews_generation(step: Step) -> bool {
        use Step as S;
        matches!(
            step,
            S::Open
                | S::Reschedule
                | S::Cancel
                | S::Die
                | S::Park
                | S::Replay
                | S::Resolve
                | S::Discard
        )
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no state.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no task state; the states are live, done, skipped, cancelled and dead")]
pub struct UnknownState(String);

impl FromStr for TaskState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| UnknownState(text.into()))
    }
}

/// The steps of the protocol that change a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `schedule` on a cancelled or skipped task.
    Open,
    /// The relay takes the alarm to publish it.
    Claim,
    /// The effect happened.
    Done,
    /// The effect's condition did not hold.
    Skip,
    /// An attempt failed and another will follow.
    Fail,
    /// The consumer found that the deadline has not come by the database's clock.
    Early,
    /// Somebody else is running the key.
    Postpone,
    /// The last attempt failed, or it failed for good.
    Die,
    /// Unfinished or unanswered for too long.
    Park,
    /// Cancelled by its owner.
    Cancel,
    /// Given a new deadline by its owner.
    Reschedule,
    /// A person sends a dead task again.
    Replay,
    /// A person says that a dead task's effect did happen.
    Resolve,
    /// A person says that a dead task is not wanted.
    Discard,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_done() {
        use Step as S;
        for step in [
            S::Open,
            S::Claim,
            S::Done,
            S::Skip,
            S::Fail,
            S::Early,
            S::Postpone,
            S::Die,
            S::Park,
            S::Cancel,
            S::Reschedule,
            S::Replay,
            S::Resolve,
            S::Discard,
        ] {
            assert_eq!(TaskState::Done.after(step), None, "{step:?}");
        }
    }

    #[test]
    fn states_have_one_text_each() {
        for state in TaskState::ALL {
            assert_eq!(state.as_str().parse::<TaskState>().expect("known"), state);
        }
        assert!("paid".parse::<TaskState>().is_err());
    }
}
