//! A whole cluster with its clients in one thread: virtual time, all randomness from one seed.
//!
//! It runs the workers and hubs of `thicket-node` themselves, not a model of them. Around them are a shell for the interface of `thicket-node`
//! (`node`), a network whose connections delay, lose, hold and cut (`net`, `links`), disks that fill up, stall and fail (`disk`), and clients.
//!
//! Left to others: which faults to inject and what must hold (`crates/node/tests/simulation`), scenarios of sites and loads (`lab`).
//!
//! Invariants: there is no I/O, no clock and no thread; the same seed and the same calls give the same run, on any machine.
//!
//! # Building a network
//!
//! | what | how |
//! | --- | --- |
//! | nodes | [`World::add_node`] with a [`spec::NodeSpec`] (workers, routing, backups, limits, data directory, slow rounds, drifting clocks), [`World::start`] |
//! | clients | [`World::add_client`], [`World::connect_client`]; what the client machine offers is called on `world.clients[i].machine`, then [`client::SimulatedClient::finish`] |
//! | links | [`links::Links::add`] in one direction with delay, bandwidth and loss, [`links::Links::set_route`] from host to host over one or more of them; hosts that share a link share its bandwidth. Where no route is set, [`net::Weather`] decides |
//! | time | [`World::run_for`], [`World::run_until`]; milliseconds |
//!
//! # Faults
//!
//! | fault | how |
//! | --- | --- |
//! | a process is killed, or a machine loses its power | [`World::kill`], [`World::lose_power`] |
//! | a node is paused, with or without its clocks | [`net::Net::pause`], or [`World::pause`] until [`World::resume`]; [`World::freeze`] |
//! | a link stalls, is cut, carries in one direction only, or loses everything silently | [`net::Net::part`] with a [`net::Parting`], [`net::Net::heal`] |
//! | a connection is cut, or half-open | [`net::Net::cut`], [`net::Net::leave_half_open`] |
//! | a disk is full, stalls or fails | [`World::set_space`], [`World::stall_disk`], [`disk::Disk::fail_after`] |
//! | a wall clock is set | `world.nodes[i].spec.wall_ahead` |
//! | credentials expire | [`tokens::issue`] with [`tokens::policy`] and [`spec::NodeSpec::passwords`] |
//!
//! # Measuring
//!
//! | what | where |
//! | --- | --- |
//! | delay of a message | [`client::SimulatedClient::take_events`]: when each event occurred, to compare with when the caller published |
//! | bytes, segments, losses of a link, with headers and acknowledgements if wanted | [`links::Links::carried`] |
//! | bytes between nodes | [`net::Net::sent_between_nodes`] |
//! | convergence, repair | [`World::run_until`] with [`World::is_whole`] or [`World::is_covered`] |
//! | counters of the nodes | [`World::traffic`], [`World::sessions`], [`World::memory`] |
//!
//! The resolution of time is a millisecond (delays between two milliseconds are right in the mean), and processors are infinitely fast unless
//! `NodeSpec::round_millis` is set: delays, bytes, losses and repair are meaningful, messages a second are not.
//!
//! ```
//! use thicket_mqtt::{ProtocolVersion, Publish, Qos};
//! use thicket_session::{client::{CleanStart, ClientConfig}, time::Instant};
//! use thicket_simulation::{World, client::ClientEvent, links::{Host, Link}, net::Weather, spec::NodeSpec};
//!
//! let mut world = World::new(1, Weather::CALM);
//! for node in 0..2 {
//!     world.add_node(NodeSpec::new(1));
//!     world.start(node);
//! }
//! for (from, to) in [(0, 1), (1, 0)] {
//!     let way = world.net.links.add(Link::of_millis(25));
//!     world.net.links.set_route(Host::Node(from), Host::Node(to), vec![way]);
//! }
//! world.run_until(10_000, World::is_whole).expect("the nodes find each other");
//! let config = ClientConfig::new(ProtocolVersion::V5, "client");
//! let client = world.add_client(config);
//! world.connect_client(client, 0, CleanStart::Yes);
//! world.run_for(1_000);
//! let events = world.clients[client].take_events();
//! assert!(matches!(events[..], [(_, ClientEvent::Connected { session_present: false })]));
//! ```

pub mod client;
pub mod disk;
pub mod links;
mod machines;
pub mod net;
pub mod node;
pub mod pipe;
pub mod random;
mod slots;
pub mod spec;
pub mod steps;
pub mod tester;
pub mod tokens;
pub mod users;
pub mod words;
mod world;

pub use world::{TesterId, World};
