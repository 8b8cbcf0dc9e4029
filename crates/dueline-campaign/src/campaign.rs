//! One campaign, from the first process to the verdict.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline_testkit::{checker, faketime};
use tokio::time::Instant;

use crate::evidence::Archive;
use crate::nemesis::points::{self, PointPlan};
use crate::nemesis::{self, FaultLog, Missing, Plan};
use crate::outcome::{self, Known, Outcome};
use crate::planted::{self, Bug};
use crate::stage::{Ended, SmallDisk, Stage, StageOptions};
use crate::workload::{self, Pace};
use crate::{Role, monitor, parcels};

/// How long everything may take to come to rest after the last fault.
const REST: Duration = Duration::from_secs(150);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(250);
/// The exit code of a panic.
const PANICKED: &str = "101";

/// What the command line asks for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What everything is drawn from.
    pub seed: u64,
    /// How long faults are done, in seconds.
    pub seconds: u64,
    /// How many tasks are scheduled, at least, in that time.
    pub tasks: u32,
    /// How many faults.
    pub faults: usize,
    /// Only faults whose kind contains this text.
    pub only: Option<String>,
    /// Instead of drawn faults: fail points.
    pub fail_points: Option<PointPlan>,
    /// A bug that every process and the database have.
    pub planted: Option<Bug>,
    /// Where the outcome is written as JSON.
    pub json: Option<PathBuf>,
}

/// Runs one, and says what came of it. Returns whether everything holds.
///
/// # Errors
/// When a service does not start or does not come back.
pub async fn run(options: Options) -> Result<bool> {
    let outcome = hold(&options).await?;
    outcome.print();
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&outcome)?;
        std::fs::write(path, json + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(outcome.holds)
}

/// Runs one.
///
/// # Errors
/// When a service does not start or does not come back.
pub async fn hold(options: &Options) -> Result<Outcome> {
    let began = Instant::now();
    let (missing, left_out, disk_mib) = what_is_missing(options.tasks);
    let stage = match (options.planted, &options.fail_points) {
        (Some(bug), _) => Stage::start(bug.stage()).await?,
        // No fail point fills the disk.
        (None, Some(_)) => Stage::start(StageOptions::default()).await?,
        (None, None) => Stage::start(StageOptions { disk_mib, ..StageOptions::default() }).await?,
    };
    say(began, &format!("seed {}; two relays and two consumers are ready", options.seed));
    let (archive, log) = (Arc::new(Archive::default()), Arc::new(FaultLog::default()));
    let supervised = Box::pin(stage.supervise());
    let watching = tokio::spawn(monitor::watch(stage.pool().clone(), Arc::clone(&log), began));
    let probing = tokio::spawn(monitor::probe(
        stage.pool().clone(),
        stage.places().clone(),
        Arc::clone(&archive),
        Arc::clone(&log),
    ));

    let plan = Plan {
        seed: options.seed,
        faults: options.faults,
        time: Duration::from_secs(options.seconds),
        missing,
        only: options.only.clone(),
    };
    let played = Box::pin(play(options, plan, &stage, &archive, &log));
    let (calls, took, drained, mut problems) = tokio::select! {
        played = played => played?,
        ended = supervised => anyhow::bail!("the supervisor ended: {ended:?}"),
    };
    watching.abort();
    probing.abort();

    say(began, "SIGTERM to all processes");
    problems.extend(stage.stop_processes().await.err().map(|error| format!("{error:#}")));
    problems.extend(panics(&stage)?);
    say(began, "judging V1 to V9");
    let evidence = outcome::evidence(&stage, &archive, calls).await?;
    let command = again(options);
    let (seed, faults) = (options.seed, log.all());
    let known = Known { seed, command, took, left_out, faults, drained, problems };
    let outcome = Outcome::of(&stage, &evidence, known).await?;
    if !outcome.holds && options.planted.is_none() {
        keep_logs(&stage, options.seed)?;
    }
    Ok(outcome)
}

type Played = (Vec<checker::Call>, Duration, Option<Duration>, Vec<String>);

/// The clients work, the nemesis strikes, and then everything comes to rest.
async fn play(
    options: &Options,
    plan: Plan,
    stage: &Stage,
    archive: &Archive,
    log: &FaultLog,
) -> Result<Played> {
    let began = Instant::now();
    let time = Duration::from_secs(options.seconds);
    let pace = Pace::new(options.tasks, time, workload::CLIENTS);
    let clients = tokio::spawn({
        let (url, pace, seed) = (stage.client_url().to_owned(), pace.clone(), options.seed);
        async move { workload::run(seed, &url, pace).await }
    });
    let mut problems = match &options.fail_points {
        Some(points) => points::run(points, options.seed, stage, archive, log).await,
        None => {
            nemesis::run(plan, stage, archive, log).await;
            tokio::time::sleep_until(began + time).await;
            Vec::new()
        }
    };
    let took = began.elapsed();
    pace.end();
    let calls = clients.await??;
    say(began, "the last fault is healed; waiting until everything is done");
    let rest = Instant::now();
    let patience = options.planted.map_or(REST, |_| planted::REST);
    let drained = match at_rest(stage, patience).await {
        Ok(()) => Some(rest.elapsed()),
        Err(error) => {
            problems.push(format!("it does not come to rest: {error:#}"));
            None
        }
    };
    Ok((calls, took, drained, problems))
}

/// Waits until no task is live, every death has its letter, and every message is passed.
async fn at_rest(stage: &Stage, patience: Duration) -> Result<()> {
    let end = Instant::now() + patience;
    loop {
        let unsettled = sqlx::query_scalar(include_str!("../sql/outcome/unsettled.sql"));
        let unsettled: i64 = unsettled.fetch_one(stage.pool()).await?;
        let lag = if unsettled == 0 { checker::lag(stage.places()).await? } else { 0 };
        if unsettled == 0 && lag <= 0 {
            return Ok(());
        }
        anyhow::ensure!(
            Instant::now() < end,
            "{unsettled} tasks are live or without their letter, {lag} messages are not passed"
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// What this machine cannot do, in words too, and the size of the small disk.
fn what_is_missing(tasks: u32) -> (Missing, Vec<String>, u32) {
    let mut left_out = vec!["a lagging standby that is promoted".to_owned()];
    let disk = SmallDisk::mount(1);
    let faketime = faketime::library(faketime::WITH_THREADS);
    let missing = Missing { disk: disk.is_err(), faketime: faketime.is_none() };
    if let Err(error) = disk {
        left_out.push(format!("disk full: {error:#}"));
    }
    if missing.faketime {
        left_out.push("clocks: there is no libfaketime (Debian's package `faketime`)".to_owned());
    }
    // Room for what is scheduled and for its dead versions, so that only the fault fills it.
    let disk_mib = if missing.disk { 0 } else { 300 + tasks / 150 };
    (missing, left_out, disk_mib)
}

/// Panics and crashes of our processes, but for those that parcels ask for.
fn panics(stage: &Stage) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for role in Role::ALL {
        let log = std::fs::read(stage.log(role))?;
        let log = String::from_utf8_lossy(&log);
        let mut lines = log.lines().peekable();
        while let Some(line) = lines.next() {
            let asked_for = lines.peek().is_some_and(|next| next.contains("a parcel that panics"));
            if line.contains("panicked at") && !asked_for && !line.contains("a parcel that panics")
            {
                found.push(format!("{role}: {line} {}", lines.peek().unwrap_or(&"")));
            }
        }
    }
    let poison = |ended: &Ended| ended.last_line.starts_with(parcels::ABORTING);
    let crashed =
        |ended: &Ended| ended.status.contains(PANICKED) || ended.status.contains("signal");
    let ended = stage.ends().into_iter().filter(|ended| crashed(ended) && !poison(ended));
    found.extend(ended.map(|ended| format!("{} ended by itself: {}", ended.process, ended.status)));
    Ok(found)
}

/// The command that does the same again.
fn again(options: &Options) -> String {
    let Options { seed, seconds, tasks, faults, only, .. } = options;
    let pace = format!("./scripts/campaign --seed {seed} --seconds {seconds} --tasks {tasks}");
    if let Some(points) = &options.fail_points {
        return format!("{pace} {points}");
    }
    let only = only.as_ref().map(|only| format!(" --only \"{only}\"")).unwrap_or_default();
    format!("{pace} --faults {faults}{only}")
}

/// Copies the processes' logs to where they outlive the stage.
fn keep_logs(stage: &Stage, seed: u64) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("dueline-campaign-{seed}-logs"));
    std::fs::create_dir_all(&folder)?;
    for role in Role::ALL {
        std::fs::copy(stage.log(role), folder.join(format!("{role}.log")))?;
    }
    println!("The processes' logs are kept in {}", folder.display());
    Ok(())
}

fn say(began: Instant, text: &str) {
    eprintln!("[{:4} s] {text}", began.elapsed().as_secs());
}
