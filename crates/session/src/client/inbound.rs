//! Received messages of QoS 1 and 2 and what we owe for them.
//!
//! QoS 2, one packet identifier; *owed* exists only with manual acknowledgement.
//!
//! | state | PUBLISH | PUBREL | we acknowledge | we refuse |
//! | --- | --- | --- | --- | --- |
//! | free | delivered; PUBREC and held, or owed | PUBCOMP 0x92 | misuse | misuse |
//! | owed | nothing | protocol error | PUBREC, held | PUBREC >= 0x80, free |
//! | held | PUBREC again | PUBCOMP, free | misuse | misuse |
//!
//! QoS 1 is delivered and answered by PUBACK; with manual acknowledgement the identifier is owed until then, or until the
//! connection ends: the server then sends the message again.
//!
//! Acknowledgements go out in the order of their messages [MQTT-4.6.0-2] [MQTT-4.6.0-3], so one given early waits for those
//! before it.

use std::collections::VecDeque;

use thicket_mqtt::{PacketId, PacketKind, Qos, ReasonCode};

use super::PeerError;
use super::config::AcknowledgementMode;

#[derive(Debug)]
pub(super) struct Inbound {
    mode: AcknowledgementMode,
    receive_maximum: u16,
    /// QoS 2: PUBREC was sent, PUBREL was not received yet.
    held: PacketIdSet,
    /// Held or owed since an earlier connection and not sent again on this one: our Receive Maximum is a quota for each connection.
    earlier: PacketIdSet,
    owed_pubacks: OwedQueue,
    owed_pubrecs: OwedQueue,
}

/// What to do about a PUBLISH of QoS 1 or 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reception {
    /// Deliver it, then answer.
    DeliverAndAcknowledge,
    /// Deliver it; the caller will acknowledge.
    Deliver,
    /// Answer without a second delivery [MQTT-4.3.3-10].
    AcknowledgeAgain,
    /// The caller has it and did not acknowledge it yet.
    Ignore,
}

impl Inbound {
    pub(super) fn new(mode: AcknowledgementMode, receive_maximum: u16) -> Self {
        Self {
            mode,
            receive_maximum: receive_maximum.max(1),
            held: PacketIdSet::default(),
            earlier: PacketIdSet::default(),
            owed_pubacks: OwedQueue::default(),
            owed_pubrecs: OwedQueue::default(),
        }
    }

    pub(super) fn on_publish(
        &mut self,
        qos: Qos,
        packet_id: PacketId,
    ) -> Result<Reception, PeerError> {
        let known = match qos {
            Qos::ExactlyOnce if self.held.contains(packet_id) => Some(Reception::AcknowledgeAgain),
            Qos::ExactlyOnce => self
                .owed_pubrecs
                .contains(packet_id)
                .then_some(Reception::Ignore),
            Qos::AtLeastOnce | Qos::AtMostOnce => self
                .owed_pubacks
                .contains(packet_id)
                .then_some(Reception::Ignore),
        };
        if let Some(reception) = known {
            self.earlier.remove(packet_id);
            return Ok(reception);
        }
        if self.unacknowledged() >= usize::from(self.receive_maximum) {
            return Err(PeerError::ReceiveMaximumExceeded {
                maximum: self.receive_maximum,
            });
        }
        Ok(match (self.mode, qos) {
            (AcknowledgementMode::Automatic, Qos::ExactlyOnce) => {
                self.held.insert(packet_id);
                Reception::DeliverAndAcknowledge
            }
            (AcknowledgementMode::Automatic, Qos::AtLeastOnce | Qos::AtMostOnce) => {
                Reception::DeliverAndAcknowledge
            }
            (AcknowledgementMode::Manual, Qos::ExactlyOnce) => {
                self.owed_pubrecs.push(packet_id);
                Reception::Deliver
            }
            (AcknowledgementMode::Manual, Qos::AtLeastOnce | Qos::AtMostOnce) => {
                self.owed_pubacks.push(packet_id);
                Reception::Deliver
            }
        })
    }

    /// Handles a PUBREL. Returns the code of the PUBCOMP.
    pub(super) fn on_pubrel(&mut self, packet_id: PacketId) -> Result<ReasonCode, PeerError> {
        self.earlier.remove(packet_id);
        if self.held.remove(packet_id) {
            return Ok(ReasonCode::Success);
        }
        if self.owed_pubrecs.contains(packet_id) {
            return Err(PeerError::UnexpectedAcknowledgement {
                kind: PacketKind::Pubrel,
                packet_id,
            });
        }
        Ok(ReasonCode::PacketIdentifierNotFound)
    }

    /// The caller acknowledges `packet_id` with `reason_code`. `send` gets each acknowledgement that is due now, in order. Returns whether the
    /// identifier was owed one.
    pub(super) fn acknowledge(
        &mut self,
        packet_id: PacketId,
        reason_code: ReasonCode,
        mut send: impl FnMut(PacketKind, PacketId, ReasonCode),
    ) -> bool {
        if self.owed_pubacks.acknowledge(packet_id, reason_code) {
            while let Some((packet_id, reason_code)) = self.owed_pubacks.pop_due() {
                send(PacketKind::Puback, packet_id, reason_code);
            }
            return true;
        }
        if !self.owed_pubrecs.acknowledge(packet_id, reason_code) {
            return false;
        }
        while let Some((packet_id, reason_code)) = self.owed_pubrecs.pop_due() {
            if reason_code.is_error() {
                self.earlier.remove(packet_id);
            } else {
                self.held.insert(packet_id);
            }
            send(PacketKind::Pubrec, packet_id, reason_code);
        }
        true
    }

    /// The caller does not keep a message it was given: it stays unacknowledged, and is delivered again when the server sends it again. Returns
    /// whether an acknowledgement was owed.
    pub(super) fn give_back(&mut self, packet_id: PacketId) -> bool {
        if self.owed_pubrecs.remove(packet_id) {
            self.earlier.remove(packet_id);
            return true;
        }
        self.owed_pubacks.remove(packet_id)
    }

    /// The connection is gone. Unacknowledged QoS 1 is sent again on the next; QoS 2 stays as it is.
    pub(super) fn on_closed(&mut self) {
        self.owed_pubacks.clear();
        self.earlier = self.held.clone();
        for owed in &self.owed_pubrecs.entries {
            self.earlier.insert(owed.packet_id);
        }
    }

    /// The server has no session any more: what it sends from now on is new, whatever its identifier.
    pub(super) fn forget(&mut self) {
        self.held = PacketIdSet::default();
        self.earlier = PacketIdSet::default();
        self.owed_pubacks.clear();
        self.owed_pubrecs.clear();
    }

    /// Messages that count towards our Receive Maximum.
    pub(super) fn unacknowledged(&self) -> usize {
        let all = self.held.len() + self.owed_pubacks.len() + self.owed_pubrecs.len();
        all - self.earlier.len()
    }
}

/// Messages delivered and not acknowledged, in order.
#[derive(Debug, Default)]
struct OwedQueue {
    entries: VecDeque<Owed>,
}

#[derive(Debug)]
struct Owed {
    packet_id: PacketId,
    /// `None`: not yet.
    acknowledged: Option<ReasonCode>,
}

impl OwedQueue {
    fn push(&mut self, packet_id: PacketId) {
        self.entries.push_back(Owed {
            packet_id,
            acknowledged: None,
        });
    }

    fn contains(&self, packet_id: PacketId) -> bool {
        self.entries.iter().any(|owed| owed.packet_id == packet_id)
    }

    /// Notes the acknowledgement. Returns whether one was owed. Usually it is for the first in the queue.
    fn acknowledge(&mut self, packet_id: PacketId, reason_code: ReasonCode) -> bool {
        let owed = self
            .entries
            .iter_mut()
            .find(|owed| owed.packet_id == packet_id);
        match owed {
            Some(owed) if owed.acknowledged.is_none() => {
                owed.acknowledged = Some(reason_code);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Removes the first entry if it is acknowledged.
    fn pop_due(&mut self) -> Option<(PacketId, ReasonCode)> {
        let owed = self.entries.front()?;
        let due = (owed.packet_id, owed.acknowledged?);
        self.entries.pop_front();
        Some(due)
    }

    /// Removes the last entry with this identifier that is not acknowledged. Returns whether there was one.
    fn remove(&mut self, packet_id: PacketId) -> bool {
        let place = self
            .entries
            .iter()
            .rposition(|owed| owed.packet_id == packet_id && owed.acknowledged.is_none());
        place.and_then(|index| self.entries.remove(index)).is_some()
    }

    fn clear(&mut self) {
        self.entries.clear();
    }

    fn len(&self) -> usize {
        self.entries.len()
    }
}

/// A set of packet identifiers: a bit each, 8 KiB at most.
#[derive(Debug, Clone, Default)]
struct PacketIdSet {
    words: Vec<u64>,
    len: usize,
}

impl PacketIdSet {
    fn place(packet_id: PacketId) -> (usize, u64) {
        let value = usize::from(packet_id.value());
        (value / 64, 1 << (value % 64))
    }

    fn contains(&self, packet_id: PacketId) -> bool {
        let (word, bit) = Self::place(packet_id);
        self.words.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn insert(&mut self, packet_id: PacketId) {
        let (word, bit) = Self::place(packet_id);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    fn remove(&mut self, packet_id: PacketId) -> bool {
        let was_there = self.contains(packet_id);
        if was_there {
            let (word, bit) = Self::place(packet_id);
            self.words[word] &= !bit;
            self.len -= 1;
        }
        was_there
    }

    const fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u16) -> PacketId {
        PacketId::new(value).unwrap()
    }

    fn manual() -> Inbound {
        Inbound::new(AcknowledgementMode::Manual, 10)
    }

    /// Acknowledges and lists what was sent.
    fn acknowledge(
        inbound: &mut Inbound,
        value: u16,
        code: ReasonCode,
    ) -> Option<Vec<(PacketKind, u16, ReasonCode)>> {
        let mut sent = Vec::new();
        let was_owed = inbound.acknowledge(id(value), code, |kind, id, code| {
            sent.push((kind, id.value(), code))
        });
        was_owed.then_some(sent)
    }

    #[test]
    fn every_pair_of_the_table_is_answered_as_it_says() {
        const OK: ReasonCode = ReasonCode::Success;
        const QUOTA: ReasonCode = ReasonCode::QuotaExceeded;
        let in_state = |state: &str| {
            let mut inbound = manual();
            if state != "free" {
                assert_eq!(
                    inbound.on_publish(Qos::ExactlyOnce, id(1)),
                    Ok(Reception::Deliver)
                );
            }
            if state == "held" {
                acknowledge(&mut inbound, 1, OK).unwrap();
            }
            inbound
        };
        let unexpected = PeerError::UnexpectedAcknowledgement {
            kind: PacketKind::Pubrel,
            packet_id: id(1),
        };
        let table = [
            (
                "free",
                Reception::Deliver,
                Ok(ReasonCode::PacketIdentifierNotFound),
                None,
                None,
            ),
            (
                "owed",
                Reception::Ignore,
                Err(unexpected),
                Some(vec![(PacketKind::Pubrec, 1, OK)]),
                Some(vec![(PacketKind::Pubrec, 1, QUOTA)]),
            ),
            ("held", Reception::AcknowledgeAgain, Ok(OK), None, None),
        ];
        for (state, publish, pubrel, acknowledged, refused) in table {
            assert_eq!(
                in_state(state).on_publish(Qos::ExactlyOnce, id(1)),
                Ok(publish),
                "{state}, PUBLISH"
            );
            assert_eq!(in_state(state).on_pubrel(id(1)), pubrel, "{state}, PUBREL");
            assert_eq!(
                acknowledge(&mut in_state(state), 1, OK),
                acknowledged,
                "{state}, acknowledged"
            );
            let mut inbound = in_state(state);
            assert_eq!(
                acknowledge(&mut inbound, 1, QUOTA),
                refused,
                "{state}, refused"
            );
            if refused.is_some() {
                assert_eq!(
                    inbound.on_publish(Qos::ExactlyOnce, id(1)),
                    Ok(Reception::Deliver),
                    "free again"
                );
            }
        }
        let mut automatic = Inbound::new(AcknowledgementMode::Automatic, 10);
        assert_eq!(
            automatic.on_publish(Qos::ExactlyOnce, id(1)),
            Ok(Reception::DeliverAndAcknowledge)
        );
        assert_eq!(
            automatic.on_publish(Qos::ExactlyOnce, id(1)),
            Ok(Reception::AcknowledgeAgain)
        );
        assert_eq!(automatic.on_pubrel(id(1)), Ok(OK));
        assert_eq!(
            automatic.on_publish(Qos::ExactlyOnce, id(1)),
            Ok(Reception::DeliverAndAcknowledge)
        );
        assert_eq!(
            automatic.on_publish(Qos::AtLeastOnce, id(2)),
            Ok(Reception::DeliverAndAcknowledge)
        );
        assert_eq!(
            automatic.on_publish(Qos::AtLeastOnce, id(2)),
            Ok(Reception::DeliverAndAcknowledge)
        );
        assert_eq!(automatic.unacknowledged(), 1);
    }

    #[test]
    fn acknowledgements_go_out_in_the_order_of_the_messages() {
        let mut inbound = manual();
        for (qos, value) in [(1, 1), (2, 2), (1, 3), (2, 4), (1, 5)] {
            inbound
                .on_publish(Qos::from_bits(qos).unwrap(), id(value))
                .unwrap();
        }
        let ok = ReasonCode::Success;
        assert_eq!(
            acknowledge(&mut inbound, 3, ok),
            Some(vec![]),
            "the first must go before"
        );
        assert_eq!(acknowledge(&mut inbound, 3, ok), None, "once is enough");
        let due = vec![(PacketKind::Puback, 1, ok), (PacketKind::Puback, 3, ok)];
        assert_eq!(acknowledge(&mut inbound, 1, ok), Some(due));
        assert_eq!(acknowledge(&mut inbound, 4, ok), Some(vec![]));
        let due = vec![(PacketKind::Pubrec, 2, ok), (PacketKind::Pubrec, 4, ok)];
        assert_eq!(
            acknowledge(&mut inbound, 2, ok),
            Some(due),
            "QoS 1 and 2 do not wait for each other"
        );
        assert_eq!(inbound.unacknowledged(), 3, "one owed, two held");
    }

    #[test]
    fn a_message_that_is_given_back_is_not_answered_and_is_delivered_again() {
        for (name, qos, kind) in [
            ("QoS 1", Qos::AtLeastOnce, PacketKind::Puback),
            ("QoS 2", Qos::ExactlyOnce, PacketKind::Pubrec),
        ] {
            let mut inbound = manual();
            for number in [1, 2] {
                assert_eq!(
                    inbound.on_publish(qos, id(number)),
                    Ok(Reception::Deliver),
                    "{name}"
                );
            }
            assert!(inbound.give_back(id(2)), "{name}");
            assert!(!inbound.give_back(id(2)), "{name}: only once");
            assert_eq!(inbound.unacknowledged(), 1, "{name}");
            assert_eq!(
                acknowledge(&mut inbound, 2, ReasonCode::Success),
                None,
                "{name}: nothing is owed"
            );
            assert_eq!(
                acknowledge(&mut inbound, 1, ReasonCode::Success),
                Some(vec![(kind, 1, ReasonCode::Success)]),
                "{name}"
            );
            inbound.on_closed();
            assert_eq!(
                inbound.on_publish(qos, id(2)),
                Ok(Reception::Deliver),
                "{name}: it comes again"
            );
        }
    }

    #[test]
    fn the_receive_maximum_is_held_against_the_server() {
        for mode in [AcknowledgementMode::Manual, AcknowledgementMode::Automatic] {
            let mut inbound = Inbound::new(mode, 2);
            inbound.on_publish(Qos::ExactlyOnce, id(1)).unwrap();
            inbound.on_publish(Qos::ExactlyOnce, id(2)).unwrap();
            assert!(
                inbound.on_publish(Qos::ExactlyOnce, id(1)).is_ok(),
                "known already"
            );
            let exceeded = Err(PeerError::ReceiveMaximumExceeded { maximum: 2 });
            assert_eq!(inbound.on_publish(Qos::ExactlyOnce, id(3)), exceeded);
            assert_eq!(inbound.on_publish(Qos::AtLeastOnce, id(3)), exceeded);
        }
    }

    #[test]
    fn what_an_earlier_connection_left_does_not_count_until_it_is_sent_again() {
        for mode in [AcknowledgementMode::Manual, AcknowledgementMode::Automatic] {
            let mut inbound = Inbound::new(mode, 2);
            inbound.on_publish(Qos::ExactlyOnce, id(1)).unwrap();
            inbound.on_publish(Qos::ExactlyOnce, id(2)).unwrap();
            inbound.on_closed();
            inbound.on_publish(Qos::ExactlyOnce, id(3)).unwrap();
            inbound.on_publish(Qos::ExactlyOnce, id(2)).unwrap();
            assert_eq!(inbound.unacknowledged(), 2);
            let exceeded = Err(PeerError::ReceiveMaximumExceeded { maximum: 2 });
            assert_eq!(inbound.on_publish(Qos::ExactlyOnce, id(4)), exceeded);
        }
    }

    #[test]
    fn a_lost_connection_leaves_qos_2_and_a_lost_session_leaves_nothing() {
        let mut inbound = manual();
        inbound.on_publish(Qos::AtLeastOnce, id(1)).unwrap();
        inbound.on_publish(Qos::ExactlyOnce, id(2)).unwrap();
        inbound.on_publish(Qos::ExactlyOnce, id(3)).unwrap();
        acknowledge(&mut inbound, 2, ReasonCode::Success).unwrap();
        inbound.on_closed();
        assert_eq!(acknowledge(&mut inbound, 1, ReasonCode::Success), None);
        assert_eq!(
            inbound.on_publish(Qos::AtLeastOnce, id(1)),
            Ok(Reception::Deliver),
            "comes again"
        );
        assert_eq!(
            inbound.on_publish(Qos::ExactlyOnce, id(2)),
            Ok(Reception::AcknowledgeAgain)
        );
        assert_eq!(
            inbound.on_publish(Qos::ExactlyOnce, id(3)),
            Ok(Reception::Ignore)
        );
        inbound.forget();
        assert_eq!(inbound.unacknowledged(), 0);
        assert_eq!(
            inbound.on_publish(Qos::ExactlyOnce, id(2)),
            Ok(Reception::Deliver)
        );
    }
}
