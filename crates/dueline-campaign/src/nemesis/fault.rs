//! The faults, and how they are drawn.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::role::Role;

/// What is done to the network between one process and a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// All connections are cut once.
    Cut,
    /// Every answer takes longer.
    Delayed,
    /// The service hears, its answers are lost; then the connections are cut.
    AnswersLost,
    /// Connections stay open and carry nothing, then go on.
    Stalled,
    /// Nobody gets through.
    Refused,
}

/// Which service a wire leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// PostgreSQL.
    Postgres,
    /// Kafka.
    Kafka,
}

/// One fault, with whom it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL, then a new start.
    Killed(Role),
    /// SIGKILL of both relays, or both consumers.
    BothKilled([Role; 2]),
    /// SIGTERM, then a new start.
    Terminated(Role),
    /// SIGSTOP beyond lease and `max.poll.interval`, then SIGCONT.
    Stopped(Role),
    /// Its host's clock is ten minutes ahead, or behind.
    ClockMoved(Role, bool),
    /// An immediate shutdown, then a start with recovery.
    PostgresCrashed,
    /// Every session of relays or of consumers is ended by an administrator.
    BackendsTerminated(Role),
    /// Somebody else has all the connections that the server allows.
    ConnectionsExhausted,
    /// A transaction holds business rows.
    RowsLocked,
    /// A transaction holds a whole table.
    TableLocked(&'static str),
    /// A statement of a handler takes longer than it may.
    StatementsSlow,
    /// A long snapshot keeps dead rows from being cleaned away.
    HorizonPinned,
    /// The disk of the tables is full.
    DiskFull,
    /// SIGKILL of the broker, then a start.
    KafkaKilled,
    /// SIGSTOP of the broker, then SIGCONT.
    KafkaStopped,
    /// A topic is deleted and made again.
    TopicRecreated,
    /// All records of a topic are deleted.
    RecordsDeleted,
    /// The group's offsets are deleted.
    OffsetsDeleted,
    /// The group's offsets are set back to the first record.
    OffsetsSetBack,
    /// The group's offsets are set beyond the last record.
    OffsetsSetAhead,
    /// A member joins and leaves the group, again and again.
    Rebalances,
    /// The wire of one process.
    Wire(Role, Service, Trouble),
    /// The wire of one process to PostgreSQL is cut at a statement: those of relays, and a consumer's batch of
    /// a handler that is a statement, commit by themselves.
    CutAtCommit(Role),
    /// The clients' wire.
    ClientWire(Trouble),
    /// The clients' wire is cut at a COMMIT.
    ClientCutAtCommit,
    /// A task whose handler aborts its process.
    PoisonHandler,
}

/// What two faults must not work on at once, as bits.
pub type Touches = u32;
const POSTGRES: Touches = 1 << 16;
const KAFKA: Touches = 1 << 17;
const POISON: Touches = 1 << 18;
const HORIZON: Touches = 1 << 19;
const CLIENTS: Touches = 1 << 20;

fn process(role: Role) -> Touches {
    1 << role.place()
}

fn both(roles: [Role; 2]) -> Touches {
    process(roles[0]) | process(roles[1])
}

impl Fault {
    /// The kind's name, for tables.
    #[must_use]
    pub fn kind(self) -> String {
        let who = |role: Role| if role.is_relay() { "relay" } else { "consumer" };
        match self {
            Self::Killed(role) => format!("{} killed", who(role)),
            Self::BothKilled(roles) => format!("both {}s killed", who(roles[0])),
            Self::Terminated(role) => format!("{} terminated", who(role)),
            Self::Stopped(role) => format!("{} stopped", who(role)),
            Self::ClockMoved(role, _) => format!("{} clock moved", who(role)),
            Self::PostgresCrashed => "postgres crashed".to_owned(),
            Self::BackendsTerminated(role) => format!("{} backends terminated", who(role)),
            Self::ConnectionsExhausted => "connections exhausted".to_owned(),
            Self::RowsLocked => "business rows locked".to_owned(),
            Self::TableLocked(_) => "table locked".to_owned(),
            Self::StatementsSlow => "statements slow".to_owned(),
            Self::HorizonPinned => "horizon pinned".to_owned(),
            Self::DiskFull => "disk full".to_owned(),
            Self::KafkaKilled => "kafka killed".to_owned(),
            Self::KafkaStopped => "kafka stopped".to_owned(),
            Self::TopicRecreated => "topic recreated".to_owned(),
            Self::RecordsDeleted => "records deleted".to_owned(),
            Self::OffsetsDeleted => "offsets deleted".to_owned(),
            Self::OffsetsSetBack => "offsets set back".to_owned(),
            Self::OffsetsSetAhead => "offsets set ahead".to_owned(),
            Self::Rebalances => "rebalances".to_owned(),
            Self::Wire(role, service, trouble) => {
                let service = if service == Service::Postgres { "postgres" } else { "kafka" };
                format!("{}-{service} wire {}", who(role), trouble.name())
            }
            Self::CutAtCommit(role) => format!("{} cut at commit", who(role)),
            Self::ClientWire(trouble) => format!("client wire {}", trouble.name()),
            Self::ClientCutAtCommit => "client cut at commit".to_owned(),
            Self::PoisonHandler => "poison handler".to_owned(),
        }
    }

    /// What it works on: faults that share something do not overlap.
    #[must_use]
    pub fn touches(self) -> Touches {
        match self {
            Self::Killed(r) | Self::Terminated(r) | Self::Stopped(r) | Self::ClockMoved(r, _) => {
                process(r)
            }
            Self::BothKilled(roles) => both(roles),
            Self::PostgresCrashed
            | Self::BackendsTerminated(_)
            | Self::ConnectionsExhausted
            | Self::RowsLocked
            | Self::TableLocked(_)
            | Self::StatementsSlow
            | Self::DiskFull => POSTGRES,
            Self::HorizonPinned => HORIZON,
            Self::KafkaKilled
            | Self::KafkaStopped
            | Self::TopicRecreated
            | Self::RecordsDeleted
            | Self::Rebalances => KAFKA,
            Self::OffsetsDeleted | Self::OffsetsSetBack | Self::OffsetsSetAhead => {
                KAFKA | both(Role::CONSUMERS)
            }
            // One wire at a time of each process and service.
            Self::Wire(role, Service::Kafka, _) => process(role) << 4,
            Self::Wire(role, Service::Postgres, _) | Self::CutAtCommit(role) => process(role) << 8,
            Self::ClientWire(_) | Self::ClientCutAtCommit => CLIENTS,
            Self::PoisonHandler => POISON,
        }
    }
}

impl Trouble {
    const ALL: [Self; 5] =
        [Self::Cut, Self::Delayed, Self::AnswersLost, Self::Stalled, Self::Refused];

    fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Delayed => "delayed",
            Self::AnswersLost => "answers lost",
            Self::Stalled => "stalled",
            Self::Refused => "refused",
        }
    }
}

/// What this machine cannot do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Missing {
    /// No small disk could be mounted.
    pub disk: bool,
    /// There is no libfaketime.
    pub faketime: bool,
}

/// Weights of the sorts: what is quick and likely in production comes often.
const WEIGHTS: [(u32, Sort); 23] = [
    (12, Sort::Killed),
    (4, Sort::BothKilled),
    (7, Sort::Terminated),
    (5, Sort::Stopped),
    (5, Sort::ClockMoved),
    (5, Sort::PostgresCrashed),
    (6, Sort::BackendsTerminated),
    (3, Sort::ConnectionsExhausted),
    (4, Sort::RowsLocked),
    (4, Sort::TableLocked),
    (3, Sort::StatementsSlow),
    (2, Sort::HorizonPinned),
    (3, Sort::DiskFull),
    (4, Sort::KafkaKilled),
    (3, Sort::KafkaStopped),
    (3, Sort::TopicRecreated),
    (4, Sort::RecordsDeleted),
    (5, Sort::Offsets),
    (3, Sort::Rebalances),
    (24, Sort::Wire),
    (8, Sort::CutAtCommit),
    (8, Sort::Client),
    (1, Sort::Poison),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Killed,
    BothKilled,
    Terminated,
    Stopped,
    ClockMoved,
    PostgresCrashed,
    BackendsTerminated,
    ConnectionsExhausted,
    RowsLocked,
    TableLocked,
    StatementsSlow,
    HorizonPinned,
    DiskFull,
    KafkaKilled,
    KafkaStopped,
    TopicRecreated,
    RecordsDeleted,
    Offsets,
    Rebalances,
    Wire,
    CutAtCommit,
    Client,
    Poison,
}

/// The tables that a fault may lock, the product's own among them.
const TABLES: [&str; 4] = ["shop.orders", "shop.refunds", "dueline.dedupe", "dueline.due"];

fn one<T: Copy>(rng: &mut StdRng, of: &[T], otherwise: T) -> T {
    of.choose(rng).copied().unwrap_or(otherwise)
}

fn sort(rng: &mut StdRng, missing: Missing) -> Sort {
    let possible = |sort: Sort| match sort {
        Sort::DiskFull => !missing.disk,
        Sort::ClockMoved => !missing.faketime,
        _ => true,
    };
    let total: u32 = WEIGHTS.iter().filter(|(_, s)| possible(*s)).map(|(weight, _)| weight).sum();
    let mut ticket = rng.random_range(0..total);
    for (weight, sort) in WEIGHTS.iter().filter(|(_, s)| possible(*s)) {
        if ticket < *weight {
            return *sort;
        }
        ticket -= weight;
    }
    Sort::Killed
}

/// Draws one.
pub fn draw(rng: &mut StdRng, missing: Missing) -> Fault {
    let sort = sort(rng, missing);
    let role = one(rng, &Role::ALL, Role::Relay1);
    let pair = if role.is_relay() { Role::RELAYS } else { Role::CONSUMERS };
    let trouble = one(rng, &Trouble::ALL, Trouble::Cut);
    match sort {
        Sort::Killed => Fault::Killed(role),
        Sort::BothKilled => Fault::BothKilled(pair),
        Sort::Terminated => Fault::Terminated(role),
        Sort::Stopped => Fault::Stopped(role),
        Sort::ClockMoved => Fault::ClockMoved(role, rng.random()),
        Sort::PostgresCrashed => Fault::PostgresCrashed,
        Sort::BackendsTerminated => Fault::BackendsTerminated(role),
        Sort::ConnectionsExhausted => Fault::ConnectionsExhausted,
        Sort::RowsLocked => Fault::RowsLocked,
        Sort::TableLocked => Fault::TableLocked(one(rng, &TABLES, TABLES[0])),
        Sort::StatementsSlow => Fault::StatementsSlow,
        Sort::HorizonPinned => Fault::HorizonPinned,
        Sort::DiskFull => Fault::DiskFull,
        Sort::KafkaKilled => Fault::KafkaKilled,
        Sort::KafkaStopped => Fault::KafkaStopped,
        Sort::TopicRecreated => Fault::TopicRecreated,
        Sort::RecordsDeleted => Fault::RecordsDeleted,
        Sort::Offsets => {
            let all = [Fault::OffsetsDeleted, Fault::OffsetsSetBack, Fault::OffsetsSetAhead];
            one(rng, &all, Fault::OffsetsDeleted)
        }
        Sort::Rebalances => Fault::Rebalances,
        Sort::Wire => {
            let service = one(rng, &[Service::Postgres, Service::Kafka], Service::Postgres);
            Fault::Wire(role, service, trouble)
        }
        Sort::CutAtCommit => Fault::CutAtCommit(role),
        Sort::Client => match rng.random_range(0..3) {
            0 => Fault::ClientWire(trouble),
            _ => Fault::ClientCutAtCommit,
        },
        Sort::Poison => Fault::PoisonHandler,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_and_every_sort_comes() {
        let drawn = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            (0..2_000).map(|_| draw(&mut rng, Missing::default())).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        let kinds: BTreeSet<String> = drawn(7).into_iter().map(Fault::kind).collect();
        assert!(kinds.len() >= 50, "{} kinds: {kinds:?}", kinds.len());
    }

    #[test]
    fn what_is_missing_is_not_drawn() {
        let mut rng = StdRng::seed_from_u64(1);
        let missing = Missing { disk: true, faketime: true };
        let drawn: Vec<Fault> = (0..2_000).map(|_| draw(&mut rng, missing)).collect();
        assert!(!drawn.contains(&Fault::DiskFull));
        assert!(!drawn.iter().any(|fault| matches!(fault, Fault::ClockMoved(..))));
    }

    #[test]
    fn faults_on_one_thing_do_not_overlap() {
        let overlap = |a: Fault, b: Fault| a.touches() & b.touches() == 0;
        assert!(!overlap(Fault::Killed(Role::Relay1), Fault::BothKilled(Role::RELAYS)));
        assert!(!overlap(Fault::OffsetsDeleted, Fault::Stopped(Role::Consumer2)));
        assert!(!overlap(Fault::OffsetsDeleted, Fault::KafkaKilled));
        assert!(overlap(Fault::Killed(Role::Relay1), Fault::PostgresCrashed));
        assert!(overlap(Fault::CutAtCommit(Role::Relay1), Fault::Killed(Role::Relay1)));
    }
}
