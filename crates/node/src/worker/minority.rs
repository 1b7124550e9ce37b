//! The side of a partition without quorum, where that is configured (rule 19 between nodes): what is not done there.
//!
//! | from a client | 5.0 | before 5.0 |
//! | --- | --- | --- |
//! | PUBLISH of QoS 1 and 2 | PUBACK, PUBREC with 0x97 | no acknowledgement, closed |
//! | PUBLISH of QoS 0 | goes to the recipients that it reaches | likewise |
//! | CONNECT | 0x88 | 3 |
//! | SUBSCRIBE | 0x97 for each filter | 0x80 |
//! | UNSUBSCRIBE of a session that ends with its connection | done | done |
//! | UNSUBSCRIBE of another one | 0x83 for each filter | closed |
//! | PUBREC, PUBREL of such a session | closed with 0x97 | closed |
//!
//! A session that outlives its connection begins no message of QoS 1 or 2 there: its backup may be promoted elsewhere.
//!
//! What had not been answered when the other nodes became unreachable is answered likewise, as the nodes an acknowledgement waits for may not be
//! there. But a persistent publisher's connection ends if it waits for a PUBREC: some nodes have accepted the message under its identity, which it
//! has again only when its client sends it again.

use thicket_mqtt::{
    Packet, ProtocolVersion, Qos, ReasonCode, Suback, Subscribe, Unsuback, Unsubscribe,
};

use super::{
    Worker,
    context::Context,
    refusal::Refusal,
    replication::Primaries,
    state::{seen::Seen, sessions::SessionKey},
};
use crate::{ConnectionId, MembershipReport, Now};

/// For the log and for reason strings.
const REASON: &str = "this side of the cluster has no majority";

impl Worker {
    /// This side has lost its quorum, or has it again.
    pub(super) fn handle_minority(&mut self, now: Now) {
        if self.cx.cluster.is_minority {
            let closing = refuse_what_is_open(&mut self.cx);
            self.close_what_waits(now, closing);
            self.primaries.interrupt_what_is_open(&mut self.cx, now);
            // What only sessions here accepted is lost with them when the sessions were promoted elsewhere; then the same publication is new here.
            // Each session has its own list of what it accepted.
            self.cx.arrivals.seen = Seen::default();
        } else {
            let sessions: Vec<SessionKey> = self.cx.sessions.iter().map(|(key, _)| key).collect();
            for key in sessions {
                self.cx.pull(now, key);
            }
        }
    }

    /// Clients whose answers wait for a backup, or for other nodes to apply their subscriptions, must not receive them: they ask again.
    fn close_what_waits(&mut self, now: Now, closing: Vec<ConnectionId>) {
        let connections = self.cx.connections.iter();
        let holding = connections.filter(|(_, it)| it.out.is_held());
        let mut waiting: Vec<_> = holding.map(|(id, _)| id).collect();
        waiting.extend(closing);
        waiting.extend(self.cx.subscribing());
        waiting.sort_unstable();
        waiting.dedup();
        for id in waiting {
            self.refuse(now, id, &Refusal::new(ReasonCode::QuotaExceeded, REASON));
        }
    }
}

impl Primaries {
    /// What its publishers will send again because their connections ended is accepted then, wherever that is.
    fn interrupt_what_is_open(&mut self, cx: &mut Context, now: Now) {
        let mut leaving = Vec::new();
        for (key, session) in cx.sessions.iter_mut() {
            if !session.orphaned_publications.is_empty() {
                session.orphaned_publications.clear();
                session.inbound.interrupt();
                leaving.push(key);
            }
        }
        for key in leaving {
            self.continue_switchover(cx, now, key);
        }
    }
}

/// Whether a step of a QoS 2 handshake may be taken: not where the session may be promoted elsewhere as it was before.
pub(super) fn check_handshake(cx: &Context, key: SessionKey) -> Result<(), Refusal> {
    let session = cx.sessions.get(key);
    if cx.cluster.is_minority && session.is_some_and(|session| session.is_persistent()) {
        return Err(Refusal::new(ReasonCode::QuotaExceeded, REASON));
    }
    Ok(())
}

/// Refuses publishers that are owed an acknowledgement: the nodes it waits for may be on the other side. Returns the connections of those that
/// cannot be refused: clients before 5.0, and publications that some accepted under the identity that they have when they are sent again.
fn refuse_what_is_open(cx: &mut Context) -> Vec<ConnectionId> {
    let mut closing = Vec::new();
    for (_, session) in cx.sessions.iter_mut() {
        if !session.orphaned_publications.is_empty() {
            // Its client is back, and may have sent again what its connection before had published: it does so once more.
            closing.extend(session.connection);
        }
        let is_v5 = session.protocol_version == ProtocolVersion::V5 as u8;
        let is_named = session.is_persistent();
        for owed in session.acknowledgements.iter_mut().filter(|it| it.open > 0) {
            if is_v5 && !(is_named && owed.qos == Qos::ExactlyOnce) {
                owed.reason_code = ReasonCode::QuotaExceeded;
            } else {
                closing.extend(session.connection);
            }
        }
    }
    closing
}

/// Why a connection ends whose client cannot be sent a refusal of its message.
pub(super) fn refusal_by_close(cx: &Context) -> Refusal {
    let reason = if cx.cluster.is_minority {
        REASON
    } else {
        "its message is over a limit"
    };
    Refusal::new(ReasonCode::QuotaExceeded, reason)
}

/// The answer to a CONNECT if it is refused.
pub(super) fn refuses_newcomers(cx: &Context) -> Option<Refusal> {
    let refusal = || {
        // Both without this node.
        let (members, up) = (cx.cluster.members.len(), cx.cluster.up.len());
        let membership = MembershipReport {
            serves: false,
            members: members as u64 + 1,
            reachable: up as u64 + 1,
        };
        Refusal::new(ReasonCode::ServerUnavailable, membership.without_quorum())
    };
    cx.cluster.is_minority.then(refusal)
}

/// True: a SUBSCRIBE was refused.
pub(super) fn refuses_subscribe(
    cx: &mut Context,
    id: ConnectionId,
    subscribe: &Subscribe<'_>,
) -> bool {
    if cx.cluster.is_minority {
        let codes = vec![ReasonCode::QuotaExceeded; subscribe.filters.len()];
        let suback = Suback::new(subscribe.packet_id, codes);
        cx.send(id, &Packet::Suback(suback));
    }
    cx.cluster.is_minority
}

/// True: an UNSUBSCRIBE was refused; error: the connection ends, as older versions have no refusal.
pub(super) fn refuses_unsubscribe(
    cx: &mut Context,
    id: ConnectionId,
    key: SessionKey,
    unsubscribe: &Unsubscribe<'_>,
) -> Result<bool, Refusal> {
    let session = cx.sessions.get(key);
    if !cx.cluster.is_minority || session.is_none_or(|session| !session.is_persistent()) {
        return Ok(false);
    }
    if session.is_some_and(|it| it.protocol_version != ProtocolVersion::V5 as u8) {
        return Err(Refusal::new(ReasonCode::QuotaExceeded, REASON));
    }
    let codes = vec![ReasonCode::ImplementationSpecificError; unsubscribe.filters.len()];
    let unsuback = Unsuback::new(unsubscribe.packet_id, codes);
    cx.send(id, &Packet::Unsuback(unsuback));
    Ok(true)
}
