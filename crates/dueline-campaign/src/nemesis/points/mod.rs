//! Fail points, gone through systematically: at each of them a process is killed once, whatever it takes to
//! get there, and started again; on demand each is also delayed beyond lease and poll interval, and
//! processes are killed at pairs of them.

mod command;
mod pairs;
mod provoke;
mod strike;

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_failpoints::{ENABLED, POINTS, Point, Process};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use super::FaultLog;
use crate::evidence::Archive;
use crate::role::Role;
use crate::stage::Stage;
use pairs::Pair;
use strike::Strike;

/// How long a delayed process stands still: beyond its lease, and beyond the time in which it must poll.
const DELAY: Duration = Duration::from_millis(7_000);

/// What a process does at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Delay,
}

impl Action {
    /// As `FAILPOINTS` says it: once.
    fn order(self, point: &Point) -> (String, String) {
        ("FAILPOINTS".to_owned(), format!("{}=1*return({self})", point.name))
    }

    /// What the process says when it does it.
    fn last_words(self, point: &Point) -> String {
        format!("fail point {}: {self}", point.name)
    }

    /// What was done, as a kind of fault.
    fn done(self, point: &Point) -> String {
        let what = if self == Self::Kill { "killed" } else { "delayed" };
        format!("{} {what}", point.name)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => f.write_str("kill"),
            Self::Delay => write!(f, "delay:{}", DELAY.as_millis()),
        }
    }
}

/// What is to be gone through.
#[derive(Clone, Debug)]
pub struct PointPlan {
    which: String,
    /// How many pairs, drawn from the seed; `None`: neither pairs nor delays.
    pairs: Option<usize>,
    points: Vec<&'static Point>,
}

impl PointPlan {
    /// `which`: `all`, or beginnings of names such as `relay.claimed,consumer.stop`.
    ///
    /// # Errors
    /// When no point is called so, or this build has none.
    pub fn new(which: &str, pairs: Option<usize>) -> Result<Self> {
        ensure!(
            ENABLED,
            "this campaign was built without fail points: build the workspace with `--features \
             dueline-campaign/fail-points`, as ./scripts/campaign does"
        );
        let begins = |point: &Point, name: &str| {
            point.in_campaign && (name == "all" || point.name.starts_with(name))
        };
        for name in which.split(',') {
            let ours = POINTS.iter().filter(|point| point.in_campaign);
            let names = || ours.map(|point| point.name).collect::<Vec<_>>().join(" ");
            let known = !name.is_empty() && POINTS.iter().any(|point| begins(point, name));
            ensure!(known, "there is no fail point `{name}`; there are: {}", names());
        }
        let wanted = |point: &&Point| which.split(',').any(|name| begins(point, name));
        let points = POINTS.iter().filter(wanted).collect();
        Ok(Self { which: which.to_owned(), pairs, points })
    }

    /// The points of one program, in an order that the seed gives.
    fn of(&self, process: Process, rng: &mut StdRng) -> Vec<&'static Point> {
        let own = self.points.iter().copied().filter(|point| point.process == process);
        let mut own: Vec<&'static Point> = own.collect();
        own.shuffle(rng);
        own
    }
}

/// The arguments that ask for it.
impl fmt::Display for PointPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--fail-points {}", self.which)?;
        self.pairs.map_or(Ok(()), |pairs| write!(f, " --pairs {pairs}"))
    }
}

/// Goes through the plan; answers what did not go as planned: points that nobody reached, above all.
pub async fn run(
    plan: &PointPlan,
    seed: u64,
    stage: &Stage,
    archive: &Archive,
    log: &FaultLog,
) -> Vec<String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let tour = Tour { stage, archive, log };
    let points = [Process::Relay, Process::Consumer, Process::Command];
    let points = points.map(|process| plan.of(process, &mut rng));
    let mut problems = tour.each(&points, Action::Kill).await;
    if let Some(pairs) = plan.pairs {
        problems.extend(tour.each(&points, Action::Delay).await);
        for pair in pairs::covering(&points[0], &points[1], pairs, &mut rng) {
            problems.extend(tour.pair(&pair).await);
        }
    }
    problems
}

/// Where the points are gone through.
#[derive(Clone, Copy)]
struct Tour<'t> {
    stage: &'t Stage,
    archive: &'t Archive,
    log: &'t FaultLog,
}

impl<'t> Tour<'t> {
    /// Each point by itself; one relay, one consumer and one command at a time.
    async fn each(
        &self,
        [relay, consumer, command]: &[Vec<&Point>; 3],
        action: Action,
    ) -> Vec<String> {
        let (mut problems, more, rest) = tokio::join!(
            self.in_turn(relay, Role::RELAYS, action),
            self.in_turn(consumer, Role::CONSUMERS, action),
            command::in_turn(self, command, action),
        );
        problems.extend(more.into_iter().chain(rest));
        problems
    }

    async fn in_turn(&self, points: &[&Point], roles: [Role; 2], action: Action) -> Vec<String> {
        let mut problems = Vec::new();
        for (turn, point) in points.iter().enumerate() {
            let strike = self.strike(roles[turn % 2], std::slice::from_ref(point), action);
            problems.extend(Box::pin(strike.carry_out()).await);
        }
        problems
    }

    async fn pair(&self, pair: &Pair<'_>) -> Vec<String> {
        let kill = |role, point| self.strike(role, point, Action::Kill);
        match pair {
            Pair::Across([relay, consumer]) => {
                let relay = kill(Role::Relay1, std::slice::from_ref(relay));
                let consumer = kill(Role::Consumer1, std::slice::from_ref(consumer));
                let (one, two) =
                    tokio::join!(Box::pin(relay.carry_out()), Box::pin(consumer.carry_out()));
                one.into_iter().chain(two).collect()
            }
            Pair::InTurn(points) => {
                let is_relay = points[0].process == Process::Relay;
                let role = if is_relay { Role::Relay2 } else { Role::Consumer2 };
                Box::pin(kill(role, points).carry_out()).await.into_iter().collect()
            }
        }
    }

    fn strike<'s>(&self, role: Role, points: &'s [&'s Point], action: Action) -> Strike<'s>
    where
        't: 's,
    {
        Strike { tour: *self, role, points, action }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_chosen_by_name_or_beginning_and_never_none() {
        let ours = POINTS.iter().filter(|point| point.in_campaign).count();
        assert_eq!(PointPlan::new("all", None).expect("all").points.len(), ours);
        assert!(PointPlan::new("relay.outcomes", None).is_err(), "no way of the campaign's");
        assert_eq!(PointPlan::new("relay.claimed", None).expect("one").points.len(), 1);
        assert!(PointPlan::new("consumer.stop", None).expect("some").points.len() > 1);
        let two = PointPlan::new("relay.claimed,consumer.left", None).expect("two");
        assert_eq!(two.points.len(), 2);
        let error = PointPlan::new("relay.claimed,relay.nowhere", None).expect_err("no such point");
        assert!(error.to_string().contains("relay.claimed"), "{error}");
    }
}
