//! A private PostgreSQL cluster.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use super::{START_TRIES, log_file, temp_dir};
use crate::child::{Running, bound_to_us, free_of_us};
use crate::{ports, tail};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The settings of a test cluster. Durability stays on: what tests measure and kill must be real.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "max_connections=300",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
    "checkpoint_timeout=15min",
    "fsync=on",
    "synchronous_commit=on",
    "deadlock_timeout=1s",
    "timezone=UTC",
    "log_line_prefix=%m [%p] %q%a %u@%d ",
    "log_lock_waits=on",
];

/// What a caller may want different.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// More settings, `name=value`; later ones win.
    pub settings: Vec<String>,
    /// Environment of the server, such as `LD_PRELOAD` for a false clock.
    pub environment: Vec<(String, String)>,
    /// Whether it is to go on after us: see [`Postgres::leave`].
    pub outlives_us: bool,
}

/// A running cluster, stopped and deleted on drop.
#[derive(Debug)]
pub struct Postgres {
    bin: PathBuf,
    account: Option<Account>,
    options: PostgresOptions,
    port: u16,
    server: Option<Running>,
    directory: TempDir,
}

/// The user and group that the server runs as.
#[derive(Clone, Copy, Debug)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// Creates a cluster and starts it.
    ///
    /// # Errors
    /// When there is no PostgreSQL, or it does not answer within a minute; the error shows its log.
    pub fn start() -> Result<Self> {
        Self::start_with(PostgresOptions::default())
    }

    /// [`Self::start`] with options.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(options: PostgresOptions) -> Result<Self> {
        let bin = bin_directory()?;
        let account = account()?;
        let directory = temp_dir("postgres")?;
        if let Some(account) = account {
            std::os::unix::fs::chown(directory.path(), Some(account.uid), Some(account.gid))?;
        }
        let mut cluster = Self { bin, account, options, port: 0, server: None, directory };
        cluster.initialise()?;
        let mut last_error = None;
        for _ in 0..START_TRIES {
            cluster.port = ports::free(1)?[0];
            match cluster.start_again() {
                Ok(()) => return Ok(cluster),
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.context("no try to start PostgreSQL was made")?)
    }

    /// The URL of the superuser's connection to database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the Unix socket.
    #[must_use]
    pub fn socket_directory(&self) -> &Path {
        self.directory.path()
    }

    /// The folder of the programs (`psql`, `pg_ctl`, …).
    #[must_use]
    pub fn bin_directory(&self) -> &Path {
        &self.bin
    }

    /// The server's log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    /// Starts the server on the same data and port after [`Self::stop`] or [`Self::kill`].
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn start_again(&mut self) -> Result<()> {
        let log = log_file(&self.log_path())?;
        let program = &self.bin.join("postgres");
        let mut command = if self.options.outlives_us {
            free_of_us(program)
        } else {
            bound_to_us(program, "INT")
        };
        self.as_account(&mut command);
        command.arg("-D").arg(self.data()).arg("-k").arg(self.directory.path());
        command.args(["-p", &self.port.to_string()]);
        for setting in SETTINGS.iter().copied().chain(self.options.settings.iter().map(|s| &**s)) {
            command.args(["-c", setting]);
        }
        command.envs(self.options.environment.iter().cloned());
        command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.server = Some(Running::start(command).context("cannot start PostgreSQL")?);
        self.await_ready()
    }

    /// Stops as an administrator would: connections are closed, everything is flushed.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGINT is a fast shutdown, SIGQUIT an immediate one.
            server.signal(Signal::INT);
            if server.wait(STOP_TIMEOUT).is_none() {
                server.stop(Signal::QUIT, Duration::from_secs(5));
            }
        }
    }

    /// An immediate shutdown, as by a crash: no checkpoint, clients are cut off.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.stop(Signal::QUIT, Duration::from_secs(10));
        }
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Makes a folder the server's own, such as one for a tablespace.
    ///
    /// # Errors
    /// When that is not allowed.
    pub fn give(&self, folder: &Path) -> Result<()> {
        if let Some(account) = self.account {
            std::os::unix::fs::chown(folder, Some(account.uid), Some(account.gid))?;
        }
        Ok(())
    }

    fn initialise(&self) -> Result<()> {
        let mut command = Command::new(self.bin.join("initdb"));
        self.as_account(&mut command);
        command.args(["--no-sync", "--auth=trust", "--username=postgres"]);
        command.args(["--encoding=UTF8", "--locale=C.UTF-8", "-D"]).arg(self.data());
        let output = command.output().context("cannot run initdb")?;
        ensure!(
            output.status.success(),
            "initdb failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    fn as_account(&self, command: &mut Command) {
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command.current_dir(self.directory.path());
    }

    /// Lets it run on, with its files; returns its process id and folder. It must have been started
    /// with `outlives_us`.
    #[must_use]
    pub fn leave(mut self) -> (Option<u32>, PathBuf) {
        self.directory.disable_cleanup(true);
        let id = self.server.take().map(Running::leave);
        (id, self.directory.path().to_owned())
    }

    fn await_ready(&mut self) -> Result<()> {
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let answered = Command::new(self.bin.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status()
                .context("cannot run pg_isready")?;
            let ended = self.server.as_mut().and_then(Running::ended);
            // The order matters: on a taken port it is somebody else's server that answers.
            if let Some(status) = ended {
                bail!("PostgreSQL ended ({status})\n{}", tail::of(&self.log_path()));
            }
            if answered.success() {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!(
                    "PostgreSQL did not answer within {} s\n{}",
                    START_TIMEOUT.as_secs(),
                    tail::of(&self.log_path())
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// `DUELINE_PG_BIN`, else Debian's newest versioned folder, else what `pg_config` says.
fn bin_directory() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("DUELINE_PG_BIN") {
        return Ok(given.into());
    }
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("bin/initdb").is_file())
        .max_by_key(|path| version(path));
    if let Some(path) = newest {
        return Ok(path.join("bin"));
    }
    let output = Command::new("pg_config").arg("--bindir").output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
        }
        _ => bail!(
            "no PostgreSQL server found: install Debian's package `postgresql`, or set \
             DUELINE_PG_BIN to the folder that has `initdb` and `postgres`"
        ),
    }
}

/// PostgreSQL refuses to run as root: then it runs as `postgres`, or as `nobody`.
fn account() -> Result<Option<Account>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then_some(())?;
            let mut ids = fields.skip(1).take(2).map(str::parse);
            Some(Account { uid: ids.next()?.ok()?, gid: ids.next()?.ok()? })
        })
    };
    let account = find("postgres").or_else(|| find("nobody"));
    Ok(Some(account.context("PostgreSQL does not run as root, and there is no user `postgres`")?))
}
