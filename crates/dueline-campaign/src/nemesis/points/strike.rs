//! One process, killed or delayed at one point, or at several in turn.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dueline_failpoints::Point;
use dueline_testkit::wait;
use tokio::sync::watch;
use tokio::time::sleep;

use super::provoke::Provocation;
use super::{Action, DELAY, Tour};
use crate::role::Role;

/// How long a process may take to get to a point, with all that is done to make it.
const BOUND: Duration = Duration::from_secs(60);
/// How often the log of a process is looked at that is to be delayed.
const LOOK: Duration = Duration::from_millis(200);

pub(super) struct Strike<'s> {
    pub tour: Tour<'s>,
    pub role: Role,
    pub points: &'s [&'s Point],
    pub action: Action,
}

impl Strike<'_> {
    /// Does it, heals everything, and answers what did not go as planned.
    pub async fn carry_out(&self) -> Option<String> {
        let (log, began) = (self.tour.log, Instant::now());
        let mut numbers = Vec::new();
        let mut result = Ok(());
        for point in self.points {
            let what = format!("{} of {:?}", self.action.done(point), self.role);
            numbers.push(log.begin_named(self.action.done(point), what));
            result =
                self.reach(point).await.with_context(|| format!("{} at {}", self.role, point.name));
            if result.is_err() {
                break;
            }
        }
        let released = self.release().await;
        let result = result.and(released);
        numbers.into_iter().for_each(|number| log.heal(number, &result));
        let names: Vec<&str> = self.points.iter().map(|point| point.name).collect();
        let (names, seconds) = (names.join(", then "), began.elapsed().as_secs_f64());
        let failed = result.err().map(|error| format!("fail point {names}: {error:#}"));
        let failing = if failed.is_some() { ": FAILED" } else { "" };
        eprintln!("         {} {} at {names} ({seconds:.1} s){failing}", self.role, self.action);
        failed
    }

    /// Starts the process with the order, and sees to it that it gets there.
    pub async fn reach(&self, point: &Point) -> Result<()> {
        let provocation = Provocation::of(point.name);
        let mut result = self.try_to_reach(point, provocation).await;
        for _ in 1..provocation.tries() {
            if result.is_ok() {
                break;
            }
            self.tour.stage.kill(self.role).await;
            result = self.try_to_reach(point, provocation).await;
        }
        result
    }

    async fn try_to_reach(&self, point: &Point, provocation: Provocation) -> Result<()> {
        provocation.prepare(self).await?;
        self.start(point).await?;
        let (over, is_over) = watch::channel(false);
        let (struck, ()) = tokio::join!(
            async {
                let struck = self.struck(point).await;
                over.send_replace(true);
                struck
            },
            provocation.provoke(self, is_over)
        );
        provocation.heal(self).await?;
        struck
    }

    async fn start(&self, point: &Point) -> Result<()> {
        self.tour.stage.start_held(self.role, &[self.action.order(point)]).await
    }

    /// Waits until the process did what it was told to, at the point.
    async fn struck(&self, point: &Point) -> Result<()> {
        let bound = BOUND / Provocation::of(point.name).tries();
        match self.action {
            Action::Kill => {
                let dead = async || self.has_died(point).await;
                wait::until("the process to get there", bound, dead).await
            }
            Action::Delay => self.delayed(point, bound).await,
        }
    }

    /// Whether the process died at the point. One that ended for another reason, such as a topic that was
    /// away, is started again, as any service manager would.
    async fn has_died(&self, point: &Point) -> Result<bool> {
        let stage = self.tour.stage;
        let Some(status) = stage.has_ended(self.role).await else { return Ok(false) };
        let output = stage.output(self.role).await?;
        if output.contains(&self.action.last_words(point)) {
            ensure!(self.action == Action::Kill, "it did not survive its delay: {status}");
            return Ok(true);
        }
        let crashed = status.to_string().contains("signal") || status.code() == Some(101);
        if crashed {
            let last = output.lines().last().unwrap_or_default().to_owned();
            bail!("it ended with {status}, elsewhere: {last}");
        }
        self.start(point).await?;
        Ok(false)
    }

    async fn delayed(&self, point: &Point, bound: Duration) -> Result<()> {
        let (stage, words) = (self.tour.stage, self.action.last_words(point));
        wait::until("the process to get there", bound, async || {
            if stage.output(self.role).await?.contains(&words) {
                return Ok(true);
            }
            sleep(LOOK).await;
            self.has_died(point).await
        })
        .await?;
        sleep(DELAY).await;
        let Some(status) = stage.has_ended(self.role).await else { return Ok(()) };
        ensure!(!status.to_string().contains("signal"), "after its delay it ended with {status}");
        Ok(())
    }

    /// Both processes of the kind work again, plainly.
    async fn release(&self) -> Result<()> {
        let stage = self.tour.stage;
        for role in [self.role, self.role.other()] {
            match stage.has_ended(role).await {
                Some(_) => stage.start_process(role, &[]).await?,
                None => stage.resume(role).await,
            }
        }
        Ok(())
    }
}
