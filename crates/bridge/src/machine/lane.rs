//! The bounded queue of one direction.
//!
//! | message | capacity left | full, or some were given back |
//! | --- | --- | --- |
//! | QoS 0 | queued | dropped, counted |
//! | QoS 1, 2 | queued | given back to the source broker; its session sends it again, see [`Lane::wants_again`] |

use std::collections::{BTreeMap, VecDeque};

use thicket_mqtt::{PacketId, Publish, Qos};
use thicket_session::Instant;

use super::config::Bounds;
use super::memory::Digest;

/// The bridge's own data about a message besides its topic, payload and properties.
const OVERHEAD_BYTES: usize = 128;

/// A message on its way, as it will be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    /// Encoded application properties, including the mark of this bridge.
    pub(super) properties: Vec<u8>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) expires_at: Option<Instant>,
    /// Where to acknowledge it; `None` for QoS 0.
    pub(super) origin: Option<Origin>,
    pub(super) history: History,
}

/// The history of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    /// It has crossed no other bridge.
    Fresh,
    /// Another bridge has marked it.
    Bridged,
    /// Another bridge has marked it, and received it from a broker where marks are lost: it may have been here.
    Blind,
    /// This bridge has sent it before, to a session that no longer exists.
    SentBefore,
}

/// A message that was received with QoS 1 or 2 and not acknowledged yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) packet_id: PacketId,
    pub(super) qos: Qos,
    /// The session it was received in.
    pub(super) session: u64,
    /// The connection it was received on: an identifier of QoS 1 is invalid on the next.
    pub(super) connection: u64,
    /// Digest of topic and payload as received.
    pub(super) digest: Digest,
}

/// A message that was sent and not acknowledged; the client has its bytes.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) origin: Option<Origin>,
    pub(super) expires_at: Option<Instant>,
    /// For the memory of sent messages: whether an echo will come.
    pub(super) echo: (Digest, bool),
    bytes: usize,
}

/// The result of offering a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Taken,
    /// It has QoS 0 and exceeds the limit.
    Dropped,
    /// It must be given back.
    Refused,
}

/// The messages of one direction.
#[derive(Debug)]
pub(super) struct Lane {
    bounds: Bounds,
    waiting: VecDeque<Message>,
    sent: BTreeMap<PacketId, Sent>,
    bytes: usize,
    /// Some were given back: those that follow must be too, or they would overtake them.
    has_refused: bool,
}

impl Message {
    fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len() + self.properties.len() + OVERHEAD_BYTES
    }
}

impl Lane {
    pub(super) const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            bytes: 0,
            has_refused: false,
        }
    }

    pub(super) fn messages(&self) -> usize {
        self.waiting.len() + self.sent.len()
    }

    /// Those that were not sent yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a message if it is within the limits. A message larger than the limit is queued when the queue is empty: it must cross some time.
    pub(super) fn offer(&mut self, message: Message) -> Offer {
        let has_capacity = self.messages() == 0
            || (self.messages() < self.bounds.messages
                && self.bytes + message.bytes() <= self.bounds.bytes);
        match message.qos_of_origin() {
            Qos::AtMostOnce if !has_capacity => Offer::Dropped,
            Qos::AtLeastOnce | Qos::ExactlyOnce if !has_capacity || self.has_refused => {
                self.has_refused = true;
                Offer::Refused
            }
            Qos::AtMostOnce | Qos::AtLeastOnce | Qos::ExactlyOnce => {
                self.bytes += message.bytes();
                self.waiting.push_back(message);
                Offer::Taken
            }
        }
    }

    /// Whether messages were given back and half of the queue is free, so the source must send them again. Returns true only once.
    pub(super) fn wants_again(&mut self) -> bool {
        let is_half_free =
            self.messages() <= self.bounds.messages / 2 && self.bytes <= self.bounds.bytes / 2;
        let wants = self.has_refused && is_half_free;
        self.has_refused &= !wants;
        wants
    }

    /// The source sends everything again that was not acknowledged to it.
    pub(super) const fn on_source_connected(&mut self) {
        self.has_refused = false;
    }

    pub(super) fn first(&self) -> Option<&Message> {
        self.waiting.front()
    }

    /// Removes the first message: it was delivered at QoS 0, or never will be.
    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front()?;
        self.bytes -= message.bytes();
        Some(message)
    }

    /// Notes that the first message was sent under `packet_id`.
    pub(super) fn on_sent(&mut self, packet_id: PacketId, echo: (Digest, bool)) {
        let Some(message) = self.waiting.pop_front() else {
            return;
        };
        let sent = Sent {
            origin: message.origin,
            expires_at: message.expires_at,
            echo,
            bytes: message.bytes(),
        };
        self.sent.insert(packet_id, sent);
    }

    /// Removes what was sent under `packet_id`: it has arrived, or must be sent again.
    pub(super) fn take_sent(&mut self, packet_id: PacketId) -> Option<Sent> {
        let sent = self.sent.remove(&packet_id)?;
        self.bytes -= sent.bytes;
        Some(sent)
    }

    /// The echoes that open messages may cause once more when they are sent again.
    pub(super) fn echoes(&self) -> impl Iterator<Item = (Digest, bool)> {
        self.sent.values().map(|sent| sent.echo)
    }

    /// Puts messages whose delivery was interrupted before all others; they were within the limits before.
    pub(super) fn put_back(&mut self, messages: Vec<Message>) {
        for message in messages.into_iter().rev() {
            self.bytes += message.bytes();
            self.waiting.push_front(message);
        }
    }

    /// A message of QoS 1 was repeated on the connection that `origin` names. Returns whether it is still queued, so that it is not queued twice; it
    /// will be acknowledged on that connection.
    pub(super) fn adopt(&mut self, origin: &Origin) -> bool {
        let waiting = self.waiting.iter_mut().map(|message| &mut message.origin);
        let sent = self.sent.values_mut().map(|sent| &mut sent.origin);
        for known in waiting.chain(sent).flatten() {
            let is_same = known.packet_id == origin.packet_id
                && known.qos == origin.qos
                && known.session == origin.session
                && known.digest == origin.digest
                && known.connection < origin.connection;
            if is_same {
                known.connection = origin.connection;
                return true;
            }
        }
        false
    }
}

impl Message {
    /// The QoS with which it was received.
    fn qos_of_origin(&self) -> Qos {
        self.origin.map_or(Qos::AtMostOnce, |origin| origin.qos)
    }

    /// The PUBLISH for it. `None`: it has expired.
    pub(super) fn to_publish<'a>(
        &'a self,
        now: Instant,
        maximum_qos: Qos,
        properties: thicket_mqtt::ApplicationProperties<'a>,
    ) -> Option<Publish<'a>> {
        let seconds_left = self.expires_at.map(|at| at.since(now).as_secs());
        if seconds_left == Some(0) {
            return None;
        }
        Some(Publish {
            qos: self.qos.min(maximum_qos),
            retain: self.retain,
            message_expiry_interval: seconds_left
                .map(|left| u32::try_from(left).unwrap_or(u32::MAX)),
            properties,
            ..Publish::new(&self.topic, &self.payload)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Digester;
    use super::*;

    fn id(value: u16) -> PacketId {
        PacketId::new(value).unwrap()
    }

    fn message(payload: &str, number: u16, qos: Qos) -> Message {
        let origin = Origin {
            packet_id: id(number.max(1)),
            qos,
            session: 1,
            connection: 1,
            digest: Digester::new(1).digest("t", payload.as_bytes()),
        };
        Message {
            topic: "t".into(),
            payload: payload.into(),
            properties: Vec::new(),
            qos,
            retain: false,
            expires_at: None,
            origin: (qos != Qos::AtMostOnce).then_some(origin),
            history: History::Fresh,
        }
    }

    fn lane(messages: usize, bytes: usize) -> Lane {
        Lane::new(Bounds { messages, bytes })
    }

    #[test]
    fn a_full_queue_drops_qos_0_and_gives_the_others_back_until_half_of_it_is_free() {
        for (name, mut lane) in [
            ("messages", lane(2, usize::MAX)),
            ("bytes", lane(100, 2 * (OVERHEAD_BYTES + 2))),
        ] {
            assert_eq!(
                lane.offer(message("1", 1, Qos::AtLeastOnce)),
                Offer::Taken,
                "{name}"
            );
            assert_eq!(
                lane.offer(message("2", 2, Qos::ExactlyOnce)),
                Offer::Taken,
                "{name}"
            );
            assert_eq!(
                lane.offer(message("3", 0, Qos::AtMostOnce)),
                Offer::Dropped,
                "{name}"
            );
            assert!(!lane.wants_again(), "{name}: nothing was given back");
            assert_eq!(
                lane.offer(message("4", 4, Qos::AtLeastOnce)),
                Offer::Refused,
                "{name}"
            );
            assert!(!lane.wants_again(), "{name}: it is full still");
            lane.pop();
            assert_eq!(
                lane.offer(message("5", 5, Qos::AtLeastOnce)),
                Offer::Refused,
                "{name}: it must not overtake"
            );
            assert!(lane.wants_again(), "{name}");
            assert!(!lane.wants_again(), "{name}: said once");
            lane.on_source_connected();
            assert_eq!(
                lane.offer(message("4", 4, Qos::AtLeastOnce)),
                Offer::Taken,
                "{name}"
            );
        }
    }

    #[test]
    fn a_message_larger_than_the_bound_crosses_alone() {
        let mut lane = lane(10, 1);
        assert_eq!(
            lane.offer(message("large", 1, Qos::AtLeastOnce)),
            Offer::Taken
        );
        assert_eq!(
            lane.offer(message("small", 2, Qos::AtLeastOnce)),
            Offer::Refused
        );
    }

    #[test]
    fn a_message_that_comes_again_is_adopted_wherever_it_is() {
        let mut lane = lane(10, usize::MAX);
        lane.offer(message("1", 1, Qos::AtLeastOnce));
        lane.offer(message("2", 2, Qos::AtLeastOnce));
        lane.on_sent(id(9), (Digester::new(1).digest("t", b"1"), false));
        let again = |payload: &str, number, connection| Origin {
            connection,
            ..message(payload, number, Qos::AtLeastOnce).origin.unwrap()
        };
        let cases = [
            ("sent", again("1", 1, 2), true),
            ("waiting", again("2", 2, 2), true),
            (
                "on the same connection it is another",
                again("2", 2, 2),
                false,
            ),
            ("another payload", again("3", 2, 3), false),
            ("another identifier", again("2", 3, 3), false),
        ];
        for (name, origin, expected) in cases {
            assert_eq!(lane.adopt(&origin), expected, "{name}");
        }
        assert_eq!(lane.take_sent(id(9)).unwrap().origin.unwrap().connection, 2);
    }

    #[test]
    fn bytes_are_counted_wherever_a_message_is() {
        let mut lane = lane(10, usize::MAX);
        lane.offer(message("1", 1, Qos::AtLeastOnce));
        let bytes = lane.bytes();
        lane.on_sent(id(1), (Digester::new(1).digest("t", b"1"), false));
        assert_eq!((lane.bytes(), lane.messages()), (bytes, 1));
        lane.take_sent(id(1));
        assert_eq!((lane.bytes(), lane.messages()), (0, 0));
        lane.put_back(vec![
            message("1", 1, Qos::AtLeastOnce),
            message("2", 2, Qos::AtLeastOnce),
        ]);
        assert_eq!(lane.bytes(), 2 * bytes);
        assert_eq!(lane.pop().unwrap().payload, b"1");
        assert_eq!(lane.bytes(), bytes);
    }
}
