//! Writing a `dueline.toml`: for a test's database and topics, and for the demo.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

/// A value as TOML writes it.
#[derive(Clone, Debug)]
pub struct Value(String);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        // A JSON string is also a basic string of TOML.
        Self(serde_json::Value::from(text).to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self(flag.to_string())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self(number.to_string())
    }
}

impl From<&[&str]> for Value {
    fn from(texts: &[&str]) -> Self {
        let items: Vec<String> = texts.iter().map(|text| Self::from(*text).0).collect();
        Self(format!("[{}]", items.join(", ")))
    }
}

impl<const N: usize> From<[&str; N]> for Value {
    fn from(texts: [&str; N]) -> Self {
        Self::from(texts.as_slice())
    }
}

/// A configuration in the making: values by section and key.
#[derive(Clone, Debug, Default)]
pub struct Settings(BTreeMap<String, BTreeMap<String, Value>>);

impl Settings {
    /// A configuration for these services, with an admin port of its own choice.
    #[must_use]
    pub fn new(database_url: &str, brokers: &str, topic_prefix: &str) -> Self {
        let mut settings = Self::default();
        settings.set("postgres.url", database_url);
        settings.set("kafka.brokers", brokers.split(',').collect::<Vec<_>>().as_slice());
        settings.set("kafka.topic_prefix", topic_prefix);
        settings.set("admin.bind", "127.0.0.1:0");
        settings.set("log.format", "json");
        settings
    }

    /// Sets `section.key`; a later value replaces an earlier one.
    pub fn set(&mut self, path: &str, value: impl Into<Value>) -> &mut Self {
        let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
        self.0.entry(section.to_owned()).or_default().insert(key.to_owned(), value.into());
        self
    }

    /// Sets `section.key` to a value that is TOML already, such as a list of tiers.
    pub fn set_toml(&mut self, path: &str, toml: &str) -> &mut Self {
        self.set(path, Value(toml.to_owned()))
    }

    /// Takes `section.key` out again: its default applies.
    pub fn remove(&mut self, path: &str) -> &mut Self {
        let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
        if let Some(values) = self.0.get_mut(section) {
            values.remove(key);
        }
        self
    }

    /// Adds a kind that is handled by this statement.
    pub fn sql_kind(&mut self, kind: &str, queue: &str, statement: &str) -> &mut Self {
        self.set(&format!("kinds.{kind}.queue"), queue);
        self.set(&format!("kinds.{kind}.sql"), statement)
    }

    /// The whole as TOML.
    #[must_use]
    pub fn toml(&self) -> String {
        let mut text = String::new();
        for (section, values) in &self.0 {
            let _ = writeln!(text, "[{section}]");
            for (key, Value(value)) in values {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(std::fs::write(path, self.toml())?)
    }

    /// The checked configuration, for tests that run parts in their own process.
    ///
    /// # Errors
    /// With every problem that it has.
    pub fn config(&self) -> Result<dueline_config::Config> {
        Ok(dueline_config::Config::from_toml_str(&self.toml())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read() {
        let mut settings = Settings::new("postgres://h:1/d", "a:1,b:2", "t1");
        settings.set("queues.orders.slots", 2).set("relay.lease", "45s");
        settings.sql_kind("close", "orders", "update orders\nset a = 'it''s \"b\"'\nreturning 1");
        settings.set_toml("queues.orders.tiers", r#"[{ name = "fast", max_delay = "1m" }]"#);
        settings.set("kinds.close.backoff", ["1s", "2s"]);
        let config = settings.config().expect("is a configuration");
        assert_eq!(config.kafka.bootstrap_servers(), "a:1,b:2");
        assert_eq!(config.queues["orders"].topic("fast"), "t1.orders.fast");
        assert_eq!(config.kinds["close"].retry.backoff.len(), 2);
    }
}
