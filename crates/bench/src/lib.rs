//! Load generator and measurement for any MQTT broker.
//!
//! * [`workload`]: who publishes and who subscribes to what, as described in the papers;
//! * [`generator`]: the clients, thousands of them in one thread, with exact counts of lost, duplicate and reordered messages;
//! * [`relay`]: the baseline, a process that only copies bytes;
//! * [`search`], [`idle`], [`target`]: maximum sustainable throughput, idle connections, time to start (Comparison M1 to M4);
//! * [`compare`]: the same workloads against several brokers, interleaved; [`instructions`]: Callgrind and its guard;
//! * [`stored`]: the start of a node with a million stored messages;
//! * [`crash`]: nodes that are killed under load, and the messages that are lost then (Comparison M5);
//! * [`dispatcher`], [`placement`], [`rebalance`]: where clients connect, the benefit of placement, the duration of moves;
//! * [`statistics`], [`report`]: means and confidence intervals of runs; tables, HTML and plots.
//!
//! Left to others: the command line (`thicket bench`), and the brokers. The codec is used for everything except messages. Messages are read and
//! written in place, because a generator that costs as much as a broker measures itself.
//!
//! Invariants: every message of a numbered stream is counted as delivered, lost or refused; a latency starts at the intended send time of the
//! message; the same seed gives the same topics, subscriptions and schedule.
//!
//! ```
//! use thicket_bench::generator::{Generator, Load, Node, Scenario, Span, Watch};
//! use thicket_bench::relay::Relay;
//! use thicket_bench::workload::Workload;
//!
//! let relay = Relay::bind("127.0.0.1:0".parse()?)?;
//! let node = Node::resolve(&relay.local_addr()?.to_string())?;
//! std::thread::spawn(move || relay.run());
//!
//! let mut generator = Generator::connect(Scenario::new(vec![node], Workload::Pair { pairs: 3 }))?;
//! let load = Load::Closed { window: 10 };
//! let outcome = generator.run(load, Span::messages(300), &Watch::default(), &mut |_second| {})?;
//! assert_eq!(outcome.counts.delivered, 300);
//! assert!(outcome.counts.is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod arrivals;
pub mod compare;
pub mod crash;
pub mod crossing;
pub mod dispatcher;
pub mod generator;
pub mod idle;
pub mod instructions;
pub mod namespace;
pub mod outcome;
pub mod placement;
pub mod probe;
pub mod process;
pub mod random;
pub mod rebalance;
pub mod relay;
pub mod report;
pub mod search;
pub mod sequence;
pub mod soak;
pub mod stamp;
pub mod statistics;
pub mod stored;
pub mod target;
pub mod workload;

mod cluster;
mod dialog;
mod error;
mod layer;
mod metrics;
mod socket;
mod started;
mod stop;
mod wire;

pub use cluster::Confine;
pub use error::BenchError;
pub use layer::Layering;
pub use outcome::Outcome;
pub use started::end_all;
pub use stop::Stop;
