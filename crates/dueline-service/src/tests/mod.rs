//! What needs a socket or a process of its own.

mod admin;
mod process;
