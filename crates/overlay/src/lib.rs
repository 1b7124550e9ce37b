//! The side of a node that faces the other nodes: links, the view, interests, and forwarding with its own acknowledgements.
//!
//! [`Overlay`] is one state machine with three doors, owned by the hub of a node. It leaves to others: sockets and discovery
//! (the shell), matching, client ids and retained messages (the hub and its workers). Routing mode so far: `mesh`, straight to
//! each interested node.
//!
//! A round of its owner looks like this:
//!
//! 1. [`Overlay::handle_input`] for everything that happened, [`Overlay::handle_received`] for bytes of links;
//! 2. [`Overlay::forward`], [`Overlay::set_interest`], [`Overlay::send_control`], [`Overlay::admitted`] as needed;
//! 3. [`Overlay::end_round`], which writes into each link's out-buffer: control first, then acknowledgements, then data;
//! 4. [`Overlay::poll_output`] until there is no more, and for each `Flush(link)`: write [`Overlay::pending_output`], tell
//!    [`Overlay::handle_written`];
//! 5. sleep until something happens or [`Overlay::poll_timeout`].
//!
//! # What holds
//!
//! * A numbered message reaches each destination that stays up exactly once, over as many links as that takes. A node that is
//!   out ([`Output::NodeDown`]) is no longer waited for.
//! * [`Output::Acknowledged`] comes after every destination's hub said [`Overlay::admitted`]; [`Output::InterestSettled`] after
//!   every reachable node's hub said [`Overlay::interests_applied`].
//! * Between [`Output::NodeUp`] and [`Output::NodeDown`] of a slot, control messages arrive in order, each once.
//! * Nothing another node sends panics, or sets memory aside for a length merely claimed: bytes that cannot be read end the link.
//! * Nothing reads a clock; the seed decides every nonce and every jitter; no order depends on a random hash.

mod channel;
mod config;
mod dialler;
mod doors;
mod hello;
mod identity;
mod inbound;
mod interest;
mod interests;
mod link;
mod message;
mod outbound;
mod overlay;
mod peer;
mod random;
mod ranges;
pub mod record;
mod rendezvous;
mod report;
mod store;
mod view;
mod wire;

pub use config::{MAXIMUM_PACKET_BYTES, OverlayConfig, OverlayLimits, Timing};
pub use doors::{
    ControlError, Delivery, Event, EventLevel, Forward, ForwardError, Input, Output, Unacknowledged,
};
pub use identity::{Incarnation, LinkId, NodeId, NodeSlot, Origin, StreamId};
pub use interest::{InterestChange, InterestKey, InterestValue, Sharing};
pub use overlay::Overlay;
pub use rendezvous::rendezvous;
pub use report::{LinkCounters, NodeStatus, OverlayCounters};
pub use wire::WireError;
