//! The server side of one client's session: what survives a connection.
//!
//! The machines here hold state and return what must be sent; they encode nothing and use no socket. Matching and fan-out belong to the worker of
//! crate `node`, which owns the sessions.

mod epoch;
mod finished;
mod generations;
mod inbound;
mod journal;
mod message;
mod outbound;
mod recovered;
mod sequenced;
mod snapshot;
mod stored;
mod subscription;

pub use epoch::{Epoch, Precedence};
pub use finished::{FinishedMessages, FinishedRange};
pub use generations::Generations;
pub use inbound::{GENERATIONS_OF_A_BRANCH, Inbound, InboundId, InboundPublish};
pub use journal::{
    Append, AppendRun, JournalEntries, JournalEntry, JournalError, JournalFormat, JournalWriter,
    PlainAppend, StoredMessage, set_sent_at,
};
pub use message::{Message, MessageId, MessageStream, Publication, seconds_left};
pub use outbound::{
    Acknowledged, Delivery, Held, Outbound, OutboundLimits, QueueFull, Redelivery, Started, Tally,
    Waiting,
};
pub use recovered::RecoveredSession;
pub use snapshot::{
    Ancestor, Branch, SessionSnapshot, SnapshotError, WillSnapshot, decode_queue, encode_queue,
};
pub use stored::{StoredSession, StoredWill, decode_subscription, encode_subscription};
pub use subscription::{MatchedIdentifiers, Replay, Subscribed, Subscription};
