//! Bugs of the product that are planted on purpose, one at a time: each takes a guard away that holds one of
//! the invariants, in the real processes, and the usual checker has to find it. A checker that has never
//! found anything proves nothing.

mod bugs;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use comfy_table::Table;
use dueline_testkit::settings::Value;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::time::Instant;

pub use bugs::{BUGS, CONTROL};

use crate::campaign::{self, Options};
use crate::outcome::Outcome;
use crate::{Role, StageOptions, clock};

/// How many of them come on one day.
const A_DAY: usize = 3;
/// How often one is tried, with another seed each time, before it is said that nobody saw it.
const TRIES: u64 = 3;
/// Tasks a second: those of the usual campaign.
const RATE: u64 = 80;
/// How long everything may take to come to rest when it should not: a little longer than what is slowest
/// without a bug, a lost message (lease and sweep).
pub const REST: Duration = Duration::from_secs(25);

/// One bug.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// Its name.
    pub name: &'static str,
    /// What the product then does.
    pub does: &'static str,
    /// The invariants of which at least one must be seen broken.
    pub breaks: &'static [&'static str],
    /// How it is planted.
    pub plant: Plant,
    /// Fail points of the consumers that make its moment last, as `FAILPOINTS` has them.
    pub consumer_points: &'static str,
    /// What kind of fault brings it out, and how many; none for what shows by itself.
    pub faults: (&'static str, usize),
    /// How long clients and faults are at work, in seconds.
    pub seconds: u64,
}

/// How a bug gets into the product.
#[derive(Clone, Copy, Debug)]
pub enum Plant {
    /// Not at all.
    Nothing,
    /// The code asks for it by name ([`dueline_failpoints::planted`]).
    Code,
    /// Functions of the database are replaced after the migration.
    Functions(&'static [Cut]),
    /// A kind has another statement.
    Statement(&'static str, &'static str),
}

/// A text of a function of the database, and what stands there instead.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The function, without its schema.
    pub function: &'static str,
    /// The text.
    pub from: &'static str,
    /// How often it stands there: a text that is no longer there would plant nothing.
    pub times: usize,
    /// What replaces it.
    pub to: &'static str,
}

impl Bug {
    /// What a stage needs so that its processes have the bug.
    #[must_use]
    pub fn stage(&self) -> StageOptions {
        let mut options = StageOptions::default();
        for role in Role::ALL {
            options.environment.push((role, "DUELINE_PLANTED".to_owned(), self.name.to_owned()));
            if !role.is_relay() && !self.consumer_points.is_empty() {
                let points = self.consumer_points.to_owned();
                options.environment.push((role, "FAILPOINTS".to_owned(), points));
            }
        }
        match self.plant {
            Plant::Functions(cuts) => options.cuts = cuts.to_vec(),
            Plant::Statement(kind, sql) => {
                options.settings.push((format!("kinds.{kind}.sql"), Value::from(sql)));
            }
            Plant::Code | Plant::Nothing => {}
        }
        options
    }

    /// The same run without the bug.
    fn control(&self) -> Self {
        let Self { name, does, breaks, plant, .. } = CONTROL;
        Self { name, does, breaks, plant, ..*self }
    }

    /// Whether both are sought under the same circumstances.
    fn is_sought_like(&self, other: &Self) -> bool {
        let circumstances = |bug: &Self| (bug.consumer_points, bug.faults, bug.seconds);
        circumstances(self) == circumstances(other)
    }

    fn options(&self, seed: u64) -> Options {
        Options {
            seed,
            seconds: self.seconds,
            tasks: u32::try_from(self.seconds * RATE).unwrap_or(u32::MAX),
            faults: self.faults.1,
            only: Some(self.faults.0.to_owned()),
            planted: Some(*self),
            ..Options::default()
        }
    }
}

/// Replaces the texts; for a database that has just been migrated.
///
/// # Errors
/// When a text does not stand in its function as often as is said.
pub async fn cut(pool: &PgPool, cuts: &[Cut]) -> Result<()> {
    for cut in cuts {
        let definition: String = sqlx::query_scalar(include_str!("../../sql/planted/function.sql"))
            .bind(cut.function)
            .fetch_one(pool)
            .await
            .with_context(|| format!("the function dueline.{}", cut.function))?;
        let found = definition.matches(cut.from).count();
        if found != cut.times {
            bail!(
                "dueline.{} has this text {found} times instead of {}: the bug cannot be planted any more; \
                 mend the list of planted bugs\n{}",
                cut.function,
                cut.times,
                cut.from
            );
        }
        let planted = definition.replace(cut.from, cut.to);
        sqlx::raw_sql(AssertSqlSafe(planted)).execute(pool).await?;
    }
    Ok(())
}

/// What came of one bug.
struct Seen {
    bug: &'static Bug,
    took: Duration,
    tries: u64,
    /// What was found first; `None`: nobody saw it.
    found: Option<String>,
}

/// Plants `all` bugs, those of `today`, or the one of this name; each must be caught.
///
/// # Errors
/// When there is no such bug, this build has none, or a service does not start.
pub async fn run(which: &str, seed: u64) -> Result<bool> {
    let bugs = chosen(which, clock::today())?;
    if which == "all" {
        for control in controls(&bugs) {
            Box::pin(hold_without(&control, seed)).await?;
        }
    }
    let mut all = Vec::new();
    for bug in bugs {
        let seen = Box::pin(plant(bug, seed)).await?;
        let found = seen.found.as_deref().unwrap_or("NOT CAUGHT");
        println!("{}: {found} ({} s)", bug.name, seen.took.as_secs());
        all.push(seen);
    }
    println!("{}", table(&all));
    let caught = all.iter().filter(|seen| seen.found.is_some()).count();
    println!("{caught} of {} planted bugs were caught", all.len());
    Ok(caught == all.len())
}

/// The circumstances of all `bugs`, each once: faults and fail points that break something, or keep it from
/// coming to rest, by themselves would make every bug that is sought under them look caught.
fn controls(bugs: &[&Bug]) -> Vec<Bug> {
    let mut controls = vec![CONTROL];
    for bug in bugs {
        if !controls.iter().any(|control| control.is_sought_like(bug)) {
            controls.push(bug.control());
        }
    }
    controls
}

async fn hold_without(control: &Bug, seed: u64) -> Result<()> {
    let outcome = campaign::hold(&control.options(seed)).await?;
    let Bug { consumer_points, faults: (kind, count), seconds, .. } = control;
    let told =
        format!("{seconds} s with {count} faults \"{kind}\" and fail points \"{consumer_points}\"");
    // Not `holds`: a fail point that kills is a process that ended by itself.
    let intact = outcome.invariants.iter().all(|finding| finding.violations == 0);
    if !intact || outcome.drained_s.is_none() {
        outcome.print();
        bail!(
            "without a bug, {told}: something is wrong, and what is found with a bug proves nothing"
        );
    }
    println!("control: without a bug, {told}: everything holds");
    Ok(())
}

async fn plant(bug: &'static Bug, seed: u64) -> Result<Seen> {
    let began = Instant::now();
    let (mut tries, mut found) = (0, None);
    while found.is_none() && tries < TRIES {
        found = finding(bug, &campaign::hold(&bug.options(seed + tries)).await?);
        tries += 1;
    }
    Ok(Seen { bug, took: began.elapsed(), tries, found })
}

/// The first thing found of those that the bug breaks.
fn finding(bug: &Bug, outcome: &Outcome) -> Option<String> {
    let broken = outcome.invariants.iter().filter(|finding| finding.violations > 0);
    let found = broken.filter(|finding| bug.breaks.contains(&finding.invariant));
    let told = |finding: &dueline_testkit::checker::Finding| {
        let example = finding.examples.first().map_or("", String::as_str);
        format!("{} ({} times): {example}", finding.invariant, finding.violations)
    };
    found.map(told).next()
}

fn chosen(which: &str, day: u64) -> Result<Vec<&'static Bug>> {
    if !dueline_failpoints::ENABLED {
        bail!(
            "this build has no planted bugs: build with --features dueline-campaign/fail-points, as ./scripts/campaign does"
        );
    }
    let place = |n: usize| (usize::try_from(day).unwrap_or(0) * A_DAY + n) % BUGS.len();
    let bugs: Vec<&Bug> = match which {
        "all" => BUGS.iter().collect(),
        "today" => (0..A_DAY).map(|n| &BUGS[place(n)]).collect(),
        name => BUGS.iter().filter(|bug| bug.name == name).collect(),
    };
    if bugs.is_empty() {
        let names: Vec<&str> = BUGS.iter().map(|bug| bug.name).collect();
        bail!("there is no planted bug `{which}`; there are: all, today, {}", names.join(", "));
    }
    Ok(bugs)
}

fn table(all: &[Seen]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["planted", "what it does", "caught by", "seconds", "tries"]);
    for seen in all {
        let caught = seen.found.as_deref().unwrap_or("NOBODY");
        let caught = caught.split_once(" (").map_or(caught, |(invariant, _)| invariant);
        table.add_row([
            seen.bug.name,
            seen.bug.does,
            caught,
            &seen.took.as_secs().to_string(),
            &seen.tries.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn at_least_fifteen_with_names_of_their_own_and_each_invariant_among_them() {
        let names: BTreeSet<&str> = BUGS.iter().map(|bug| bug.name).collect();
        assert!(names.len() >= 15 && names.len() == BUGS.len(), "{names:?}");
        let broken: BTreeSet<&str> = BUGS.iter().flat_map(|bug| bug.breaks).copied().collect();
        assert_eq!(broken.len(), 9, "{broken:?}");
    }

    #[test]
    fn what_the_code_asks_for_and_what_the_list_has_are_the_same() {
        let mut asked = BTreeSet::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
        look_into(crates, &mut asked);
        let in_code = |bug: &&Bug| matches!(bug.plant, Plant::Code);
        let listed: BTreeSet<String> =
            BUGS.iter().filter(in_code).map(|bug| bug.name.to_owned()).collect();
        assert_eq!(asked, listed);
    }

    fn look_into(folder: &Path, asked: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !["target", "planted", "dueline-failpoints"].contains(&name) {
                look_into(&path, asked);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                let calls = text.split("failpoints::planted(\"").skip(1);
                asked.extend(calls.filter_map(|c| Some(c.split_once('"')?.0.to_owned())));
            }
        }
    }

    #[test]
    fn each_has_a_control_under_its_own_circumstances() {
        let bugs: Vec<&Bug> = BUGS.iter().collect();
        let controls = controls(&bugs);
        assert!(controls.iter().all(|c| matches!(c.plant, Plant::Nothing) && c.name == "none"));
        for bug in bugs {
            let own = controls.iter().filter(|control| control.is_sought_like(bug)).count();
            assert_eq!(own, 1, "{}", bug.name);
        }
    }

    #[test]
    fn in_some_days_all_of_them_come() {
        if !dueline_failpoints::ENABLED {
            return;
        }
        let days = (0..BUGS.len() as u64).map(|day| chosen("today", day).expect("bugs"));
        let names: BTreeSet<&str> = days.flatten().map(|bug| bug.name).collect();
        assert_eq!(names.len(), BUGS.len());
    }
}
