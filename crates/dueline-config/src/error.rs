//! Why a configuration was refused.

use std::fmt;
use std::path::PathBuf;

use crate::read::one_line;

/// Why there is no [`crate::Config`]. A process that meets one exits with the code for bad
/// configuration (78), since starting again cannot help.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", one_line(&path.display().to_string()))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no TOML. The offending line is named, not shown: it may hold a password.
    #[error("{place}, line {line}: this is not valid TOML: {message}")]
    Syntax {
        /// The file's name.
        place: String,
        /// The line, from 1.
        line: usize,
        /// What the parser expected.
        message: String,
    },
    /// The values do not make a configuration that can run; every problem found, in reading order.
    #[error("{}", list(.0))]
    Invalid(Vec<String>),
}

impl ConfigError {
    /// The single problems, for output that lists them (`--json`).
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        match self {
            Self::Invalid(problems) => problems.clone(),
            other => vec![other.to_string()],
        }
    }
}

fn list(problems: &[String]) -> impl fmt::Display {
    let count = match problems.len() {
        1 => "1 problem".to_owned(),
        n => format!("{n} problems"),
    };
    format!("the configuration has {count}:\n  - {}", problems.join("\n  - "))
}
