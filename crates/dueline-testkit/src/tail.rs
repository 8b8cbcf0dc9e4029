//! The end of a log file, for an error message.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// How much of a log an error shows, in bytes.
const TAIL_BYTES: u64 = 6_000;

/// The last lines of the file, or a note that there are none.
#[must_use]
pub fn of(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) if text.trim().is_empty() => format!("({} is empty)", path.display()),
        Ok(text) => format!("--- the end of {} ---\n{}", path.display(), text.trim_end()),
        Err(error) => format!("({} cannot be read: {error})", path.display()),
    }
}
