//! A streaming standby of a private cluster.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::Postgres;
use crate::child::{Running, bound_to_us};
use crate::ports;

/// A running standby, stopped and deleted on drop. It takes a while until it answers.
#[derive(Debug)]
pub struct Standby {
    port: u16,
    _server: Running,
    _folder: TempDir,
}

impl Standby {
    /// Copies the primary and starts a standby of it, which reaches it by `port`: the primary's own, or
    /// that of a proxy before it.
    ///
    /// # Errors
    /// When the primary cannot be copied.
    pub fn of(primary: &Postgres, port: u16) -> Result<Self> {
        // It runs as the user that owns the primary's files.
        let owner = fs::metadata(primary.data())?;
        let folder = tempfile::Builder::new().prefix("dueline-standby-").tempdir()?;
        std::os::unix::fs::chown(folder.path(), Some(owner.uid()), Some(owner.gid()))?;
        let data = folder.path().join("data");
        let mut backup = Command::new(primary.bin_directory().join("pg_basebackup"));
        backup.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "--checkpoint=fast"]);
        backup.args(["-X", "stream", "-p", &port.to_string(), "-D"]).arg(&data);
        backup.uid(owner.uid()).gid(owner.gid()).current_dir(folder.path());
        let output = backup.output().context("cannot run pg_basebackup")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let port = ports::free(1)?[0];
        let mut server = bound_to_us(&primary.bin_directory().join("postgres"), "INT");
        server.arg("-D").arg(&data).arg("-k").arg(folder.path());
        // A hot standby refuses to have room for fewer connections than its primary.
        server.args(["-p", &port.to_string(), "-c", "max_connections=300"]);
        server.args(["-c", "listen_addresses=127.0.0.1", "-c", "timezone=UTC"]);
        server.uid(owner.uid()).gid(owner.gid()).current_dir(folder.path());
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { port, _server: Running::start(server)?, _folder: folder })
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the superuser's connection to a database of its.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}
