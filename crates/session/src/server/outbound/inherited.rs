//! Messages in flight under identifiers that are not among the consecutive ones: another node gave them, this one did before another node had the
//! session too, or most that were sent after them are acknowledged. And a window that is rebuilt from what another node, or a store, says of it.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use thicket_mqtt::{PacketId, Qos};

use super::{Acknowledged, Delivery, Outbound, Redelivery, Slot, State, next_id};

/// How far identifiers jump when another node may have the session too. Two nodes that both have it, in a partition, then give different messages
/// different identifiers until one of them has sent that many: a client that moves from one to the other takes no QoS 2 message for one that it had
/// before (rule 9 between nodes).
pub(super) const BRANCH: u16 = 21_845;
/// Free identifiers between two in flight beyond which those before are kept apart.
pub(super) const GAP: usize = 64;

/// What is in flight and kept apart; none of it is `Free`.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    by_sequence: BTreeMap<u64, (PacketId, Slot)>,
    sequences: HashMap<PacketId, u64, foldhash::fast::FixedState>,
    /// What has a sequence below this has been sent again on the present connection.
    cursor: u64,
}

impl Inherited {
    fn insert(&mut self, id: PacketId, slot: Slot) {
        self.sequences.insert(id, slot.sequence);
        self.by_sequence.insert(slot.sequence, (id, slot));
    }

    pub fn has(&self, id: PacketId) -> bool {
        self.sequences.contains_key(&id)
    }

    pub fn find(&self, id: PacketId) -> Option<&Slot> {
        let sequence = self.sequences.get(&id)?;
        self.by_sequence.get(sequence).map(|(_, slot)| slot)
    }

    pub fn state_mut(&mut self, id: PacketId) -> Option<&mut State> {
        let sequence = self.sequences.get(&id)?;
        let slot = self.by_sequence.get_mut(sequence);
        slot.map(|(_, slot)| &mut slot.state)
    }

    fn remove(&mut self, id: PacketId) -> Option<Slot> {
        let sequence = self.sequences.remove(&id)?;
        self.by_sequence.remove(&sequence).map(|(_, slot)| slot)
    }

    /// All of it, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (PacketId, &Slot)> {
        self.by_sequence.values().map(|(id, slot)| (*id, slot))
    }

    pub fn len(&self) -> usize {
        self.by_sequence.len()
    }

    /// Whether any of it is still to be sent again.
    pub fn owes_again(&self) -> bool {
        self.by_sequence.range(self.cursor..).next().is_some()
    }

    /// The first that is still to be sent again.
    pub fn next_owed(&mut self) -> Option<(PacketId, &mut Slot)> {
        let (_, (id, slot)) = self.by_sequence.range_mut(self.cursor..).next()?;
        Some((*id, slot))
    }

    /// The first that was to be sent again has been.
    pub fn pass(&mut self) {
        let owed = self.by_sequence.range(self.cursor..).next();
        self.cursor = owed.map_or(self.cursor, |(sequence, _)| sequence + 1);
    }

    pub fn handle_resume(&mut self) {
        self.cursor = 0;
        for (_, slot) in self.by_sequence.values_mut() {
            slot.sent = false;
        }
    }
}

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
            let is_free = !self.is_inherited(id) && self.has_identifier();
            match state {
                state if is_free => {
                    let slot = Slot {
                        state,
                        sent: false,
                        sequence: self.next_sequence,
                    };
                    self.next_sequence += 1;
                    self.inherited.get_or_insert_default().insert(id, slot);
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

    /// The same with the sequences they had; `queue` comes after them, all before `next_sequence`.
    pub fn restore_stored(
        &mut self,
        in_flight: impl IntoIterator<Item = (u64, Redelivery)>,
        queue: impl IntoIterator<Item = (u64, Delivery)>,
        next_sequence: u64,
    ) {
        self.restore_numbered(in_flight);
        for (sequence, delivery) in queue {
            self.push_queue(sequence, delivery);
        }
        self.next_sequence = next_sequence;
    }

    /// Returns the sequence after the last one.
    fn restore_numbered(&mut self, in_flight: impl IntoIterator<Item = (u64, Redelivery)>) -> u64 {
        let mut next = 0;
        self.slots.clear();
        self.free = 0;
        self.inherited = None;
        for (sequence, redelivery) in in_flight {
            next = sequence + 1;
            let (id, state) = state_of(redelivery);
            let index = self.index_of(id);
            let is_repeated = |slot: &Slot| !matches!(slot.state, State::Free);
            if self.slots.get(index).is_some_and(is_repeated) || self.is_inherited(id) {
                continue;
            }
            let follows = (self.slots.len()..=self.slots.len() + GAP).contains(&index);
            if self.slots.is_empty() || !follows {
                self.inherit_slots();
                self.first_id = id.value();
            }
            let index = self.index_of(id);
            self.free += index - self.slots.len();
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

    /// Keeps what is in flight apart; identifiers continue as they would have.
    pub(super) fn inherit_slots(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        let (first, next) = (self.id_at(0), self.next_packet_id());
        self.first_id = next.value();
        let inherited = self.inherited.get_or_insert_default();
        let is_sent_again = !inherited.owes_again();
        let ids = std::iter::successors(Some(first), |id| Some(id.next()));
        for (index, (id, slot)) in ids.zip(self.slots.drain(..)).enumerate() {
            if !matches!(slot.state, State::Free) {
                if is_sent_again && index < self.cursor {
                    inherited.cursor = slot.sequence + 1;
                }
                inherited.insert(id, slot);
            }
        }
        self.free = 0;
        self.cursor = 0;
    }

    fn is_inherited(&self, id: PacketId) -> bool {
        self.inherited.as_ref().is_some_and(|it| it.has(id))
    }

    /// Skips identifiers that are in use for what was inherited.
    pub(super) fn pass_inherited(&mut self) {
        while self.is_inherited(self.next_packet_id()) {
            if self.is_sparse() {
                self.inherit_slots();
            }
            if self.slots.is_empty() {
                self.first_id = next_id(self.first_id);
            } else {
                self.slots.push_back(Slot::default());
                self.free += 1;
            }
        }
    }

    pub(super) fn finish_inherited(&mut self, id: PacketId) -> Acknowledged {
        let Some(inherited) = &mut self.inherited else {
            return Acknowledged::Unknown;
        };
        let Some(slot) = inherited.remove(id) else {
            return Acknowledged::Unknown;
        };
        self.in_window -= u16::from(slot.sent);
        if inherited.len() == 0 {
            self.inherited = None;
        }
        self.note_left(&slot.state);
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
