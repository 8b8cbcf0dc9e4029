//! Where the configuration comes from, and how it is loaded.

use std::path::PathBuf;

use crate::error::ConfigError;
use crate::layer::Typed;
use crate::model::Config;
use crate::read::one_line;

/// The variable that names the file when no flag does.
pub const CONFIG_VARIABLE: &str = "DUELINE_CONFIG";
/// `DUELINE__RELAY__LEASE=90s` sets `relay.lease`.
pub const ENV_PREFIX: &str = "DUELINE__";

/// What the user typed: a later field beats an earlier one.
#[derive(Clone, Default)]
pub struct Source {
    /// The TOML file given by a flag; else [`CONFIG_VARIABLE`] names it; else there is none.
    pub file: Option<PathBuf>,
    /// The environment, all of it.
    pub env: Vec<(String, String)>,
    /// `section.key=value`, one for each `--set`.
    pub overrides: Vec<String>,
}

impl Source {
    /// The file and overrides of the command line, with this process's environment. Variables that are
    /// no Unicode are passed over.
    #[must_use]
    pub fn from_process(file: Option<PathBuf>, overrides: Vec<String>) -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { file, env, overrides }
    }

    fn path(&self) -> Option<PathBuf> {
        let from_env = || {
            let (_, path) = self.env.iter().find(|(name, _)| name == CONFIG_VARIABLE)?;
            (!path.is_empty()).then(|| PathBuf::from(path))
        };
        self.file.clone().or_else(from_env)
    }
}

impl Config {
    /// Loads a configuration: flag over environment over file over default.
    ///
    /// # Errors
    /// When the file cannot be read or is no TOML, or with every problem of the values at once.
    pub fn load(source: &Source) -> Result<Self, ConfigError> {
        let mut typed = match source.path() {
            None => Typed::default(),
            Some(path) => {
                let text = std::fs::read_to_string(&path)
                    .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
                Typed::from_toml(&text, &one_line(&path.display().to_string()))?
            }
        };
        typed.add_env(&source.env);
        typed.add_overrides(&source.overrides);
        Self::check(typed)
    }

    /// The configuration that a TOML text alone makes, for tests and tools.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        Self::check(Typed::from_toml(text, "the configuration")?)
    }
}
