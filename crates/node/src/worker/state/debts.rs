//! What is owed for messages: acknowledgements to those who published them.

use thicket_mqtt::PacketId;

use super::{pending::Pending, sessions::SessionKey};
use crate::{
    ConnectionId, Peer,
    messages::{NumberRuns, Origin},
};

/// What this worker owes.
#[derive(Debug)]
pub(in crate::worker) struct Debts {
    /// When other workers and nodes have admitted the messages.
    pub pending: Pending<Option<Debt>>,
    /// Owed acknowledgements whose conditions were met while something else was borrowed.
    pub met: Vec<Debt>,
    /// Connections of clients that cannot be sent a refusal of their messages.
    pub overdrawn: Vec<ConnectionId>,
}

impl Debts {
    pub const fn new() -> Self {
        Self {
            pending: Pending::new(),
            met: Vec::new(),
            overdrawn: Vec::new(),
        }
    }

    /// Others have admitted these numbers. Returns what is owed for those that were over a limit on their way.
    pub fn acknowledge(&mut self, runs: &NumberRuns) -> Vec<Debt> {
        let Self { pending, met, .. } = self;
        let mut refused = Vec::new();
        for &(from, to) in runs {
            pending.acknowledge(from, to, |owed, is_refused| {
                if is_refused {
                    refused.extend(owed);
                } else {
                    met.extend(owed);
                }
            });
        }
        refused
    }

    /// These numbers were over a limit on their way (rule 18), to a destination that acknowledges them later.
    pub fn refuse(&mut self, runs: &NumberRuns) {
        for &(from, to) in runs {
            self.pending.refuse(from, to);
        }
    }
}

/// Who is owed an acknowledgement when the conditions of a message are met.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) enum Debt {
    /// Who published it.
    Publisher(Publisher),
    /// The place that sent it here for a shared subscription that had no member here any more: it was sent on.
    Sender {
        from: Peer,
        origin: Origin,
        number: u64,
    },
    /// Nobody: another node is to forget the will with this number when all recipients have it.
    Will(u64),
    /// The hub: a branch of a session has been taken in, by this number.
    Merge(u64),
}

/// Who published a message.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) enum Publisher {
    /// A client.
    Client(Owed),
    /// An operator, by the number of the publication.
    Operator(u64),
}

/// What a client is owed when the conditions of a message are met.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Owed {
    pub session: SessionKey,
    pub session_serial: u64,
    /// In the session's line of acknowledgements.
    pub sequence: u64,
    pub packet_id: PacketId,
}
