//! The protocol as an explicit-state model.
//!
//! Two relays, two consumers, one topic with one partition, one or two tasks, and clients: [`model::Model`] says
//! which steps are possible in a [`state::State`] and where each leads, [`explore::Search`] visits every state that
//! can be reached within a [`model::Scope`], breadth first, so that the path to whatever is found is a shortest one.
//! `docs/model.md` says how to run it and what came of it.
//!
//! # What is checked
//!
//! Safety (V2 to V7, V9, the honesty of receipts) where it can break: on the edges. An edge that breaks something is
//! reported and not followed. V9 asks `dueline_core::state` whether the step exists. Liveness (V1, the end of V6, V8)
//! afterwards: from every state there must be a path *without a fault, a client or a parked task* to one where every
//! task is finished, then lettered, then nothing is under way. That is a search backwards over the edges of the
//! protocol and of time. It is exact under the assumption that a step that stays possible is taken in the end.
//!
//! Each guard of the protocol is a switch ([`guard::Guard`]); [`table::TRIALS`] says what breaks without it, or why
//! nothing does, and a test holds the table to it.
//!
//! # What is abstracted away, and why that is sound
//!
//! * **Time** has no numbers: a deadline comes, a lease ends, a token ends, at any moment and in any order. Every real
//!   timing is one of these orders, so nothing is missed; pauses of any length are an actor that takes no step. A lease
//!   that ends while a message is alive costs a fault, as in the real world it takes a pause.
//! * **Fences** are what a relay remembers of them: the alarm's present one, or not. They are only compared.
//! * **Offsets** are places in the records beyond the committed offset; of those passed, only whether one was as young
//!   as the present claim (what `still_waiting` asks). Three records are a bound, not an abstraction.
//! * **Statements** are atomic, and so is settle with its COMMIT: from its row locks on nobody can change what it
//!   changes. What READ COMMITTED lets in between two statements comes in here too. A row that somebody holds
//!   (`SKIP LOCKED`) is a fault that may happen at any settle.
//! * **Deadlocks and timeouts** are "trouble": a rollback at any moment. That there is no cycle of locks is argued by
//!   their order, not here.
//! * **Takeover** may hit a relay that is only paused: nothing depends on the judgement being right.
//! * **Payload** is the generation that it belongs to; **attempts** and the limits of crashes are two.
//!
//! States are stored whole, not as fingerprints, so that two of them are never taken for one.

#[macro_use]
mod pack;
mod choices;
mod client;
mod consumer;
mod elsewhere;
pub mod explore;
pub mod guard;
mod here;
pub mod model;
mod relay;
pub mod state;
pub mod table;
#[cfg(test)]
mod tests;
mod trace;
mod world;
mod writes;

pub use pack::{Packed, WORDS};
