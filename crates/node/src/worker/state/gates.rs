//! What waits until all nodes have applied changes of interests.

use std::collections::{BTreeSet, VecDeque};

use thicket_mqtt::{PacketId, ReasonCode};
use thicket_session::{server::Subscription, topic::SubscriptionFilter};

use super::session_key::SessionKey;
use crate::ConnectionId;

/// Changes of interests on their way to all nodes, above which clients wait before they make more (`effort`): one packet can make ten thousand, and
/// so can the end of a session. Each keeps every worker and node busy for some microseconds.
const UNSETTLED: usize = 5_000;

/// What waits for interests to be settled.
#[derive(Debug, Default)]
pub(in crate::worker) struct Gates {
    /// Sequence of the last change sent to the hub.
    pub sent: u64,
    pub settled: u64,
    pub waiting: VecDeque<(u64, Gate)>,
    /// Changes that not every reachable node has applied, by sequence, and their number.
    pub unsettled: VecDeque<(u64, usize)>,
    pub changes: usize,
}

/// Something that waits.
#[derive(Debug)]
pub(in crate::worker) enum Gate {
    Suback(GatedSuback),
    /// A session that came from another node may receive.
    Import {
        request: u64,
    },
    /// A session was taken over. Other nodes must have its shared subscriptions from here before they drop them from where it was.
    TakenOver {
        session: SessionKey,
        serial: u64,
    },
}

#[derive(Debug)]
pub(in crate::worker) struct GatedSuback {
    pub connection: ConnectionId,
    pub connection_serial: u64,
    pub session: SessionKey,
    pub session_serial: u64,
    pub packet_id: PacketId,
    pub reason_codes: Vec<ReasonCode>,
    /// HOST:PORT of a better node for its only filter.
    pub place: Option<String>,
    /// Retained messages to be sent afterwards.
    pub replays: Vec<(SubscriptionFilter, Subscription)>,
}

impl Gates {
    /// Whether a connection is owed a SUBACK or UNSUBACK.
    pub fn wait_for(&self, connection: ConnectionId, serial: u64) -> bool {
        self.waiting.iter().any(|(_, gate)| match gate {
            Gate::Suback(gated) => {
                gated.connection == connection && gated.connection_serial == serial
            }
            Gate::Import { .. } | Gate::TakenOver { .. } => false,
        })
    }

    /// A SUBACK that waits is to name a better node.
    pub fn name_better_node(
        &mut self,
        connection: ConnectionId,
        serial: u64,
        packet_id: PacketId,
        reference: Option<String>,
    ) {
        for (_, gate) in &mut self.waiting {
            if let Gate::Suback(gated) = gate
                && (gated.connection, gated.connection_serial) == (connection, serial)
                && gated.packet_id == packet_id
            {
                gated.place.clone_from(&reference);
            }
        }
    }

    /// Filters that were unsubscribed before their SUBACK was sent get no retained messages because of it [MQTT-3.10.4-2].
    pub fn cancel_replays_of(
        &mut self,
        session: SessionKey,
        unsubscribed: &BTreeSet<SubscriptionFilter>,
    ) {
        for (_, gate) in &mut self.waiting {
            match gate {
                Gate::Suback(gated) if gated.session == session => {
                    let replays = &mut gated.replays;
                    replays.retain(|(filter, _)| !unsubscribed.contains(filter));
                }
                Gate::Suback(_) | Gate::Import { .. } | Gate::TakenOver { .. } => {}
            }
        }
    }

    /// Whether every reachable node has applied this worker's interests, and the hub has its sessions.
    #[inline]
    pub const fn is_settled(&self) -> bool {
        self.settled >= self.sent
    }

    /// Whether so many changes are on their way that clients have to wait before they make more.
    #[inline]
    pub const fn are_congested(&self) -> bool {
        self.changes > UNSETTLED
    }

    /// The sequence of the last change that was sent to the hub.
    pub const fn announced(&self) -> u64 {
        self.sent
    }

    /// Every reachable node has applied our changes up to this sequence.
    pub const fn settled(&self) -> u64 {
        self.settled
    }
}
