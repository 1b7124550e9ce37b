//! Messages in flight under identifiers that are not among the consecutive ones: another node gave them, or this one did before another node had the
//! session too. And a window that is rebuilt from what another node, or a store, says of it.

use thicket_mqtt::{PacketId, Qos};

use super::{Acknowledged, Delivery, Outbound, Redelivery, Slot, State, next_id};

/// How far identifiers jump when another node may have the session too. Two nodes that both have it, in a partition, then give different messages
/// different identifiers until one of them has sent that many: a client that moves from one to the other takes no QoS 2 message for one that it had
/// before (rule 9 between nodes).
pub(super) const BRANCH: u16 = 21_845;
/// Free identifiers between two in flight beyond which those before are kept apart.
const GAP: usize = 64;

impl Outbound {
    /// Another node may have the session too: identifiers jump by a third of their range.
    pub fn branch(&mut self) {
        let next = usize::from(self.next_packet_id().value()) - 1;
        self.inherit_slots();
        self.first_id = ((next + usize::from(BRANCH)) % usize::from(u16::MAX)) as u16 + 1;
    }

    /// Takes over what another node that had the session too had in flight, behind what is in flight here. Returns what would have an identifier that
    /// is in use here for something else; it is to be queued. The queue has new sequences after that.
    pub fn adopt(&mut self, in_flight: Vec<Redelivery>) -> Vec<Delivery> {
        self.inherit_slots();
        let mut left = Vec::new();
        for redelivery in in_flight {
            let (id, state) = state_of(redelivery);
            let is_free = self.inherited_index(id).is_none() && self.has_identifier();
            match state {
                state if is_free => {
                    let slot = Slot {
                        state,
                        sent: false,
                        sequence: self.next_sequence,
                    };
                    self.next_sequence += 1;
                    self.inherited.push((id, slot));
                }
                State::AwaitPuback(Some(delivery)) | State::AwaitPubrec(Some(delivery)) => {
                    left.push(delivery);
                }
                State::Free
                | State::AwaitPuback(None)
                | State::AwaitPubrec(None)
                | State::AwaitPubcomp => {}
            }
        }
        self.resequence_queue();
        left
    }

    /// Rebuilds the window of a session that came from elsewhere, in this order: the oldest first. Identifiers mostly ascend; where they do not, because
    /// another branch gave some of them, what came before is kept apart. What has an identifier that is in use already is left out.
    pub fn restore(&mut self, in_flight: impl IntoIterator<Item = Redelivery>) {
        let numbered = in_flight.into_iter().zip(self.next_sequence..);
        let next =
            self.restore_numbered(numbered.map(|(redelivery, sequence)| (sequence, redelivery)));
        self.next_sequence = self.next_sequence.max(next);
    }

    /// The same with the sequences they had; the queue comes after them with `queue`, without a gap before `next_sequence`.
    pub fn restore_stored(
        &mut self,
        in_flight: impl IntoIterator<Item = (u64, Redelivery)>,
        queue: impl IntoIterator<Item = Delivery>,
        next_sequence: u64,
    ) {
        self.restore_numbered(in_flight);
        for delivery in queue {
            self.note_queued(&delivery);
            self.queue.push_back(delivery);
        }
        self.next_sequence = next_sequence;
    }

    /// Returns the sequence after the last one.
    fn restore_numbered(&mut self, in_flight: impl IntoIterator<Item = (u64, Redelivery)>) -> u64 {
        let mut next = 0;
        self.slots.clear();
        self.inherited.clear();
        for (sequence, redelivery) in in_flight {
            next = sequence + 1;
            let (id, state) = state_of(redelivery);
            let index = self.index_of(id);
            let is_repeated = |slot: &Slot| !matches!(slot.state, State::Free);
            if self.slots.get(index).is_some_and(is_repeated) || self.inherited_index(id).is_some()
            {
                continue;
            }
            let follows = (self.slots.len()..=self.slots.len() + GAP).contains(&index);
            if self.slots.is_empty() || !follows {
                self.inherit_slots();
                self.first_id = id.value();
            }
            let index = self.index_of(id);
            self.slots.resize_with(index + 1, Slot::default);
            self.slots[index].state = state;
            self.slots[index].sequence = sequence;
        }
        self.handle_resume();
        next
    }

    /// Sets where identifiers continue in a session that came from elsewhere with nothing in flight.
    pub fn set_next_packet_id(&mut self, id: PacketId) {
        let is_next = id == self.next_packet_id();
        if self.slots.is_empty() {
            self.first_id = id.value();
        } else if !is_next && self.index_of(id) > self.slots.len() + GAP {
            self.inherit_slots();
            self.first_id = id.value();
        }
    }

    /// Moves what is in flight to what was inherited; identifiers continue as they would have.
    fn inherit_slots(&mut self) {
        let next = self.next_packet_id();
        let is_sent_again = self.inherited_cursor == self.inherited.len();
        for index in 0..self.slots.len() {
            let id = self.id_at(index);
            let slot = std::mem::take(&mut self.slots[index]);
            if !matches!(slot.state, State::Free) {
                self.inherited_cursor += usize::from(is_sent_again && index < self.cursor);
                self.inherited.push((id, slot));
            }
        }
        self.slots.clear();
        self.cursor = 0;
        self.first_id = next.value();
    }

    pub(super) fn inherited_index(&self, id: PacketId) -> Option<usize> {
        self.inherited.iter().position(|(other, _)| *other == id)
    }

    /// Skips identifiers that are in use for what was inherited.
    pub(super) fn pass_inherited(&mut self) {
        while self.inherited_index(self.id_at(self.slots.len())).is_some() {
            if self.slots.is_empty() {
                self.first_id = next_id(self.first_id);
            } else {
                self.slots.push_back(Slot::default());
            }
        }
    }

    pub(super) fn finish_inherited(&mut self, id: PacketId) -> Acknowledged {
        let Some(index) = self.inherited_index(id) else {
            return Acknowledged::Unknown;
        };
        let (_, slot) = self.inherited.remove(index);
        self.note_left(&slot.state);
        self.in_window -= u16::from(slot.sent);
        self.inherited_cursor -= usize::from(index < self.inherited_cursor);
        Acknowledged::Done
    }
}

fn state_of(redelivery: Redelivery) -> (PacketId, State) {
    match redelivery {
        Redelivery::Publish(id, delivery) if delivery.qos == Qos::ExactlyOnce => {
            (id, State::AwaitPubrec(Some(delivery)))
        }
        Redelivery::Publish(id, delivery) => (id, State::AwaitPuback(Some(delivery))),
        Redelivery::Pubrel(id) => (id, State::AwaitPubcomp),
    }
}
