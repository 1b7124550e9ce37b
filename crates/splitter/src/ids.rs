//! Packet identifiers of messages from the nodes: each session has its own numbers, the client sees one sequence of numbers.
//!
//! | input | identifier | next |
//! | --- | --- | --- |
//! | PUBLISH from a session | free | bound: the session's own number if the client does not use it, else the next free |
//! | PUBLISH or PUBREL from a session | bound | the same number again |
//! | PUBREL from a session | free | bound |
//! | PUBACK, PUBCOMP, PUBREC with an error from the client | bound | free |
//! | PUBREC from the client | bound | bound |
//! | an acknowledgement from the client | free | refused |
//! | the client reconnects | bound, QoS 1 | free: the node sends the message again |

use std::collections::{BTreeMap, HashMap};

use thicket_mqtt::{PacketId, Qos};

/// Maps the client's numbers to those of the sessions.
#[derive(Debug, Default)]
pub(crate) struct DeliveryIds {
    of_client: BTreeMap<PacketId, (usize, PacketId, Qos)>,
    of_session: HashMap<(usize, PacketId), PacketId>,
}

impl DeliveryIds {
    /// The client's number for `id` of `session`, `None` if all 65,535 are in use.
    pub(crate) fn bind(&mut self, session: usize, id: PacketId, qos: Qos) -> Option<PacketId> {
        if let Some(bound) = self.of_session.get(&(session, id)) {
            return Some(*bound);
        }
        let mut free = id;
        while self.of_client.contains_key(&free) {
            free = free.next();
            if free == id {
                return None;
            }
        }
        self.of_client.insert(free, (session, id, qos));
        self.of_session.insert((session, id), free);
        Some(free)
    }

    /// The session, and its number, for the client's `id`.
    pub(crate) fn bound_to(&self, id: PacketId) -> Option<(usize, PacketId)> {
        self.of_client
            .get(&id)
            .map(|(session, id, _)| (*session, *id))
    }

    /// The same, for the last acknowledgement of a message; it frees the number.
    pub(crate) fn release(&mut self, id: PacketId) -> Option<(usize, PacketId)> {
        let (session, id, _) = self.of_client.remove(&id)?;
        self.of_session.remove(&(session, id));
        Some((session, id))
    }

    /// The client has reconnected: only exchanges of QoS 2 keep their numbers.
    pub(crate) fn on_connected(&mut self) {
        self.of_client
            .retain(|_, (_, _, qos)| *qos == Qos::ExactlyOnce);
        let of_client = &self.of_client;
        self.of_session.retain(|_, id| of_client.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u16) -> PacketId {
        PacketId::new(value).expect("not 0")
    }

    #[test]
    fn two_sessions_may_use_the_same_number() {
        let mut ids = DeliveryIds::default();
        assert_eq!(ids.bind(1, id(7), Qos::AtLeastOnce), Some(id(7)));
        assert_eq!(ids.bind(2, id(7), Qos::AtLeastOnce), Some(id(8)));
        assert_eq!(ids.bind(2, id(7), Qos::AtLeastOnce), Some(id(8)));
        assert_eq!(ids.release(id(8)), Some((2, id(7))));
        assert_eq!(ids.release(id(8)), None);
        assert_eq!(ids.release(id(7)), Some((1, id(7))));
    }

    #[test]
    fn exchanges_of_qos_2_keep_their_numbers_over_connections_and_others_do_not() {
        let mut ids = DeliveryIds::default();
        ids.bind(1, id(1), Qos::AtLeastOnce);
        ids.bind(2, id(1), Qos::ExactlyOnce);
        ids.on_connected();
        assert_eq!(ids.bound_to(id(1)), None);
        assert_eq!(ids.bound_to(id(2)), Some((2, id(1))));
        assert_eq!(ids.bind(2, id(1), Qos::ExactlyOnce), Some(id(2)));
    }

    #[test]
    fn numbers_go_round_and_end() {
        let mut ids = DeliveryIds::default();
        assert_eq!(ids.bind(1, id(65_535), Qos::AtLeastOnce), Some(id(65_535)));
        assert_eq!(ids.bind(2, id(65_535), Qos::AtLeastOnce), Some(id(1)));
        for value in 2..65_535 {
            assert_eq!(ids.bind(1, id(value), Qos::AtLeastOnce), Some(id(value)));
        }
        assert_eq!(ids.bind(3, id(5), Qos::AtLeastOnce), None);
    }
}
