//! QoS 1 and 2 from us to a client: the queue, the window and the packet identifiers of one session.
//!
//! A message is *pulled* from the queue when the window has room; it is never pushed beyond the client's Receive Maximum.
//!
//! | state \ event | PUBACK | PUBREC < 0x80 | PUBREC >= 0x80 | PUBCOMP |
//! | --- | --- | --- | --- | --- |
//! | free | unknown | unknown | unknown | unknown |
//! | awaits PUBACK | done | wrong | wrong | wrong |
//! | awaits PUBREC | wrong | PUBREL | done | wrong |
//! | awaits PUBCOMP | wrong | PUBREL | done | done |

use std::{collections::VecDeque, rc::Rc, sync::Arc};

use thicket_mqtt::{PacketId, Qos};

use super::{MatchedIdentifiers, Message};
use crate::time::Instant;

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
    /// The shared subscription (`$share/name/filter`) whose other members take it if this session ends first.
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
    /// The identifier is free; the window has room for one more.
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
    /// PUBREC came.
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
}

/// The outbound half of a session.
#[derive(Debug)]
pub struct Outbound {
    limits: OutboundLimits,
    /// Whether messages in flight are kept for another connection.
    keeps: bool,
    queue: VecDeque<Delivery>,
    queue_bytes: u64,
    /// Consecutive packet identifiers; the first is `first_id`, and never `Free`.
    slots: VecDeque<Slot>,
    first_id: u16,
    /// Slots before this one have been sent (again) on the present connection.
    cursor: usize,
    /// Messages sent on the present connection and not yet acknowledged.
    in_window: u16,
}

impl Outbound {
    /// `keeps`: the session outlives its connection, so what is in flight is kept for the next one.
    #[must_use]
    pub const fn new(limits: OutboundLimits, keeps: bool) -> Self {
        Self {
            limits,
            keeps,
            queue: VecDeque::new(),
            queue_bytes: 0,
            slots: VecDeque::new(),
            first_id: 1,
            cursor: 0,
            in_window: 0,
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
        if !self.queue.is_empty() || self.cursor < self.slots.len() {
            return None;
        }
        let kept = |keeps: bool| (keeps || is_shared).then(kept);
        self.push_slot(qos, window, kept)
    }

    fn push_slot(
        &mut self,
        qos: Qos,
        window: u16,
        kept: impl FnOnce(bool) -> Option<Delivery>,
    ) -> Option<PacketId> {
        if self.in_window >= window || self.slots.len() >= usize::from(u16::MAX) {
            return None;
        }
        let id = self.id_at(self.slots.len());
        let state = match qos {
            Qos::ExactlyOnce => State::AwaitPubrec(kept(self.keeps)),
            Qos::AtLeastOnce | Qos::AtMostOnce => State::AwaitPuback(kept(self.keeps)),
        };
        self.slots.push_back(Slot { state, sent: true });
        self.cursor = self.slots.len();
        self.in_window += 1;
        Some(id)
    }

    /// Puts a message at the end of the queue.
    ///
    /// # Errors
    /// [`QueueFull`] at a bound.
    pub fn enqueue(&mut self, delivery: Delivery) -> Result<(), QueueFull> {
        let cost = delivery.message.cost();
        let full = self.queue.len() >= self.limits.messages as usize
            || self.queue_bytes + cost > self.limits.bytes;
        if full {
            return Err(QueueFull);
        }
        self.queue_bytes += cost;
        self.queue.push_back(delivery);
        Ok(())
    }

    /// The next thing to send on the present connection, or `None`. First what an earlier connection left, in order, then the queue.
    pub fn pull(&mut self, now: Instant, window: u16) -> Option<Started> {
        if let Some(again) = self.pull_again(window) {
            return Some(again);
        }
        if self.cursor < self.slots.len() {
            return None;
        }
        let front = self.queue.front()?;
        if front.message.is_expired(now) {
            return self.pop_queue().map(Started::Expired);
        }
        let qos = front.qos;
        let packet_id = match qos {
            Qos::AtMostOnce => None,
            Qos::AtLeastOnce | Qos::ExactlyOnce => {
                let kept = front.clone();
                Some(self.push_slot(qos, window, |keeps| {
                    (keeps || kept.group.is_some()).then_some(kept)
                })?)
            }
        };
        let delivery = self.pop_queue()?;
        Some(Started::Publish {
            packet_id,
            dup: false,
            delivery,
        })
    }

    fn pull_again(&mut self, window: u16) -> Option<Started> {
        while self.cursor < self.slots.len() {
            let id = self.id_at(self.cursor);
            let slot = &mut self.slots[self.cursor];
            let started = match &slot.state {
                State::AwaitPuback(Some(delivery)) | State::AwaitPubrec(Some(delivery)) => {
                    if self.in_window >= window {
                        return None;
                    }
                    Started::Publish {
                        packet_id: Some(id),
                        dup: true,
                        delivery: delivery.clone(),
                    }
                }
                State::AwaitPubcomp => Started::Pubrel(id),
                State::Free | State::AwaitPuback(None) | State::AwaitPubrec(None) => {
                    self.cursor += 1;
                    continue;
                }
            };
            self.cursor += 1;
            if matches!(started, Started::Publish { .. }) {
                slot.sent = true;
                self.in_window += 1;
            }
            return Some(started);
        }
        None
    }

    fn pop_queue(&mut self) -> Option<Delivery> {
        let delivery = self.queue.pop_front()?;
        self.queue_bytes -= delivery.message.cost();
        Some(delivery)
    }

    /// PUBACK came.
    pub fn handle_puback(&mut self, id: PacketId) -> Acknowledged {
        match self.state_mut(id) {
            None | Some(State::Free) => Acknowledged::Unknown,
            Some(State::AwaitPuback(_)) => self.finish(id),
            Some(State::AwaitPubrec(_) | State::AwaitPubcomp) => Acknowledged::Wrong,
        }
    }

    /// PUBREC came; `refused`: its reason code is 0x80 or above.
    pub fn handle_pubrec(&mut self, id: PacketId, refused: bool) -> Acknowledged {
        match self.state_mut(id) {
            None | Some(State::Free) => Acknowledged::Unknown,
            Some(State::AwaitPuback(_)) => Acknowledged::Wrong,
            Some(State::AwaitPubrec(_) | State::AwaitPubcomp) if refused => self.finish(id),
            Some(state @ (State::AwaitPubrec(_) | State::AwaitPubcomp)) => {
                *state = State::AwaitPubcomp;
                Acknowledged::SendPubrel
            }
        }
    }

    /// PUBCOMP came.
    pub fn handle_pubcomp(&mut self, id: PacketId) -> Acknowledged {
        match self.state_mut(id) {
            None | Some(State::Free) => Acknowledged::Unknown,
            Some(State::AwaitPuback(_) | State::AwaitPubrec(_)) => Acknowledged::Wrong,
            Some(State::AwaitPubcomp) => self.finish(id),
        }
    }

    fn finish(&mut self, id: PacketId) -> Acknowledged {
        let index = self.index_of(id);
        let slot = std::mem::take(&mut self.slots[index]);
        if slot.sent {
            self.in_window -= 1;
        }
        while self
            .slots
            .front()
            .is_some_and(|slot| matches!(slot.state, State::Free))
        {
            self.slots.pop_front();
            self.first_id = next_id(self.first_id);
            self.cursor = self.cursor.saturating_sub(1);
        }
        Acknowledged::Done
    }

    /// A new connection resumes the session: all in flight is to be sent again, in order, by `pull`.
    pub fn handle_resume(&mut self) {
        self.cursor = 0;
        self.in_window = 0;
        for slot in &mut self.slots {
            slot.sent = false;
        }
    }

    fn id_at(&self, index: usize) -> PacketId {
        // Identifiers run 1..=65535 and start again at 1.
        let zero_based = (usize::from(self.first_id) - 1 + index) % usize::from(u16::MAX);
        PacketId::new(zero_based as u16 + 1).expect("one is added")
    }

    fn index_of(&self, id: PacketId) -> usize {
        let span = usize::from(u16::MAX);
        (usize::from(id.value()) + span - usize::from(self.first_id)) % span
    }

    fn state_mut(&mut self, id: PacketId) -> Option<&mut State> {
        let index = self.index_of(id);
        self.slots.get_mut(index).map(|slot| &mut slot.state)
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
        self.slots
            .iter()
            .filter(|slot| !matches!(slot.state, State::Free))
            .count()
    }

    /// Whether nothing waits and nothing is to be sent again.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.cursor == self.slots.len()
    }

    /// What is in flight, oldest first, for a snapshot. Only sessions that keep have it whole.
    pub fn in_flight(&self) -> impl Iterator<Item = Redelivery> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| match &slot.state {
                State::AwaitPuback(Some(delivery)) | State::AwaitPubrec(Some(delivery)) => {
                    Some(Redelivery::Publish(self.id_at(index), delivery.clone()))
                }
                State::AwaitPubcomp => Some(Redelivery::Pubrel(self.id_at(index))),
                State::Free | State::AwaitPuback(None) | State::AwaitPubrec(None) => None,
            })
    }

    /// What waits, oldest first.
    pub fn queue(&self) -> impl Iterator<Item = &Delivery> {
        self.queue.iter()
    }

    /// Takes all that waits away, oldest first.
    pub fn take_queue(&mut self) -> VecDeque<Delivery> {
        self.queue_bytes = 0;
        std::mem::take(&mut self.queue)
    }

    /// Puts messages in front of the queue, past its bounds: they were accepted elsewhere already.
    pub fn prepend(&mut self, earlier: Vec<Delivery>) {
        for delivery in earlier.into_iter().rev() {
            self.queue_bytes += delivery.message.cost();
            self.queue.push_front(delivery);
        }
    }

    /// Rebuilds the window of a session that came from elsewhere: identifiers ascending from the oldest, gaps are free.
    /// Out of order or repeated identifiers are left out.
    pub fn restore(&mut self, in_flight: impl IntoIterator<Item = Redelivery>) {
        self.slots.clear();
        for redelivery in in_flight {
            let (id, state) = match redelivery {
                Redelivery::Publish(id, delivery) if delivery.qos == Qos::ExactlyOnce => {
                    (id, State::AwaitPubrec(Some(delivery)))
                }
                Redelivery::Publish(id, delivery) => (id, State::AwaitPuback(Some(delivery))),
                Redelivery::Pubrel(id) => (id, State::AwaitPubcomp),
            };
            if self.slots.is_empty() {
                self.first_id = id.value();
            }
            let index = self.index_of(id);
            if index < self.slots.len() {
                continue;
            }
            self.slots.resize_with(index + 1, Slot::default);
            self.slots[index].state = state;
        }
        self.handle_resume();
    }

    /// The identifier the next new message gets.
    #[must_use]
    pub fn next_packet_id(&self) -> PacketId {
        self.id_at(self.slots.len())
    }

    /// Where identifiers go on in a session that came from elsewhere with nothing in flight.
    pub fn set_next_packet_id(&mut self, id: PacketId) {
        if self.slots.is_empty() {
            self.first_id = id.value();
        }
    }
}

const fn next_id(id: u16) -> u16 {
    if id == u16::MAX { 1 } else { id + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::MessageId;
    use thicket_mqtt::Publish;

    const LIMITS: OutboundLimits = OutboundLimits {
        messages: 100,
        bytes: 1_000_000,
    };

    fn id(value: u16) -> PacketId {
        PacketId::new(value).expect("not zero")
    }

    fn delivery(qos: Qos, payload: &[u8], expires_at: Option<Instant>) -> Delivery {
        let publish = Publish {
            qos,
            ..Publish::new("a", payload)
        };
        let message = Rc::new(Message::new(MessageId::default(), &publish, expires_at));
        Delivery {
            message,
            qos,
            retain: false,
            identifiers: MatchedIdentifiers::None,
            group: None,
        }
    }

    fn sent(started: Option<Started>) -> (u16, bool, Vec<u8>) {
        match started {
            Some(Started::Publish {
                packet_id,
                dup,
                delivery,
            }) => (
                packet_id.map_or(0, PacketId::value),
                dup,
                delivery.message.payload().to_vec(),
            ),
            other => panic!("not a PUBLISH: {other:?}"),
        }
    }

    fn outbound_with(qos: Qos, count: u8) -> Outbound {
        let mut outbound = Outbound::new(LIMITS, true);
        for number in 0..count {
            outbound
                .enqueue(delivery(qos, &[number], None))
                .expect("room");
        }
        outbound
    }

    /// One row a pair of the table in the module's documentation.
    #[test]
    fn every_pair_of_state_and_event_is_answered_as_the_table_says() {
        let free = || Outbound::new(LIMITS, true);
        let await_puback = || {
            let mut outbound = outbound_with(Qos::AtLeastOnce, 1);
            outbound.pull(Instant::from_millis(0), 10);
            outbound
        };
        let await_pubrec = || {
            let mut outbound = outbound_with(Qos::ExactlyOnce, 1);
            outbound.pull(Instant::from_millis(0), 10);
            outbound
        };
        let await_pubcomp = || {
            let mut outbound = await_pubrec();
            outbound.handle_pubrec(id(1), false);
            outbound
        };
        use Acknowledged::{Done, SendPubrel, Unknown, Wrong};
        type Build<'a> = &'a dyn Fn() -> Outbound;
        let rows: [(&str, Build<'_>, [Acknowledged; 4]); 4] = [
            ("free", &free, [Unknown, Unknown, Unknown, Unknown]),
            ("awaits PUBACK", &await_puback, [Done, Wrong, Wrong, Wrong]),
            (
                "awaits PUBREC",
                &await_pubrec,
                [Wrong, SendPubrel, Done, Wrong],
            ),
            (
                "awaits PUBCOMP",
                &await_pubcomp,
                [Wrong, SendPubrel, Done, Done],
            ),
        ];
        for (name, build, [puback, pubrec, refused, pubcomp]) in rows {
            assert_eq!(build().handle_puback(id(1)), puback, "{name}, PUBACK");
            assert_eq!(
                build().handle_pubrec(id(1), false),
                pubrec,
                "{name}, PUBREC"
            );
            assert_eq!(
                build().handle_pubrec(id(1), true),
                refused,
                "{name}, PUBREC >= 0x80"
            );
            assert_eq!(build().handle_pubcomp(id(1)), pubcomp, "{name}, PUBCOMP");
        }
    }

    #[test]
    fn identifiers_start_at_one_and_count_up() {
        // [MQTT-2.2.1-4]
        let mut outbound = outbound_with(Qos::AtLeastOnce, 3);
        for number in 1..=3 {
            assert_eq!(sent(outbound.pull(Instant::from_millis(0), 10)).0, number);
        }
    }

    #[test]
    fn no_more_than_the_window_is_in_flight_and_an_acknowledgement_makes_room() {
        // [MQTT-4.9.0-2]
        let mut outbound = outbound_with(Qos::AtLeastOnce, 3);
        assert_eq!(sent(outbound.pull(Instant::from_millis(0), 2)).0, 1);
        assert_eq!(sent(outbound.pull(Instant::from_millis(0), 2)).0, 2);
        assert_eq!(outbound.pull(Instant::from_millis(0), 2), None);
        outbound.handle_puback(id(2));
        assert_eq!(sent(outbound.pull(Instant::from_millis(0), 2)).0, 3);
    }

    #[test]
    fn a_resumed_session_sends_again_in_order_with_dup_within_the_new_window_and_then_goes_on() {
        let mut outbound = outbound_with(Qos::ExactlyOnce, 4);
        for _ in 0..3 {
            outbound.pull(Instant::from_millis(0), 10);
        }
        outbound.handle_pubrec(id(2), false);
        outbound.handle_resume();
        assert_eq!(
            sent(outbound.pull(Instant::from_millis(0), 1)),
            (1, true, vec![0])
        );
        assert_eq!(
            outbound.pull(Instant::from_millis(0), 1),
            Some(Started::Pubrel(id(2)))
        );
        assert_eq!(
            outbound.pull(Instant::from_millis(0), 1),
            None,
            "the window is full"
        );
        outbound.handle_pubrec(id(1), false);
        outbound.handle_pubcomp(id(1));
        assert_eq!(
            sent(outbound.pull(Instant::from_millis(0), 1)),
            (3, true, vec![2])
        );
        outbound.handle_pubrec(id(3), true);
        assert_eq!(
            sent(outbound.pull(Instant::from_millis(0), 1)),
            (4, false, vec![3])
        );
    }

    #[test]
    fn an_identifier_in_use_is_not_given_again_after_the_counter_wraps() {
        // [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1]
        let mut outbound = outbound_with(Qos::AtLeastOnce, 1);
        outbound.set_next_packet_id(id(u16::MAX));
        assert_eq!(sent(outbound.pull(Instant::from_millis(0), 10)).0, u16::MAX);
        outbound
            .enqueue(delivery(Qos::AtLeastOnce, b"", None))
            .expect("room");
        assert_eq!(sent(outbound.pull(Instant::from_millis(0), 10)).0, 1);
        assert_eq!(outbound.handle_puback(id(u16::MAX)), Acknowledged::Done);
        assert_eq!(outbound.handle_puback(id(1)), Acknowledged::Done);
        assert_eq!(outbound.inflight(), 0);
    }

    #[test]
    fn what_expired_in_the_queue_is_not_sent() {
        // [MQTT-3.3.2-5]
        let mut outbound = Outbound::new(LIMITS, true);
        outbound
            .enqueue(delivery(
                Qos::AtLeastOnce,
                b"old",
                Some(Instant::from_millis(5)),
            ))
            .expect("room");
        outbound
            .enqueue(delivery(Qos::AtLeastOnce, b"new", None))
            .expect("room");
        assert!(matches!(
            outbound.pull(Instant::from_millis(5), 10),
            Some(Started::Expired(_))
        ));
        assert_eq!(
            sent(outbound.pull(Instant::from_millis(5), 10)),
            (1, false, b"new".to_vec())
        );
    }

    #[test]
    fn a_full_queue_refuses_by_messages_and_by_bytes() {
        let mut by_messages = Outbound::new(
            OutboundLimits {
                messages: 1,
                bytes: 1_000_000,
            },
            true,
        );
        assert_eq!(
            by_messages.enqueue(delivery(Qos::AtLeastOnce, b"", None)),
            Ok(())
        );
        assert_eq!(
            by_messages.enqueue(delivery(Qos::AtLeastOnce, b"", None)),
            Err(QueueFull)
        );
        let mut by_bytes = Outbound::new(
            OutboundLimits {
                messages: 10,
                bytes: 200,
            },
            true,
        );
        assert_eq!(
            by_bytes.enqueue(delivery(Qos::AtLeastOnce, &[0; 500], None)),
            Err(QueueFull)
        );
        assert_eq!(by_bytes.queued_bytes(), 0);
    }

    #[test]
    fn a_restored_window_is_the_one_that_was_saved() {
        let mut outbound = outbound_with(Qos::ExactlyOnce, 3);
        for _ in 0..3 {
            outbound.pull(Instant::from_millis(0), 10);
        }
        outbound.handle_pubrec(id(1), false);
        outbound.handle_pubrec(id(2), true);
        let saved: Vec<_> = outbound.in_flight().collect();
        let mut restored = Outbound::new(LIMITS, true);
        restored.restore(saved.clone());
        assert_eq!(restored.in_flight().collect::<Vec<_>>(), saved);
        assert_eq!(restored.next_packet_id(), id(4));
        assert_eq!(
            restored.pull(Instant::from_millis(0), 10),
            Some(Started::Pubrel(id(1)))
        );
        assert_eq!(
            sent(restored.pull(Instant::from_millis(0), 10)),
            (3, true, vec![2])
        );
    }
}
