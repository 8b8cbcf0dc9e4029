//! The `dueline` command as a process.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process;

const TIMEOUT: Duration = Duration::from_secs(60);

/// What a run of the command came to.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it said.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Output {
    /// The output, if the code is 0.
    ///
    /// # Errors
    /// With everything that it wrote.
    pub fn ok(self) -> Result<String> {
        ensure!(
            self.code == 0,
            "dueline ended with {}:\n{}{}",
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(self.stdout)
    }

    /// The output as JSON, if the code is 0.
    ///
    /// # Errors
    /// When it failed, or wrote something else.
    pub fn json(self) -> Result<serde_json::Value> {
        let text = self.ok()?;
        serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
    }
}

/// Runs `dueline --config FILE ARGUMENTS…`.
///
/// # Errors
/// When it cannot be started, or takes longer than a minute.
pub async fn run(config: &Path, arguments: &[&str]) -> Result<Output> {
    run_with(config, arguments, &[]).await
}

/// [`run`] with more environment variables.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    config: &Path,
    arguments: &[&str],
    environment: &[(String, String)],
) -> Result<Output> {
    let mut command = tokio::process::Command::new(process::binary("dueline")?);
    command.arg("--config").arg(config).args(arguments).kill_on_drop(true);
    command.envs(environment.iter().cloned());
    command.stdin(std::process::Stdio::null());
    let output = tokio::time::timeout(TIMEOUT, command.output())
        .await
        .with_context(|| format!("dueline {arguments:?} took too long"))??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Output {
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    })
}
