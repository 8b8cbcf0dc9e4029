//! What was typed: the file's table, with environment and flags laid over it, and for each value that
//! did not come from the file, where it came from.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::{Table, Value};

use crate::error::ConfigError;
use crate::source::ENV_PREFIX;

/// Tables whose keys belong to somebody else and contain dots: below them, the rest of a path is one key.
const PASS_THROUGH: [(&str, &str); 2] = [("kafka", "properties"), ("postgres", "options")];

/// Typed values, before any check.
#[derive(Default)]
pub(crate) struct Typed {
    pub table: Table,
    pub origins: Origins,
    /// What was wrong with the typing itself.
    pub problems: Vec<String>,
}

/// Where values came from, by path.
#[derive(Default)]
pub(crate) struct Origins {
    file: String,
    overlay: BTreeMap<String, String>,
}

impl Origins {
    /// Where the value at `path` was typed: `in dueline.toml`, `from --set relay.lease`.
    pub fn of(&self, path: &str) -> String {
        let below = format!("{path}.");
        let origin = self.overlay.get(path).or_else(|| {
            let (first, origin) = self.overlay.range(below.clone()..).next()?;
            first.starts_with(&below).then_some(origin)
        });
        match origin {
            Some(origin) => format!("from {origin}"),
            None => format!("in {}", self.file),
        }
    }

    /// Whether the value at `path` is the text of a flag or variable, whatever type it stands for.
    pub fn is_text(&self, path: &str) -> bool {
        self.overlay.contains_key(path)
    }
}

impl Typed {
    pub fn from_toml(text: &str, place: &str) -> Result<Self, ConfigError> {
        let mut table: Table = toml::from_str(text).map_err(|e| ConfigError::Syntax {
            place: place.to_owned(),
            line: line_of(text, e.span()),
            message: e.message().to_owned(),
        })?;
        let mut problems = Vec::new();
        for (section, key) in PASS_THROUGH {
            if let Some(Value::Table(inner)) =
                table.get_mut(section).and_then(Value::as_table_mut).and_then(|t| t.get_mut(key))
            {
                let mut flat = Table::new();
                flatten("", std::mem::take(inner), &mut flat, &mut |twice| {
                    problems.push(format!("{section}.{key}: `{twice}` is given twice in {place}"));
                });
                *inner = flat;
            }
        }
        let origins = Origins { file: place.to_owned(), overlay: BTreeMap::new() };
        Ok(Self { table, origins, problems })
    }

    /// Lays `DUELINE__SECTION__KEY=value` over the file, in the order of the names.
    pub fn add_env(&mut self, env: &[(String, String)]) {
        let mut ours: Vec<_> = env.iter().filter(|(k, _)| k.starts_with(ENV_PREFIX)).collect();
        ours.sort();
        for (name, value) in ours {
            let path = name[ENV_PREFIX.len()..].to_lowercase().replace("__", ".");
            self.overlay(&path, value, name.clone());
        }
    }

    /// Lays `section.key=value` over everything else; of two for one key, the later one holds.
    pub fn add_overrides(&mut self, overrides: &[String]) {
        for (index, text) in overrides.iter().enumerate() {
            match text.split_once('=') {
                Some((path, value)) => {
                    let path = path.trim();
                    self.overlay(path, value, format!("--set {path}"));
                }
                // The text is not shown: whatever it was meant to be, it may hold a password.
                None => self.problems.push(format!(
                    "the --set number {} has no `=`; write --set section.key=value",
                    index + 1
                )),
            }
        }
    }

    fn overlay(&mut self, path: &str, value: &str, origin: String) {
        let parts = split(path);
        if parts.len() < 2 || parts.iter().any(|p| p.is_empty()) {
            self.problems.push(format!(
                "{origin}: `{path}` is no path of a key; write section.key, such as relay.lease"
            ));
            return;
        }
        let Some((last, parents)) = parts.split_last() else { return };
        let mut table = &mut self.table;
        for (depth, part) in parents.iter().enumerate() {
            let entry =
                table.entry((*part).to_owned()).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(inner) = entry else {
                let parent = parents[..=depth].join(".");
                self.problems
                    .push(format!("{origin}: {parent} is a single value, it has no key `{last}`"));
                return;
            };
            table = inner;
        }
        table.insert((*last).to_owned(), Value::String(value.to_owned()));
        self.origins.overlay.insert(path.to_owned(), origin);
    }
}

/// The parts of a path; below a pass-through table the rest is one part.
fn split(path: &str) -> Vec<&str> {
    for (section, key) in PASS_THROUGH {
        let rest = path
            .strip_prefix(section)
            .and_then(|p| p.strip_prefix('.'))
            .and_then(|p| p.strip_prefix(key))
            .and_then(|p| p.strip_prefix('.'));
        if let Some(rest) = rest {
            return vec![section, key, rest];
        }
    }
    path.split('.').collect()
}

/// `a.b = 1` in TOML is a table in a table; here it is meant as one dotted name. The depth is bounded
/// by the parser.
fn flatten(prefix: &str, table: Table, into: &mut Table, twice: &mut impl FnMut(&str)) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => flatten(&name, inner, into, twice),
            value => {
                if into.insert(name.clone(), value).is_some() {
                    twice(&name);
                }
            }
        }
    }
}

fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let end = span.map_or(0, |s| s.start).min(text.len());
    1 + text.as_bytes()[..end].iter().filter(|b| **b == b'\n').count()
}
