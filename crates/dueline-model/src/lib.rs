#![doc = "x"]
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
mod trace;
mod world;
