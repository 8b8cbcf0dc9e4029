//! All fail points, as data: what a systematic run goes through.

use Process::{Command, Consumer, Relay};

/// Which of our programs gets to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    /// The relay.
    Relay,
    /// The consumer.
    Consumer,
    /// The command `dueline`.
    Command,
}

/// A place between two durable actions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// Its name, as `reached` is given it.
    pub name: &'static str,
    /// Who gets there.
    pub process: Process,
    /// What is durable by then.
    pub stands: &'static str,
    /// What is not durable yet, and would have come next.
    pub missing: &'static str,
    /// Whether the campaign's work leads to it, or what the campaign does to provoke it. The others are
    /// struck by end-to-end tests, which name them.
    pub in_campaign: bool,
}

const fn of(
    process: Process,
    name: &'static str,
    stands: &'static str,
    missing: &'static str,
) -> Point {
    Point { name, process, stands, missing, in_campaign: true }
}

/// A point on a way that the campaign's shop does not go.
const fn in_tests(
    process: Process,
    name: &'static str,
    stands: &'static str,
    missing: &'static str,
) -> Point {
    Point { name, process, stands, missing, in_campaign: false }
}

/// Every point, in the order of a task's way through each program.
#[rustfmt::skip]
pub const POINTS: &[Point] = &[
    of(Relay, "relay.topics.seen", "one topic's id is written down", "the other topics'"),
    of(Relay, "relay.registered", "the incarnation's row", "its lanes"),
    of(Relay, "relay.lanes.taken", "it owns free lanes", "any claim in them"),
    of(Relay, "relay.lanes.taken_over", "a dead relay is declared so, its lanes are ours", "its orphans are published again"),
    of(Relay, "relay.lanes.leaving", "lanes that it no longer walks are still its own", "they are given back"),
    of(Relay, "relay.lanes.given", "lanes are given back", "somebody takes them"),
    of(Relay, "relay.heartbeat.written", "the heartbeat, with watermark and confirmed claims", "what the other relays' rows ask for"),
    of(Relay, "relay.claimed", "alarms are claimed", "any of their messages"),
    of(Relay, "relay.produced.one", "alarms are claimed, one message is on its way", "the other messages"),
    of(Relay, "relay.produced.all", "alarms are claimed, all messages are on their way", "any delivery report"),
    of(Relay, "relay.reported", "messages are delivered", "this relay knows it"),
    of(Relay, "relay.confirmed", "messages are delivered, and it knows it", "the heartbeat says so"),
    of(Relay, "relay.releasing", "messages were certainly not written", "their alarms wait again"),
    of(Relay, "relay.released", "alarms of messages that were not written wait again", "the scan goes back to them"),
    of(Relay, "relay.judged", "leases are over, and Kafka has said where their messages are", "anything that follows from it"),
    of(Relay, "relay.extended", "leases of messages that still wait go on", "others are published again"),
    of(Relay, "relay.reclaimed", "lost or orphaned alarms are claimed anew", "their messages"),
    of(Relay, "relay.bodies.read", "lost or orphaned alarms are claimed anew, their bodies are read", "their messages"),
    of(Relay, "relay.parked", "tasks are parked as dead", "their letters"),
    of(Relay, "relay.letters.read", "dead rows without a letter are found", "any letter"),
    of(Relay, "relay.letters.sent", "a letter is delivered", "the row says so"),
    of(Relay, "relay.letters.noted", "a letter is delivered and noted", "the other letters"),
    in_tests(Relay, "relay.outcomes.read", "another team's outcomes are read", "any of them is settled"),
    in_tests(Relay, "relay.outcomes.settled", "another team's outcomes are settled", "their offsets are passed"),
    in_tests(Relay, "relay.outcomes.lettered", "an outcome that nobody can read has its letter", "its offset is passed"),
    of(Relay, "relay.patrol.deleted", "nothing: old rows are deleted in an open transaction", "its COMMIT"),
    of(Relay, "relay.patrol.committed", "old rows are gone, and where to go on is kept", "the next stretch"),
    of(Relay, "relay.flushed", "told to stop, everything sent is reported", "the incarnation's end, and its lanes are free"),
    of(Relay, "relay.ended", "the incarnation has ended, its lanes are free", "the process's end"),

    of(Consumer, "consumer.mark.written", "crash marks of new partitions", "any effect of their messages"),
    of(Consumer, "consumer.taken", "messages are read", "any of their effects"),
    of(Consumer, "consumer.lone.marked", "the mark of one suspected message", "its effect"),
    of(Consumer, "consumer.statement.next", "messages are read", "the one statement of their batch"),
    of(Consumer, "consumer.statement.done", "the batch's effects and its settling", "the batch is reported, offsets follow"),
    of(Consumer, "consumer.admitted", "nothing: dedupe keys stand in an open transaction", "the handler's effects"),
    of(Consumer, "consumer.acted", "nothing: the handler's effects stand in an open transaction", "the tasks are settled"),
    of(Consumer, "consumer.settled", "nothing: tasks are settled in an open transaction", "returned alarms and counts"),
    of(Consumer, "consumer.committing", "nothing: all of the batch stands in an open transaction", "its COMMIT"),
    of(Consumer, "consumer.committed", "the batch's effects and its settling", "the batch is reported, offsets follow"),
    of(Consumer, "consumer.commit.unknown", "the connection broke at a COMMIT", "its fate is looked up"),
    of(Consumer, "consumer.commit.looked_up", "the fate of a COMMIT is known", "what follows from it"),
    in_tests(Consumer, "consumer.calls.begun", "the keys of calls are taken", "any of the calls"),
    in_tests(Consumer, "consumer.call.heard", "a receiver has answered", "its answer is written down"),
    in_tests(Consumer, "consumer.calls.finished", "what was heard of calls, and what follows from it", "the batch is reported, offsets follow"),
    of(Consumer, "consumer.batch.done", "the batch's effects and its settling", "its offsets may be passed"),
    of(Consumer, "consumer.offsets.sent", "a commit of offsets is on its way", "its answer"),
    of(Consumer, "consumer.offsets.committed", "offsets are committed", "marks that they have passed are removed"),
    of(Consumer, "consumer.mark.passed", "marks that offsets have passed are removed", "the next marks"),
    of(Consumer, "consumer.failure.recorded", "nothing: failures stand in an open transaction", "stranded rows, the COMMIT"),
    of(Consumer, "consumer.failure.written", "failed tasks wait again or are dead", "letters, offsets"),
    of(Consumer, "consumer.death.written", "a task is dead", "its letter"),
    of(Consumer, "consumer.letter.sent", "a letter is delivered", "the row says so"),
    of(Consumer, "consumer.letter.noted", "a letter is delivered and noted", "the message's offset"),
    of(Consumer, "consumer.broken.found", "a message that no task can be told from is read", "its letter"),
    of(Consumer, "consumer.broken.lettered", "the letter of a message that no task can be told from", "its offset is passed"),
    of(Consumer, "consumer.revoke.drained", "the work of partitions that go is finished", "their marks are removed"),
    of(Consumer, "consumer.revoke.acknowledged", "the marks of partitions that go are removed", "their offsets are committed"),
    of(Consumer, "consumer.revoke.committed", "offsets of partitions that go are committed", "others have them"),
    of(Consumer, "consumer.topic.renewed", "the offsets of a topic that was made anew are set to its start", "the member joins anew"),
    of(Consumer, "consumer.stop.drained", "told to stop, the work under way is finished", "marks are removed, offsets committed"),
    of(Consumer, "consumer.stop.unmarked", "told to stop, the marks are removed", "offsets are committed, the group is left"),
    of(Consumer, "consumer.left", "the last offsets are committed, the group is left", "the last letters"),

    of(Command, "command.replayed", "a dead task is live again", "the next of the list"),
    of(Command, "command.resent", "a message without a row is sent again", "that it was is noted"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The names that the sources give to `reached`, but for this crate's own.
    fn in_sources() -> Vec<String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
        let mut folders: Vec<_> =
            fs::read_dir(crates).expect("crates/").map(|f| f.expect("an entry").path()).collect();
        folders.retain(|path| *path != Path::new(env!("CARGO_MANIFEST_DIR")));
        let mut names = Vec::new();
        while let Some(path) = folders.pop() {
            if path.is_dir() {
                folders.extend(
                    fs::read_dir(&path).expect("a folder").map(|f| f.expect("an entry").path()),
                );
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("UTF-8");
                let calls = text.split("dueline_failpoints::reached(\"").skip(1);
                names.extend(
                    calls.map(|rest| rest.split('"').next().unwrap_or_default().to_owned()),
                );
            }
        }
        names
    }

    #[test]
    fn a_point_beside_the_campaigns_way_is_struck_by_a_test() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tests/e2e");
        let text: String = fs::read_dir(tests)
            .expect("tests/e2e")
            .map(|file| fs::read_to_string(file.expect("an entry").path()).expect("UTF-8"))
            .collect();
        for point in POINTS.iter().filter(|point| !point.in_campaign) {
            assert!(text.contains(&format!("\"{}\"", point.name)), "{}", point.name);
        }
    }

    #[test]
    fn every_point_is_in_the_code_once_and_in_the_list() {
        let mut found = in_sources();
        let mut listed: Vec<String> = POINTS.iter().map(|point| point.name.to_owned()).collect();
        found.sort();
        listed.sort();
        assert!(listed.len() >= 25, "{} points", listed.len());
        assert_eq!(found, listed);
    }

    #[test]
    fn each_has_a_name_of_its_own_that_says_whose_it_is() {
        let names: BTreeSet<&str> = POINTS.iter().map(|point| point.name).collect();
        assert_eq!(names.len(), POINTS.len());
        for point in POINTS {
            let prefix = format!("{:?}.", point.process).to_lowercase();
            assert!(point.name.starts_with(&prefix), "{}", point.name);
            assert!(!point.stands.is_empty() && !point.missing.is_empty(), "{}", point.name);
        }
    }
}
