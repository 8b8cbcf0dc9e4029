//! This crate against a real broker, whose address is in `DUELINE_TEST_KAFKA` (the project's test
//! runner sets it).
//!
//! * `producing`: what a report says of a record, H7 and H15;
//! * `consuming`: offsets, rebalances, back-pressure, H9 and H10;
//! * `describing`: topics, groups, offsets, whole reads;
//! * `renewing`: topics that are made anew, H11;
//! * `waiting`: whether a published task still waits, H11 and H12;
//! * `mocked`: what librdkafka's in-process broker can do (needs no address).
#![allow(clippy::unwrap_used)]

mod consuming;
mod describing;
mod mocked;
mod producing;
mod renewing;
mod support;
mod waiting;
