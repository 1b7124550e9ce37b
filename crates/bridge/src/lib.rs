//! A bridge between a node of Thicket and a broker of another kind: it carries topics out, in, or both ways, under prefixes.
//!
//! [`Bridge`] is a state machine: two clients, one towards each broker, and a bounded queue for each direction between them. It
//! does no I/O; [`start`] runs it on threads of its own over connections that a [`Dial`] makes.
//!
//! Left to others: configuration, addresses and TLS (`broker`); storing messages, which the two brokers do.
//!
//! Invariants:
//!
//! * A message of QoS 1 or 2 is acknowledged to its source broker only when the other broker has acknowledged it. Both sessions
//!   are persistent, so a message in flight stays at its source broker: neither a killed bridge nor a broker that is down loses it.
//! * At QoS 2 a message arrives once, as long as the bridge and both sessions exist. A new process sends unfinished
//!   messages again.
//! * A message is not sent back to its source broker; [`machine`] describes how loops through rings of bridges are limited.
//! * The queue of a direction is bounded in messages and bytes. When it is full, QoS 0 is dropped and counted; QoS 1 and 2
//!   stay at their source broker, which sends them again later.
//!
//! ```
//! use thicket_bridge::{Bridge, BridgeConfig, Direction, Order, Rule, RuleConfig, Side};
//! use thicket_mqtt::ProtocolVersion;
//! use thicket_session::Instant;
//!
//! let rule = Rule::new(&RuleConfig {
//!     remote_prefix: "edge-1/".into(),
//!     ..RuleConfig::new("site/#", Direction::Out)
//! })?;
//! let config = BridgeConfig::new("edge-1/plant", ProtocolVersion::V5, vec![rule]);
//! let now = Instant::from_millis(0);
//! let mut bridge = Bridge::new(config, now, 0x5eed);
//! assert_eq!(bridge.poll_order(), Some(Order::Open(Side::Local)));
//! // ... connect, then:
//! bridge.handle_opened(now, Side::Local);
//! assert!(!bridge.output(Side::Local).is_empty(), "a CONNECT");
//! # Ok::<(), thicket_bridge::RuleError>(())
//! ```

pub mod machine;
mod rule;
mod runner;
mod stream;

pub use machine::{
    Bounds, Bridge, BridgeConfig, LaneStatistics, Order, Report, SideConfig, SideStatistics,
    Statistics,
};
pub use rule::{Direction, Retain, Rule, RuleConfig, RuleError, Side};
pub use runner::{Monitor, Running, start};
pub use stream::{Connection, Dial};
