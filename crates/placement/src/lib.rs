//! Traffic model, placement strategies and simulator of an MQTT cluster.
//!
//! Implements sections III, IV and V.A-B of Detti, "Sub-linear Scalability of MQTT Clusters in Topic-based
//! Publish-subscribe Applications". The planner of the command line and the control plane run the same code.
//!
//! - [`TrafficModel`] predicts the traffic of a cluster whose clients attach at random (Eq. 1-7, 13-15).
//!
//! Left to others: files, threads, clocks, and asking for placements over a network.
//!
//! Invariants: same inputs and seed, same outputs, on any machine (own generator, software `pow`, `exp` and `log`, no
//! table whose order escapes is randomly seeded); a client's topic has exactly one broker; a client has no more sessions
//! than allowed; internal traffic kept by increments equals a recount up to rounding.
//!
//! ```
//! use thicket_placement::{Scenario, TrafficModel};
//!
//! # fn main() -> Result<(), thicket_placement::ParameterError> {
//! let scenario = Scenario::social(1000, 10, 1.13)?;
//! let model = TrafficModel::with_equal_rates(&scenario, 1000, 1.0)?;
//! assert!(model.predict(8)?.routing_overhead() > 2.0);
//! # Ok(())
//! # }
//! ```

mod error;
mod model;
mod random;

pub use error::ParameterError;
pub use model::{
    Natural, Prediction, Scenario, TrafficModel, Tree, broker_probability, decision_space, jain,
    overhead, zipf,
};
pub use random::Random;
