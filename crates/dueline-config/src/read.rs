//! Reading typed values, one section at a time: each key is asked for once, with its default and its
//! range; what nobody asked for is unknown. Problems are noted and reading goes on.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use dueline_core::name::nearest;
use toml::{Table, Value};

use crate::layer::Origins;
use crate::span;

/// More problems than this are counted, not listed.
const MAX_PROBLEMS: usize = 100;
/// The most characters of one problem.
const MAX_PROBLEM_CHARS: usize = 1_000;
/// The most characters of a wrong value that an error repeats.
const MAX_SHOWN_CHARS: usize = 60;

/// What was found out so far.
pub(crate) struct Report {
    origins: Origins,
    problems: RefCell<Vec<String>>,
    failed: RefCell<BTreeSet<String>>,
}

impl Report {
    pub fn new(origins: Origins, problems: Vec<String>) -> Self {
        Self { origins, problems: RefCell::new(problems), failed: RefCell::default() }
    }

    /// Notes a problem.
    pub fn add(&self, problem: impl Into<String>) {
        self.problems.borrow_mut().push(problem.into());
    }

    /// Notes a problem of the value at `path`; rules about that value are not judged any more.
    pub fn wrong(&self, path: &str, what: impl Display) {
        self.add(format!("{path}: {what} ({})", self.origins.of(path)));
        self.failed.borrow_mut().insert(path.to_owned());
    }

    /// Whether the value at `path` could not be read, so that a default stands in its place.
    pub fn has_failed(&self, path: &str) -> bool {
        self.failed.borrow().contains(path)
    }

    /// All problems, in the order in which they were found; each is one line of bounded length, whatever
    /// names it repeats.
    pub fn into_problems(self) -> Vec<String> {
        let found = self.problems.into_inner();
        let mut problems: Vec<String> =
            found.iter().take(MAX_PROBLEMS).map(|p| one_line(p)).collect();
        if found.len() > MAX_PROBLEMS {
            problems.push(format!("… and {} more", found.len() - MAX_PROBLEMS));
        }
        problems
    }
}

/// A text of bounded length without control characters: it may go to a terminal and into a log. What is
/// too long loses its middle, for a problem begins with its place and ends with what to do.
pub(crate) fn one_line(text: &str) -> String {
    let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let half = MAX_PROBLEM_CHARS / 2;
    let characters = text.chars().count();
    if characters <= MAX_PROBLEM_CHARS {
        return text.chars().map(clean).collect();
    }
    let (begin, end) = (text.chars().take(half), text.chars().skip(characters - half));
    begin.chain(['…']).chain(end).map(clean).collect()
}

/// One table of the configuration while it is read.
pub(crate) struct Section<'r> {
    pub path: String,
    pub report: &'r Report,
    table: Table,
    known: Vec<&'static str>,
}

impl<'r> Section<'r> {
    /// Reads a section with `read`, then reports the keys that it did not ask for.
    pub fn read<T>(
        report: &'r Report,
        path: &str,
        table: Table,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut section = Self { path: path.to_owned(), report, table, known: Vec::new() };
        let result = read(&mut section);
        section.report_unknown();
        result
    }

    /// A section below this one; a missing one is empty.
    pub fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'r>) -> T) -> T {
        let table = self.sub_table(key);
        Section::read(self.report, &self.path_of(key), table, read)
    }

    /// A section below this one that may be missing.
    pub fn section_opt<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Section<'r>) -> T,
    ) -> Option<T> {
        self.table.contains_key(key).then(|| self.section(key, read)).or_else(|| {
            self.known.push(key);
            None
        })
    }

    /// Every table below this key, by its name.
    pub fn each<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&str, &mut Section<'r>) -> T,
    ) -> BTreeMap<String, T> {
        let path = self.path_of(key);
        let mut all = BTreeMap::new();
        for (name, value) in self.sub_table(key) {
            let path = format!("{path}.{name}");
            match value {
                Value::Table(table) => {
                    let item = Section::read(self.report, &path, table, |s| read(&name, s));
                    all.insert(name, item);
                }
                other => self.report.wrong(&path, format!("expected a table, found {}", a(&other))),
            }
        }
        all
    }

    fn sub_table(&mut self, key: &'static str) -> Table {
        match self.take(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(other) => {
                let path = self.path_of(key);
                self.report.wrong(&path, format!("expected a table, found {}", a(&other)));
                Table::new()
            }
        }
    }

    /// The full path of a key of this section.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Notes a problem of this section's `key`.
    pub fn wrong(&self, key: &str, what: impl Display) {
        self.report.wrong(&self.path_of(key), what);
    }

    /// The value of a key as it was typed.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    /// A text; `None` when the key is missing or not a text.
    pub fn text_opt(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            other => {
                self.wrong(key, format!("expected a text in quotes, found {}", a(&other)));
                None
            }
        }
    }

    /// A text with a default.
    pub fn text(&mut self, key: &'static str, default: &str) -> String {
        self.text_opt(key).unwrap_or_else(|| default.to_owned())
    }

    /// A text that `parse` must accept; its answer to a wrong one says what was expected.
    pub fn parsed<T>(
        &mut self,
        key: &'static str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(key, default);
        parse(&text).map_err(|expected| self.wrong(key, expected)).ok()
    }

    /// A whole number within a range.
    pub fn number<T>(&mut self, key: &'static str, default: T, range: RangeInclusive<T>) -> T
    where
        T: Copy + PartialOrd + Display + TryFrom<i64>,
    {
        let Some(value) = self.take(key) else { return default };
        let found = match &value {
            Value::Integer(number) => Some(*number),
            Value::String(text) if self.report.origins.is_text(&self.path_of(key)) => {
                text.trim().parse().ok()
            }
            _ => None,
        };
        let (low, high) = (range.start(), range.end());
        match found.map(T::try_from) {
            Some(Ok(number)) if range.contains(&number) => return number,
            Some(_) => self.wrong(key, format!("must be between {low} and {high}")),
            None => self.wrong(
                key,
                format!("expected a whole number from {low} to {high}, found {}", shown(&value)),
            ),
        }
        default
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &'static str, default: bool) -> bool {
        match self.take(key) {
            None => default,
            Some(Value::Boolean(flag)) => flag,
            Some(Value::String(text))
                if self.report.origins.is_text(&self.path_of(key))
                    && matches!(text.as_str(), "true" | "false") =>
            {
                text == "true"
            }
            Some(other) => {
                self.wrong(key, format!("expected true or false, found {}", shown(&other)));
                default
            }
        }
    }

    /// A length of time within a range.
    pub fn span(
        &mut self,
        key: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        self.span_opt(key, range).unwrap_or(default)
    }

    /// A length of time within a range, if one was typed.
    pub fn span_opt(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let value = self.take(key)?;
        match value.as_str().and_then(span::parse) {
            Some(duration) if range.contains(&duration) => return Some(duration),
            Some(duration) => {
                let [low, high, found] = [*range.start(), *range.end(), duration].map(span::format);
                self.wrong(key, format!("must be between {low} and {high}, found {found}"));
            }
            None => self.wrong(
                key,
                format!("expected a length of time such as \"30s\", found {}", shown(&value)),
            ),
        }
        None
    }

    /// A list of texts; as the text of a flag or variable also `a,b`.
    pub fn texts(&mut self, key: &'static str, default: &[&str]) -> Vec<String> {
        let Some(value) = self.list(key) else {
            return default.iter().map(|s| (*s).to_owned()).collect();
        };
        let texts: Option<Vec<String>> =
            value.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        texts.unwrap_or_else(|| {
            self.wrong(key, "expected a list of texts");
            Vec::new()
        })
    }

    fn list(&mut self, key: &'static str) -> Option<Vec<Value>> {
        match self.take(key)? {
            Value::Array(items) => Some(items),
            Value::String(text) => Some(match bracketed(&text) {
                Some(items) => items,
                None => text
                    .split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty())
                    .map(|part| Value::String(part.to_owned()))
                    .collect(),
            }),
            other => {
                self.wrong(key, format!("expected a list, found {}", a(&other)));
                None
            }
        }
    }

    /// Names and values that are passed through: texts, numbers and booleans alike become text.
    pub fn pass_through(&mut self, key: &'static str) -> BTreeMap<String, String> {
        let path = self.path_of(key);
        let mut map = BTreeMap::new();
        for (name, value) in self.sub_table(key) {
            let text = match value {
                Value::String(text) => text,
                Value::Integer(number) => number.to_string(),
                Value::Boolean(flag) => flag.to_string(),
                Value::Float(number) => number.to_string(),
                other => {
                    let path = format!("{path}.{name}");
                    self.report.wrong(&path, format!("expected a text, found {}", a(&other)));
                    continue;
                }
            };
            map.insert(name, text);
        }
        map
    }

    fn report_unknown(&self) {
        for key in self.table.keys() {
            let path = self.path_of(key);
            let hint = match nearest(key, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            self.report.wrong(&path, format!("unknown key; {hint}"));
        }
    }
}

/// `[...]` as TOML reads it.
pub(crate) fn bracketed(text: &str) -> Option<Vec<Value>> {
    if !text.trim_start().starts_with('[') {
        return None;
    }
    let mut table: Table = toml::from_str(&format!("list = {text}")).ok()?;
    match table.remove("list") {
        Some(Value::Array(items)) => Some(items),
        _ => None,
    }
}

/// A value's type with its article.
pub(crate) fn a(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number with a point",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// A wrong value as an error shows it, shortened. Never used for secrets.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let short: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            format!("{short:?}")
        }
        Value::Integer(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        other => a(other).to_owned(),
    }
}
