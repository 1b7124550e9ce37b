//! What was sent under a packet identifier and waits for its answer: messages of QoS 1 and 2, SUBSCRIBE, UNSUBSCRIBE.
//!
//! One machine for each identifier; the answer in a column, what becomes of it below.
//!
//! | waiting for | PUBACK | PUBREC | PUBREC >= 0x80 | PUBCOMP | SUBACK | UNSUBACK |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | nothing (free) | ignored | PUBREL 0x92 | ignored | ignored | refused | refused |
//! | PUBACK | settled | refused | refused | refused | refused | refused |
//! | PUBREC | refused | PUBREL, waits for PUBCOMP | settled | refused | refused | refused |
//! | PUBCOMP | refused | PUBREL again | settled | settled | refused | refused |
//! | PUBCOMP, discarded | refused | PUBREL again | freed | freed | refused | refused |
//! | SUBACK | refused | refused | refused | refused | settled | refused |
//! | UNSUBACK | refused | refused | refused | refused | refused | settled |
//!
//! *Settled*: the caller is informed and the identifier is free. *Refused*: the connection ends with Protocol Error. An acknowledgement for a free
//! identifier is harmless: an answer may arrive twice when a connection broke between.

use std::collections::VecDeque;

use thicket_mqtt::{PacketId, PacketKind, Qos};

use super::PeerError;
use super::config::InflightMode;

/// Buffers of settled messages kept for the next ones, so that a steady flow allocates nothing.
const SPARE_BUFFERS: usize = 64;
/// A larger buffer is freed at once.
const SPARE_BUFFER_BYTES: usize = 4096;

#[derive(Debug)]
pub(super) struct Outbound {
    mode: InflightMode,
    /// By identifier, from 1; grows to the most ever in use at once.
    slots: Vec<Slot>,
    /// Identifiers used before, the one free for longest first.
    free: VecDeque<PacketId>,
    /// Messages sent on this connection that are not settled: what the Receive Maximum bounds.
    window: usize,
    /// Messages of an earlier connection that are still to be sent on this one, in their order.
    unsent: VecDeque<PacketId>,
    /// Number of the next PUBLISH or PUBREC in order.
    sequence: u64,
    spare: Vec<Vec<u8>>,
}

/// What an identifier waits for.
#[derive(Debug)]
enum Slot {
    Free,
    Puback(Sent),
    Pubrec(Sent),
    Pubcomp {
        sequence: u64,
    },
    /// The message was reported as discarded; PUBREL makes the server forget the identifier.
    Clearing,
    Suback {
        filters: usize,
    },
    Unsuback {
        filters: usize,
    },
}

/// A PUBLISH that may have to be sent again.
#[derive(Debug)]
struct Sent {
    sequence: u64,
    /// The packet with its whole topic and DUP 0; empty if only the identifier is kept.
    bytes: Vec<u8>,
    /// Whether it was sent on this connection.
    on_this_connection: bool,
}

/// An answer of the server, as the table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Puback,
    PubrecAccepted,
    PubrecRefused,
    Pubcomp,
    /// With this many reason codes.
    Suback(usize),
    /// With this many reason codes, `None` before 5.0.
    Unsuback(Option<usize>),
}

/// What to do about an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reaction {
    Ignore,
    /// Inform the caller.
    Settled,
    /// Send PUBREL.
    Release,
    /// Send PUBREL with Packet Identifier not found.
    ReleaseUnknown,
}

/// What is left of a session when a connection begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resumption {
    /// To be released again, in the order of their PUBRECs.
    pub(super) pubrels: Vec<PacketId>,
    /// Messages that will not be sent again, in their order, with their packets as far as kept.
    pub(super) discarded: Vec<(PacketId, Vec<u8>)>,
    /// Messages that the server has received and that need nothing more.
    pub(super) settled: Vec<PacketId>,
}

impl Outbound {
    pub(super) const fn new(mode: InflightMode) -> Self {
        Self {
            mode,
            slots: Vec::new(),
            free: VecDeque::new(),
            window: 0,
            unsent: VecDeque::new(),
            sequence: 0,
            spare: Vec::new(),
        }
    }

    /// Messages sent on this connection that are not settled.
    pub(super) const fn window(&self) -> usize {
        self.window
    }

    /// Whether messages of an earlier connection are sent first.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The identifier of the next packet [MQTT-2.2.1-3], `None` if all are in use.
    pub(super) fn next_packet_id(&self) -> Option<PacketId> {
        let unused = || {
            u16::try_from(self.slots.len() + 1)
                .ok()
                .and_then(PacketId::new)
        };
        self.free.front().copied().or_else(unused)
    }

    /// Notes that the PUBLISH `packet` of QoS 1 or 2 is sent under `packet_id`, the one of `next_packet_id`.
    ///
    /// `write` appends the packet to the buffer that keeps it; it is not called if nothing is kept.
    pub(super) fn on_publish(
        &mut self,
        packet_id: PacketId,
        qos: Qos,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut bytes = Vec::new();
        if self.mode == InflightMode::KeepMessages {
            bytes = self.spare.pop().unwrap_or_default();
            write(&mut bytes);
        }
        let sent = Sent {
            sequence: self.next_sequence(),
            bytes,
            on_this_connection: true,
        };
        self.window += 1;
        let slot = match qos {
            Qos::ExactlyOnce => Slot::Pubrec(sent),
            Qos::AtLeastOnce | Qos::AtMostOnce => Slot::Puback(sent),
        };
        self.occupy(packet_id, slot);
    }

    /// Notes that a SUBSCRIBE to `filters` filters is sent under `packet_id`.
    pub(super) fn on_subscribe(&mut self, packet_id: PacketId, filters: usize) {
        self.occupy(packet_id, Slot::Suback { filters });
    }

    /// Notes that an UNSUBSCRIBE from `filters` filters is sent under `packet_id`.
    pub(super) fn on_unsubscribe(&mut self, packet_id: PacketId, filters: usize) {
        self.occupy(packet_id, Slot::Unsuback { filters });
    }

    /// Handles an answer of the server.
    pub(super) fn handle(
        &mut self,
        packet_id: PacketId,
        answer: Answer,
    ) -> Result<Reaction, PeerError> {
        let refused = Err(PeerError::UnexpectedAcknowledgement {
            kind: answer.kind(),
            packet_id,
        });
        let slot = self.slots.get(index(packet_id)).unwrap_or(&Slot::Free);
        match (slot, answer) {
            (Slot::Free, Answer::Puback | Answer::PubrecRefused | Answer::Pubcomp) => {
                Ok(Reaction::Ignore)
            }
            (Slot::Free, Answer::PubrecAccepted) => Ok(Reaction::ReleaseUnknown),
            (Slot::Free, Answer::Suback(_) | Answer::Unsuback(_)) => refused,

            (Slot::Puback(_), Answer::Puback) => Ok(self.settle(packet_id)),
            (
                Slot::Puback(_),
                Answer::PubrecAccepted
                | Answer::PubrecRefused
                | Answer::Pubcomp
                | Answer::Suback(_)
                | Answer::Unsuback(_),
            ) => refused,

            (Slot::Pubrec(_), Answer::PubrecAccepted) => Ok(self.release(packet_id)),
            (Slot::Pubrec(_), Answer::PubrecRefused) => Ok(self.settle(packet_id)),
            (
                Slot::Pubrec(_),
                Answer::Puback | Answer::Pubcomp | Answer::Suback(_) | Answer::Unsuback(_),
            ) => refused,

            (Slot::Pubcomp { .. } | Slot::Clearing, Answer::PubrecAccepted) => {
                Ok(Reaction::Release)
            }
            (Slot::Pubcomp { .. }, Answer::PubrecRefused | Answer::Pubcomp) => {
                Ok(self.settle(packet_id))
            }
            (Slot::Clearing, Answer::PubrecRefused | Answer::Pubcomp) => {
                self.settle(packet_id);
                Ok(Reaction::Ignore)
            }
            (
                Slot::Pubcomp { .. } | Slot::Clearing,
                Answer::Puback | Answer::Suback(_) | Answer::Unsuback(_),
            ) => refused,

            (Slot::Suback { filters }, Answer::Suback(codes)) => {
                self.settle_request(packet_id, *filters, codes)
            }
            (
                Slot::Suback { .. },
                Answer::Puback
                | Answer::PubrecAccepted
                | Answer::PubrecRefused
                | Answer::Pubcomp
                | Answer::Unsuback(_),
            ) => refused,

            (Slot::Unsuback { filters }, Answer::Unsuback(codes)) => {
                self.settle_request(packet_id, *filters, codes.unwrap_or(*filters))
            }
            (
                Slot::Unsuback { .. },
                Answer::Puback
                | Answer::PubrecAccepted
                | Answer::PubrecRefused
                | Answer::Pubcomp
                | Answer::Suback(_),
            ) => refused,
        }
    }

    /// Begins a connection on which the server has the session. Messages are sent again only here [MQTT-4.4.0-1].
    ///
    /// `may_send`: whether the server accepts a kept packet on this connection.
    pub(super) fn resume(&mut self, may_send: impl Fn(&[u8]) -> bool) -> Resumption {
        let mut resumption = Resumption::default();
        self.window = 0;
        self.unsent.clear();
        for packet_id in self.in_order() {
            let slot = &mut self.slots[index(packet_id)];
            match slot {
                Slot::Puback(sent) | Slot::Pubrec(sent)
                    if !sent.bytes.is_empty() && may_send(&sent.bytes) =>
                {
                    sent.on_this_connection = false;
                    self.unsent.push_back(packet_id);
                }
                Slot::Puback(sent) => {
                    resumption
                        .discarded
                        .push((packet_id, std::mem::take(&mut sent.bytes)));
                    self.vacate(packet_id);
                }
                Slot::Pubrec(sent) => {
                    // The server may hold the identifier: were it used again at once, the next message would be taken
                    // for this one.
                    resumption
                        .discarded
                        .push((packet_id, std::mem::take(&mut sent.bytes)));
                    *slot = Slot::Clearing;
                    resumption.pubrels.push(packet_id);
                }
                Slot::Pubcomp { .. } => {
                    self.window += 1;
                    resumption.pubrels.push(packet_id);
                }
                Slot::Clearing => resumption.pubrels.push(packet_id),
                // Requests do not outlive their connection.
                Slot::Suback { .. } | Slot::Unsuback { .. } => self.vacate(packet_id),
                Slot::Free => {}
            }
        }
        resumption
    }

    /// Begins a connection on which the server has no session: ours is dropped too [MQTT-3.2.2-5].
    pub(super) fn forget(&mut self) -> Resumption {
        let mut resumption = Resumption::default();
        for packet_id in self.in_order() {
            match std::mem::replace(&mut self.slots[index(packet_id)], Slot::Free) {
                Slot::Puback(sent) | Slot::Pubrec(sent) => {
                    resumption.discarded.push((packet_id, sent.bytes))
                }
                // With PUBREC the server accepted the message [MQTT-4.3.3-8].
                Slot::Pubcomp { .. } => resumption.settled.push(packet_id),
                Slot::Clearing | Slot::Suback { .. } | Slot::Unsuback { .. } | Slot::Free => {}
            }
            self.free.push_back(packet_id);
        }
        self.window = 0;
        self.unsent.clear();
        resumption
    }

    /// The next packet of an earlier connection, to be sent with DUP, if the window of `maximum` has capacity for it.
    pub(super) fn next_unsent(&mut self, maximum: usize) -> Option<&[u8]> {
        let packet_id = loop {
            let packet_id = *self.unsent.front()?;
            match &self.slots[index(packet_id)] {
                Slot::Puback(sent) | Slot::Pubrec(sent) if !sent.on_this_connection => {
                    break packet_id;
                }
                // Answered before it was sent again, and perhaps used for a request since.
                Slot::Puback(_)
                | Slot::Pubrec(_)
                | Slot::Free
                | Slot::Pubcomp { .. }
                | Slot::Clearing
                | Slot::Suback { .. }
                | Slot::Unsuback { .. } => self.unsent.pop_front(),
            };
        };
        if self.window >= maximum {
            return None;
        }
        self.unsent.pop_front();
        self.window += 1;
        match &mut self.slots[index(packet_id)] {
            Slot::Puback(sent) | Slot::Pubrec(sent) => {
                sent.on_this_connection = true;
                Some(&sent.bytes)
            }
            Slot::Free
            | Slot::Pubcomp { .. }
            | Slot::Clearing
            | Slot::Suback { .. }
            | Slot::Unsuback { .. } => None,
        }
    }

    /// Identifiers in use, in the order of their PUBLISH or PUBREC; requests first.
    fn in_order(&self) -> Vec<PacketId> {
        let in_use = (1..=u16::MAX).zip(&self.slots).filter_map(|(value, slot)| {
            let sequence = match slot {
                Slot::Free => return None,
                Slot::Puback(sent) | Slot::Pubrec(sent) => sent.sequence,
                Slot::Pubcomp { sequence } => *sequence,
                Slot::Clearing | Slot::Suback { .. } | Slot::Unsuback { .. } => 0,
            };
            Some((sequence, PacketId::new(value)?))
        });
        let mut in_use: Vec<_> = in_use.collect();
        in_use.sort_unstable();
        in_use.into_iter().map(|(_, packet_id)| packet_id).collect()
    }

    const fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn occupy(&mut self, packet_id: PacketId, slot: Slot) {
        if index(packet_id) == self.slots.len() {
            self.slots.push(slot);
        } else {
            debug_assert_eq!(
                self.free.front(),
                Some(&packet_id),
                "the identifier is that of next_packet_id"
            );
            self.free.pop_front();
            self.slots[index(packet_id)] = slot;
        }
    }

    fn release(&mut self, packet_id: PacketId) -> Reaction {
        let sequence = self.next_sequence();
        let slot = std::mem::replace(
            &mut self.slots[index(packet_id)],
            Slot::Pubcomp { sequence },
        );
        // The PUBLISH is never sent again after this [MQTT-4.3.3-6].
        if let Slot::Pubrec(sent) = slot {
            self.window += usize::from(!sent.on_this_connection);
            self.reuse(sent.bytes);
        }
        Reaction::Release
    }

    fn settle_request(
        &mut self,
        packet_id: PacketId,
        filters: usize,
        codes: usize,
    ) -> Result<Reaction, PeerError> {
        if codes != filters {
            return Err(PeerError::ReasonCodeCount { codes, filters });
        }
        Ok(self.settle(packet_id))
    }

    fn settle(&mut self, packet_id: PacketId) -> Reaction {
        match std::mem::replace(&mut self.slots[index(packet_id)], Slot::Free) {
            Slot::Puback(sent) | Slot::Pubrec(sent) => {
                self.window -= usize::from(sent.on_this_connection);
                self.reuse(sent.bytes);
            }
            Slot::Pubcomp { .. } => self.window -= 1,
            Slot::Free | Slot::Clearing | Slot::Suback { .. } | Slot::Unsuback { .. } => {}
        }
        self.free.push_back(packet_id);
        Reaction::Settled
    }

    fn vacate(&mut self, packet_id: PacketId) {
        self.slots[index(packet_id)] = Slot::Free;
        self.free.push_back(packet_id);
    }

    fn reuse(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && bytes.capacity() <= SPARE_BUFFER_BYTES {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

impl Answer {
    const fn kind(self) -> PacketKind {
        match self {
            Self::Puback => PacketKind::Puback,
            Self::PubrecAccepted | Self::PubrecRefused => PacketKind::Pubrec,
            Self::Pubcomp => PacketKind::Pubcomp,
            Self::Suback(_) => PacketKind::Suback,
            Self::Unsuback(_) => PacketKind::Unsuback,
        }
    }
}

fn index(packet_id: PacketId) -> usize {
    usize::from(packet_id.value()) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbound() -> Outbound {
        Outbound::new(InflightMode::KeepMessages)
    }

    fn publish(outbound: &mut Outbound, qos: Qos, name: &str) -> PacketId {
        let packet_id = outbound.next_packet_id().unwrap();
        outbound.on_publish(packet_id, qos, |bytes| {
            bytes.extend_from_slice(name.as_bytes())
        });
        packet_id
    }

    fn id(value: u16) -> PacketId {
        PacketId::new(value).unwrap()
    }

    /// An identifier in the state of a line of the table.
    fn in_state(state: &str) -> (Outbound, PacketId) {
        let mut outbound = outbound();
        let packet_id = match state {
            "free" => id(7),
            "puback" => publish(&mut outbound, Qos::AtLeastOnce, "x"),
            "suback" | "unsuback" => outbound.next_packet_id().unwrap(),
            _ => publish(&mut outbound, Qos::ExactlyOnce, "x"),
        };
        match state {
            "pubcomp" => assert_eq!(
                outbound.handle(packet_id, Answer::PubrecAccepted),
                Ok(Reaction::Release)
            ),
            "clearing" => assert_eq!(outbound.resume(|_| false).pubrels, [packet_id]),
            "suback" => outbound.on_subscribe(packet_id, 2),
            "unsuback" => outbound.on_unsubscribe(packet_id, 2),
            _ => {}
        }
        (outbound, packet_id)
    }

    #[test]
    fn every_pair_of_the_table_is_answered_as_it_says() {
        const ANSWERS: [Answer; 6] = [
            Answer::Puback,
            Answer::PubrecAccepted,
            Answer::PubrecRefused,
            Answer::Pubcomp,
            Answer::Suback(2),
            Answer::Unsuback(Some(2)),
        ];
        // One letter an answer: i ignored, u released as unknown, r released, s settled, x refused.
        let table = [
            ("free", "iuiixx"),
            ("puback", "sxxxxx"),
            ("pubrec", "xrsxxx"),
            ("pubcomp", "xrssxx"),
            ("clearing", "xriixx"),
            ("suback", "xxxxsx"),
            ("unsuback", "xxxxxs"),
        ];
        for (state, row) in table {
            for (answer, expected) in ANSWERS.into_iter().zip(row.chars()) {
                let (mut outbound, packet_id) = in_state(state);
                let found = match outbound.handle(packet_id, answer) {
                    Ok(Reaction::Ignore) => 'i',
                    Ok(Reaction::ReleaseUnknown) => 'u',
                    Ok(Reaction::Release) => 'r',
                    Ok(Reaction::Settled) => 's',
                    Err(PeerError::UnexpectedAcknowledgement {
                        kind,
                        packet_id: named,
                    }) => {
                        assert_eq!((kind, named), (answer.kind(), packet_id));
                        'x'
                    }
                    Err(error) => panic!("{state}, {answer:?}: {error}"),
                };
                assert_eq!(found, expected, "{state}, {answer:?}");
                let is_free = outbound.handle(packet_id, Answer::PubrecAccepted)
                    == Ok(Reaction::ReleaseUnknown);
                let frees = state == "free" || matches!(expected, 's' | 'i');
                assert_eq!(is_free, frees, "{state}, {answer:?}");
                if is_free {
                    assert_eq!(outbound.window(), 0, "{state}, {answer:?}");
                }
            }
        }
    }

    #[test]
    fn requests_are_answered_with_one_code_a_filter() {
        let wrong = Err(PeerError::ReasonCodeCount {
            codes: 1,
            filters: 2,
        });
        let (mut outbound, packet_id) = in_state("suback");
        assert_eq!(outbound.handle(packet_id, Answer::Suback(1)), wrong);
        let (mut outbound, packet_id) = in_state("unsuback");
        assert_eq!(outbound.handle(packet_id, Answer::Unsuback(Some(1))), wrong);
        assert_eq!(
            outbound.handle(packet_id, Answer::Unsuback(None)),
            Ok(Reaction::Settled),
            "3.1.1 has no codes"
        );
    }

    #[test]
    fn all_identifiers_are_given_out_before_none_is_left() {
        let mut outbound = outbound();
        for value in 1..=u16::MAX {
            assert_eq!(publish(&mut outbound, Qos::AtLeastOnce, ""), id(value));
        }
        assert_eq!(outbound.next_packet_id(), None);
        outbound.handle(id(500), Answer::Puback).unwrap();
        outbound.handle(id(3), Answer::Puback).unwrap();
        assert_eq!(
            publish(&mut outbound, Qos::AtLeastOnce, ""),
            id(500),
            "the one free for longest"
        );
        assert_eq!(outbound.window(), 65_534);
    }

    fn unsent(outbound: &mut Outbound, maximum: usize) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(bytes) = outbound.next_unsent(maximum) {
            sent.push(String::from_utf8(bytes.to_vec()).unwrap());
        }
        sent
    }

    #[test]
    fn a_resumed_session_sends_in_order_and_within_the_window() {
        let mut outbound = outbound();
        let ids: Vec<_> = ["a", "b", "c", "d", "e", "f"]
            .map(|name| {
                publish(
                    &mut outbound,
                    if name < "d" {
                        Qos::AtLeastOnce
                    } else {
                        Qos::ExactlyOnce
                    },
                    name,
                )
            })
            .into();
        outbound.handle(ids[4], Answer::PubrecAccepted).unwrap();
        outbound.handle(ids[3], Answer::PubrecAccepted).unwrap();
        outbound.handle(ids[0], Answer::Puback).unwrap();
        let again = publish(&mut outbound, Qos::AtLeastOnce, "g");
        assert_eq!(again, ids[0], "a low identifier, yet the youngest message");
        let request = outbound.next_packet_id().unwrap();
        outbound.on_subscribe(request, 1);

        let resumption = outbound.resume(|_| true);
        assert_eq!(
            resumption.pubrels,
            [ids[4], ids[3]],
            "in the order of the PUBRECs"
        );
        assert_eq!((resumption.discarded, resumption.settled), (vec![], vec![]));
        assert_eq!(
            outbound.next_packet_id(),
            Some(request),
            "a request does not outlive its connection"
        );
        assert_eq!(
            unsent(&mut outbound, 3),
            ["b"],
            "two places are taken by what waits for PUBCOMP"
        );
        assert!(outbound.has_unsent());
        outbound.handle(ids[4], Answer::Pubcomp).unwrap();
        outbound.handle(ids[3], Answer::Pubcomp).unwrap();
        assert_eq!(unsent(&mut outbound, 3), ["c", "f"]);
        outbound.handle(ids[1], Answer::Puback).unwrap();
        assert_eq!(unsent(&mut outbound, 3), ["g"]);
        assert!(!outbound.has_unsent());

        outbound.resume(|_| true);
        assert_eq!(
            unsent(&mut outbound, 10),
            ["c", "f", "g"],
            "and the next time again"
        );
    }

    #[test]
    fn an_answer_before_the_second_sending_takes_the_message_out_of_the_queue() {
        let mut outbound = outbound();
        let first = publish(&mut outbound, Qos::AtLeastOnce, "a");
        let second = publish(&mut outbound, Qos::ExactlyOnce, "b");
        outbound.resume(|_| true);
        assert_eq!(
            outbound.handle(first, Answer::Puback),
            Ok(Reaction::Settled)
        );
        assert_eq!(
            outbound.handle(second, Answer::PubrecAccepted),
            Ok(Reaction::Release)
        );
        assert_eq!(unsent(&mut outbound, 10), [""; 0]);
        assert_eq!(outbound.window(), 1);
        outbound.handle(second, Answer::Pubcomp).unwrap();
        assert_eq!(outbound.window(), 0);
    }

    #[test]
    fn what_the_server_does_not_know_or_take_is_discarded() {
        let mut lost = outbound();
        let ids: Vec<_> = ["a", "b", "c"]
            .map(|name| publish(&mut lost, Qos::ExactlyOnce, name))
            .into();
        lost.handle(ids[1], Answer::PubrecAccepted).unwrap();
        let resumption = lost.forget();
        assert_eq!(
            resumption.discarded,
            [(ids[0], b"a".to_vec()), (ids[2], b"c".to_vec())]
        );
        assert_eq!(resumption.settled, [ids[1]]);
        assert_eq!((lost.window(), lost.forget()), (0, Resumption::default()));
        assert_eq!(lost.next_packet_id(), Some(ids[0]));

        let mut refused = outbound();
        let first = publish(&mut refused, Qos::AtLeastOnce, "too long");
        let second = publish(&mut refused, Qos::AtLeastOnce, "fits");
        let resumption = refused.resume(|bytes| bytes.len() < 5);
        assert_eq!(resumption.discarded, [(first, b"too long".to_vec())]);
        assert_eq!(unsent(&mut refused, 10), ["fits"]);
        assert_eq!(
            refused.handle(second, Answer::Puback),
            Ok(Reaction::Settled)
        );
    }

    #[test]
    fn kept_identifiers_are_not_used_again_while_the_server_may_hold_them() {
        let mut outbound = Outbound::new(InflightMode::KeepIdsOnly);
        let once = publish(&mut outbound, Qos::AtLeastOnce, "a");
        let twice = publish(&mut outbound, Qos::ExactlyOnce, "b");
        let resumption = outbound.resume(|_| true);
        assert_eq!(resumption.discarded, [(once, vec![]), (twice, vec![])]);
        assert_eq!(resumption.pubrels, [twice]);
        assert_eq!(outbound.next_packet_id(), Some(once));
        assert_eq!(publish(&mut outbound, Qos::AtLeastOnce, "c"), once);
        assert_eq!(outbound.next_packet_id(), Some(id(3)));
        assert_eq!(
            outbound.handle(twice, Answer::Pubcomp),
            Ok(Reaction::Ignore),
            "it was reported already"
        );
        assert_eq!(outbound.next_packet_id(), Some(twice));
    }
}
