//! How many inputs each surface gets, and the loop that gives them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::dice::Dice;

/// Inputs of all surfaces together, unless `DUELINE_FUZZ_CASES` says otherwise.
const DEFAULT_CASES: u64 = 20_000;
/// The longest that one input may take: a machine that tests is busy, but nothing here computes for long.
const MAX_CASE: Duration = Duration::from_secs(20);

/// A place where input comes in.
#[derive(Clone, Copy, Debug)]
pub struct Surface {
    /// Its name in output.
    pub name: &'static str,
    /// Its part of all inputs, in thousandths.
    per_mille: u64,
    /// Its least number of inputs, where each one costs a round trip or a process.
    at_least: u64,
}

const fn surface(name: &'static str, per_mille: u64, at_least: u64) -> Surface {
    Surface { name, per_mille, at_least }
}

/// Headers of task messages.
pub const ENVELOPE: Surface = surface("envelope", 200, 0);
/// Headers and bodies of outcomes.
pub const OUTCOME: Surface = surface("outcome", 40, 0);
/// Headers of dead letters.
pub const LETTER: Surface = surface("letter", 70, 0);
/// Whole records, up to the decision what they are.
pub const SORTING: Surface = surface("sorting", 180, 0);
/// Files, variables and flags of the configuration.
pub const CONFIGURATION: Surface = surface("configuration", 210, 0);
/// Topic files made of what was accepted.
pub const TOPIC_FILES: Surface = surface("topic_files", 50, 0);
/// Command lines, parsed.
pub const ARGUMENTS: Surface = surface("arguments", 160, 0);
/// Command lines, run.
pub const COMMANDS: Surface = surface("commands", 0, 120);
/// Calls of the SQL functions.
pub const SQL: Surface = surface("sql", 80, 1_500);
/// Queues, tiers and kinds, applied to a database.
pub const APPLY: Surface = surface("apply", 0, 24);
/// Records through a real broker and a real consumer.
pub const KAFKA: Surface = surface("kafka", 2, 600);
/// Bytes sent to the admin port.
pub const ADMIN: Surface = surface("admin", 10, 600);

/// All of them.
const SURFACES: [Surface; 12] = [
    ENVELOPE,
    OUTCOME,
    LETTER,
    SORTING,
    CONFIGURATION,
    TOPIC_FILES,
    ARGUMENTS,
    COMMANDS,
    SQL,
    APPLY,
    KAFKA,
    ADMIN,
];

impl Surface {
    /// How many inputs it gets of `total`.
    fn share(self, total: u64) -> u64 {
        (total * self.per_mille).div_ceil(1_000).max(self.at_least)
    }

    /// How many inputs it gets in this run.
    pub fn cases(self) -> u64 {
        self.share(number("DUELINE_FUZZ_CASES").unwrap_or(DEFAULT_CASES))
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable}={text:?} is no number"),
    }
}

/// What became of the inputs, by the label that each one's judge gave it.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    /// Counts one more.
    pub fn add(&mut self, label: &'static str) {
        *self.0.entry(label).or_default() += 1;
    }

    /// Fails unless every one of these happened: inputs that all end alike test little.
    pub fn saw(&self, labels: &[&str]) -> Result<()> {
        for label in labels {
            ensure!(self.0.contains_key(label), "no input ended as `{label}`: {self}");
        }
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.iter().map(|(label, n)| format!("{label} {n}"));
        write!(f, "{}", parts.by_ref().collect::<Vec<_>>().join(", "))
    }
}

/// The inputs of one surface, one after another.
pub struct Run {
    surface: Surface,
    seed: u64,
    first: u64,
    promised: u64,
    given: u64,
    slowest: (Duration, u64),
    /// What became of them.
    pub tally: Tally,
}

impl Run {
    /// Says what is to come, with the seed that repeats it.
    pub fn begin(surface: Surface) -> Self {
        let seed = number("DUELINE_FUZZ_SEED").unwrap_or_else(rand::random);
        let first = number("DUELINE_FUZZ_FIRST").unwrap_or(0);
        let promised = surface.cases().saturating_sub(first);
        // Past the harness's capture: what aborts the process must be repeatable, too.
        let line = format!("fuzz {}: {promised} to come, seed {seed}\n", surface.name);
        let _ = std::io::stderr().write_all(line.as_bytes());
        let (given, slowest, tally) = (0, (Duration::ZERO, 0), Tally::default());
        Self { surface, seed, first, promised, given, slowest, tally }
    }

    /// The dice of the next input; `None` when all were given.
    pub fn next(&mut self) -> Option<Dice> {
        (self.given < self.promised).then(|| {
            self.given += 1;
            self.again()
        })
    }

    fn case(&self) -> u64 {
        self.first + self.given - 1
    }

    /// The dice of the present input, from its beginning.
    fn again(&self) -> Dice {
        Dice::new(self.seed, self.case())
    }

    /// Notes what became of the present input.
    pub fn judge(&mut self, verdict: Result<&'static str>, took: Duration) -> Result<()> {
        self.judge_later(self.case() - self.first, verdict, took)
    }

    /// Notes what became of the `n`-th input of this run, counted from 0: some are judged when all were given.
    pub fn judge_later(
        &mut self,
        n: u64,
        verdict: Result<&'static str>,
        took: Duration,
    ) -> Result<()> {
        let (case, seed) = (self.first + n, self.seed);
        if took > self.slowest.0 {
            self.slowest = (took, case);
        }
        let verdict = verdict.and_then(|label| {
            ensure!(took < MAX_CASE, "it took {took:?}");
            Ok(label)
        });
        let label = verdict.with_context(|| {
            format!(
                "case {case} of surface {}: repeat with DUELINE_FUZZ_SEED={seed} \
                 DUELINE_FUZZ_FIRST={case} (without the last one when it needs what came before)",
                self.surface.name
            )
        })?;
        self.tally.add(label);
        Ok(())
    }

    /// Says what there was, and fails when it was less than promised.
    pub fn end(self, labels: &[&str]) -> Result<()> {
        let Self { surface, seed, promised, given, slowest, tally, .. } = self;
        let line = format!(
            "fuzz {}: {given} inputs, seed {seed}, slowest {:.1?} (case {}): {tally}\n",
            surface.name, slowest.0, slowest.1
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
        let judged: u64 = tally.0.values().sum();
        ensure!(given == promised && judged == given, "{given} of {promised} inputs were given");
        tally.saw(labels)
    }
}

/// Gives every input of a surface to `one`, which says what became of it, or what is wrong. A panic is
/// wrong. Each of `labels` must have happened.
pub fn run(
    surface: Surface,
    labels: &[&str],
    mut one: impl FnMut(&mut Dice) -> Result<&'static str>,
) -> Result<()> {
    let mut run = Run::begin(surface);
    while let Some(mut dice) = run.next() {
        let start = Instant::now();
        let verdict = guarded(&mut one, &mut dice);
        let took = start.elapsed();
        if verdict.is_ok() {
            run.judge(verdict, took)?;
            continue;
        }
        // Once more, now with the input shown: to write each one down would cost more than the test.
        let mut shown = run.again().showing();
        let again = guarded(&mut one, &mut shown);
        let verdict = match again {
            Ok(label) => Err(anyhow::anyhow!("it failed once, and then ended as `{label}`")),
            error => error,
        };
        run.judge(verdict.with_context(|| shown.shown()), took)?;
    }
    run.end(labels)
}

fn guarded(
    one: &mut impl FnMut(&mut Dice) -> Result<&'static str>,
    dice: &mut Dice,
) -> Result<&'static str> {
    match catch_unwind(AssertUnwindSafe(|| one(dice))) {
        Ok(verdict) => verdict,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            bail!("it panicked: {}", text.unwrap_or("without a text"))
        }
    }
}

#[test]
fn the_shares_make_the_whole() {
    for total in [10_000, DEFAULT_CASES, 1_000_000] {
        let sum: u64 = SURFACES.iter().map(|surface| surface.share(total)).sum();
        assert!(sum >= total, "{sum} of {total}");
    }
}

#[test]
fn a_run_that_gives_less_than_promised_fails() {
    let mut run = Run::begin(surface("none", 0, 2));
    let one = run.next().expect("one of two");
    drop(one);
    run.judge(Ok("fine"), Duration::ZERO).expect("judged");
    assert!(run.end(&["fine"]).is_err());
}

#[test]
fn a_panic_is_told_with_its_input_and_its_seed() {
    let error = run(surface("none", 0, 5), &[], |dice| {
        dice.show(|| "the input".to_owned());
        panic!("ouch")
    });
    let text = format!("{:#}", error.expect_err("it panicked"));
    for part in ["the input", "ouch", "DUELINE_FUZZ_SEED=", "case 0"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(run(surface("none", 0, 5), &["other"], |_| Ok("same")).is_err());
}
