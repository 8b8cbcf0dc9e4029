//! Exit codes of this command beside those of `dueline_service::exit`. Codes are added, never changed.

pub use dueline_service::exit::{CONFIG, FAILURE, OK};

/// The arguments are wrong.
pub const ARGUMENTS: u8 = 2;
/// `apply --plan` found something to do.
pub const PENDING: u8 = 3;
/// It was refused, or nothing was changed because the task is not in a state for it.
pub const REFUSED: u8 = 4;
/// There is no such task.
pub const NOT_FOUND: u8 = 5;

/// For the help text.
pub const TABLE: &str = "\
Exit codes:
   0  done
   1  it failed; trying again may help
   2  wrong arguments
   3  apply --plan: there is something to do
   4  refused, or nothing was changed: the output says why
   5  there is no such task
  78  the configuration is wrong, or does not fit the database or the broker

Configuration: a flag wins over the environment (DUELINE__POSTGRES__URL=…), that over the file
(--config or DUELINE_CONFIG), that over the default. `dueline config check` shows the result.";
