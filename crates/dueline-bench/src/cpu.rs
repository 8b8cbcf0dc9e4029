//! Where the processor's time goes: read from `/proc` before and after a measurement.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};

/// The kernel's unit of these counters on every Linux of today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of processor time since the start, in user and kernel mode.
///
/// # Errors
/// When there is no such process.
pub(crate) fn of_process(id: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
    Ok(ticks_in(&text).context("/proc/<pid>/stat")? / TICKS_PER_SECOND)
}

/// Bytes of memory that a process has resident.
///
/// # Errors
/// When there is no such process.
pub(crate) fn resident_bytes(id: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kilobytes * 1024.0)
}

/// The fields of `/proc/<pid>/stat` stand after the name, which may hold anything.
fn ticks_in(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let user: f64 = fields.get(11)?.parse().ok()?;
    let kernel: f64 = fields.get(12)?.parse().ok()?;
    Some(user + kernel)
}

/// Seconds that all cores together were busy since the start of the machine.
fn busy_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    busy_ticks(&text).map(|ticks| ticks / TICKS_PER_SECOND).context("/proc/stat")
}

fn busy_ticks(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<f64> = line.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    // user, nice, system, irq, softirq; idle and iowait are no work, steal is somebody else's, and guests
    // are counted among the users already.
    Some([0, 1, 2, 5, 6].iter().filter_map(|i| fields.get(*i)).sum())
}

/// A process: its program and its id.
type Process = (&'static str, u32);

/// Processor time of all living processes of these programs: what runs on this machine beside us.
fn by_program(names: &[&'static str]) -> BTreeMap<Process, f64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between the listing and the reading.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let name = stat.split_once('(').and_then(|(_, rest)| Some(rest.rsplit_once(')')?.0));
        let known = names.iter().find(|known| name == Some(**known));
        if let (Some(known), Some(ticks)) = (known, ticks_in(&stat)) {
            found.insert((*known, id), ticks / TICKS_PER_SECOND);
        }
    }
    found
}

/// A reading of all counters that a profile needs.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    busy: f64,
    processes: BTreeMap<Process, f64>,
}

impl Reading {
    /// Now. `relays` and `consumers` are process ids.
    pub fn take(relays: &[u32], consumers: &[u32]) -> Result<Self> {
        let mut processes = by_program(&["postgres", "java"]);
        for (name, ids) in
            [("relay", relays), ("consumer", consumers), ("bench", &[std::process::id()])]
        {
            for id in ids {
                processes.insert((name, *id), of_process(*id)?);
            }
        }
        Ok(Self { busy: busy_seconds()?, processes })
    }

    /// Core-microseconds per task since an earlier reading, by program; `all` is the whole machine, and
    /// `other` what none of the named ones took. What a process took that has ended since is among the others.
    #[allow(clippy::cast_precision_loss)]
    pub fn per_task(&self, earlier: &Self, tasks: i64) -> BTreeMap<&'static str, f64> {
        let each = |seconds: f64| seconds.max(0.0) * 1e6 / tasks.max(1) as f64;
        let (mut costs, mut named) = (BTreeMap::new(), 0.0);
        for (process, seconds) in &self.processes {
            let spent = seconds - earlier.processes.get(process).unwrap_or(&0.0);
            named += spent;
            *costs.entry(process.0).or_default() += each(spent);
        }
        let all = self.busy - earlier.busy;
        costs.insert("all", each(all));
        costs.insert("other", each(all - named));
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_mislead() {
        let stat = "7 (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 5 0 0";
        assert_eq!(ticks_in(stat), Some(200.0));
        assert_eq!(ticks_in("nothing"), None);
    }

    #[test]
    fn waiting_is_not_work() {
        let stat = "cpu  100 1 20 9000 800 3 4 55 0 0\ncpu0 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(128.0));
    }

    #[test]
    fn a_process_that_ended_takes_nothing_away_from_the_others() {
        let reading = |busy, processes: &[(Process, f64)]| Reading {
            busy,
            processes: processes.iter().copied().collect(),
        };
        let before = reading(10.0, &[(("java", 1), 50.0), (("java", 2), 1.0)]);
        let after = reading(13.0, &[(("java", 2), 2.0), (("relay", 3), 0.5)]);
        let costs = after.per_task(&before, 1_000_000);
        let expected = [("all", 3.0), ("java", 1.0), ("other", 1.5), ("relay", 0.5)];
        assert_eq!(costs, expected.into_iter().collect());
    }

    #[test]
    fn our_own_process_can_be_read() {
        let reading = Reading::take(&[], &[]).expect("Linux");
        let costs = reading.per_task(&reading, 10);
        assert_eq!(costs["all"], 0.0);
        assert!(resident_bytes(std::process::id()).expect("Linux") > 1e6);
    }
}
