//! Calling webhooks: signed, bounded in time and size, never into a network that was not allowed.
//!
//! A [`Caller`] belongs to a process, a [`Webhook`] to a kind, a [`Host`] to all webhooks of one host and port. What an
//! answer means for a task is decided elsewhere; here it is only told ([`Reply`]).

mod address;
mod caller;
mod host;

pub use caller::{Call, Caller, CallerError, Reply, Webhook};
pub use host::{Host, Slot};

#[cfg(test)]
mod tests;
