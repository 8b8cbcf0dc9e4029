//! A small disk that can be full, such as one for the tables of a database.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// What is written at once into the file that fills the disk.
const CHUNK: usize = 1 << 20;

/// A mounted tmpfs; unmounted on drop.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts one of this size, or says why that is not possible here.
    ///
    /// # Errors
    /// When there is no folder for it, no `mount`, or no right to.
    pub fn mount(mib: u32) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("dueline-disk-").tempdir()?;
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m,mode=0755"), "dueline"])
            .arg(folder.path())
            .output()
            .context("cannot run mount")?;
        anyhow::ensure!(
            output.status.success(),
            "no tmpfs can be mounted: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(Self { folder })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills it to the last byte. Blocks.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(self.ballast())?;
        let zeros = vec![0; CHUNK];
        // It ends at the disk's end, which is what it is for.
        while file.write_all(&zeros).is_ok() {}
        Ok(())
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn free(&self) -> Result<()> {
        match std::fs::remove_file(self.ballast()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.folder.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Should somebody still use it, it goes when they do.
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}
