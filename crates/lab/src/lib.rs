//! A lab for MQTT brokers: experiments on networks of sites, with reproducible results.
//!
//! A *scenario* is one TOML file: sites with a router, a broker and clients each, links with delay, rate and loss, broker systems, load, faults and
//! parameters to vary. The lab builds the network from namespaces of this machine, runs every combination on every system, and writes samples, tables
//! and a report. The method follows BORDER. `docs/lab.md` explains it; `docs/measurements/lab.md` has what was measured.
//!
//! * [`scenario`], [`network`], [`topology`]: the contents of a file, checked, and the resulting network; pure;
//! * [`testbed`], [`links`], [`fabric`], [`net`], [`limits`], [`janitor`]: the network, its two back ends, limits, and how nothing is left behind;
//! * [`probe`], [`capture`]: the network is measured before any broker, and its counters are compared with a capture;
//! * [`driver`], [`requirements`], [`prepare`], [`cluster`]: how each kind of broker is installed, what it can do, how it is started and found ready;
//! * [`kubernetes`]: the same scenario for a cluster elsewhere;
//! * [`hand`], [`running`], [`screen`]: the network alone, controlled by other commands, and its display;
//! * [`measured`], [`faults`]: a measurement, and the faults injected meanwhile;
//! * [`simulated`]: the same scenario in virtual time, for Thicket;
//! * [`run`]: repeats, systems, cells and phases; [`results`], [`summary`], [`scaling`], [`report`], [`compare`]: results and reports.
//!
//! Left to others: clients, load and clock ([`thicket_bench`], in one process whose sockets are opened in the namespaces of the sites).
//!
//! Invariants: a result records on which machine and with which tools it was made, and whether it is valid; the same file and seed build the same
//! network and the same load; no code is unsafe.
//!
//! ```
//! use thicket_lab::scenario::Scenario;
//!
//! let text = r#"
//! title = "Three nodes in a mesh"
//! network = { sites = 3, link = { rtt_ms = 5 } }
//! system = [{ name = "mesh", driver = "thicket" }]
//! workload = { pattern = "fan-out", subscribers = 10, rate_per_s = 10, messages = 50 }
//! "#;
//! let (scenario, cells) = Scenario::parse(text)?;
//! assert!(scenario.explain(&cells).contains("s1 - s2  RTT 5.00 ms"));
//! # Ok::<(), String>(())
//! ```

pub mod capture;
mod certificate;
pub mod child;
pub mod cluster;
pub mod delay;
pub mod driver;
pub mod environment;
pub mod fabric;
pub mod faults;
pub mod hand;
pub mod janitor;
pub mod kubernetes;
pub mod limits;
pub mod links;
pub mod measured;
pub mod measures;
pub mod net;
pub mod network;
pub mod pairs;
pub mod papers;
pub mod prepare;
pub mod pressure;
pub mod probe;
pub mod requirements;
pub mod results;
pub mod run;
pub mod running;
mod runs;
pub mod scenario;
pub mod screen;
pub mod simulated;
pub mod testbed;
pub mod topology;
pub mod units;
pub mod unprivileged;
pub mod usage;

pub mod compare;
pub mod report;
pub mod scaling;
pub mod summary;

mod command;
mod error;
mod priority;

pub use error::LabError;
