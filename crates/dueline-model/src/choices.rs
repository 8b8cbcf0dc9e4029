//! The choices that a state consists of.

use crate::pack::Field;

choice! {
    /// `task.state`, and a key that was never scheduled.
    Life {
        /// No row.
        Unscheduled,
        /// `live`.
        Live,
        /// `done`.
        Done,
        /// `skipped`.
        Skipped,
        /// `cancelled`.
        Cancelled,
        /// `dead`.
        Dead,
    }
}

choice! {
    /// The alarm in `due`.
    Lease {
        /// No alarm.
        Absent,
        /// `lease_until` is null.
        Waiting,
        /// Leased, `lease_until` in the future.
        Running,
        /// Leased, `lease_until` in the past.
        Over,
        /// Leased until far in the future, for the clock went back.
        Far,
    }
}

choice! {
    /// Where the database's clock stands between `due_at` and `next_at`.
    Phase {
        /// Before `due_at`.
        Early,
        /// `due_at` is past, a retry's pause is not.
        BackingOff,
        /// `next_at` is past.
        Rings,
    }
}

choice! {
    /// Whose claim it is.
    Claimant {
        /// Of relay A's present incarnation.
        RelayA,
        /// Of relay B's present incarnation.
        RelayB,
        /// Of one that crashed and is not declared dead yet.
        Silent,
        /// Of one that was declared dead.
        Ended,
    }
}

choice! {
    /// `dedupe.outcome`.
    Outcome {
        /// No row.
        Absent,
        /// `in_progress`, with the token of the consumer in `holder`.
        InProgress,
        /// `failed`.
        Failed,
        /// `done`.
        Done,
    }
}

choice! {
    /// The business object.
    Order {
        /// Neither.
        Open,
        /// The customer has paid.
        Paid,
        /// The effect happened.
        Closed,
    }
}

choice! {
    /// A record beyond the committed offset.
    Slot {
        /// None.
        Empty,
        /// Not read by the partition's owner.
        Unread,
        /// Read, under way.
        Taken,
        /// Its work is finished.
        Finished,
    }
}

choice! {
    /// What a relay is doing with one alarm.
    Stage {
        /// Nothing.
        Free,
        /// The claim is committed, its message not sent.
        Claimed,
        /// Delivered, not yet confirmed by a heartbeat.
        Delivered,
        /// Certainly not written, to be released.
        Release,
        /// Reported as unknown, and to be written after all.
        Limbo,
        /// The sweep read the alarm, and decided.
        Extend,
        /// As above: publish again.
        Again,
        /// As above: publish again, the message was consumed.
        AgainConsumed,
        /// As above: park.
        Park,
    }
}

choice! {
    /// What became of a message in a consumer's hands.
    Fate {
        /// None in hand.
        Absent,
        /// Taken.
        Taken,
        /// Judged by its row: to be handled.
        Ready,
        /// Its dedupe row is entered, or its token set.
        Entered,
        /// The handler changed its order.
        Applied,
        /// The handler found nothing to do.
        Declined,
        /// The key is finished already.
        Known,
        /// The deadline has not come.
        Early,
        /// The row was locked or had changed: later.
        Moved,
        /// The handler failed: to be recorded.
        Failed,
        /// The call elsewhere is on the wire.
        Calling,
        /// The call elsewhere was answered: the effect is there.
        Answered,
        /// The call elsewhere ended without an answer.
        Unanswered,
        /// The call elsewhere certainly failed.
        Refused,
        /// The row does not speak of this try any more.
        Stale,
        /// Done with.
        Settled,
    }
}
