//! A lab for MQTT brokers.

pub mod scenario;
pub mod topology;

mod error;

pub use error::LabError;
