//! The sending side: messages made from a template, and how many of them are under way.

use std::collections::VecDeque;
use std::sync::Arc;

use thicket_mqtt::{EncodeError, PacketId, ProtocolVersion, Publish, Qos};

use super::scenario::{Scenario, size_of};
use crate::stamp::{Stamp, StampForm};

/// Most identifiers of unacknowledged messages of a publisher: half of the number space, so that none is reused too early.
const MAX_IN_FLIGHT: u32 = 32_767;

/// Packet identifiers: 1 to this.
const PACKET_IDS: u32 = 65_535;

/// A message that may be unacknowledged.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    /// When it was meant to be sent.
    time_ns: u64,
    is_acknowledged: bool,
}

/// A message with its last acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    pub number: u32,
    /// When it was meant to be sent.
    pub time_ns: u64,
}

/// What the messages of all streams have in common.
#[derive(Debug, Clone)]
pub struct Form {
    pub qos: Qos,
    pub version: ProtocolVersion,
    pub retain: bool,
    /// Payload of the longest message.
    pub payload_len: usize,
    /// Payloads in turn, if they differ.
    pub sizes: Option<Arc<[u32]>>,
}

impl Form {
    pub fn of(scenario: &Scenario) -> Self {
        Self {
            qos: scenario.qos,
            version: scenario.version,
            retain: scenario.retain,
            payload_len: scenario.payload_len,
            sizes: scenario.payload_sizes.clone(),
        }
    }
}

/// One stream: a publisher and its topic.
#[derive(Debug)]
pub struct Stream {
    /// A complete PUBLISH with the longest payload; identifier and stamp are overwritten in each
    /// copy.
    template: Box<[u8]>,
    /// Bytes before the variable header.
    header_len: usize,
    /// Payloads in turn, if they differ.
    sizes: Option<Arc<[u32]>>,
    /// Offset of the packet identifier; 0 at QoS 0.
    id_at: usize,
    payload_at: usize,
    form: StampForm,
    /// Index of this stream, for its stamps.
    index: u32,
    /// Number of the next message, over all runs.
    number: u32,
    /// Audiences that must receive each message.
    pub recipients: u32,
    /// Published in this run.
    pub sent: u64,
    /// Acknowledged in this run, including the last step of the quality of service.
    pub acknowledged: u64,
    /// Arrivals in this run, over all recipients; a message that a later number shows to be missing counts as arrived.
    pub accounted: u64,
    last_packet_id: u16,
    /// Messages of QoS 1 and 2 from the oldest unacknowledged one on, with consecutive identifiers.
    outstanding: VecDeque<Outstanding>,
    qos: Qos,
    /// Numbers of the messages of this run that the broker refused, or that may or may not have been accepted.
    pub not_accepted: Vec<u32>,
    /// Most unacknowledged messages that the broker accepts (Receive Maximum).
    limit: u32,
    /// Messages of an open loop that wait because of `limit`, by their due times.
    pub held_back: VecDeque<u64>,
    /// Whether the stream is in the list of those to serve.
    pub queued: bool,
    /// The progress when [`Stream::is_stuck`] was last called.
    came_back: u64,
}

impl Stream {
    /// A stream about to send its first message.
    pub fn new(index: u32, topic: &str, form: &Form, recipients: u32) -> Result<Self, EncodeError> {
        let (qos, payload_len) = (form.qos, form.payload_len);
        let payload = vec![b'.'; payload_len];
        let mut publish = Publish::new(topic, &payload);
        (publish.qos, publish.retain) = (qos, form.retain);
        publish.packet_id = (qos != Qos::AtMostOnce).then(|| PacketId::new(1)).flatten();
        let mut template = Vec::new();
        let id_at = publish.encode(form.version, &mut template)?.unwrap_or(0);
        let last_of_length = template.iter().skip(1).position(|byte| byte & 0x80 == 0);
        let shortest = form.sizes.as_deref().and_then(|sizes| sizes.iter().min());
        Ok(Self {
            payload_at: template.len() - payload_len,
            header_len: 2 + last_of_length.unwrap_or(0),
            template: template.into(),
            id_at,
            sizes: form.sizes.clone(),
            form: StampForm::for_payload(shortest.map_or(payload_len, |&size| size as usize)),
            index,
            number: 0,
            recipients,
            sent: 0,
            acknowledged: 0,
            accounted: 0,
            last_packet_id: 0,
            outstanding: VecDeque::new(),
            qos,
            not_accepted: Vec::new(),
            limit: MAX_IN_FLIGHT,
            held_back: VecDeque::new(),
            queued: false,
            came_back: 0,
        })
    }

    /// Applies the Receive Maximum of a CONNACK.
    pub fn limit_in_flight(&mut self, receive_maximum: u16) {
        self.limit = self.limit.min(u32::from(receive_maximum));
    }

    /// Most messages that may be unacknowledged; unlimited at QoS 0.
    pub fn limit(&self) -> u32 {
        if self.id_at == 0 {
            u32::MAX
        } else {
            self.limit
        }
    }

    /// Number of the next message, over all runs.
    pub fn next_number(&self) -> u32 {
        self.number
    }

    /// Appends the next message to `out`.
    #[inline]
    pub fn write_next(&mut self, time_ns: u64, out: &mut Vec<u8>) {
        if self.id_at > 0 {
            self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
            if self.outstanding.len() > MAX_IN_FLIGHT as usize {
                self.outstanding.pop_front();
            }
            self.outstanding.push_back(Outstanding {
                time_ns,
                is_acknowledged: false,
            });
        }
        self.write(self.number, self.last_packet_id, time_ns, out);
        self.number = self.number.wrapping_add(1);
        self.sent += 1;
    }

    #[inline]
    fn write(&self, number: u32, packet_id: u16, time_ns: u64, out: &mut Vec<u8>) {
        let start = out.len();
        // How much shorter the fixed header is than that of the template.
        let mut shorter = 0;
        match &self.sizes {
            None => out.extend_from_slice(&self.template),
            Some(sizes) => {
                let payload_len = size_of(sizes, self.index, number);
                let end = self.payload_at + payload_len.min(self.template.len() - self.payload_at);
                out.push(self.template[0]);
                push_length(end - self.header_len, out);
                shorter = self.header_len - (out.len() - start);
                out.extend_from_slice(&self.template[self.header_len..end]);
            }
        }
        let message = &mut out[start..];
        if self.id_at > 0 {
            let at = self.id_at - shorter;
            message[at..at + 2].copy_from_slice(&packet_id.to_be_bytes());
        }
        let stamp = Stamp {
            stream: self.index,
            number,
            time_ns,
        };
        let payload = &mut message[self.payload_at - shorter..];
        self.form.write(stamp, payload);
    }

    /// Notes the last acknowledgement of a message; `None` if none of this run waits for it.
    #[inline]
    pub fn settle(&mut self, packet_id: u16, is_refused: bool) -> Option<Settled> {
        let len = self.outstanding.len() as u32;
        // Identifiers as numbers from 0 on; how far this one is behind the last.
        let behind =
            (u32::from(self.last_packet_id) + PACKET_IDS - u32::from(packet_id)) % PACKET_IDS;
        let place = len.checked_sub(behind + 1)?;
        let message = self.outstanding.get_mut(place as usize)?;
        if std::mem::replace(&mut message.is_acknowledged, true) {
            return None;
        }
        let settled = Settled {
            number: self.number.wrapping_sub(behind + 1),
            time_ns: message.time_ns,
        };
        self.acknowledged += 1;
        if is_refused {
            self.not_accepted.push(settled.number);
        }
        while self
            .outstanding
            .front()
            .is_some_and(|it| it.is_acknowledged)
        {
            self.outstanding.pop_front();
        }
        Some(settled)
    }

    /// Writes what is unacknowledged again, for a new session. At QoS 2 it may have been delivered, so it is given up; the number of these.
    pub fn write_again(&mut self, out: &mut Vec<u8>) -> u64 {
        let len = self.outstanding.len() as u32;
        let mut unknown = 0;
        for (place, message) in (0..).zip(&self.outstanding) {
            let behind = len - 1 - place;
            let number = self.number.wrapping_sub(behind + 1);
            if message.is_acknowledged {
                continue;
            }
            if self.qos == Qos::ExactlyOnce {
                unknown += 1;
                self.not_accepted.push(number);
                continue;
            }
            let packet_id =
                (u32::from(self.last_packet_id) + PACKET_IDS - 1 - behind) % PACKET_IDS + 1;
            self.write(number, packet_id as u16, message.time_ns, out);
        }
        if unknown > 0 {
            self.outstanding.clear();
            self.acknowledged += unknown;
        }
        unknown
    }

    /// Messages published and not yet acknowledged; 0 at QoS 0.
    pub fn unacknowledged(&self) -> u32 {
        if self.id_at == 0 {
            0
        } else {
            self.sent.saturating_sub(self.acknowledged) as u32
        }
    }

    /// Messages under way: not yet received by all recipients, or not yet acknowledged.
    pub fn on_their_way(&self) -> u64 {
        let back = if self.recipients == 0 {
            self.sent
        } else {
            self.accounted / u64::from(self.recipients)
        };
        let done = if self.id_at == 0 {
            back
        } else {
            back.min(self.acknowledged)
        };
        self.sent.saturating_sub(done)
    }

    /// Whether a closed loop can drive the stream: each message has a recipient or an acknowledgement.
    pub fn closes(&self) -> bool {
        self.recipients > 0 || self.id_at > 0
    }

    /// Starts the counts of a run.
    pub fn restart(&mut self) {
        self.sent = 0;
        self.acknowledged = 0;
        self.accounted = 0;
        self.came_back = 0;
        self.held_back.clear();
        self.outstanding.clear();
        self.not_accepted.clear();
    }

    /// Whether messages are under way without progress since the last call.
    pub fn is_stuck(&mut self) -> bool {
        let came_back = self.accounted + self.acknowledged;
        let stuck = self.on_their_way() > 0 && came_back == self.came_back;
        self.came_back = came_back;
        stuck
    }

    /// Stops waiting for messages under way.
    pub fn give_up(&mut self) {
        self.accounted = self.sent * u64::from(self.recipients);
        self.acknowledged = self.sent;
        self.outstanding.clear();
    }
}

/// Appends a Remaining Length, a variable byte integer (MQTT 5.0, 1.5.5).
fn push_length(mut length: usize, out: &mut Vec<u8>) {
    while length > 0x7F {
        out.push(0x80 | (length & 0x7F) as u8);
        length >>= 7;
    }
    out.push(length as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::read_full;
    use thicket_mqtt::{Packet, decode};

    fn stream(qos: Qos, version: ProtocolVersion, recipients: u32) -> Stream {
        let form = Form {
            qos,
            version,
            retain: false,
            payload_len: 64,
            sizes: None,
        };
        Stream::new(9, "b/pair/9", &form, recipients).unwrap()
    }

    #[test]
    fn messages_of_different_sizes_are_whole_publishes_too() {
        for (version, qos) in [
            (ProtocolVersion::V311, Qos::AtMostOnce),
            (ProtocolVersion::V5, Qos::AtLeastOnce),
        ] {
            let sizes = [16, 70, 300, 20_000];
            let form = Form {
                qos,
                version,
                retain: true,
                payload_len: 20_000,
                sizes: Some(sizes.into()),
            };
            let mut stream = Stream::new(4, "b/pair/4", &form, 1).unwrap();
            let mut out = Vec::new();
            (0..9).for_each(|time_ns| stream.write_next(time_ns, &mut out));
            let mut at = 0;
            for number in 0..9 {
                let Ok(Some((Packet::Publish(publish), len))) =
                    decode(&out[at..], version, u32::MAX)
                else {
                    panic!("{qos:?} {version:?}: message {number} is no PUBLISH")
                };
                at += len;
                assert_eq!(publish.payload.len(), size_of(&sizes, 4, number));
                assert!(publish.retain && publish.topic == "b/pair/4");
                let stamp = Stamp {
                    stream: 4,
                    number,
                    time_ns: u64::from(number),
                };
                assert_eq!(read_full(publish.payload), Some(stamp));
            }
            assert_eq!(at, out.len());
        }
    }

    #[test]
    fn written_messages_are_whole_publishes_with_their_own_stamps() {
        for version in [ProtocolVersion::V311, ProtocolVersion::V5] {
            for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
                let mut stream = stream(qos, version, 1);
                let mut out = Vec::new();
                stream.write_next(77, &mut out);
                stream.write_next(78, &mut out);
                let mut at = 0;
                for number in 0..2 {
                    let Ok(Some((Packet::Publish(publish), len))) =
                        decode(&out[at..], version, u32::MAX)
                    else {
                        panic!("{qos:?} {version:?}: message {number} is no PUBLISH")
                    };
                    at += len;
                    assert_eq!(
                        (publish.topic, publish.qos, publish.payload.len()),
                        ("b/pair/9", qos, 64)
                    );
                    let stamp = Stamp {
                        stream: 9,
                        number,
                        time_ns: 77 + u64::from(number),
                    };
                    assert_eq!(read_full(publish.payload), Some(stamp));
                    let id =
                        (qos != Qos::AtMostOnce).then(|| PacketId::new(number as u16 + 1).unwrap());
                    assert_eq!(publish.packet_id, id);
                }
                assert_eq!(at, out.len());
            }
        }
    }

    #[test]
    fn a_message_is_on_its_way_until_all_recipients_have_it_and_it_is_acknowledged() {
        for (name, qos, recipients, sent, accounted, acknowledged, expected) in [
            ("nothing sent", Qos::AtMostOnce, 1, 0, 0, 0, 0),
            ("one of two back", Qos::AtMostOnce, 1, 2, 1, 0, 1),
            (
                "three recipients, one of them behind",
                Qos::AtMostOnce,
                3,
                2,
                5,
                0,
                1,
            ),
            ("back but not acknowledged", Qos::AtLeastOnce, 1, 2, 2, 0, 2),
            ("acknowledged but not back", Qos::AtLeastOnce, 1, 2, 0, 2, 2),
            ("nobody to receive", Qos::AtLeastOnce, 0, 5, 0, 3, 2),
            ("more back than sent", Qos::AtMostOnce, 1, 2, 3, 0, 0),
        ] {
            let mut stream = stream(qos, ProtocolVersion::V5, recipients);
            (stream.sent, stream.accounted, stream.acknowledged) = (sent, accounted, acknowledged);
            assert_eq!(stream.on_their_way(), expected, "{name}");
        }
    }

    #[test]
    fn a_stream_is_stuck_when_nothing_came_back_since_it_was_last_asked() {
        let mut stream = stream(Qos::AtMostOnce, ProtocolVersion::V5, 1);
        assert!(!stream.is_stuck(), "nothing is on its way");
        stream.sent = 3;
        stream.accounted = 1;
        assert!(!stream.is_stuck(), "one came back");
        assert!(stream.is_stuck());
        stream.give_up();
        assert_eq!((stream.on_their_way(), stream.is_stuck()), (0, false));
    }

    #[test]
    fn an_acknowledgement_is_that_of_its_message_also_out_of_order_and_over_the_end_of_identifiers()
    {
        let mut stream = stream(Qos::AtLeastOnce, ProtocolVersion::V311, 1);
        let mut out = Vec::new();
        for number in 0..70_000u32 {
            stream.write_next(u64::from(number), &mut out);
            // One in ten is acknowledged late.
            if number % 10 != 3 {
                let packet_id = (number % 65_535 + 1) as u16;
                let settled = stream.settle(packet_id, false).expect("it waits");
                assert_eq!(
                    (settled.number, settled.time_ns),
                    (number, u64::from(number))
                );
                assert_eq!(stream.settle(packet_id, false), None, "once");
            }
            if number % 10 == 9 {
                let late = number - 6;
                let packet_id = (late % 65_535 + 1) as u16;
                assert_eq!(
                    stream.settle(packet_id, false).map(|it| it.number),
                    Some(late)
                );
            }
            out.clear();
        }
        assert_eq!((stream.unacknowledged(), stream.outstanding.len()), (0, 0));
    }

    #[test]
    fn a_new_session_gets_what_is_unacknowledged_again_except_at_qos_2() {
        for (qos, sent_again, unknown) in [(Qos::AtLeastOnce, 2, 0), (Qos::ExactlyOnce, 0, 2)] {
            let mut stream = stream(qos, ProtocolVersion::V5, 1);
            let mut out = Vec::new();
            for time_ns in 0..4 {
                stream.write_next(time_ns, &mut out);
            }
            stream.settle(2, false);
            stream.settle(3, true);
            out.clear();
            assert_eq!(stream.write_again(&mut out), unknown, "{qos:?}");
            let mut again = Vec::new();
            let mut at = 0;
            while let Ok(Some((Packet::Publish(publish), len))) =
                decode(&out[at..], ProtocolVersion::V5, u32::MAX)
            {
                let stamp = read_full(publish.payload).expect("a stamp");
                again.push((publish.packet_id.map(|it| it.0.get()), stamp.number));
                at += len;
            }
            assert_eq!(again.len(), sent_again, "{qos:?}");
            if qos == Qos::AtLeastOnce {
                assert_eq!(again, [(Some(1), 0), (Some(4), 3)]);
                assert_eq!(stream.not_accepted, [2]);
            } else {
                assert_eq!((stream.not_accepted.len(), stream.unacknowledged()), (3, 0));
            }
        }
    }

    #[test]
    fn packet_identifiers_never_become_zero() {
        let mut stream = stream(Qos::AtLeastOnce, ProtocolVersion::V311, 1);
        let mut out = Vec::new();
        for _ in 0..65_536 {
            out.clear();
            stream.write_next(0, &mut out);
        }
        let Ok(Some((Packet::Publish(publish), _))) = decode(&out, ProtocolVersion::V311, u32::MAX)
        else {
            panic!()
        };
        assert_eq!(publish.packet_id, PacketId::new(1));
    }
}
