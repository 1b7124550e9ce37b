//! Load and measurement of MQTT brokers: a load generator, a relay as yardstick, and what makes figures of runs.

pub mod generator;
pub mod outcome;
pub mod process;
pub mod random;
pub mod relay;
pub mod report;
pub mod stamp;
pub mod statistics;
pub mod workload;

mod error;
mod sequence;
mod socket;
mod wire;

pub use error::BenchError;
pub use outcome::Outcome;
