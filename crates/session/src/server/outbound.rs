//! QoS 1 and 2 from us to a client: the queue, the window and the packet identifiers of one session.
//!
//! A message is *pulled* from the queue when the window has capacity; it is never pushed beyond the client's Receive Maximum.
//!
//! | state \ event | PUBACK | PUBREC < 0x80 | PUBREC >= 0x80 | PUBCOMP |
//! | --- | --- | --- | --- | --- |
//! | free | unknown | unknown | unknown | unknown |
//! | awaits PUBACK | done | wrong | wrong | wrong |
//! | awaits PUBREC | wrong | PUBREL | done | wrong |
//! | awaits PUBCOMP | wrong | PUBREL | done | done |

mod ages;
mod inherited;
mod record;
mod tally;

use std::{
    collections::{BTreeSet, VecDeque},
    rc::Rc,
    sync::Arc,
};

use thicket_mqtt::{PacketId, Qos};

pub(super) use self::ages::Ages;
use self::inherited::{GAP, Inherited};
use self::record::Record;
pub use self::tally::{Tally, Waiting};
use super::{MatchedIdentifiers, Message, sequenced::Sequenced};
use crate::time::Instant;

/// Messages in flight to one client at most: three quarters of all identifiers, so that a free one is always near.
const IN_FLIGHT: usize = 49_151;

/// A message as one session is to receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What.
    pub message: Rc<Message>,
    /// The lower of published and granted QoS.
    pub qos: Qos,
    /// RETAIN as the subscription wants it.
    pub retain: bool,
    /// Identifiers of the subscriptions that matched.
    pub identifiers: MatchedIdentifiers,
    /// The shared subscription (`$share/name/filter`) whose other members get it if this session ends first.
    pub group: Option<Arc<str>>,
}

/// Bounds of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboundLimits {
    /// Messages waiting.
    pub messages: u32,
    /// Bytes of them.
    pub bytes: u64,
}

/// Refused: the queue is at a bound. Nothing changed; the message is the caller's to count as dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue of the session is full")]
pub struct QueueFull;

/// What an acknowledgement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledged {
    /// The identifier is free; the window has capacity for one more.
    Done,
    /// Answer PUBREL.
    SendPubrel,
    /// No message has this identifier.
    Unknown,
    /// A message has it, but this packet does not belong to its flow.
    Wrong,
}

/// Something to send now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// PUBLISH; `packet_id` is there for QoS 1 and 2; `dup` on re-delivery.
    Publish {
        /// For QoS 1 and 2.
        packet_id: Option<PacketId>,
        /// Sent before, on an earlier connection.
        dup: bool,
        /// What.
        delivery: Delivery,
    },
    /// PUBREL again after a reconnect.
    Pubrel(PacketId),
    /// Not sent: expired while it waited [MQTT-3.3.2-5].
    Expired(Delivery),
}

/// A message in flight, for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redelivery {
    /// Sent, not acknowledged.
    Publish(PacketId, Delivery),
    /// PUBREC was received.
    Pubrel(PacketId),
}

#[derive(Debug, Clone, Default)]
enum State {
    #[default]
    Free,
    AwaitPuback(Option<Delivery>),
    AwaitPubrec(Option<Delivery>),
    AwaitPubcomp,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    state: State,
    /// Sent on the present connection, so it counts against the window.
    sent: bool,
    /// Of the message, see [`Outbound::next_sequence`].
    sequence: u64,
}

/// One message that a session holds, for a store. Ascending by sequence: what is in flight, then the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held<'a> {
    /// Waits for its turn.
    Queued {
        /// In the session's order.
        sequence: u64,
        /// What.
        delivery: &'a Delivery,
    },
    /// Sent, not acknowledged.
    InFlight {
        /// In the session's order.
        sequence: u64,
        /// Its identifier.
        packet_id: PacketId,
        /// What.
        delivery: &'a Delivery,
    },
    /// PUBREC was received: PUBREL is owed, the message is not.
    Received {
        /// In the session's order.
        sequence: u64,
        /// Its identifier.
        packet_id: PacketId,
    },
}

impl Held<'_> {
    /// In the session's order.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        match self {
            Self::Queued { sequence, .. }
            | Self::InFlight { sequence, .. }
            | Self::Received { sequence, .. } => *sequence,
        }
    }

    /// The message that is owed, if one still is.
    #[must_use]
    pub const fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Queued { delivery, .. } | Self::InFlight { delivery, .. } => Some(delivery),
            Self::Received { .. } => None,
        }
    }
}

/// The outbound half of a session.
#[derive(Debug)]
pub struct Outbound {
    limits: OutboundLimits,
    /// Whether messages in flight are kept for another connection.
    keeps: bool,
    queue: Sequenced<Delivery>,
    queue_bytes: u64,
    /// Those of the queue that expire, and their sequences.
    expiring: BTreeSet<(Instant, u64)>,
    /// Counts the queue as well.
    tally: Option<Tally>,
    /// In flight under identifiers that are not among the consecutive ones. Their sequences are below those of `slots`.
    inherited: Option<Box<Inherited>>,
    /// Consecutive packet identifiers; the first is `first_id`, and never `Free`.
    slots: VecDeque<Slot>,
    /// Of `slots`, those that are `Free`.
    free: usize,
    first_id: u16,
    /// Slots before this one have been sent (again) on the present connection.
    cursor: usize,
    /// Messages sent on the present connection and not yet acknowledged.
    in_window: u16,
    /// See [`Outbound::next_sequence`].
    next_sequence: u64,
    ages: Ages,
    /// What leaves is recorded here; `None`: every replica follows.
    record: Option<Box<Record>>,
}

impl Outbound {
    /// `keeps`: the session outlives its connection, so what is in flight is kept for the next one.
    #[must_use]
    pub const fn new(limits: OutboundLimits, keeps: bool) -> Self {
        Self {
            limits,
            keeps,
            queue: Sequenced::new(),
            queue_bytes: 0,
            expiring: BTreeSet::new(),
            tally: None,
            inherited: None,
            slots: VecDeque::new(),
            free: 0,
            first_id: 1,
            cursor: 0,
            in_window: 0,
            next_sequence: 1,
            ages: Ages::new(),
            record: None,
        }
    }

    /// Whether messages in flight must be handed in with `begin`.
    #[must_use]
    pub const fn keeps(&self) -> bool {
        self.keeps
    }

    /// A client may turn a session into one that ends with its connection, never the other way round.
    pub const fn set_keeps(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    /// Takes an identifier for a message that is sent now, past an empty queue. `None`: the window is full or others wait, so
    /// `enqueue` it. `kept` is the message itself, for sessions that keep and for messages of a shared subscription.
    pub fn begin(
        &mut self,
        qos: Qos,
        window: u16,
        is_shared: bool,
        kept: impl FnOnce() -> Delivery,
    ) -> Option<PacketId> {
        if !self.queue.is_empty() || self.owes_again() {
            return None;
        }
        let kept = |keeps: bool| (keeps || is_shared).then(kept);
        let id = self.push_slot(qos, window, self.next_sequence, kept)?;
        self.next_sequence += 1;
        Some(id)
    }

    fn push_slot(
        &mut self,
        qos: Qos,
        window: u16,
        sequence: u64,
        kept: impl FnOnce(bool) -> Option<Delivery>,
    ) -> Option<PacketId> {
        if self.in_window >= window || !self.has_identifier() {
            return None;
        }
        if self.is_sparse() {
            self.inherit_slots();
        }
        if self.inherited.is_some() {
            self.pass_inherited();
        }
        let id = self.next_packet_id();
        let state = match qos {
            Qos::ExactlyOnce => State::AwaitPubrec(kept(self.keeps)),
            Qos::AtLeastOnce | Qos::AtMostOnce => State::AwaitPuback(kept(self.keeps)),
        };
        self.slots.push_back(Slot {
            state,
            sent: true,
            sequence,
        });
        self.cursor = self.slots.len();
        self.in_window += 1;
        Some(id)
    }

    /// Whether something that an earlier connection left is still to be sent again.
    fn owes_again(&self) -> bool {
        let inherited = self.inherited.as_ref();
        self.cursor < self.slots.len() || inherited.is_some_and(|it| it.owes_again())
    }

    fn has_identifier(&self) -> bool {
        self.inflight() < IN_FLIGHT
    }

    /// Whether most of the consecutive identifiers are free, or there are no more of them: what was not acknowledged is to be kept apart.
    fn is_sparse(&self) -> bool {
        let in_use = self.slots.len() - self.free;
        self.free > in_use + GAP || self.slots.len() >= usize::from(u16::MAX)
    }

    /// Whether a message of this cost ([`Message::cost`]) is within the limits of the queue and of its tally.
    #[must_use]
    pub fn has_capacity(&self, cost: u64) -> bool {
        self.queue.len() < self.limits.messages as usize
            && self.queue_bytes + cost <= self.limits.bytes
            && self
                .tally
                .as_ref()
                .is_none_or(|tally| tally.has_capacity(cost))
    }

    /// Whether [`Outbound::begin`] would send a message past the queue.
    #[must_use]
    pub fn can_begin(&self, window: u16) -> bool {
        self.queue.is_empty()
            && !self.owes_again()
            && self.in_window < window
            && self.has_identifier()
    }

    /// How many more messages a window of this size has place for.
    #[must_use]
    pub fn free(&self, window: u16) -> usize {
        usize::from(window.saturating_sub(self.in_window))
    }

    /// Puts a message at the end of the queue.
    ///
    /// # Errors
    /// [`QueueFull`] at a bound.
    pub fn enqueue(&mut self, delivery: Delivery) -> Result<(), QueueFull> {
        if !self.has_capacity(delivery.message.cost()) {
            return Err(QueueFull);
        }
        self.enqueue_accepted(delivery);
        Ok(())
    }

    /// Puts a message at the end of the queue, past its bounds: another node has acknowledged it to its publisher.
    pub fn enqueue_accepted(&mut self, delivery: Delivery) {
        self.push_queue(self.next_sequence, delivery);
        self.next_sequence += 1;
    }

    /// The next message that is queued waits from now on; for [`waiting_since`](Self::waiting_since).
    pub fn note_time(&mut self, now: Instant) {
        self.ages
            .note(now, self.front_sequence(), self.next_sequence);
    }

    /// The queue is one whose times were noted elsewhere.
    pub(super) fn set_ages(&mut self, ages: Ages) {
        self.ages = ages;
    }

    /// Since when the first message of the queue has waited here, as far as times were noted: not later than that.
    #[must_use]
    pub fn waiting_since(&self) -> Option<Instant> {
        let is_waiting = !self.queue.is_empty();
        is_waiting.then(|| self.ages.since(self.front_sequence()))?
    }

    /// The next thing to send on the present connection, or `None`. First what an earlier connection left, in order, then the queue.
    pub fn pull(&mut self, now: Instant, window: u16) -> Option<Started> {
        if let Some(again) = self.pull_again(window) {
            return Some(again);
        }
        if self.owes_again() {
            return None;
        }
        let (sequence, front) = self.queue.front()?;
        if front.message.is_expired(now) {
            let expired = self.pop_queue()?;
            self.note_finished(&expired);
            return Some(Started::Expired(expired));
        }
        let qos = front.qos;
        let packet_id = match qos {
            Qos::AtMostOnce => None,
            Qos::AtLeastOnce | Qos::ExactlyOnce => {
                let kept = front.clone();
                Some(self.push_slot(qos, window, sequence, |keeps| {
                    (keeps || kept.group.is_some()).then_some(kept)
                })?)
            }
        };
        let delivery = self.pop_queue()?;
        if packet_id.is_none() {
            self.note_finished(&delivery);
        }
        Some(Started::Publish {
            packet_id,
            dup: false,
            delivery,
        })
    }

    fn pull_again(&mut self, window: u16) -> Option<Started> {
        if let Some(inherited) = &mut self.inherited {
            while let Some((id, slot)) = inherited.next_owed() {
                match slot.again(id, self.in_window < window) {
                    Again::Nothing => inherited.pass(),
                    Again::NoRoom => return None,
                    Again::Start(started) => {
                        self.in_window += u16::from(slot.sent);
                        inherited.pass();
                        return Some(started);
                    }
                }
            }
        }
        while self.cursor < self.slots.len() {
            let id = self.id_at(self.cursor);
            let slot = &mut self.slots[self.cursor];
            match slot.again(id, self.in_window < window) {
                Again::Nothing => self.cursor += 1,
                Again::NoRoom => return None,
                Again::Start(started) => {
                    self.cursor += 1;
                    self.in_window += u16::from(slot.sent);
                    return Some(started);
                }
            }
        }
        None
    }

    /// The sequence of the next message. Sequences rise by one for each message that the session accepts, from 1; those of the queue are above
    /// those of what is in flight.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The sequence of the first message of the queue; of the next message if the queue is empty.
    #[must_use]
    pub fn front_sequence(&self) -> u64 {
        self.queue
            .front()
            .map_or(self.next_sequence, |(sequence, _)| sequence)
    }

    /// The sequence of the message in flight under an identifier in use; 0 for another one.
    #[must_use]
    pub fn sequence_of(&self, id: PacketId) -> u64 {
        self.slot_of(id).map_or(0, |slot| slot.sequence)
    }

    /// Whether what is in flight under an identifier was sent since the client connected last.
    #[must_use]
    pub fn is_sent(&self, id: PacketId) -> bool {
        self.slot_of(id).is_some_and(|slot| slot.sent)
    }

    fn slot_of(&self, id: PacketId) -> Option<&Slot> {
        let slot = self.slots.get(self.index_of(id));
        let slot = slot.filter(|slot| !matches!(slot.state, State::Free));
        slot.or_else(|| self.inherited.as_ref()?.find(id))
    }

    /// Bytes of the messages in flight that are kept.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        let cost = |slot: &Slot| match &slot.state {
            State::AwaitPuback(Some(delivery)) | State::AwaitPubrec(Some(delivery)) => {
                delivery.message.cost()
            }
            State::Free
            | State::AwaitPuback(None)
            | State::AwaitPubrec(None)
            | State::AwaitPubcomp => 0,
        };
        self.all_slots().map(|(_, slot)| cost(slot)).sum()
    }

    /// Everything in flight, oldest first, and free places between.
    fn all_slots(&self) -> impl Iterator<Item = (PacketId, &Slot)> {
        let inherited = self.inherited.iter().flat_map(|it| it.iter());
        let slots = self.slots.iter().enumerate();
        inherited.chain(slots.map(|(index, slot)| (self.id_at(index), slot)))
    }

    /// Gives every message of the queue a new sequence, as if it had arrived now.
    fn resequence_queue(&mut self) {
        for delivery in self.take_queue() {
            self.enqueue_accepted(delivery);
        }
    }

    /// What the session holds from `sequence` on, ascending. Complete only for sessions that keep what is in flight.
    pub fn held_from(&self, sequence: u64) -> impl Iterator<Item = Held<'_>> {
        let in_flight = self.all_slots().filter_map(|(packet_id, slot)| {
            let sequence = slot.sequence;
            match &slot.state {
                State::AwaitPuback(Some(delivery)) | State::AwaitPubrec(Some(delivery)) => {
                    Some(Held::InFlight {
                        sequence,
                        packet_id,
                        delivery,
                    })
                }
                State::AwaitPubcomp => Some(Held::Received {
                    sequence,
                    packet_id,
                }),
                State::Free | State::AwaitPuback(None) | State::AwaitPubrec(None) => None,
            }
        });
        let queued = self.queue.from(sequence);
        let queued = queued.map(|(sequence, delivery)| Held::Queued { sequence, delivery });
        in_flight
            .filter(move |held| held.sequence() >= sequence)
            .chain(queued)
    }

    fn pop_queue(&mut self) -> Option<Delivery> {
        let (sequence, delivery) = self.queue.pop_front()?;
        self.note_unqueued(sequence, &delivery);
        Some(delivery)
    }

    /// When the first of the messages that wait expires, if any does.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.expiring.first().map(|(at, _)| *at)
    }

    /// Removes a message that has expired while it waited, wherever in the queue it is [MQTT-3.3.2-5]. Returns its sequence.
    pub fn drop_expired(&mut self, now: Instant) -> Option<u64> {
        let (_, sequence) = self.expiring.first().filter(|(at, _)| *at <= now)?;
        let sequence = *sequence;
        let delivery = self.queue.remove(sequence)?;
        self.note_unqueued(sequence, &delivery);
        Some(sequence)
    }

    /// Removes the messages of the queue for which `keeps` is false.
    pub fn retain_queue(&mut self, keeps: impl Fn(&Delivery) -> bool) {
        let ended = self.queue.iter().filter(|(_, delivery)| !keeps(delivery));
        let ended: Vec<u64> = ended.map(|(sequence, _)| sequence).collect();
        for sequence in ended {
            if let Some(delivery) = self.queue.remove(sequence) {
                self.note_unqueued(sequence, &delivery);
            }
        }
    }

    fn push_queue(&mut self, sequence: u64, delivery: Delivery) {
        let bytes = delivery.message.cost();
        self.queue_bytes += bytes;
        if let Some(tally) = &self.tally {
            tally.add(Waiting { messages: 1, bytes });
        }
        if let Some(at) = delivery.message.expires_at() {
            self.expiring.insert((at, sequence));
        }
        self.queue.insert(sequence, delivery);
    }

    fn note_unqueued(&mut self, sequence: u64, delivery: &Delivery) {
        let bytes = delivery.message.cost();
        self.queue_bytes -= bytes;
        if let Some(tally) = &self.tally {
            tally.remove(Waiting { messages: 1, bytes });
        }
        if let Some(at) = delivery.message.expires_at() {
            self.expiring.remove(&(at, sequence));
        }
    }

    /// The queue counts in this tally from now on, and in no other; `None`: in none.
    pub fn set_tally(&mut self, tally: Option<Tally>) {
        let waiting = self.waiting();
        if let Some(before) = std::mem::replace(&mut self.tally, tally) {
            before.remove(waiting);
        }
        if let Some(tally) = &self.tally {
            tally.add(waiting);
        }
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            messages: self.queue.len() as u64,
            bytes: self.queue_bytes,
        }
    }

    /// PUBACK was received.
    #[inline]
    pub fn handle_puback(&mut self, id: PacketId) -> Acknowledged {
        match self.state_mut(id) {
            None | Some(State::Free) => Acknowledged::Unknown,
            Some(State::AwaitPuback(_)) => self.finish(id),
            Some(State::AwaitPubrec(_) | State::AwaitPubcomp) => Acknowledged::Wrong,
        }
    }

    /// PUBREC was received; `refused`: its reason code is 0x80 or above.
    pub fn handle_pubrec(&mut self, id: PacketId, refused: bool) -> Acknowledged {
        match self.state_mut(id) {
            None | Some(State::Free) => Acknowledged::Unknown,
            Some(State::AwaitPuback(_)) => Acknowledged::Wrong,
            Some(State::AwaitPubrec(_) | State::AwaitPubcomp) if refused => self.finish(id),
            Some(state @ (State::AwaitPubrec(_) | State::AwaitPubcomp)) => {
                let before = std::mem::replace(state, State::AwaitPubcomp);
                self.note_left(&before);
                Acknowledged::SendPubrel
            }
        }
    }

    /// PUBCOMP was received.
    pub fn handle_pubcomp(&mut self, id: PacketId) -> Acknowledged {
        match self.state_mut(id) {
            None | Some(State::Free) => Acknowledged::Unknown,
            Some(State::AwaitPuback(_) | State::AwaitPubrec(_)) => Acknowledged::Wrong,
            Some(State::AwaitPubcomp) => self.finish(id),
        }
    }

    fn finish(&mut self, id: PacketId) -> Acknowledged {
        let index = self.index_of(id);
        let is_here = |slot: &Slot| !matches!(slot.state, State::Free);
        if !self.slots.get(index).is_some_and(is_here) {
            return self.finish_inherited(id);
        }
        let slot = std::mem::take(&mut self.slots[index]);
        self.note_left(&slot.state);
        self.free += 1;
        if slot.sent {
            self.in_window -= 1;
        }
        while self
            .slots
            .front()
            .is_some_and(|slot| matches!(slot.state, State::Free))
        {
            self.slots.pop_front();
            self.free -= 1;
            self.first_id = next_id(self.first_id);
            self.cursor = self.cursor.saturating_sub(1);
        }
        Acknowledged::Done
    }

    /// A new connection resumes the session: all in flight is to be sent again, in order, by `pull`.
    pub fn handle_resume(&mut self) {
        self.cursor = 0;
        self.in_window = 0;
        if let Some(inherited) = &mut self.inherited {
            inherited.handle_resume();
        }
        for slot in &mut self.slots {
            slot.sent = false;
        }
    }

    fn id_at(&self, index: usize) -> PacketId {
        // Identifiers are 1..=65535 and start again at 1.
        let zero_based = (usize::from(self.first_id) - 1 + index) % usize::from(u16::MAX);
        PacketId::new(zero_based as u16 + 1).expect("one is added")
    }

    fn index_of(&self, id: PacketId) -> usize {
        let span = usize::from(u16::MAX);
        (usize::from(id.value()) + span - usize::from(self.first_id)) % span
    }

    fn state_mut(&mut self, id: PacketId) -> Option<&mut State> {
        let index = self.index_of(id);
        let slot = self.slots.get_mut(index).map(|slot| &mut slot.state);
        match (slot, &mut self.inherited) {
            // Nearly always there is nothing inherited.
            (Some(State::Free) | None, Some(inherited)) => inherited.state_mut(id),
            (slot, Some(_) | None) => slot,
        }
    }

    /// Messages waiting.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of the messages waiting.
    #[must_use]
    pub const fn queued_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Messages sent and not yet acknowledged, on this connection or an earlier one.
    #[must_use]
    pub fn inflight(&self) -> usize {
        let inherited = self.inherited.as_ref().map_or(0, |it| it.len());
        self.slots.len() - self.free + inherited
    }

    /// Whether nothing waits and nothing is to be sent again.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && !self.owes_again()
    }

    /// Whether nothing waits and nothing is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.slots.is_empty() && self.inherited.is_none()
    }

    /// What is in flight, oldest first, for a snapshot. Complete only for sessions that keep it.
    pub fn in_flight(&self) -> impl Iterator<Item = Redelivery> + '_ {
        self.all_slots().filter_map(|(id, slot)| match &slot.state {
            State::AwaitPuback(Some(delivery)) | State::AwaitPubrec(Some(delivery)) => {
                Some(Redelivery::Publish(id, delivery.clone()))
            }
            State::AwaitPubcomp => Some(Redelivery::Pubrel(id)),
            State::Free | State::AwaitPuback(None) | State::AwaitPubrec(None) => None,
        })
    }

    /// What waits, from this sequence on, each with its own; oldest first.
    pub fn queue_from(&self, sequence: u64) -> impl Iterator<Item = (u64, &Delivery)> {
        self.queue.from(sequence)
    }

    /// Removes and returns all that waits, oldest first.
    pub fn take_queue(&mut self) -> Vec<Delivery> {
        if let Some(tally) = &self.tally {
            tally.remove(self.waiting());
        }
        self.queue_bytes = 0;
        self.expiring.clear();
        let queue = std::mem::take(&mut self.queue);
        queue.into_iter().map(|(_, delivery)| delivery).collect()
    }

    /// The identifier the next new message gets.
    #[must_use]
    pub fn next_packet_id(&self) -> PacketId {
        self.id_at(self.slots.len())
    }
}

/// What an entry in flight has to be sent again.
enum Again {
    Nothing,
    NoRoom,
    Start(Started),
}

impl Slot {
    /// What is to be sent again under `id`.
    fn again(&mut self, id: PacketId, has_capacity: bool) -> Again {
        match &self.state {
            State::AwaitPuback(Some(_)) | State::AwaitPubrec(Some(_)) if !has_capacity => {
                Again::NoRoom
            }
            State::AwaitPuback(Some(delivery)) | State::AwaitPubrec(Some(delivery)) => {
                self.sent = true;
                Again::Start(Started::Publish {
                    packet_id: Some(id),
                    dup: true,
                    delivery: delivery.clone(),
                })
            }
            State::AwaitPubcomp => Again::Start(Started::Pubrel(id)),
            State::Free | State::AwaitPuback(None) | State::AwaitPubrec(None) => Again::Nothing,
        }
    }
}

const fn next_id(id: u16) -> u16 {
    if id == u16::MAX { 1 } else { id + 1 }
}

#[cfg(test)]
mod tests;
