//! The part of a node that communicates with other nodes: links, the view, interests, trees, and forwarding with its own acknowledgements.
//!
//! [`Overlay`] is one state machine, owned by the hub of a node. It sends a message directly to each interested node (`mesh`), or over loop-free
//! trees that all nodes compute alike from the view (`topic`, `tree`, `flood`; [`routing`]).
//!
//! Left to others: sockets, discovery and cryptography (the shell); matching, client identifiers, sessions and retained messages (the
//! hub and its workers).
//!
//! A round of the hub looks like this:
//!
//! 1. [`Overlay::handle_input`] for everything that happened, [`Overlay::handle_received`] for bytes of links;
//! 2. [`Overlay::forward`], [`Overlay::set_interest`], [`Overlay::send_control`], [`Overlay::admitted`] as needed;
//! 3. [`Overlay::end_round`], which writes to each link's out-buffer: messages of the overlay first, then data, control and acknowledgements;
//! 4. [`Overlay::poll_output`] until there are no more, and for each `Flush(link)`: write [`Overlay::pending_output`], call
//!    [`Overlay::handle_written`];
//! 5. sleep until something happens or [`Overlay::poll_timeout`].
//!
//! # Invariants
//!
//! * A numbered message reaches each destination that stays up exactly once, over consecutive links if needed. A node that is down
//!   ([`Output::NodeDown`]) is no longer waited for.
//! * [`Output::Acknowledged`] comes after every destination's hub has called [`Overlay::admitted`]; [`Output::InterestSettled`] after
//!   every reachable node's hub has called [`Overlay::interests_applied`].
//! * Between [`Output::NodeUp`] and [`Output::NodeDown`] of a slot, control messages arrive in order, each once.
//! * Nothing that another node sends panics, or allocates memory for a length merely claimed: malformed bytes end the link.
//! * Nothing reads a clock; the seed decides every nonce and every jitter; no order depends on a random hash.
//!
//! # Example
//!
//! Two nodes, and in place of sockets a loop that carries bytes from one out-buffer to the other node:
//!
//! ```
//! use thicket_mqtt::Qos;
//! use thicket_overlay::record::Record;
//! use thicket_overlay::{FarEnd, Forward, Incarnation, Input, LinkId, NodeId, NodeSlot, Output, Overlay, OverlayConfig, StreamId};
//! use thicket_session::Instant;
//!
//! let (now, link) = (Instant::from_millis(0), LinkId(0));
//! let start = |id| Overlay::new(OverlayConfig::new(NodeId(id), Incarnation(1), "reef", ""), now, id);
//! let (mut north, mut south) = (start(1), start(2));
//! let mut arrived = Vec::new();
//!
//! // One round of `from`; its bytes go to `to`.
//! let mut round = |from: &mut Overlay, to: &mut Overlay, is_first: bool| {
//!     from.end_round(now);
//!     let orders: Vec<Output> = std::iter::from_fn(|| from.poll_output()).collect();
//!     for link in orders.iter().filter_map(|order| if let Output::Flush(link) = order { Some(*link) } else { None }) {
//!         let bytes = from.pending_output(link).to_vec();
//!         from.handle_written(now, link, bytes.len());
//!         if is_first {
//!             to.handle_input(now, Input::LinkAccepted { link, end: FarEnd::default(), bytes: &bytes });
//!         } else {
//!             to.handle_received(now, link, &bytes, |delivery| arrived.push(delivery.record.topic.to_owned()));
//!         }
//!     }
//!     orders
//! };
//!
//! north.handle_input(now, Input::Dialled { address: "south:1883", link });
//! round(&mut north, &mut south, true);
//! for _ in 0..4 {
//!     round(&mut south, &mut north, false);
//!     round(&mut north, &mut south, false);
//! }
//! assert_eq!(north.reachable(), [NodeId(1), NodeId(2)]);
//!
//! let mut record = Vec::new();
//! Record { number: 1, qos: Qos::AtLeastOnce, topic: "tide/height", payload: b"3.2", ..Record::default() }.encode(&mut record);
//! let south_slot = north.slot_of(NodeId(2)).expect("it is up");
//! let (stream, destinations) = (StreamId(0), &[south_slot]);
//! north.forward(now, Forward { stream, number: 1, qos: Qos::AtLeastOnce, destinations, interested: None, record: &record })?;
//! round(&mut north, &mut south, false);
//!
//! // South's workers have accepted it: the acknowledgement goes back.
//! let origin = thicket_overlay::Origin { slot: NodeSlot(1), incarnation: Incarnation(1), stream };
//! south.admitted(origin, 1..=1);
//! round(&mut south, &mut north, false);
//! let orders = round(&mut north, &mut south, false);
//! assert!(orders.contains(&Output::Acknowledged { stream, ranges: vec![1..=1] }));
//! assert_eq!(arrived, ["tide/height"]);
//! # Ok::<(), thicket_overlay::ForwardError>(())
//! ```

mod advertisements;
mod channel;
mod config;
mod dialler;
mod flow;
mod held_roots;
mod hello;
mod identity;
mod inbound;
mod interest;
mod interests;
mod interface;
mod link;
mod links;
mod measure;
mod message;
mod outbound;
mod overlay;
mod overview;
mod peer;
mod peers;
mod random;
mod ranges;
pub mod record;
mod record_change;
mod record_versions;
mod relays;
mod rendezvous;
mod report;
pub mod routing;
mod sorted_set;
mod store;
mod tree_name;
mod trees;
mod tunnel;
mod view;
mod wanted_records;
mod wire;
mod wire_version;

pub use config::{MAXIMUM_PACKET_BYTES, OverlayConfig, OverlayLimits, RoutingConfig, Timing};
pub use identity::{Incarnation, KeyId, LinkId, NodeId, NodeSlot, Origin, StreamId};
pub use inbound::Known;
pub use interest::{InterestChange, InterestKey, InterestValue, Sharing};
pub use interface::{
    Abandoned, ControlError, Delivery, Event, EventLevel, FarEnd, Forward, ForwardError, Input,
    Output, Unacknowledged,
};
pub use overlay::Overlay;
pub use overview::{
    ExplainedRoute, Explanation, OverlayState, Overview, OverviewNode, OverviewTree,
};
pub use rendezvous::{fnv1a, rendezvous, rendezvous_by_weight};
pub use report::{LinkCounters, NodeStatus, OverlayCounters, RoundTrips};
pub use wire::WireError;
pub use wire_version::WireVersion;
