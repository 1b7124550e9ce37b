//! The server side of one client's session: what survives a connection.
//!
//! The machines here hold state and say what must be sent; they encode nothing and know no socket. Matching and fan-out
//! belong to the worker of crate `node`, which owns the sessions.

mod inbound;
mod message;
mod outbound;
mod snapshot;
mod subscription;

pub use inbound::{Inbound, InboundPublish};
pub use message::{Message, MessageId, seconds_left};
pub use outbound::{
    Acknowledged, Delivery, Outbound, OutboundLimits, QueueFull, Redelivery, Started,
};
pub use snapshot::{SessionSnapshot, SnapshotError, WillSnapshot, decode_queue, encode_queue};
pub use subscription::{MatchedIdentifiers, Subscription};
