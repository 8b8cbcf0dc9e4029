//! A text that never shows itself.

use std::fmt;

/// A password, a URL with one in it, or anything that may be one.
///
/// `Debug` and `Display` print a placeholder (hazard H26); [`Secret::expose`] is the only way to the
/// text, so that a search for it finds every place where a secret leaves.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

/// What is printed in place of a secret.
pub(crate) const REDACTED: &str = "<redacted>";

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: for the library that needs it, never for a message.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}
