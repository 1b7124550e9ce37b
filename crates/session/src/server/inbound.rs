//! QoS 2 from a client to us: no second delivery until the client has released the identifier.
//!
//! | state \ event | PUBLISH | condition met | PUBREL |
//! | --- | --- | --- | --- |
//! | free | take it, `Received` | - | refuse: identifier not found |
//! | received (conditions open) | nothing: the PUBREC comes | PUBREC, `Held` | refuse: identifier not found |
//! | orphaned (received on an earlier connection) | `Received` | `Held`, no PUBREC | refuse: identifier not found |
//! | held | PUBREC again, no delivery | - | PUBCOMP, free |

use std::collections::BTreeMap;

use thicket_mqtt::PacketId;

/// What to do with a QoS 2 PUBLISH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboundPublish {
    /// New: deliver it, answer PUBREC when its conditions are met.
    Deliver,
    /// Seen, not yet answered: the PUBREC comes with the first one's conditions.
    Wait,
    /// Seen and answered: PUBREC again, no second delivery [MQTT-4.3.3-10].
    AnswerAgain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Received,
    /// Its connection has ended, and the client has not sent it again: nobody waits for a PUBREC.
    Orphaned,
    Held,
}

/// The packet identifiers of QoS 2 messages that a client has sent and not yet released.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inbound {
    ids: BTreeMap<PacketId, State>,
    generation: u32,
}

impl Inbound {
    /// A QoS 2 PUBLISH came.
    pub fn handle_publish(&mut self, id: PacketId) -> InboundPublish {
        match self.ids.get_mut(&id) {
            None => {
                self.ids.insert(id, State::Received);
                InboundPublish::Deliver
            }
            Some(state @ (State::Received | State::Orphaned)) => {
                *state = State::Received;
                InboundPublish::Wait
            }
            Some(State::Held) => InboundPublish::AnswerAgain,
        }
    }

    /// The conditions of the message are met. Whether PUBREC is to go: false if nobody waits for it, as a client whose
    /// connection ended sends the message again and is answered then; a PUBREC unasked for would come twice.
    pub fn handle_met(&mut self, id: PacketId) -> bool {
        match self.ids.get_mut(&id) {
            Some(state @ (State::Received | State::Orphaned)) => {
                let is_awaited = *state == State::Received;
                *state = State::Held;
                is_awaited
            }
            Some(State::Held) | None => false,
        }
    }

    /// The connection ended.
    pub fn handle_disconnected(&mut self) {
        for state in self.ids.values_mut() {
            if *state == State::Received {
                *state = State::Orphaned;
            }
        }
    }

    /// The message was refused with PUBREC >= 0x80: the identifier is free again [MQTT-4.3.3-9].
    pub fn handle_refused(&mut self, id: PacketId) {
        self.ids.remove(&id);
        self.generation = self.generation.wrapping_add(1);
    }

    /// PUBREL came. True: PUBCOMP with success; false: with Packet Identifier not found.
    pub fn handle_pubrel(&mut self, id: PacketId) -> bool {
        match self.ids.get(&id) {
            Some(State::Held) => {
                self.ids.remove(&id);
                // The next PUBLISH with this identifier is another publication.
                self.generation = self.generation.wrapping_add(1);
                true
            }
            Some(State::Received | State::Orphaned) | None => false,
        }
    }

    /// Identifiers in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no identifier is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Raised whenever an identifier is released: with session and identifier it names a publication for ever.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Identifiers in use, ascending. A session that moves takes all of them along as held: the node it leaves
    /// finishes what it has taken.
    pub fn held(&self) -> impl Iterator<Item = PacketId> + '_ {
        self.ids.keys().copied()
    }

    /// What a moved session brings along.
    #[must_use]
    pub fn restore(ids: impl IntoIterator<Item = PacketId>, generation: u32) -> Self {
        Self {
            ids: ids.into_iter().map(|id| (id, State::Held)).collect(),
            generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u16) -> PacketId {
        PacketId::new(value).expect("not zero")
    }

    /// One row a pair of the table in the module's documentation.
    #[test]
    fn every_pair_of_state_and_event_is_answered_as_the_table_says() {
        let free = Inbound::default;
        let received = || {
            let mut inbound = Inbound::default();
            inbound.handle_publish(id(7));
            inbound
        };
        let orphaned = || {
            let mut inbound = received();
            inbound.handle_disconnected();
            inbound
        };
        let held = || {
            let mut inbound = received();
            inbound.handle_met(id(7));
            inbound
        };
        assert_eq!(
            free().handle_publish(id(7)),
            InboundPublish::Deliver,
            "free, PUBLISH"
        );
        assert_eq!(
            received().handle_publish(id(7)),
            InboundPublish::Wait,
            "received, PUBLISH"
        );
        assert_eq!(
            held().handle_publish(id(7)),
            InboundPublish::AnswerAgain,
            "held, PUBLISH"
        );
        assert_eq!(
            orphaned().handle_publish(id(7)),
            InboundPublish::Wait,
            "orphaned, PUBLISH"
        );
        assert!(!orphaned().handle_met(id(7)), "orphaned, condition met");
        assert!(!orphaned().handle_pubrel(id(7)), "orphaned, PUBREL");
        assert!(!free().handle_met(id(7)), "free, condition met");
        assert!(received().handle_met(id(7)), "received, condition met");
        assert!(!held().handle_met(id(7)), "held, condition met");
        assert!(!free().handle_pubrel(id(7)), "free, PUBREL");
        assert!(!received().handle_pubrel(id(7)), "received, PUBREL");
        assert!(held().handle_pubrel(id(7)), "held, PUBREL");
    }

    #[test]
    fn after_pubrel_the_same_identifier_is_a_new_message_of_a_new_generation() {
        let mut inbound = Inbound::default();
        inbound.handle_publish(id(1));
        inbound.handle_met(id(1));
        let generation = inbound.generation();
        assert!(inbound.handle_pubrel(id(1)));
        assert_ne!(inbound.generation(), generation);
        assert_eq!(inbound.handle_publish(id(1)), InboundPublish::Deliver);
    }

    #[test]
    fn after_a_refusal_the_same_identifier_is_a_new_message() {
        let mut inbound = Inbound::default();
        inbound.handle_publish(id(1));
        inbound.handle_refused(id(1));
        assert_eq!(inbound.handle_publish(id(1)), InboundPublish::Deliver);
    }
}
