//! Where a message comes from, and what becomes of it.

use thicket_overlay::record::PublicationId;

use super::{debts::Debt, session_key::SessionKey};

/// Where a message comes from.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::worker) struct Source<'a> {
    /// The publisher's session, for No Local.
    pub session: Option<SessionKey>,
    /// What the publisher is sent when the numbers of an `Open` outcome are acknowledged.
    pub debt: Option<Debt>,
    /// For QoS 2 of a persistent publisher.
    pub publication: Option<&'a PublicationId>,
    /// Some destinations may have received it before this node stopped.
    pub is_repeated: bool,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Outcome {
    /// It has no recipients.
    NoRecipients,
    /// All conditions are met.
    Met,
    /// This many numbers are still to be acknowledged.
    Open(u16),
}
