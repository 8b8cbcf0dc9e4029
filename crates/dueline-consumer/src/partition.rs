//! One assigned partition: what is under way, what is held, and whether it is under suspicion (H13).

use std::collections::VecDeque;
use std::time::Instant;

use dueline_kafka::{OwnedRecord, TopicPartition};
use dueline_store::effect::CrashMark;

use crate::message::Message;

/// From which try on a partition is read one message at a time.
const SUSPICIOUS_TRIES: i32 = 2;

/// How carefully a partition is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Its crash mark is not known yet, or being read.
    Unread { asked: bool },
    /// The mark of this try is to be written before the first batch, or being written.
    Unmarked { tries: i32, asked: bool },
    /// Read in batches.
    Open,
    /// Under suspicion up to the offset `until`: one message at a time. A message at `suspect` was there at
    /// `tries - 1` deaths.
    Lone { suspect: i64, tries: i32, until: i64 },
}

/// One assigned partition.
#[derive(Debug)]
pub(crate) struct Partition {
    pub name: TopicPartition,
    /// Which assignment this is, counted over the process.
    pub assignment: u64,
    /// Where reading began.
    pub start: i64,
    pub watch: Watch,
    /// The offset of the mark that stands in the database.
    pub marked: Option<i64>,
    /// Messages that are with jobs.
    pub under_way: usize,
    /// The message of a partition under suspicion that waits for its turn.
    pub lone: Option<Message>,
    /// Records that nobody here understands, and what was read behind them.
    pub held: VecDeque<OwnedRecord>,
    pub look_again: Option<Instant>,
    pub revoking: bool,
}

impl Partition {
    pub fn new(name: TopicPartition, assignment: u64, committed: Option<i64>) -> Self {
        Self {
            name,
            assignment,
            start: committed.unwrap_or(0),
            watch: Watch::Unread { asked: false },
            marked: None,
            under_way: 0,
            lone: None,
            held: VecDeque::new(),
            look_again: None,
            revoking: false,
        }
    }

    /// What the mark found at the assignment says. A mark that the committed offset has passed says nothing.
    pub fn judge(&mut self, mark: Option<&CrashMark>, span: i64) {
        let crashed = mark.filter(|mark| mark.offset >= self.start);
        self.watch = match crashed {
            None => Watch::Unmarked { tries: 1, asked: false },
            Some(mark) => {
                let (suspect, tries) = (mark.offset, mark.tries.saturating_add(1));
                self.marked = Some(mark.offset);
                if tries >= SUSPICIOUS_TRIES {
                    Watch::Lone { suspect, tries, until: suspect.saturating_add(span) }
                } else {
                    Watch::Unmarked { tries, asked: false }
                }
            }
        };
    }

    /// The mark to be written before a lone message's handler.
    pub fn lone_mark(&self, offset: i64) -> CrashMark {
        let tries = match self.watch {
            Watch::Lone { suspect, tries, .. } if suspect == offset => tries,
            _ => SUSPICIOUS_TRIES,
        };
        self.mark(offset, tries)
    }

    /// Whether the message at this offset was there when a consumer died.
    pub fn is_suspect(&self, offset: i64) -> bool {
        matches!(self.watch, Watch::Lone { suspect, .. } if suspect == offset)
    }

    /// A mark on this partition.
    pub fn mark(&self, offset: i64, tries: i32) -> CrashMark {
        let TopicPartition { topic, partition } = self.name.clone();
        CrashMark { topic, partition, offset, tries }
    }

    /// Whether records may be taken for batches.
    pub fn is_open(&self) -> bool {
        self.watch == Watch::Open && self.held.is_empty() && !self.revoking
    }

    /// Whether the next message may be taken, alone.
    pub fn wants_lone(&self) -> bool {
        let suspicious = matches!(self.watch, Watch::Lone { .. });
        let idle = self.under_way == 0 && self.lone.is_none() && self.held.is_empty();
        suspicious && idle && !self.revoking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(committed: Option<i64>) -> Partition {
        Partition::new(TopicPartition::new("t", 0), 1, committed)
    }

    fn mark(offset: i64, tries: i32) -> CrashMark {
        CrashMark { topic: "t".into(), partition: 0, offset, tries }
    }

    #[test]
    fn h13_a_mark_behind_the_committed_offset_says_nothing() {
        let mut p = partition(Some(10));
        p.judge(Some(&mark(9, 5)), 100);
        assert_eq!(p.watch, Watch::Unmarked { tries: 1, asked: false });
        p.judge(None, 100);
        assert_eq!(p.watch, Watch::Unmarked { tries: 1, asked: false });
    }

    #[test]
    fn h13_a_second_try_is_read_one_message_at_a_time() {
        let mut p = partition(None);
        p.judge(Some(&mark(0, 1)), 100);
        assert_eq!(p.watch, Watch::Lone { suspect: 0, tries: 2, until: 100 });
        assert!(p.wants_lone() && !p.is_open());
        assert_eq!(p.lone_mark(0).tries, 2);
    }

    #[test]
    fn h13_only_the_marked_message_inherits_the_tries() {
        let mut p = partition(Some(3));
        p.judge(Some(&mark(5, 3)), 100);
        assert_eq!(p.lone_mark(5).tries, 4);
        assert_eq!(p.lone_mark(4).tries, 2, "a neighbour was not with its handler");
        assert_eq!(p.lone_mark(6).tries, 2);
    }
}
