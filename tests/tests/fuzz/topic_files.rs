//! Topic files: whatever configuration is accepted, its files are YAML that says the same.

use anyhow::{Context as _, Result, ensure};
use dueline_config::{Config, topics};
use serde_norway::Value;

use super::configuration::{Wild, sample};
use super::dice::Dice;
use super::harness;

/// The sample with other names, tiers, numbers and spans.
fn config(dice: &mut Dice) -> String {
    let queue = name(dice);
    let prefix = [name(dice), name(dice)][..=dice.below(2)].join(".");
    let tiers: Vec<String> = (0..=dice.below(4))
        .map(|n| {
            format!("{{ name = {:?}, max_delay = \"{}m\" }}", name(dice), n * 7 + dice.below(7))
        })
        .collect();
    format!(
        "[kafka]\ntopic_prefix = {prefix:?}\n[queues.{queue:?}]\ntiers = [{}]\npartitions = {}\n\
         replication = {}\ntopic_retention = \"{}h\"\n",
        tiers.join(", "),
        dice.below(1_100),
        dice.below(4),
        dice.below(30 * 24),
    )
}

/// Names as people choose them; YAML takes some of these for numbers, truths and nothing.
fn name(dice: &mut Dice) -> String {
    const NAMES: [&str; 16] = [
        "orders", "10s", "1e3", "0x1f", "true", "null", "no", "on", "y", "1_000", "a-b", "a--",
        "1-1", "0o7", "~", "12345",
    ];
    if dice.one_in(8) { dice.text().replace('"', "") } else { (*dice.pick(&NAMES)).to_owned() }
}

fn same(document: &Value, topic: &topics::Topic) -> Result<()> {
    let spec = &document["spec"];
    ensure!(spec["topicName"].as_str() == Some(&topic.name), "{spec:?} is not {topic:?}");
    ensure!(document["kind"].as_str() == Some("KafkaTopic"));
    let resource = document["metadata"]["name"].as_str().context("a name")?;
    ensure!(resource == topic.resource_name());
    ensure!(spec["partitions"].as_i64() == Some(topic.partitions.into()));
    ensure!(spec["replicas"].as_i64() == Some(topic.replication.into()));
    let settings = spec["config"].as_mapping().context("settings")?;
    ensure!(settings.len() == topic.config.len());
    for (key, value) in &topic.config {
        let found = settings.get(*key).with_context(|| format!("{key} is missing"))?;
        let text = found.as_i64().map(|n| n.to_string());
        let text = text.or_else(|| found.as_str().map(str::to_owned));
        ensure!(text.as_ref() == Some(value), "{key} is {found:?}");
    }
    Ok(())
}

#[test]
fn the_files_of_any_accepted_configuration_say_the_same() -> Result<()> {
    let sample = sample();
    harness::run(harness::TOPIC_FILES, &["written", "refused"], |dice| {
        let text = if dice.one_in(3) { Wild::of(dice, &sample).text } else { config(dice) };
        dice.show(|| text.clone());
        let Ok(config) = Config::from_toml_str(&text) else { return Ok("refused") };
        for (name, queue) in &config.queues {
            let yaml = topics::strimzi_yaml(&config, name);
            let wanted = topics::of_queue(queue);
            let mut documents = 0;
            for (document, topic) in serde_norway::Deserializer::from_str(&yaml).zip(&wanted) {
                let document: Value = serde::Deserialize::deserialize(document)?;
                same(&document, topic).with_context(|| yaml.clone())?;
                documents += 1;
            }
            ensure!(documents == wanted.len(), "{documents} documents:\n{yaml}");
        }
        Ok("written")
    })
}
