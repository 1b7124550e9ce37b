//! Where to send a client that connects: loads in, a broker out. Time and chance are arguments.
//!
//! [`LoadBalancer`] is one decider's view of the brokers; the decider is a dispatcher or a node. It gets readings ([`LoadBalancer::update`]) and is
//! asked for a choice ([`LoadBalancer::choose`], [`LoadBalancer::choose_instead_of`]), or for the excess load of a broker
//! ([`LoadBalancer::excess`]); deciders side by side share nothing.
//!
//! - *Two choices*: two candidates are drawn at random, and the one with less load gets the client. So many deciders that see
//!   the same readings do not all send their clients to the one broker that is emptiest.
//! - *Decisions count at once*: a client that was sent somewhere adds what an average client costs, until readings can show it.
//! - *Unknown is not zero*: a broker without a figure counts as an average one of those that have it.
//! - *Nobody* is sent to a broker that is down, draining or full, or whose CPU is used up, unless all that serve are so busy.
//!
//! ```
//! use thicket_placement::{Candidate, Load, LoadBalancer, Policy, State};
//!
//! let mut balancer = LoadBalancer::new(Policy::Combined, 7);
//! let busy = Load { cpu: Some(0.6), messages_per_s: Some(9_000.0), connections: Some(5.0) };
//! let idle = Load { cpu: Some(0.1), messages_per_s: Some(1_000.0), connections: Some(5.0) };
//! balancer.update(0, vec![
//!     Candidate { key: 1, state: State::Serving, load: busy },
//!     Candidate { key: 2, state: State::Serving, load: idle },
//! ]);
//! assert_eq!(balancer.choose(0), Some(2));
//! ```

mod load;
mod load_balancer;
#[cfg(test)]
mod tests;

pub use load::{Load, Policy, State};
pub use load_balancer::{Candidate, Excess, LoadBalancer};
