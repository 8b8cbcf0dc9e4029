//! What the whole crate promises, from typed text to checked values and messages.

mod arbitrary;
mod catalog;
mod precedence;
mod refusal;
mod sample;
mod webhook;

use crate::{Config, ConfigError};

/// The problems of a text that must be refused.
fn problems(text: &str) -> Vec<String> {
    match Config::from_toml_str(text) {
        Err(error) => error.problems(),
        Ok(_) => panic!("this must be refused:\n{text}"),
    }
}

/// The only problem of a text.
fn problem(text: &str) -> String {
    let mut problems = problems(text);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0)
}

fn accepted(text: &str) -> Config {
    match Config::from_toml_str(text) {
        Ok(config) => config,
        Err(error @ ConfigError::Syntax { .. }) => panic!("{error}"),
        Err(error) => panic!("{error}\nin:\n{text}"),
    }
}
