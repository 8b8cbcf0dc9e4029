//! The scopes that are explored, and for every guard what taking it away does.

use crate::guard::Guard;
use crate::model::{Effect, Invariant, Scope};

/// What taking guards away does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This invariant breaks in the scope of this name.
    Breaks(Invariant, &'static str),
    /// No invariant breaks in these scopes, and why.
    Redundant(&'static [&'static str], &'static str),
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// What is taken away.
    pub without: &'static [Guard],
    /// What then happens.
    pub expected: Expected,
}

const fn scope(name: &'static str, effect: Effect, bound: (u8, u8), unanswered: u8) -> Scope {
    let (faults, clients) = bound;
    Scope { name, effect, tasks: 1, faults, unanswered, clients }
}

const fn pair(name: &'static str, bound: (u8, u8)) -> Scope {
    Scope { tasks: 2, ..scope(name, Effect::Here, bound, bound.0 + 1) }
}

/// What is explored in seconds, in every run of the tests.
pub const SMALL: &[Scope] = &[
    scope("here", Effect::Here, (1, 2), 2),
    scope("faults", Effect::Here, (2, 0), 3),
    scope("park", Effect::Here, (1, 1), 1),
    scope("count", Effect::Here, (2, 0), 2),
    pair("pair", (1, 0)),
    scope("call", Effect::Call, (1, 2), 2),
    scope("once", Effect::CallOnce, (1, 1), 2),
    scope("team", Effect::Team, (1, 2), 2),
];

/// What is explored in minutes, on demand.
pub const LARGE: &[Scope] = &[
    scope("here", Effect::Here, (2, 2), 3),
    scope("faults", Effect::Here, (4, 0), 5),
    scope("park", Effect::Here, (3, 1), 2),
    pair("pair", (1, 1)),
    scope("call", Effect::Call, (2, 1), 3),
    scope("once", Effect::CallOnce, (2, 1), 3),
    scope("team", Effect::Team, (2, 2), 3),
];

/// For traces that need more of something than the small bound has; only searched until the trace is found.
pub const SPECIAL: &[Scope] = &[scope("call3", Effect::Call, (3, 0), 4)];

/// The guards, as the table in `docs/model.md` has them.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "| without | breaks | what the guard is; why nothing breaks |\n|---|---|---|\n",
    );
    for trial in TRIALS {
        let names: Vec<String> = trial.without.iter().map(|g| format!("`{}`", g.name())).collect();
        let guard = match trial.without {
            [guard] => guard.text(),
            _ => "Each of them covers for the other.",
        };
        let (breaks, why) = match trial.expected {
            Expected::Breaks(invariant, _) => (format!("{invariant:?}"), String::new()),
            Expected::Redundant(_, why) => ("–".to_owned(), format!(" *Redundant: {why}.*")),
        };
        text += &format!("| {} | {breaks} | {guard}{why} |\n", names.join(" + "));
    }
    text
}

/// The scope of this name in the small bound, or the special one.
#[must_use]
pub fn find(name: &str) -> Option<Scope> {
    SMALL.iter().chain(SPECIAL).find(|scope| scope.name == name).copied()
}

const fn breaks(without: &'static [Guard], invariant: Invariant, scope: &'static str) -> Trial {
    Trial { without, expected: Expected::Breaks(invariant, scope) }
}

const fn redundant(
    without: &'static [Guard],
    scopes: &'static [&'static str],
    why: &'static str,
) -> Trial {
    Trial { without, expected: Expected::Redundant(scopes, why) }
}

const RELAY: &[&str] = &["faults", "park", "team"];
/// For guards of the effect, and for those that two client calls are about.
const HERE: &[&str] = &["faults", "park", "pair"];
const CALLS: &[&str] = &["here", "faults"];
const CALL: &[&str] = &["call", "once"];

/// Every guard alone, and the sets in which a redundant one becomes necessary.
pub const TRIALS: &[Trial] = &[
    breaks(&[Guard::ClaimUnleased], Invariant::V9, "here"),
    breaks(&[Guard::ClaimDue], Invariant::V3, "here"),
    breaks(&[Guard::ClaimOwnLane], Invariant::V9, "here"),
    redundant(
        &[Guard::BodiesAfterClaim],
        HERE,
        "an old body has another generation than its claim, and is left out",
    ),
    redundant(
        &[Guard::BodyGeneration],
        HERE,
        "a body read after the claim is of its generation or of a newer one; then the message is stale",
    ),
    breaks(&[Guard::BodiesAfterClaim, Guard::BodyGeneration], Invariant::V4, "here"),
    redundant(
        &[Guard::UnknownIsLeft],
        RELAY,
        "the copies that it makes die at the guards; it spares them",
    ),
    redundant(
        &[Guard::ConfirmDelivered],
        RELAY,
        "what a dead relay had claimed is published when its lease ends; it makes that seconds",
    ),
    breaks(&[Guard::FenceOfRelease], Invariant::V9, "here"),
    breaks(&[Guard::FenceOfExtend], Invariant::V9, "faults"),
    breaks(&[Guard::FenceOfRepublish], Invariant::V9, "here"),
    breaks(&[Guard::FenceOfPark], Invariant::V9, "park"),
    breaks(&[Guard::FenceIsKept], Invariant::V9, "here"),
    breaks(&[Guard::RepublishDue], Invariant::V3, "faults"),
    redundant(
        &[Guard::ExtendDue],
        RELAY,
        "an extension publishes nothing, and its fence names the alarm that was read",
    ),
    breaks(&[Guard::SweepFromTheStart], Invariant::V1, "faults"),
    breaks(&[Guard::SweepOfLeases], Invariant::V1, "faults"),
    breaks(&[Guard::LeaseTooLong], Invariant::V1, "faults"),
    redundant(
        &[Guard::OrphansAtOnce],
        RELAY,
        "the lease of an orphan ends too; it makes minutes seconds",
    ),
    redundant(
        &[Guard::TopicIdentity],
        RELAY,
        "a claim believed to wait in the wrong topic is consumed there, or its extensions end",
    ),
    breaks(&[Guard::LostIsPublishedAgain], Invariant::V1, "faults"),
    breaks(&[Guard::ConsumedIsPublishedAgain], Invariant::V1, "faults"),
    redundant(
        &[Guard::WaitingIsExtended],
        RELAY,
        "copies die at the guards; it keeps a backlog from growing by itself",
    ),
    redundant(
        &[Guard::ExtensionLimit],
        RELAY,
        "what waits is consumed in the end, and then published again",
    ),
    breaks(&[Guard::UnansweredIsConsumed], Invariant::V9, "count"),
    breaks(&[Guard::AdmitGuard], Invariant::V1, "faults"),
    breaks(&[Guard::EarlyCheck], Invariant::V3, "faults"),
    redundant(
        &[Guard::DedupeInsert],
        HERE,
        "the settle locks the row and finds it done; it stops the second handler before it works",
    ),
    breaks(&[Guard::DedupeInsert, Guard::SettleLive], Invariant::V9, "faults"),
    breaks(&[Guard::DedupeInsert, Guard::SettleLive, Guard::Recheck], Invariant::V2, "faults"),
    breaks(&[Guard::DedupeWithEffect], Invariant::V1, "faults"),
    breaks(&[Guard::KnownSettles], Invariant::V1, "call"),
    breaks(&[Guard::Recheck], Invariant::V5, "here"),
    breaks(&[Guard::EffectWithSettle], Invariant::V4, "here"),
    breaks(&[Guard::SettleGeneration], Invariant::V4, "here"),
    redundant(
        &[Guard::SettleAttempt],
        HERE,
        "two messages of one generation: admit drops the older, and the key has one effect",
    ),
    breaks(&[Guard::SettleLive], Invariant::V9, "here"),
    breaks(&[Guard::MovedRollsBack], Invariant::V4, "here"),
    breaks(&[Guard::SkippedIsForgotten], Invariant::V1, "here"),
    breaks(&[Guard::FailGuard], Invariant::V6, "here"),
    breaks(&[Guard::TroubleIsFree], Invariant::V6, "faults"),
    breaks(&[Guard::CrashMarks], Invariant::V1, "faults"),
    breaks(&[Guard::CrashIsFree], Invariant::V6, "faults"),
    breaks(&[Guard::LogBeginsAnew], Invariant::V1, "faults"),
    breaks(&[Guard::OffsetAfterCommit], Invariant::V7, "faults"),
    breaks(&[Guard::OffsetContiguous], Invariant::V7, "pair"),
    breaks(&[Guard::RowBeforeLetter], Invariant::V6, "here"),
    breaks(&[Guard::LetterGeneration], Invariant::V6, "here"),
    breaks(&[Guard::MissingLetters], Invariant::V6, "faults"),
    redundant(
        &[Guard::DeathRenews],
        CALLS,
        "the replay renews too; but two deaths of one generation could not be told apart",
    ),
    redundant(&[Guard::CancelRenews], CALLS, "opening again renews too"),
    redundant(
        &[Guard::OpenRenews],
        CALLS,
        "the cancel renews, and a skipped task has no message left",
    ),
    breaks(&[Guard::CancelRenews, Guard::OpenRenews], Invariant::V4, "here"),
    breaks(&[Guard::RescheduleRenews], Invariant::V4, "here"),
    redundant(
        &[Guard::ReplayRenews],
        CALLS,
        "the death renews, so that no message has the generation of a dead row",
    ),
    breaks(&[Guard::ReplayGeneration], Invariant::V6, "here"),
    redundant(
        &[Guard::ReceiptSeesLease],
        &["here", "call", "team"],
        "cancelled and published_will_be_dropped promise the same; elsewhere `begin` and loose-sticks guard it",
    ),
    breaks(&[Guard::ReceiptLocksAlarm], Invariant::V4, "team"),
    redundant(
        &[Guard::ReceiptSeesTries],
        &["team"],
        "what was tried was published: loose-sticks says so already",
    ),
    breaks(&[Guard::LooseSticks], Invariant::V4, "team"),
    breaks(&[Guard::ReceiptSeesToken], Invariant::V4, "call"),
    redundant(&[Guard::WishIsHonoured], CALL, "`running` promises nothing; it is a courtesy"),
    breaks(&[Guard::BeginGuard], Invariant::V4, "call"),
    redundant(
        &[Guard::BeginToken],
        CALL,
        "the receiver's key stops the second effect; without a key a person is asked, but too early",
    ),
    redundant(
        &[Guard::PostponeLease],
        CALL,
        "the message comes again while the token lives, and is postponed again",
    ),
    redundant(
        &[Guard::PostponeAnswers],
        CALL,
        "postpone-lease keeps the sweep away until the token's end",
    ),
    breaks(&[Guard::PostponeLease, Guard::PostponeAnswers], Invariant::V1, "once"),
    breaks(&[Guard::OutcomeToken], Invariant::V9, "call3"),
    redundant(
        &[Guard::FailureIsRemembered],
        CALL,
        "a call made again is stopped by the receiver's key, or had certainly failed",
    ),
    breaks(&[Guard::UnknownSticks], Invariant::V4, "call"),
    breaks(&[Guard::UnknownIsForPeople], Invariant::V2, "once"),
    redundant(
        &[Guard::DoneOfTheKey],
        &["call", "once", "team"],
        "the next message finds the key done, and settles the task then",
    ),
];
