//! What was moved last.

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use crate::RedirectionReason;

/// A client that was sent from one node to another.
#[derive(Debug, Clone, Copy)]
pub(in crate::hub) struct LastMove {
    pub at: Instant,
    pub at_ms: u64,
    pub from: NodeId,
    pub to: NodeId,
    pub reason: RedirectionReason,
    pub outcome: Outcome,
}

/// The result of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum Outcome {
    Sent,
    Followed,
    Ignored,
}

impl Outcome {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Followed => "followed",
            Self::Ignored => "ignored",
        }
    }
}
