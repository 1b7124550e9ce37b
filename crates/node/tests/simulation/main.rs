//! The cluster simulation: many nodes with their clients in one thread, in virtual time, all chance from one seed.
//!
//! `scenarios` are tables of named cases on the same world. A failure prints its seed; `SEED=n` replays it, `THICKET_SEEDS=n`
//! says how many seeds the random runs try.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a test says what holds by failing"
)]

mod chaos;
mod scenarios;
