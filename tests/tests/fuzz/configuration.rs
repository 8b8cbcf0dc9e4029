//! The configuration: the sample file, bent by the line and by the byte; variables and flags over it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use dueline_config::{CONFIG_VARIABLE, Config, ConfigError, ENV_PREFIX, Source};
use dueline_store::PoolSettings;

use super::dice::Dice;
use super::harness;

/// What must never be shown, whatever else is wrong.
const CANARY: &str = "hunter2canary";

/// `dueline.sample.toml`, with every line of it in force and without the prose.
pub fn sample() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dueline.sample.toml");
    let text = std::fs::read_to_string(path).expect("the sample");
    let setting = |line: &str| {
        let rest =
            line.strip_prefix('#').filter(|r| r.starts_with(|c: char| c.is_ascii_lowercase()));
        rest.unwrap_or(line).to_owned()
    };
    let lines = text.lines().map(setting).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

/// A configuration as somebody may have typed it.
pub struct Wild {
    pub text: String,
    pub env: Vec<(String, String)>,
    pub overrides: Vec<String>,
}

impl Wild {
    /// The sample, bent.
    pub fn of(dice: &mut Dice, sample: &str) -> Self {
        let text = match dice.below(8) {
            0 => dice.text(),
            1 => dice.bent(sample),
            _ => lines(dice, sample),
        };
        let some = |dice: &mut Dice| if dice.one_in(2) { 0 } else { dice.below(3) };
        let env = (0..some(dice)).map(|_| variable(dice, sample)).collect();
        let overrides = (0..some(dice)).map(|_| setting(dice, sample)).collect();
        Self { text, env, overrides }
    }
}

/// A few lines of the sample changed: values, keys, sections; doubled, lost, moved.
fn lines(dice: &mut Dice, sample: &str) -> String {
    let mut lines: Vec<String> = sample.lines().map(str::to_owned).collect();
    for _ in 0..dice.below(4) {
        let at = dice.below(lines.len());
        let other = dice.below(lines.len());
        match dice.below(8) {
            0 => drop(lines.remove(at)),
            1 => lines.swap(at, other),
            2 => lines[at] = lines[other].clone(),
            3 => lines[at] = dice.bent(&lines[at].clone()),
            4 => lines.insert(at, format!("[{}.{}]", dice.pick(&SECTIONS), key(dice))),
            5 => lines.insert(at, format!("{} = {}", key(dice), value(dice))),
            _ => {
                // The one that finds its way deepest: a right key with a wrong value.
                let keys: Vec<usize> =
                    (0..lines.len()).filter(|n| lines[*n].contains(" = ")).collect();
                let at = *dice.pick(&keys);
                let (name, old) = lines[at].split_once(" = ").unwrap_or_default();
                let value = if dice.one_in(2) { near(dice, old) } else { value(dice) };
                lines[at] = format!("{name} = {value}");
            }
        }
    }
    lines.join("\n")
}

const SECTIONS: [&str; 8] =
    ["queues", "kinds", "kafka", "kafka.properties", "postgres.options", "relay", "x", "log"];

/// A value like the one that stands there: other digits, which may well be right.
fn near(dice: &mut Dice, old: &str) -> String {
    let mut digit = |c: char| match c {
        '1'..='9' => char::from(b'1' + dice.below(9) as u8),
        other => other,
    };
    old.chars().map(&mut digit).collect()
}

fn key(dice: &mut Dice) -> String {
    let text = dice.text_without_nul();
    if dice.one_in(2) { serde_json::Value::from(text).to_string() } else { text }
}

fn value(dice: &mut Dice) -> String {
    let spans = [
        "\"0\"",
        "\"1ms\"",
        "\"99999999999999999999d\"",
        "\"106751991167d\"",
        "\"3660d\"",
        "\"-1s\"",
        "\"1.5h\"",
        "\"30s\"",
        "\"١s\"",
    ];
    let shapes = [
        "[]",
        "{}",
        "[[]]",
        "1979-05-27",
        "1979-05-27T07:32:00Z",
        "inf",
        "nan",
        "true",
        "[\"h:1\", \"\"]",
        "[\"[::1]:9092\"]",
        "\"off\"",
        "\"0.0.0.0:1\"",
        "\"[::]:1\"",
        "[{ name = \"a\", max_delay = \"1s\" }, { name = \"a\", max_delay = \"1s\" }]",
        "\"[{ name = 'dlq', max_delay = '1s' }]\"",
        "'''\n'''",
        "\"postgres://u:p@h/d?x=y\"",
    ];
    match dice.below(6) {
        0 => (*dice.pick(&spans)).to_owned(),
        1 => (*dice.pick(&shapes)).to_owned(),
        2 => dice.number(),
        3 => {
            let deep = dice.length(400);
            format!("{}{}", "[".repeat(deep), "]".repeat(deep))
        }
        4 => format!("\"{}\"", dice.number()),
        _ => serde_json::Value::from(dice.text()).to_string(),
    }
}

/// The full path of some key of the sample.
fn path(dice: &mut Dice, sample: &str) -> String {
    let mut section = String::new();
    let mut paths = Vec::new();
    for line in sample.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some((key, _)) = line.split_once(" = ") {
            paths.push(format!("{section}.{key}"));
        }
    }
    let path = dice.pick(&paths).clone();
    if dice.one_in(4) { dice.bent(&path) } else { path }
}

fn raw(dice: &mut Dice) -> String {
    let value = value(dice);
    if dice.one_in(2) { value.trim_matches('"').to_owned() } else { value }
}

fn variable(dice: &mut Dice, sample: &str) -> (String, String) {
    let name = path(dice, sample).to_uppercase().replace('.', "__");
    match dice.below(6) {
        0 => (dice.text(), dice.text()),
        1 => (format!("{ENV_PREFIX}{}", dice.text()), dice.text()),
        _ => (format!("{ENV_PREFIX}{name}"), raw(dice)),
    }
}

fn setting(dice: &mut Dice, sample: &str) -> String {
    match dice.below(6) {
        0 => dice.text(),
        _ => format!("{}={}", path(dice, sample), raw(dice)),
    }
}

/// An error must name its place, be readable, and show no secret.
fn is_clear(error: &ConfigError) -> Result<&'static str> {
    let problems = error.problems();
    ensure!((1..=101).contains(&problems.len()), "{} problems", problems.len());
    for problem in &problems {
        let placed = [":", "--set number", "…"].iter().any(|sign| problem.contains(sign));
        ensure!(placed, "no place: {problem:?}");
        ensure!(!problem.chars().any(char::is_control), "not one line: {problem:?}");
        ensure!(problem.chars().count() < 1_500, "{} characters", problem.len());
    }
    ensure!(!error.to_string().contains(CANARY), "a secret is shown: {error}");
    Ok(match error {
        ConfigError::Syntax { line, .. } => {
            ensure!(*line > 0);
            "syntax"
        }
        ConfigError::Invalid(_) => "invalid",
        ConfigError::Read { .. } => "unreadable",
    })
}

/// What the rest of the product takes for granted of a configuration.
fn is_ready(config: &Config, with_pool: bool) -> Result<&'static str> {
    for queue in config.queues.values() {
        ensure!(!queue.tiers.is_empty() && queue.slots > 0 && queue.partitions > 0);
        ensure!(queue.tiers.windows(2).all(|t| t[0].max_delay < t[1].max_delay));
        for topic in queue.tier_topics() {
            let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            ensure!(topic.len() <= 249 && topic.chars().all(legal), "{topic:?}");
        }
    }
    for kind in config.kinds.values() {
        ensure!(config.queues.contains_key(&kind.queue), "kind of no queue: {kind:?}");
        ensure!(kind.age_limit > Duration::ZERO);
    }
    ensure!(config.relay.lease > config.kafka.delivery_timeout);
    ensure!(!format!("{config:?}").contains(CANARY), "Debug shows a secret");
    // Whatever was accepted can be told to a pool, which answers with an error if it must.
    if with_pool && dueline_store::connect(&PoolSettings::of(&config.postgres, "fuzz")).is_err() {
        return Ok("no pool");
    }
    Ok("accepted")
}

#[test]
fn any_configuration_is_accepted_or_explained() -> Result<()> {
    let sample = sample();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("dueline.toml");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let labels = ["accepted", "syntax", "invalid", "unreadable"];
    harness::run(harness::CONFIGURATION, &labels, |dice| {
        let wild = Wild::of(dice, &sample);
        let mut source = Source { file: None, env: wild.env, overrides: wild.overrides };
        source.overrides.push(format!("kafka.properties.sasl.password={CANARY}"));
        let mut bytes = wild.text.into_bytes();
        match dice.below(16) {
            0 => dice.bend(&mut bytes),
            1 => source.env.push((CONFIG_VARIABLE.to_owned(), dice.text_without_nul())),
            _ => {}
        }
        dice.show(|| {
            format!(
                "{source_env:?} {overrides:?}\n{text}",
                source_env = source.env,
                overrides = source.overrides,
                text = String::from_utf8_lossy(&bytes)
            )
        });
        if !source.env.iter().any(|(name, _)| name == CONFIG_VARIABLE) {
            std::fs::write(&file, &bytes)?;
            source.file = Some(file.clone());
        }
        match Config::load(&source) {
            // A pool leaves something with the runtime: not for each of a million.
            Ok(config) => is_ready(&config, dice.one_in(16)),
            Err(error) => is_clear(&error),
        }
    })
}
