//! What a session held when its node stopped, rebuilt from a journal.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use hashbrown::HashMap;
use thicket_mqtt::{PacketId, Qos};

use super::{
    Append, Delivery, FinishedMessages, FinishedRange, Inbound, InboundId, MatchedIdentifiers,
    Message, MessageId, Outbound, PlainAppend, Redelivery, outbound::Ages, sequenced::Sequenced,
};
use crate::{time::Instant, topic::SubscriptionFilter};

/// A message the session holds.
#[derive(Debug)]
enum Entry {
    Queued(Delivery),
    InFlight(PacketId, Delivery),
    Received(PacketId),
}

/// This many acknowledged identifiers are kept a place for, besides one for each that is in use.
const GONE: usize = 32;

/// The sequence of the message in flight under each identifier. Mostly identifiers are assigned in a row and acknowledged in that order.
#[derive(Debug, Default)]
struct Identifiers {
    /// Of the first of `row`.
    first: Option<PacketId>,
    /// 0: it was acknowledged, and not all before it were; sequences are never 0.
    row: VecDeque<u64>,
    /// Places of the row that are 0.
    gone: usize,
    /// Those that were not assigned in a row, or stayed when most that came after them in it were acknowledged.
    others: HashMap<PacketId, u64, foldhash::fast::FixedState>,
}

impl Identifiers {
    /// Where an identifier would be in the row.
    fn place(&self, packet_id: PacketId) -> Option<usize> {
        let (first, value) = (self.first?.value(), packet_id.value());
        // 65,535 of them, and no 0.
        Some(usize::from(match value.checked_sub(first) {
            Some(distance) => distance,
            None => value + (u16::MAX - first),
        }))
    }

    fn insert(&mut self, packet_id: PacketId, sequence: u64) {
        if self.gone > self.row.len() - self.gone + GONE {
            self.leave_row();
        }
        if self.row.is_empty() {
            self.first = Some(packet_id);
        }
        match self.place(packet_id) {
            Some(place) if place == self.row.len() && !self.others.contains_key(&packet_id) => {
                self.row.push_back(sequence);
            }
            Some(place) if self.row.get(place).is_some_and(|held| *held > 0) => {
                self.row[place] = sequence;
            }
            Some(_) | None => {
                self.others.insert(packet_id, sequence);
            }
        }
    }

    fn remove(&mut self, packet_id: PacketId) -> Option<u64> {
        let place = self.place(packet_id);
        let held = place.and_then(|place| self.row.get_mut(place));
        let Some(sequence) = held.map(std::mem::take).filter(|sequence| *sequence > 0) else {
            return self.others.remove(&packet_id);
        };
        self.gone += 1;
        while self.row.pop_front_if(|held| *held == 0).is_some() {
            self.gone -= 1;
            self.first = self.first.map(PacketId::next);
        }
        Some(sequence)
    }

    /// The next row begins with the next identifier.
    fn leave_row(&mut self) {
        let ids = std::iter::successors(self.first, |id| Some(id.next()));
        let held = ids.zip(self.row.drain(..));
        self.others
            .extend(held.filter(|(_, sequence)| *sequence > 0));
        self.gone = 0;
    }
}

/// The state after the entries of one session so far. Entries come in the order they were written.
#[derive(Debug, Default)]
pub struct RecoveredSession {
    entries: Sequenced<Entry>,
    in_flight: Identifiers,
    inbound: BTreeMap<PacketId, InboundId>,
    inbound_generation: u32,
    next_sequence: u64,
    next_packet_id: Option<PacketId>,
    ages: Ages,
    finished: FinishedMessages,
    touched: Vec<SubscriptionFilter>,
}

impl RecoveredSession {
    /// The message that follows is accepted now; for [`Outbound::waiting_since`]. Without it nobody knows since when messages wait.
    pub fn note_time(&mut self, now: Instant) {
        let next = self.next_sequence.max(1);
        let first = self.entries.front().map_or(next, |(first, _)| first);
        self.ages.note(now, first, next);
    }

    /// The session accepted `message`.
    pub fn handle_append(&mut self, append: &Append<'_>, message: &Rc<Message>) {
        self.next_sequence = self.next_sequence.max(append.sequence + 1);
        let delivery = Delivery {
            message: Rc::clone(message),
            qos: append.qos,
            retain: append.retain,
            identifiers: MatchedIdentifiers::from_slice(&append.identifiers),
            group: append.group.map(Into::into),
        };
        self.hold(append.sequence, append.packet_id, delivery);
    }

    /// The session accepted `message`, without subscription identifiers and from no group.
    #[inline]
    pub fn handle_plain_append(&mut self, append: &PlainAppend, message: Rc<Message>) {
        self.next_sequence = self.next_sequence.max(append.sequence + 1);
        let delivery = Delivery {
            message,
            qos: append.qos,
            retain: append.retain,
            identifiers: MatchedIdentifiers::None,
            group: None,
        };
        self.hold(append.sequence, append.packet_id, delivery);
    }

    #[inline(always)]
    fn hold(&mut self, sequence: u64, packet_id: Option<PacketId>, delivery: Delivery) {
        match packet_id {
            Some(packet_id) => {
                self.note_identifier(packet_id, sequence);
                let entry = Entry::InFlight(packet_id, delivery);
                self.entries.insert(sequence, entry);
            }
            None => self.entries.insert(sequence, Entry::Queued(delivery)),
        }
    }

    fn note_identifier(&mut self, packet_id: PacketId, sequence: u64) {
        self.in_flight.insert(packet_id, sequence);
        self.next_packet_id = Some(packet_id.next());
    }

    /// A queued message got its identifier.
    pub fn handle_assign(&mut self, sequence: u64, packet_id: PacketId) {
        if let Some(entry) = self.entries.get_mut(sequence) {
            *entry = match std::mem::replace(entry, Entry::Received(packet_id)) {
                Entry::Queued(delivery) => Entry::InFlight(packet_id, delivery),
                other @ (Entry::InFlight(..) | Entry::Received(_)) => other,
            };
        }
        self.note_identifier(packet_id, sequence);
    }

    /// The message of a sequence has arrived: stored if it is still held.
    pub fn resolve(&mut self, sequence: u64, message: &Rc<Message>) {
        if let Some(Entry::Queued(delivery) | Entry::InFlight(_, delivery)) =
            self.entries.get_mut(sequence)
        {
            delivery.message = Rc::clone(message);
        }
    }

    /// `count` messages with consecutive identifiers are acknowledged.
    pub fn handle_done(&mut self, packet_id: PacketId, count: u16) {
        let mut packet_id = packet_id;
        for _ in 0..count {
            if let Some(sequence) = self.in_flight.remove(packet_id) {
                self.entries.remove(sequence);
            }
            packet_id = packet_id.next();
        }
    }

    /// PUBREC was received.
    pub fn handle_received(&mut self, sequence: u64, packet_id: PacketId) {
        self.next_sequence = self.next_sequence.max(sequence + 1);
        self.entries.insert(sequence, Entry::Received(packet_id));
        self.in_flight.insert(packet_id, sequence);
    }

    /// A message left without being sent.
    pub fn handle_dropped(&mut self, sequence: u64) {
        self.entries.remove(sequence);
    }

    /// Messages are finished, and another replica may still hold them.
    pub fn handle_finished(&mut self, range: FinishedRange) {
        self.finished.insert(range);
    }

    /// The client subscribed or unsubscribed, and another replica may not have received that.
    pub fn handle_touched(&mut self, filter: SubscriptionFilter) {
        self.touched.push(filter);
    }

    /// No other replica lacks what was finished and asked for here.
    pub fn handle_forgotten(&mut self) {
        self.finished = FinishedMessages::default();
        self.touched.clear();
    }

    /// Removes and returns the filters that were subscribed to or unsubscribed from while another replica may not have
    /// received that. One may be there several times.
    pub fn take_touched(&mut self) -> Vec<SubscriptionFilter> {
        std::mem::take(&mut self.touched)
    }

    /// A QoS 2 publication of the client.
    pub fn handle_inbound(&mut self, id: InboundId) {
        self.inbound_generation = self.inbound_generation.max(id.generation);
        self.inbound.insert(id.packet_id, id);
    }

    /// A QoS 2 publication is over.
    pub fn handle_released(&mut self, packet_id: PacketId) {
        self.inbound.remove(&packet_id);
    }

    /// The counters of a session that was written again.
    pub fn handle_session(
        &mut self,
        next_sequence: u64,
        next_packet_id: PacketId,
        generation: u32,
    ) {
        self.next_sequence = self.next_sequence.max(next_sequence);
        self.next_packet_id = Some(next_packet_id);
        self.inbound_generation = self.inbound_generation.max(generation);
    }

    /// The messages held, but for those of which only PUBREL is owed.
    pub fn messages(&self) -> impl Iterator<Item = MessageId> {
        self.entries.iter().filter_map(|(_, entry)| match entry {
            Entry::Queued(delivery) | Entry::InFlight(_, delivery) => Some(delivery.message.id()),
            Entry::Received(_) => None,
        })
    }

    /// What the messages held count towards a queue's bound, bytes; of those of which only PUBREL is owed nothing is held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let costs = self.entries.iter().map(|(_, entry)| match entry {
            Entry::Queued(delivery) | Entry::InFlight(_, delivery) => delivery.message.cost(),
            Entry::Received(_) => 0,
        });
        costs.sum()
    }

    /// Above the sequence of every message that the session accepted so far.
    #[must_use]
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Messages held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no message is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills a new session.
    pub fn restore(self, outbound: &mut Outbound, inbound: &mut Inbound) {
        *inbound = Inbound::restore(self.inbound.into_values(), self.inbound_generation);
        let mut in_flight = Vec::new();
        let mut queue = Vec::new();
        for (sequence, entry) in self.entries.into_iter() {
            match entry {
                Entry::InFlight(packet_id, delivery) => {
                    in_flight.push((sequence, Redelivery::Publish(packet_id, delivery)));
                }
                Entry::Received(packet_id) => {
                    in_flight.push((sequence, Redelivery::Pubrel(packet_id)));
                }
                // Nobody keeps QoS 0 messages for a client that is away.
                Entry::Queued(delivery) if delivery.qos == Qos::AtMostOnce => {}
                Entry::Queued(delivery) => queue.push((sequence, delivery)),
            }
        }
        outbound.restore_stored(in_flight, queue, self.next_sequence.max(1));
        outbound.set_ages(self.ages);
        outbound.add_finished(&self.finished);
        if let Some(next) = self.next_packet_id {
            outbound.set_next_packet_id(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Held, OutboundLimits};
    use thicket_mqtt::Publish;

    fn id(value: u16) -> PacketId {
        PacketId::new(value).expect("not zero")
    }

    fn append(sequence: u64, packet_id: Option<u16>) -> Append<'static> {
        Append {
            session: 1,
            sequence,
            message: 0,
            reference: None,
            qos: Qos::ExactlyOnce,
            retain: false,
            packet_id: packet_id.map(id),
            identifiers: Vec::new(),
            group: None,
        }
    }

    fn message(payload: &[u8]) -> Rc<Message> {
        Rc::new(Message::new(
            MessageId::default(),
            &Publish::new("a", payload),
            None,
        ))
    }

    /// `QUEUED sequence`, `FLIGHT sequence/identifier`, `RECEIVED sequence/identifier`.
    fn restored(session: RecoveredSession) -> (Vec<String>, u16) {
        let limits = OutboundLimits {
            messages: 10,
            bytes: 10_000,
        };
        let mut outbound = Outbound::new(limits, true);
        session.restore(&mut outbound, &mut Inbound::default());
        let held = outbound.held_from(0).map(|held| match held {
            Held::Queued { sequence, .. } => format!("queued {sequence}"),
            Held::InFlight {
                sequence,
                packet_id,
                ..
            } => {
                format!("in flight {sequence}/{}", packet_id.value())
            }
            Held::Received {
                sequence,
                packet_id,
            } => {
                format!("received {sequence}/{}", packet_id.value())
            }
        });
        (held.collect(), outbound.next_packet_id().value())
    }

    #[test]
    fn an_identifier_is_found_however_it_was_given_and_taken_once() {
        let in_a_row = |from: u16, count: u16| (0..count).map(move |n| from.wrapping_add(n).max(1));
        let orders: [(&str, Vec<u16>, Vec<u16>); 4] = [
            (
                "in a row past the end",
                (65_530..=65_535).chain(1..5).collect(),
                (65_530..=65_535).chain(1..5).collect(),
            ),
            (
                "backwards",
                in_a_row(100, 20).collect(),
                (100..120).rev().collect(),
            ),
            (
                "with a jump",
                (5..9).chain(21_850..21_860).chain(9..12).collect(),
                (21_850..21_855)
                    .chain(5..12)
                    .chain(21_855..21_860)
                    .collect(),
            ),
            ("given again", vec![7, 8, 9, 8], vec![8, 9, 7]),
        ];
        for (name, given, back) in orders {
            let mut identifiers = Identifiers::default();
            let mut known = HashMap::new();
            for (packet_id, sequence) in given.into_iter().zip(1..) {
                identifiers.insert(id(packet_id), sequence);
                known.insert(packet_id, sequence);
            }
            assert_eq!(identifiers.remove(id(60_000)), None, "{name}");
            for packet_id in back {
                let expected = known.remove(&packet_id);
                assert_eq!(identifiers.remove(id(packet_id)), expected, "{name}");
                assert_eq!(identifiers.remove(id(packet_id)), None, "{name}, twice");
            }
            assert!(known.is_empty() && identifiers.row.is_empty(), "{name}");
            assert!(identifiers.others.is_empty(), "{name}");
        }
        // One that stays while others come and go, more often than there are identifiers.
        let mut identifiers = Identifiers::default();
        identifiers.insert(id(1), 1);
        let mut next = id(2);
        for sequence in 2..100_000 {
            identifiers.insert(next, sequence);
            assert_eq!(identifiers.remove(next), Some(sequence));
            assert!(identifiers.row.len() <= 2 * GONE, "{sequence}");
            next = if next.next() == id(1) {
                id(2)
            } else {
                next.next()
            };
        }
        assert_eq!(identifiers.remove(id(1)), Some(1));
        let mut identifiers = Identifiers::default();
        for sequence in [1, 2, 3] {
            identifiers.insert(id(sequence as u16), sequence);
        }
        assert_eq!(identifiers.remove(id(2)), Some(2));
        identifiers.insert(id(2), 9);
        let left = [1, 2, 3].map(|packet_id| identifiers.remove(id(packet_id)));
        assert_eq!(left, [Some(1), Some(9), Some(3)]);
    }

    #[test]
    fn what_was_not_done_is_in_flight_or_queued_in_order() {
        let mut session = RecoveredSession::default();
        for (sequence, packet_id) in [
            (1, Some(1)),
            (2, Some(2)),
            (3, Some(3)),
            (4, None),
            (5, None),
        ] {
            session.handle_append(&append(sequence, packet_id), &message(b"x"));
        }
        session.handle_done(id(1), 1);
        session.handle_received(2, id(2));
        session.handle_assign(4, id(4));
        assert_eq!(
            (session.len(), session.bytes()),
            (4, 3 * message(b"x").cost())
        );
        let held = ["received 2/2", "in flight 3/3", "in flight 4/4", "queued 5"];
        assert_eq!(restored(session), (held.map(String::from).to_vec(), 5));
    }

    #[test]
    fn a_message_written_again_and_then_done_is_gone() {
        let mut session = RecoveredSession::default();
        session.handle_append(&append(1, None), &message(b"x"));
        session.handle_assign(1, id(65535));
        session.handle_append(&append(1, Some(65535)), &message(b"x"));
        session.handle_done(id(65535), 2);
        assert_eq!(restored(session), (Vec::new(), 1));
    }

    #[test]
    fn a_queue_with_gaps_is_restored_with_its_sequences() {
        let mut session = RecoveredSession::default();
        for sequence in 1..=5 {
            session.handle_append(&append(sequence, None), &message(b"x"));
        }
        session.handle_dropped(3);
        session.handle_dropped(5);
        assert_eq!(session.next_sequence(), 6);
        let held = ["queued 1", "queued 2", "queued 4"];
        assert_eq!(restored(session), (held.map(String::from).to_vec(), 1));
    }

    #[test]
    fn a_restored_queue_has_waited_since_its_messages_were_accepted() {
        let at = |seconds: u64| Instant::from_millis(seconds * 1000);
        let mut session = RecoveredSession::default();
        for sequence in 1..=3 {
            session.note_time(at(10 * sequence));
            session.handle_append(&append(sequence, None), &message(b"x"));
        }
        session.handle_dropped(1);
        let limits = OutboundLimits {
            messages: 10,
            bytes: 1000,
        };
        let mut outbound = Outbound::new(limits, true);
        session.restore(&mut outbound, &mut Inbound::default());
        assert_eq!(outbound.waiting_since(), Some(at(20)));
    }

    #[test]
    fn entries_of_what_is_no_more_change_nothing() {
        let mut session = RecoveredSession::default();
        session.handle_done(id(9), 3);
        session.handle_dropped(7);
        session.handle_released(id(1));
        assert_eq!(restored(session), (Vec::new(), 1));
    }
}
