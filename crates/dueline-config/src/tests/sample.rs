//! `dueline.sample.toml` is the reference: it parses, and every line of it says the default.

use std::path::Path;

use super::accepted;
use crate::{Config, Handler, topics};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn sample() -> String {
    std::fs::read_to_string(root().join("dueline.sample.toml")).expect("the sample file")
}

/// The sample with each `#key = value` turned into `key = value`; prose starts with `# `.
fn uncommented(sample: &str) -> String {
    let setting = |line: &str| {
        line.strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
            .map(str::to_owned)
    };
    let lines: Vec<String> =
        sample.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned())).collect();
    lines.join("\n")
}

#[test]
fn the_sample_parses_and_has_the_example() {
    let config = accepted(&sample());
    assert_eq!(config.queues.keys().collect::<Vec<_>>(), ["orders"]);
    assert!(
        matches!(&config.kinds["close_order"].handler, Handler::Sql(sql) if sql.contains("ord"))
    );
}

#[test]
fn every_line_of_the_sample_says_the_default() {
    let sample = sample();
    let typed = accepted(&uncommented(&sample));
    assert_eq!(typed, accepted(&sample), "a commented line differs from its default");
    let defaults = accepted("");
    assert_eq!(
        Config { queues: defaults.queues.clone(), kinds: defaults.kinds.clone(), ..typed },
        defaults
    );
}

#[test]
fn the_sample_names_every_key() {
    // A key that is renamed to something unknown is answered with the keys that are known: each of
    // those must stand in the sample.
    let text = uncommented(&sample());
    for section in [
        "instance",
        "postgres",
        "kafka",
        "relay",
        "consumer",
        "http",
        "retention",
        "admin",
        "log",
        "queues.orders",
        "kinds.close_order",
    ] {
        let broken =
            text.replacen(&format!("[{section}]"), &format!("[{section}]\nzzzzzzzzzzzz = 1"), 1);
        let problem = super::problem(&broken);
        let (_, known) = problem.split_once("known here: ").expect("the known keys");
        let known = known.split_once(" (in").expect("the origin").0;
        for key in known.split(", ") {
            // What excludes the example's `sql` stands in examples of its own, which are prose.
            let stands =
                ["\n", "\n#   "].iter().any(|line| text.contains(&format!("{line}{key} = ")))
                    || text.contains(&format!(".{key}]"));
            assert!(stands, "{section}.{key} is not in the sample");
        }
    }
}

#[test]
fn committed_topic_files_are_what_the_sample_generates() {
    let config = accepted(&sample());
    for queue in config.queues.keys() {
        let path = root().join("topics").join(format!("{queue}.yaml"));
        let generated = topics::strimzi_yaml(&config, queue);
        if std::env::var_os("DUELINE_WRITE_TOPICS").is_some() {
            std::fs::write(&path, &generated).expect("the topics folder");
        }
        let committed = std::fs::read_to_string(&path).expect("a file for each queue");
        assert_eq!(
            committed,
            generated,
            "run this test with DUELINE_WRITE_TOPICS=1 to write {}",
            path.display()
        );
    }
}
