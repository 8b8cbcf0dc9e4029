//! Our own binaries as real processes.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::child::{Running, bound_to_us};
use crate::{tail, wait};

/// Set to the folder of the binaries when it is not this executable's own.
pub const BIN_ENV: &str = "DUELINE_BIN_DIR";
/// How long a process may take to answer its admin port, and to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The folder of the built binaries: `target/<profile>`.
///
/// # Errors
/// When this executable's own path is unknown.
pub fn bin_directory() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os(BIN_ENV) {
        return Ok(given.into());
    }
    let own = std::env::current_exe()?;
    let folder = own.parent().context("an executable without a folder")?;
    // Test executables stand in `deps`, examples in `examples`, one below the binaries.
    let below = folder.file_name().is_some_and(|name| name == "deps" || name == "examples");
    let folder = if below { folder.parent().unwrap_or(folder) } else { folder };
    Ok(folder.to_owned())
}

/// The path of a built binary such as `dueline-relay`.
///
/// # Errors
/// When it has not been built.
pub fn binary(name: &str) -> Result<PathBuf> {
    let path = bin_directory()?.join(name);
    ensure!(
        path.is_file(),
        "{} is missing: `cargo build --workspace --bins --examples` builds it",
        path.display()
    );
    Ok(path)
}

/// How to start a process of ours, as often as needed.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name for messages, unique within its log folder.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// More environment variables.
    pub environment: Vec<(String, String)>,
    /// Where its output is appended.
    pub log: PathBuf,
}

impl Program {
    /// A built binary, with its output in `<log_folder>/<name>.log`.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn built(binary_name: &str, name: &str, log_folder: &Path) -> Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            path: binary(binary_name)?,
            arguments: Vec::new(),
            environment: Vec::new(),
            log: log_folder.join(format!("{name}.log")),
        })
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Starts it; it does not wait for readiness.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self) -> Result<Service> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        let log_start = log.metadata()?.len();
        let mut command = bound_to_us(&self.path, "KILL");
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let running =
            Running::start(command).with_context(|| format!("cannot start {}", self.name))?;
        Ok(Service { program: self.clone(), running, log_start })
    }
}

/// A running process of ours; killed on drop.
#[derive(Debug)]
pub struct Service {
    program: Program,
    running: Running,
    log_start: u64,
}

impl Service {
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// What it was started from.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        self.running.kill()
    }

    /// SIGTERM, and at most half a minute for a clean stop; then SIGKILL.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.running.stop(Signal::TERM, STOP_TIMEOUT)
    }

    /// SIGTERM without waiting.
    pub fn terminate(&mut self) {
        self.running.signal(Signal::TERM);
    }

    /// SIGSTOP.
    pub fn pause(&mut self) {
        self.running.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.running.signal(Signal::CONT);
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.running.ended()
    }

    /// Waits for its end by itself, at most `timeout`.
    ///
    /// # Errors
    /// When it still runs then.
    pub async fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.program.name);
        wait::some(&what, timeout, async || Ok(self.running.ended())).await
    }

    /// SIGKILL if it still runs, and the same program again.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        *self = self.program.start()?;
        Ok(())
    }

    /// What it wrote since it was started.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn output(&self) -> Result<String> {
        let bytes = std::fs::read(&self.program.log)?;
        let start = usize::try_from(self.log_start)?.min(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[start..]).into_owned())
    }

    /// The end of its log, for an error message.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail::of(&self.program.log)
    }

    /// The address of its admin port, from the line that it logs on start.
    ///
    /// # Errors
    /// When there is none within half a minute, or the process ends.
    pub async fn admin_address(&mut self) -> Result<String> {
        let what = format!("the admin address of {}", self.program.name);
        wait::some(&what, READY_TIMEOUT, async || {
            self.fail_if_ended()?;
            Ok(self.output()?.lines().find_map(address_in))
        })
        .await
        .with_context(|| self.log_tail())
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Errors
    /// When it does not within half a minute, or the process ends.
    pub async fn ready(&mut self) -> Result<()> {
        let address = self.admin_address().await?;
        let what = format!("{} to be ready", self.program.name);
        wait::until(&what, READY_TIMEOUT, async || {
            self.fail_if_ended()?;
            Ok(http_get(&address, "/readyz").await.is_ok_and(|(status, _)| status == 200))
        })
        .await
        .with_context(|| self.log_tail())
    }

    /// `GET path` of its admin port: status and body.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn get(&mut self, path: &str) -> Result<(u16, String)> {
        let address = self.admin_address().await?;
        http_get(&address, path).await
    }

    /// The sum of a metric over all of its label values whose line contains `label` (may be empty).
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn metric(&mut self, name: &str, label: &str) -> Result<f64> {
        let (_, body) = self.get("/metrics").await?;
        let lines = body.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        });
        Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }

    fn fail_if_ended(&mut self) -> Result<()> {
        match self.running.ended() {
            Some(status) => bail!("{} ended ({status})", self.program.name),
            None => Ok(()),
        }
    }
}

/// `"address":"127.0.0.1:40123"` of the JSON line about the admin port.
fn address_in(line: &str) -> Option<String> {
    if !line.contains("admin port") {
        return None;
    }
    let after = line.split_once("\"address\":\"")?.1;
    Some(after.split_once('"')?.0.to_owned())
}

/// The smallest HTTP client that reads our own admin port.
async fn http_get(address: &str, path: &str) -> Result<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(4 << 20).read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(Duration::from_secs(5), exchange).await??;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status.context("no HTTP status")?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_its_line() {
        let line =
            r#"{"level":"INFO","fields":{"message":"admin port: /livez","address":"127.0.0.1:4"}}"#;
        assert_eq!(address_in(line).as_deref(), Some("127.0.0.1:4"));
        assert_eq!(address_in(r#"{"address":"127.0.0.1:4"}"#), None);
    }
}
