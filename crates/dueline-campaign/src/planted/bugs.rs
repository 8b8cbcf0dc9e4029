//! The list.

use super::{Bug, Cut, Plant};

/// A usual bug: by code, without help, in fifteen seconds.
const USUAL: Bug = Bug {
    name: "",
    does: "",
    breaks: &[],
    plant: Plant::Code,
    consumer_points: "",
    faults: ("", 0),
    seconds: 15,
};

/// A usual bug that only a look in the middle of the work can find: now and then a batch takes its time.
const SLOW: Bug = Bug {
    consumer_points: "consumer.acted=20%return(delay:900);consumer.statement.next=20%return(delay:900)",
    seconds: 25,
    ..USUAL
};

/// Not a bug: what is found then was not planted.
pub static CONTROL: Bug = Bug {
    name: "none",
    does: "nothing wrong",
    plant: Plant::Nothing,
    consumer_points: "consumer.admitted=30%return(delay:120);consumer.acted=20%return(delay:400)",
    faults: ("consumer killed", 3),
    ..USUAL
};

/// All of them. A guard that another one stands in for is taken away together with it: docs/model.md says
/// which those are, and docs/reliability.md why some bugs that look bad break nothing.
pub static BUGS: [Bug; 18] = [
    Bug {
        name: "settle-without-generation-guard",
        does: "finishes a task whatever was asked of it since",
        breaks: &["V4"],
        plant: Plant::Functions(&[SETTLE_ANY_GENERATION]),
        consumer_points: "consumer.admitted=40%return(delay:150)",
        ..USUAL
    },
    Bug {
        name: "effect-of-an-old-generation",
        does: "acts on messages that a reschedule had made stale",
        breaks: &["V4"],
        plant: Plant::Functions(&[
            SETTLE_ANY_GENERATION,
            Cut {
                function: "admit",
                from: "and t.generation = m.generation\n              and t.attempt = m.attempt and t.state",
                times: 1,
                to: "and t.state",
            },
            Cut {
                function: "admit",
                from: "when t.due_at > clock_timestamp() then 'early'",
                times: 1,
                to: "when false then 'early'",
            },
        ]),
        ..USUAL
    },
    Bug {
        name: "early-by-rounding",
        does: "rounds the clock up to the next second when it claims",
        breaks: &["V3"],
        plant: Plant::Functions(&[Cut {
            function: "claim",
            from: "least(statement_timestamp(), claim.not_after)",
            times: 2,
            to: "date_trunc('second', statement_timestamp()) + interval '1 second'",
        }]),
        ..USUAL
    },
    Bug {
        name: "publish-without-next-at",
        does: "claims a lane's alarms without asking whether they are due",
        breaks: &["V3"],
        plant: Plant::Functions(&[Cut {
            function: "claim",
            from: "and d.next_at <= least(statement_timestamp(), claim.not_after)\n                   \
                   and d.lease_until is null\n                 order by d.next_at, d.id\n                 \
                   limit greatest",
            times: 1,
            to: "and d.lease_until is null\n order by d.next_at, d.id\n limit greatest",
        }]),
        ..USUAL
    },
    Bug {
        name: "reopened-without-alarm",
        does: "opens a cancelled or dead task and sets no alarm",
        breaks: &["V1"],
        plant: Plant::Functions(&[Cut {
            function: "make_live",
            from: "values (after.id, dueline.alarm_at(after.due_at), make_live.lane, after.generation, 0,\n            \
                   coalesce(before.fence, 0) + 1)",
            times: 1,
            to: "select after.id, dueline.alarm_at(after.due_at), make_live.lane, after.generation, 0, \
                 coalesce(before.fence, 0) + 1 where before.state = 'live'",
        }]),
        ..USUAL
    },
    Bug {
        name: "cancel-keeps-the-alarm",
        does: "cancels a task and lets its alarm ring",
        breaks: &["V9"],
        plant: Plant::Functions(&[Cut {
            function: "make_cancelled",
            from: "delete from dueline.due d where d.id = before.id returning d.fence into last_fence;",
            times: 1,
            to: "select d.fence into last_fence from dueline.due d where d.id = before.id;",
        }]),
        ..USUAL
    },
    Bug {
        name: "close-without-looking",
        does: "closes orders without asking whether they are paid",
        breaks: &["V5"],
        plant: Plant::Statement(
            "close_order",
            "update shop.orders set status = 'closed', closed_at = clock_timestamp() from batch \
             where orders.id = batch.key::bigint returning batch.ord",
        ),
        ..USUAL
    },
    Bug {
        name: "dedupe-in-another-transaction",
        does: "commits the dedupe row before the effect",
        breaks: &["V2"],
        ..USUAL
    },
    Bug {
        name: "effect-in-another-transaction",
        does: "commits the effect before task and dedupe row",
        breaks: &["V2"],
        ..USUAL
    },
    Bug {
        name: "known-dropped-not-settled",
        does: "settles in another transaction than the effect, and drops what has its dedupe row",
        breaks: &["V1", "V8"],
        consumer_points: "consumer.acted=2%return(kill)",
        ..USUAL
    },
    Bug {
        name: "environment-counted-as-attempt",
        does: "charges tasks for outages of the database",
        breaks: &["V6"],
        faults: ("consumer-postgres wire", 6),
        ..USUAL
    },
    Bug {
        name: "letter-before-the-row",
        does: "sends a dead letter before the task is dead",
        breaks: &["V6"],
        ..USUAL
    },
    Bug {
        name: "letter-noted-before-it-is-sent",
        does: "notes a dead letter that is not written yet",
        breaks: &["V6"],
        seconds: 20,
        ..USUAL
    },
    Bug {
        name: "offset-before-commit",
        does: "commits the offset when a batch starts",
        breaks: &["V7"],
        ..SLOW
    },
    Bug {
        name: "offset-over-a-hole",
        does: "commits the highest finished offset, whatever is open below it",
        breaks: &["V7"],
        ..SLOW
    },
    Bug {
        name: "watermark-alone",
        does: "scans from the watermark only, without window and sweep",
        breaks: &["V1", "V8"],
        faults: ("client wire delayed", 6),
        ..USUAL
    },
    Bug {
        name: "lease-never-over",
        does: "never publishes again what no consumer answers",
        breaks: &["V1", "V8"],
        faults: ("topic recreated", 3),
        ..USUAL
    },
    Bug {
        name: "crash-limit-ignored",
        does: "runs a task again and again that kills its consumer",
        breaks: &["V8"],
        faults: ("poison handler", 1),
        ..USUAL
    },
];

const SETTLE_ANY_GENERATION: Cut = Cut {
    function: "settle",
    from: "t.key_hash = m.key_hash and t.generation = m.generation and t.attempt = m.attempt\n          and t.state",
    times: 1,
    to: "t.key_hash = m.key_hash and t.state",
};
