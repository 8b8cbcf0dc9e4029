//! One state of the whole system, and its packed form.
//!
//! Fields are small numbers and choices, each with its width in bits. What is unbounded in
//! the product (fences, offsets, clocks) stands here as what can be told of it: whether a fence that a relay
//! saw is still the present one, whether a lease is over.

pub use crate::choices::{Claimant, Fate, Lease, Life, Order, Outcome, Phase, Slot, Stage};
use crate::pack::{Bits, Field, Packed};

/// Records of the tier's topic that are not passed by the committed offset.
pub const LOG: usize = 3;
/// Relays and consumers; also their hands and letter writers.
pub const PAIR: usize = 2;

packed! {
    /// A task: its row, its alarm, its dedupe row, its order, and what only the checks look at.
    Task {
        /// `task.state`.
        life: Life = 3,
        /// `task.generation`.
        generation: u8 = 3,
        /// `task.attempt`.
        attempt: u8 = 2,
        /// `task.cancel_wished_at` is set.
        wish: bool = 1,
        /// The dead letter is stamped.
        lettered: bool = 1,
        /// It was published to a team that does not `begin`: whoever has a message may handle it at any time.
        loose: bool = 1,
        /// The alarm.
        lease: Lease = 3,
        /// The clock.
        phase: Phase = 2,
        /// It was committed after the watermark had passed it.
        behind: bool = 1,
        /// `due.extensions` is at its limit.
        extended: bool = 1,
        /// `due.unanswered`.
        unanswered: u8 = 3,
        /// `due.claim_epoch`.
        claimant: Claimant = 2,
        /// The claim is within the claimant's `confirmed_upto`.
        confirmed: bool = 1,
        /// A record at or after `claimed_at` is below the committed offset.
        passed: bool = 1,
        /// The topic is another one than at the claim.
        foreign_topic: bool = 1,
        /// `dedupe.outcome`.
        dedupe: Outcome = 2,
        /// `dedupe.until` is past.
        until_over: bool = 1,
        /// `dedupe.generation`.
        tried_generation: u8 = 3,
        /// `dedupe.attempt`.
        tried_attempt: u8 = 2,
        /// `dedupe.unknown`.
        unknown: bool = 1,
        /// Whose token it is.
        holder: u8 = 1,
        /// The order.
        order: Order = 2,
        /// Its handler kills the consumer.
        poison: bool = 1,
        /// Check: effects, at most 2.
        effects: u8 = 2,
        /// Check: 1 + the youngest generation of which it was promised that it has no effect.
        promised: u8 = 4,
        /// The alarm is leased to the end of a token.
        postponed: bool = 1,
        /// Generations of which a record was written.
        published: u8 = 8,
        /// Check: generations with a letter.
        letters: u8 = 8,
        /// Check: generations that are deaths.
        deaths: u8 = 8,
        /// Check: a person said that it is done.
        resolved: bool = 1,
        /// Check: how often a message was consumed while its alarm stayed leased.
        ignored: u8 = 3,
    }
}

packed! {
    /// What a message says.
    Message {
        /// Which task.
        task: u8 = 1,
        /// `generation`.
        generation: u8 = 3,
        /// `attempt`.
        attempt: u8 = 2,
        /// The generation whose payload it carries.
        body: u8 = 3,
    }
}

packed! {
    /// A record of the topic.
    Record {
        /// Where it stands.
        slot: Slot = 2,
        /// Bit per task: its timestamp is at or after that task's present claim.
        young: u8 = 2,
    }
}

packed! {
    /// A relay's hand on one alarm.
    Hand {
        /// Whose hand.
        relay: u8 = 1,
        /// What it does.
        stage: Stage = 4,
        /// The fence that the relay saw is the alarm's present one.
        fresh: bool = 1,
        /// The alarm's fence began anew since: that one may come again at any time.
        wild: bool = 1,
    }
}

packed! {
    /// A relay.
    Relay {
        /// Its process does not run.
        down: bool = 1,
        /// Its incarnation was declared dead, and it does not know.
        ended: bool = 1,
    }
}

packed! {
    /// A message in a consumer's hands.
    Item {
        /// What became of it.
        fate: Fate = 4,
        /// Its failure ends the task.
        doomed: bool = 1,
        /// Its failure is charged as an attempt.
        charged: bool = 1,
    }
}

packed! {
    /// A consumer.
    Consumer {
        /// Its process does not run.
        down: bool = 1,
        /// It lost the partition while it had this batch.
        evicted: bool = 1,
    }
}

packed! {
    /// Somebody who writes a dead letter: 0 in a consumer, 1 in the leading relay.
    Letter {
        /// It has one.
        busy: bool = 1,
        /// It is written, to be stamped.
        written: bool = 1,
        /// Of which task.
        task: u8 = 1,
        /// Of which death.
        generation: u8 = 3,
    }
}

packed! {
    /// What there is only one of.
    Common {
        /// The lane's owner.
        lane: Claimant = 2,
        /// The partition's owner, + 1; 0: nobody.
        partition: u8 = 2,
        /// Deaths of consumers at the first uncommitted record.
        mark: u8 = 2,
        /// The owner takes the records of a topic that was made again for ones that it knows.
        deaf: bool = 1,
        /// Task 1 was claimed after task 0.
        second_later: bool = 1,
        /// A call elsewhere is on its way: which generation, + 1.
        wire: u8 = 4,
        /// Faults that may still happen.
        faults: u8 = 3,
        /// Client calls that may still happen.
        clients: u8 = 3,
    }
}

/// The whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The tasks; the second is used in scopes with two.
    pub tasks: [Task; PAIR],
    /// The topic from the committed offset on.
    pub log: [(Record, Message); LOG],
    /// The relays' hands.
    pub hands: [(Hand, Message); PAIR],
    /// The relays.
    pub relays: [Relay; PAIR],
    /// The consumers, each with a batch of up to two.
    pub consumers: [(Consumer, [(Item, Message); PAIR]); PAIR],
    /// The writers of letters.
    pub letters: [Letter; PAIR],
    /// The rest.
    pub common: Common,
}

impl State {
    /// The state in few bytes; equal states have equal packings.
    #[must_use]
    pub fn pack(&self) -> Packed {
        let mut bits = Bits::default();
        self.tasks.iter().for_each(|task| task.pack(&mut bits));
        for (record, message) in self.log {
            record.pack(&mut bits);
            message.pack(&mut bits);
        }
        for (hand, message) in self.hands {
            hand.pack(&mut bits);
            message.pack(&mut bits);
        }
        self.relays.iter().for_each(|relay| relay.pack(&mut bits));
        for (consumer, items) in self.consumers {
            consumer.pack(&mut bits);
            for (item, message) in items {
                item.pack(&mut bits);
                message.pack(&mut bits);
            }
        }
        self.letters.iter().for_each(|letter| letter.pack(&mut bits));
        self.common.pack(&mut bits);
        bits.words
    }

    /// The state of a packing.
    #[must_use]
    pub fn unpack(words: &Packed) -> Self {
        let mut bits = Bits { words: *words, at: 0 };
        let b = &mut bits;
        Self {
            tasks: std::array::from_fn(|_| Task::unpack(b)),
            log: std::array::from_fn(|_| (Record::unpack(b), Message::unpack(b))),
            hands: std::array::from_fn(|_| (Hand::unpack(b), Message::unpack(b))),
            relays: std::array::from_fn(|_| Relay::unpack(b)),
            consumers: std::array::from_fn(|_| {
                let consumer = Consumer::unpack(b);
                (consumer, std::array::from_fn(|_| (Item::unpack(b), Message::unpack(b))))
            }),
            letters: std::array::from_fn(|_| Letter::unpack(b)),
            common: Common::unpack(b),
        }
    }
}
