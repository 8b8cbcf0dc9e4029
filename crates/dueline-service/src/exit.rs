//! Exit codes of the services and the command line. Scripts and supervisors rely on them: codes are
//! added, never changed.

/// Everything went well; also a clean stop after a signal.
pub const OK: u8 = 0;
/// It failed; the last log line or the error text says why. Starting again may help.
pub const FAILURE: u8 = 1;
/// The command line was wrong (unknown flag, missing argument).
pub const USAGE: u8 = 2;
/// The configuration was refused, or contradicts the database or the broker. Starting again cannot
/// help before somebody changes something (`EX_CONFIG` of sysexits).
pub const CONFIG: u8 = 78;
/// A second signal arrived while stopping: work in flight was left to the leases.
pub const FORCED: u8 = 130;
