//! Child processes that never outlive us.
//!
//! The kernel's parent-death signal is sent when the *thread* that spawned the child ends, not the
//! process. A test's thread ends long before the test binary does, so every child is spawned by one
//! keeper thread which lives as long as the process.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often a wait looks whether its child has ended.
const POLL: Duration = Duration::from_millis(10);

type Request = (Command, SyncSender<io::Result<Child>>);

/// Runs `command` from the keeper thread.
fn spawn_kept(command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<SyncSender<Request>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, requests) = sync_channel::<Request>(16);
        std::thread::spawn(move || {
            for (mut command, answer) in requests {
                // Nobody waits any more only if the asking thread panicked: nothing to tell it.
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (answer, result) = sync_channel(1);
    let gone = || io::Error::other("the thread that keeps child processes has ended");
    keeper.send((command, answer)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

/// The program `program`, to be sent `signal` by the kernel when this process dies.
///
/// Arguments, environment and output are added by the caller.
#[must_use]
pub fn bound_to_us(program: &Path, signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal, "--"]).arg(program);
    command
}

/// The program `program` in a process group of its own, so that it goes on when this process and
/// its terminal are gone.
#[must_use]
pub fn free_of_us(program: &Path) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    command.process_group(0);
    command
}

/// A running child; killed and reaped on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pid: Pid,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts `command` (see [`bound_to_us`]).
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(command: Command) -> io::Result<Self> {
        let child = spawn_kept(command)?;
        let pid = Pid::from_child(&child);
        Ok(Self { child, pid, ended: None })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Sends a signal; nothing happens when the process has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            // It may end between the two lines, but its id stays ours until it is reaped.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Sends a signal to the child's whole process group, of which it must be the leader.
    pub fn signal_group(&mut self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    /// Waits for the end, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Sends `signal`, waits at most `timeout`, then kills. Returns how it ended.
    pub fn stop(&mut self, signal: Signal, timeout: Duration) -> Option<ExitStatus> {
        self.signal(signal);
        // A stopped process acts on nothing but SIGKILL until it is continued.
        self.signal(Signal::CONT);
        self.wait(timeout).or_else(|| self.kill())
    }

    /// Lets it run on; returns its process id.
    pub fn leave(self) -> u32 {
        let id = self.id();
        // Its handle is all that is leaked, shortly before we end.
        std::mem::forget(self);
        id
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(10))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `exit status 3` or `killed by signal 9`: the code a shell would report (128 + signal).
#[must_use]
pub fn shell_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        let mut command = bound_to_us(Path::new("/bin/sh"), "KILL");
        command.args(["-c", script]);
        Running::start(command).expect("a shell starts")
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let mut child =
            std::thread::spawn(|| shell("sleep 60")).join().expect("the asking thread ends");
        assert!(child.wait(Duration::from_millis(300)).is_none(), "killed with its asking thread");
        child.kill();
        assert!(child.ended().is_some());
    }

    #[test]
    fn codes_are_a_shells() {
        let mut child = shell("exit 3");
        assert_eq!(child.wait(Duration::from_secs(5)).map(shell_code), Some(3));
        let mut killed = shell("kill -9 $$");
        assert_eq!(killed.wait(Duration::from_secs(5)).map(shell_code), Some(137));
    }

    #[test]
    fn a_deaf_child_is_killed() {
        let mut child = shell("trap '' TERM; while :; do sleep 1; done");
        std::thread::sleep(Duration::from_millis(100));
        child.stop(Signal::TERM, Duration::from_millis(200));
        assert!(child.ended().is_some());
    }
}
