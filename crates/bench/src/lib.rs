//! Load and measurement of MQTT brokers: a load generator, a relay as yardstick, and what makes figures of runs.

pub mod compare;
pub mod generator;
pub mod idle;
pub mod instructions;
pub mod outcome;
pub mod probe;
pub mod process;
pub mod random;
pub mod relay;
pub mod report;
pub mod search;
pub mod stamp;
pub mod statistics;
pub mod target;
pub mod workload;

mod error;
mod sequence;
mod socket;
mod wire;

pub use error::BenchError;
pub use outcome::Outcome;
