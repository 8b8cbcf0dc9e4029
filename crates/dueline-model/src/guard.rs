//! The guards of the protocol, each of which can be taken away, and what that breaks.

macro_rules! guards {
    ($($(#[doc = $text:literal])+ $name:ident = $key:literal),* $(,)?) => {
        /// A guard of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Guard { $($(#[doc = $text])+ $name),* }

        impl Guard {
            /// Every guard, in the order of the protocol.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $key),* }
            }

            /// What it is.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => concat!($($text),+).trim_ascii()),* }
            }
        }
    };
}

guards! {
    /// A claim takes only alarms that wait.
    ClaimUnleased = "claim-unleased",
    /// A claim takes only alarms whose `next_at` is past.
    ClaimDue = "claim-due",
    /// A claim acts only in lanes whose epoch is the relay's own.
    ClaimOwnLane = "claim-own-lane",
    /// The bodies are read by a later statement than the claim.
    BodiesAfterClaim = "bodies-after-claim",
    /// A body of another generation than its claim is left out.
    BodyGeneration = "body-generation",
    /// A produce of unknown fate is left to its lease, not released.
    UnknownIsLeft = "unknown-is-left",
    /// `confirmed_upto` passes a claim only when it is delivered.
    ConfirmDelivered = "confirm-delivered",
    /// A release names the fence it saw.
    FenceOfRelease = "fence-of-release",
    /// An extension names the fence it saw.
    FenceOfExtend = "fence-of-extend",
    /// A republication names the fence it saw.
    FenceOfRepublish = "fence-of-republish",
    /// Parking names the fence it saw.
    FenceOfPark = "fence-of-park",
    /// The fence is never reset: it is kept at death, restored by replay.
    FenceIsKept = "fence-is-kept",
    /// A republication asks for `next_at <= statement_timestamp()` once more.
    RepublishDue = "republish-due",
    /// An extension asks for `next_at <= statement_timestamp()` once more.
    ExtendDue = "extend-due",
    /// The sweep finds waiting alarms without a watermark.
    SweepFromTheStart = "sweep-from-the-start",
    /// The sweep looks after ended leases.
    SweepOfLeases = "sweep-of-leases",
    /// A lease longer than one can be counts as ended.
    LeaseTooLong = "lease-too-long",
    /// What a dead relay had not confirmed is published at once.
    OrphansAtOnce = "orphans-at-once",
    /// Offsets are believed only of the topic that there was at the claim.
    TopicIdentity = "topic-identity",
    /// What is in no topic is published again.
    LostIsPublishedAgain = "lost-is-published-again",
    /// What was consumed without an answer is published again.
    ConsumedIsPublishedAgain = "consumed-is-published-again",
    /// What still waits in the topic is extended, not published again.
    WaitingIsExtended = "waiting-is-extended",
    /// Extensions have a limit.
    ExtensionLimit = "extension-limit",
    /// Only a consumed message counts as unanswered.
    UnansweredIsConsumed = "unanswered-is-consumed",

    /// Step 1 drops what the row does not speak of.
    AdmitGuard = "admit-guard",
    /// The database's clock is asked once more before an effect.
    EarlyCheck = "early-check",
    /// The dedupe row is inserted before the effect.
    DedupeInsert = "dedupe-insert",
    /// The dedupe row is committed with the effect, not before it.
    DedupeWithEffect = "dedupe-with-effect",
    /// A key that is done settles a live task, instead of being dropped.
    KnownSettles = "known-settles",
    /// The handler's statement is the re-check.
    Recheck = "recheck",
    /// The effect is committed with the settle, not before it.
    EffectWithSettle = "effect-with-settle",
    /// The settle asks for the generation again.
    SettleGeneration = "settle-generation",
    /// The settle asks for the attempt again.
    SettleAttempt = "settle-attempt",
    /// The settle asks again whether the task is live.
    SettleLive = "settle-live",
    /// Fewer settled than expected rolls the batch back.
    MovedRollsBack = "moved-rolls-back",
    /// A skipped task's dedupe row is deleted.
    SkippedIsForgotten = "skipped-is-forgotten",
    /// A failure is recorded only on the row's present try.
    FailGuard = "fail-guard",
    /// Trouble of the environment costs no attempt.
    TroubleIsFree = "trouble-is-free",
    /// A message that keeps killing its consumers is failed for good.
    CrashMarks = "crash-marks",
    /// A crash is not charged as an attempt.
    CrashIsFree = "crash-is-free",
    /// A record below those that were read is a new one, when the log begins anew.
    LogBeginsAnew = "log-begins-anew",
    /// The offset is stored after COMMIT.
    OffsetAfterCommit = "offset-after-commit",
    /// The committed offset is the highest contiguous one.
    OffsetContiguous = "offset-contiguous",

    /// The row is dead before its letter is written.
    RowBeforeLetter = "row-before-letter",
    /// A letter's stamp names the death's generation.
    LetterGeneration = "letter-generation",
    /// The relay writes the letters that are missing.
    MissingLetters = "missing-letters",
    /// A death renews the generation.
    DeathRenews = "death-renews",
    /// A cancel renews the generation.
    CancelRenews = "cancel-renews",
    /// A reschedule renews the generation.
    RescheduleRenews = "reschedule-renews",
    /// Opening again renews the generation.
    OpenRenews = "open-renews",
    /// A replay renews the generation.
    ReplayRenews = "replay-renews",
    /// A replay acts only on the death that its letter tells of.
    ReplayGeneration = "replay-generation",

    /// A receipt looks at the lease.
    ReceiptSeesLease = "receipt-sees-lease",
    /// The alarm is locked while a receipt is worked out.
    ReceiptLocksAlarm = "receipt-locks-alarm",
    /// A receipt looks at tries without `begin`.
    ReceiptSeesTries = "receipt-sees-tries",
    /// Once published to a team that does not `begin`, a task may have run, whatever came after.
    LooseSticks = "loose-sticks",
    /// A receipt looks at the token of a call.
    ReceiptSeesToken = "receipt-sees-token",
    /// The wish to cancel is honoured by a fail.
    WishIsHonoured = "wish-is-honoured",
    /// `begin` asks for generation, attempt and state.
    BeginGuard = "begin-guard",
    /// `begin` stands back from a live token.
    BeginToken = "begin-token",
    /// A postponed alarm is leased to the token's end.
    PostponeLease = "postpone-lease",
    /// A postponement counts as an answer.
    PostponeAnswers = "postpone-answers",
    /// An outcome is written under its own token only.
    OutcomeToken = "outcome-token",
    /// A failure is remembered before it is recorded, and sent again without a call.
    FailureIsRemembered = "failure-is-remembered",
    /// That some call ended unknown is never forgotten.
    UnknownSticks = "unknown-sticks",
    /// Without an idempotency key, an unknown outcome is a person's to judge.
    UnknownIsForPeople = "unknown-is-for-people",
    /// `done` speaks of the key: it settles a live row of another generation too.
    DoneOfTheKey = "done-of-the-key",
}

/// A set of guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards(u128);

impl Guards {
    /// Every guard.
    pub const ALL: Self = Self(u128::MAX);

    /// This set without those.
    #[must_use]
    pub fn without(self, guards: &[Guard]) -> Self {
        guards.iter().fold(self, |set, guard| Self(set.0 & !(1 << *guard as u8)))
    }

    /// Whether the guard is in it.
    #[must_use]
    pub fn has(self, guard: Guard) -> bool {
        self.0 & (1 << guard as u8) != 0
    }
}
