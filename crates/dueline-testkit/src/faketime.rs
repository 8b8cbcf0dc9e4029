//! Debian's libfaketime: a wall clock that a test moves.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// The library for programs with threads.
pub const WITH_THREADS: &str = "libfaketimeMT.so.1";
/// The library for programs without: it takes no lock, so that a signal's handler may read the clock.
pub const WITHOUT_THREADS: &str = "libfaketime.so.1";

/// The path of one of the two, if it is installed.
#[must_use]
pub fn library(name: &str) -> Option<String> {
    let folders = std::fs::read_dir("/usr/lib").ok()?;
    let mut paths = folders.flatten().map(|f| f.path().join("faketime").join(name));
    paths.find(|path| path.is_file()).map(|path| path.display().to_string())
}

/// The wall clock of the processes that are started with [`Self::environment`], moved while they run.
#[derive(Debug)]
pub struct MovableClock {
    library: String,
    folder: TempDir,
}

impl MovableClock {
    /// One that shows the true time; `None` where there is no libfaketime.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn new() -> Result<Option<Self>> {
        let Some(library) = library(WITHOUT_THREADS) else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("dueline-clock-").tempdir()?;
        // The server that reads it runs as another user.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let clock = Self { library, folder };
        clock.set_ahead(0)?;
        Ok(Some(clock))
    }

    /// What a process needs so that this is its clock, and that of its children. Its steady clock stays
    /// true, as a host's does when its wall clock is set.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let file = self.folder.path().join("offset").display().to_string();
        let values = [
            ("LD_PRELOAD", self.library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            // Read again at each question: all processes of a server jump at once.
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_DISABLE_SHM", "1"),
        ];
        values.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// Moves it to so many seconds ahead of the true time, or behind when negative, at once.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn set_ahead(&self, seconds: i64) -> Result<()> {
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{seconds:+}\n"))?;
        // Renamed: a reader finds the old one or the new one, never half of one.
        std::fs::rename(&new, self.folder.path().join("offset")).context("cannot move the clock")
    }
}
