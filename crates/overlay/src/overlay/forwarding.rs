//! Data messages: from the workers into the resend buffer and onto the links, and from the links to the workers.

use std::ops::Range;
use std::time::Duration;

use thicket_mqtt::Qos;
use thicket_session::time::Instant;

use super::messages::LinkError;
use super::{Overlay, PACKET_OVERHEAD};
use crate::channel::Channel;
use crate::identity::{Incarnation, LinkId, NodeSlot, Origin, StreamId};
use crate::interface::{Delivery, EventLevel, Forward, ForwardError, Output, Unacknowledged};
use crate::link::Link;
use crate::peer::{Peer, PeerState};
use crate::record::{BatchHeader, Record, Records, age_expiry, outline, split};
use crate::routing::RoutingMode;
use crate::store::Store;
use crate::wire::WireError;

/// At most this many consecutive records are appended to a batch at once.
const ROW: u64 = 256;

/// A record of another node that cannot be read.
#[derive(Debug)]
pub(super) struct RefusedRecord {
    pub number: u64,
    pub len: usize,
    pub error: WireError,
}

impl Overlay {
    /// Sends a message to its destinations. A numbered message is kept until each of them has admitted it or is down.
    ///
    /// # Errors
    /// See [`ForwardError`]; the message is neither kept nor sent.
    pub fn forward(&mut self, now: Instant, message: Forward<'_>) -> Result<(), ForwardError> {
        let maximum = crate::MAXIMUM_PACKET_BYTES as usize - PACKET_OVERHEAD;
        if message.record.len() > maximum {
            return Err(ForwardError::TooLarge {
                bytes: message.record.len(),
                maximum,
            });
        }
        let goes_over_tree = self.routes_over_trees() && !message.destinations.is_empty();
        let tree = goes_over_tree.then(|| {
            let wanted = message.interested.unwrap_or(message.destinations);
            self.tree_for(wanted)
        });
        if !message.destinations.is_empty() {
            self.rate.count(1);
            if let Some(tree) = &tree {
                self.advertise_topic(now, message.record, &tree.name);
            }
        }
        if message.number == 0 {
            match tree {
                Some(tree) => self.send_plain_over_tree(&message, &tree),
                None => {
                    self.push_plain(message.stream, message.destinations, message.record, 1);
                }
            }
            return Ok(());
        }
        let last = self.store.last(message.stream);
        if message.number <= last {
            return Err(ForwardError::NumberNotRising {
                number: message.number,
                last,
            });
        }
        let limits = &self.config.limits;
        if self.store.bytes() >= limits.resend_bytes
            || self.store.messages() >= limits.resend_messages
        {
            self.counters.refused_messages += 1;
            return Err(ForwardError::Full {
                bytes: self.store.bytes(),
            });
        }
        let numbers = message.number..message.number + 1;
        let waiting = self.keep_for(
            now,
            message.destinations,
            message.stream,
            numbers,
            message.record.len(),
            [message.record],
        );
        if let Some(tree) = tree.filter(|_| waiting > 0) {
            self.send_over_tree(now, &message, &tree);
        }
        Ok(())
    }

    /// Sends messages with consecutive numbers from `first` on, whose records lie back to back in `records`, to the same destinations. Has the effect
    /// of [`forward`](Self::forward) for each of them, at less cost. False: nothing was done, because one of them might be refused or because
    /// messages are routed over trees.
    pub fn forward_in_a_row(
        &mut self,
        now: Instant,
        stream: StreamId,
        first: u64,
        destinations: &[NodeSlot],
        records: &[u8],
        count: u32,
    ) -> bool {
        let limits = &self.config.limits;
        let has_capacity = self.store.bytes() + (records.len() as u64) < limits.resend_bytes
            && self.store.messages() + (count as usize) < limits.resend_messages;
        let is_short = records.len() <= crate::MAXIMUM_PACKET_BYTES as usize - PACKET_OVERHEAD;
        let is_rising = first > self.store.last(stream);
        if !(has_capacity && is_short && is_rising) || self.routes_over_trees() {
            return false;
        }
        self.rate.count(count.into());
        let numbers = first..first + u64::from(count);
        let (len, records) = (records.len(), split(records));
        self.keep_for(now, destinations, stream, numbers, len, records);
        debug_assert_eq!(
            self.store.last(stream) + 1,
            first + u64::from(count),
            "there are as many records as numbers"
        );
        true
    }

    /// Keeps the records of these numbers, `len` bytes together, until each destination that is not down has admitted them. Returns the number of
    /// such destinations.
    fn keep_for<'a>(
        &mut self,
        now: Instant,
        destinations: &[NodeSlot],
        stream: StreamId,
        numbers: Range<u64>,
        len: usize,
        records: impl IntoIterator<Item = &'a [u8]>,
    ) -> u16 {
        let mut waiting = 0;
        for slot in destinations {
            let index = slot.index().checked_sub(1);
            let peer = index.and_then(|index| self.peers.get_mut(index));
            if let Some(peer) = peer.filter(|peer| !peer.is_down()) {
                peer.outbound.push(stream, numbers.clone(), len);
                waiting += 1;
            }
        }
        let incarnation = self.view.own().incarnation;
        (self.store).keep(stream, numbers.start, waiting, records, now, incarnation);
        waiting
    }

    /// Sends `count` messages without numbers, whose records lie back to back in `records`, to the same destinations. Has the effect of
    /// [`forward`](Self::forward) for each of them, at less cost. Each is far shorter than a packet.
    pub fn forward_plain_all(
        &mut self,
        now: Instant,
        stream: StreamId,
        destinations: &[NodeSlot],
        records: &[u8],
        count: u32,
    ) {
        if self.routes_over_trees() {
            for record in split(records) {
                let message = Forward {
                    stream,
                    number: 0,
                    qos: Qos::AtMostOnce,
                    destinations,
                    interested: None,
                    record,
                };
                // Neither numbered nor long: nothing can refuse it.
                let _ = self.forward(now, message);
            }
            return;
        }
        self.rate.count(count.into());
        self.push_plain(stream, destinations, records, count);
    }

    /// Appends records without numbers to the queue of each destination; if not all fit, as many as do.
    fn push_plain(
        &mut self,
        stream: StreamId,
        destinations: &[NodeSlot],
        records: &[u8],
        count: u32,
    ) {
        let batch_bytes = self.config.limits.batch_bytes;
        for slot in destinations {
            let Some(peer) = self.peer_mut(*slot) else {
                continue;
            };
            let is_up = peer.state == PeerState::Up;
            let mut push =
                |bytes, count| is_up && peer.outbound.push_plain(stream, bytes, count, batch_bytes);
            let mut dropped = 0;
            if !push(records, count) {
                dropped = count;
                if is_up && count > 1 {
                    let taken = split(records).map(|record| u32::from(push(record, 1)));
                    dropped -= taken.sum::<u32>();
                }
            }
            if !peer.is_down() {
                peer.counters.dropped += u64::from(dropped);
            }
        }
    }

    /// The last number of each stream that `slot` has not admitted yet; empty for a node that is down.
    #[must_use]
    pub fn unadmitted(&self, slot: NodeSlot) -> Vec<(StreamId, u64)> {
        self.peer(slot)
            .filter(|peer| !peer.is_down())
            .map(|peer| peer.outbound.last_pending())
            .unwrap_or_default()
    }

    /// For how long a node that is not down has not admitted the oldest message that it must; `None`: it has admitted all.
    #[must_use]
    pub fn unadmitted_for(&self, slot: NodeSlot) -> Option<Duration> {
        let peer = self.peer(slot).filter(|peer| !peer.is_down())?;
        let kept = |(stream, number)| self.store.sendable(stream, number);
        let first = peer.outbound.first_pending().filter_map(kept);
        let oldest = first.map(|it| it.at).min()?;
        Some(self.last_round.since(oldest))
    }

    /// Whether `slot` has admitted everything up to these numbers, or is down.
    #[must_use]
    pub fn has_admitted(&self, slot: NodeSlot, numbers: &[(StreamId, u64)]) -> bool {
        self.peer(slot).is_none_or(|peer| {
            let is_pending = |&(stream, number)| peer.outbound.is_pending_up_to(stream, number);
            peer.is_down() || !numbers.iter().any(is_pending)
        })
    }

    /// The messages that some destination has not admitted yet, by stream and number. They must be matched again when interests or the view have
    /// changed (rule 5).
    pub fn unacknowledged(&self) -> impl Iterator<Item = Unacknowledged<'_>> {
        self.store.unacknowledged()
    }

    /// Adds a destination to an unacknowledged message. False if the message is acknowledged already, or the node is down or already a destination. A
    /// node that has admitted it before discards the duplicate and acknowledges it.
    pub fn add_destination(&mut self, stream: StreamId, number: u64, slot: NodeSlot) -> bool {
        let Some(index) = slot.index().checked_sub(1) else {
            return false;
        };
        let (Some(peer), store) = (self.peers.get_mut(index), &mut self.store) else {
            return false;
        };
        if peer.is_down() || peer.outbound.contains(stream, number) {
            return false;
        }
        let Some(len) = store.wait_for_one_more(stream, number) else {
            return false;
        };
        peer.outbound.insert(stream, number, len);
        if self.config.routing.mode != RoutingMode::Mesh {
            // Parked: sent at the end of the round, as far as capacity allows.
            let now = self.last_round;
            peer.flow.offer(now, stream, number, len, 0, false);
        }
        true
    }

    /// A batch from another node.
    pub(super) fn on_batch(
        &mut self,
        slot: NodeSlot,
        bytes: &[u8],
        deliver: &mut dyn FnMut(Delivery<'_>),
    ) -> Result<(), LinkError> {
        let maximum_ranges = self.config.limits.window_ranges;
        let Some(peer) = self.peer_mut(slot) else {
            return Ok(());
        };
        let (header, mut records) = BatchHeader::decode(bytes)?;
        if header.origin != peer.node {
            return Err(LinkError::Relayed {
                origin: header.origin,
            });
        }
        let BatchHeader {
            incarnation,
            stream,
            low,
            ..
        } = header;
        peer.inbound
            .start_batch(incarnation, stream, low, maximum_ranges)?;
        let origin = Origin {
            slot,
            incarnation,
            stream,
        };
        let slack = u64::from(crate::MAXIMUM_PACKET_BYTES);
        let mut record = Record::default();
        let mut refused = Vec::new();
        loop {
            let rest = records.rest();
            let bytes = match records.read_into(&mut record) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(error) => {
                    // Its node would send it again over each new link: refused, it is not.
                    let Some((number, len)) = outline(rest) else {
                        return Err(error.into());
                    };
                    peer.counters.data_in_messages += 1;
                    (peer.inbound).arrive(incarnation, stream, number, len as u32, slack)?;
                    refused.push(RefusedRecord { number, len, error });
                    record = Record::default();
                    records = Records::new(rest.get(len..).unwrap_or_default());
                    continue;
                }
            };
            peer.counters.data_in_messages += 1;
            if peer.inbound.arrive(
                incarnation,
                stream,
                record.number,
                bytes.len() as u32,
                slack,
            )? {
                deliver(Delivery {
                    origin,
                    record: &record,
                    bytes,
                });
            } else {
                peer.counters.duplicates += 1;
            }
        }
        self.refuse_records(origin, refused);
        Ok(())
    }

    /// Records of another node that cannot be read: they are dropped, and the hub lets their publisher be refused before they are acknowledged.
    pub(super) fn refuse_records(&mut self, origin: Origin, refused: Vec<RefusedRecord>) {
        for RefusedRecord { number, len, error } in refused {
            let Some(peer) = self.peer_mut(origin.slot) else {
                return;
            };
            let fields = vec![
                ("node", peer.node.to_string()),
                ("reason", error.to_string()),
            ];
            if number == 0 {
                peer.inbound.release(len as u64);
            } else {
                self.outputs
                    .push_back(Output::Unreadable { origin, number });
            }
            self.counters.unreadable_messages += 1;
            let message = "message of another node dropped: it cannot be read";
            self.event(EventLevel::Error, message, fields);
        }
    }

    /// Appends batches to the out-buffer of a link while it is below its limit and there are credit and data; the streams take turns.
    pub(super) fn fill_with_data(&mut self, now: Instant, slot: NodeSlot, id: LinkId) {
        let own = (self.config.node, self.view.own().incarnation);
        let limits = &self.config.limits;
        let peer = slot
            .index()
            .checked_sub(1)
            .and_then(|index| self.peers.get_mut(index));
        let (Some(peer), Some(link)) = (peer, self.links.get_mut(&id)) else {
            return;
        };
        link.is_throttled = false;
        while link.pending().len() < limits.out_buffer_bytes {
            let before = peer.outbound.last_served();
            let Some(stream) = peer.outbound.next_stream() else {
                return;
            };
            let mut sealing = Sealing {
                now,
                own,
                stream,
                store: &self.store,
                batch_bytes: limits.batch_bytes,
                buffer: &mut self.scratch,
            };
            if sealing.seal(peer, link) {
                continue;
            }
            // The stream lacks credit. Records without numbers are paid for already: they must not wait behind it, or their credit would never
            // return.
            peer.outbound.serve_again(before);
            let Some(paid) = peer.outbound.stream_with_plain() else {
                return;
            };
            sealing.stream = paid;
            sealing.seal(peer, link);
        }
        link.is_throttled = true;
    }
}

/// Builds batches of one stream.
struct Sealing<'a> {
    now: Instant,
    own: (crate::NodeId, Incarnation),
    stream: StreamId,
    store: &'a Store,
    batch_bytes: usize,
    buffer: &'a mut Vec<u8>,
}

impl Sealing<'_> {
    fn start(&mut self, incarnation: Incarnation) {
        self.buffer.clear();
        let low = self.store.low(self.stream);
        BatchHeader {
            origin: self.own.0,
            incarnation,
            stream: self.stream,
            low,
        }
        .encode(self.buffer);
    }

    fn finish(&mut self, peer: &mut Peer, link: &mut Link) {
        peer.counters.data_out_bytes += link.write_publish(Channel::Data, self.buffer) as u64;
    }

    /// Writes one batch of records in the order they were forwarded, all of one incarnation. False if there are none, or the first one waits for
    /// credit.
    fn seal(&mut self, peer: &mut Peer, link: &mut Link) -> bool {
        let mut batch: Option<Incarnation> = None;
        while let Some(incarnation) = self
            .append_numbered(peer, batch)
            .or_else(|| self.append_plain(peer, batch))
        {
            batch = Some(incarnation);
        }
        if batch.is_some() {
            peer.counters.data_out_batches += 1;
            self.finish(peer, link);
        }
        batch.is_some()
    }

    /// Appends the next numbered records, as many as are consecutive, if it is their turn and they fit into credit and batch.
    fn append_numbered(
        &mut self,
        peer: &mut Peer,
        batch: Option<Incarnation>,
    ) -> Option<Incarnation> {
        let number = peer.outbound.next_unsent(self.stream)?;
        let filled = batch.map_or(BatchHeader::MAXIMUM_BYTES, |_| self.buffer.len());
        let space = self.batch_bytes.saturating_sub(filled);
        let credit = usize::try_from(peer.outbound.credit_left()).unwrap_or(usize::MAX);
        let space = space.min(credit);
        let row = |maximum| (self.store).sendable_in_a_row(self.stream, number, maximum, space);
        let mut sendable = row(ROW)?;
        let wanted = peer.outbound.unsent_in_a_row(self.stream, sendable.count);
        if wanted < sendable.count {
            // The numbers in between go to other nodes only.
            sendable = row(wanted)?;
        }
        let first_len = sendable.first_len;
        if !peer.outbound.allows(first_len)
            || !self.has_space(batch, sendable.incarnation, first_len)
        {
            return None;
        }
        if batch.is_none() {
            self.start(sendable.incarnation);
        }
        let mut at = self.buffer.len();
        self.buffer.extend_from_slice(sendable.bytes);
        let waited = self.now.since(sendable.at).as_millis();
        if waited > 0 {
            // Expiry counts the time a message waits here (5.0, 3.3.2.3.3).
            let waited = u64::try_from(waited).unwrap_or(u64::MAX);
            for record in split(sendable.bytes) {
                age_expiry(&mut self.buffer[at..], waited);
                at += record.len();
            }
        }
        let (count, len) = (sendable.count, sendable.bytes.len());
        peer.counters.data_out_messages += count;
        peer.counters.resends += peer.outbound.sent(self.stream, count, len);
        Some(sendable.incarnation)
    }

    /// Appends records without numbers if it is their turn, or if the records before them lack credit; their own is paid.
    fn append_plain(&mut self, peer: &mut Peer, batch: Option<Incarnation>) -> Option<Incarnation> {
        let (len, is_first) = peer.outbound.next_plain(self.stream)?;
        // A numbered record that waits for space is sent first; one that waits for credit is overtaken, but not within a batch.
        if (batch.is_some() && !is_first) || !self.has_space(batch, self.own.1, len) {
            return None;
        }
        let piece = peer.outbound.take_plain(self.stream)?;
        if batch.is_none() {
            self.start(self.own.1);
        }
        self.buffer.extend_from_slice(&piece.bytes);
        peer.counters.data_out_messages += piece.records;
        Some(self.own.1)
    }

    /// Whether `len` bytes of an incarnation fit into the batch; the first record always does.
    fn has_space(&self, batch: Option<Incarnation>, incarnation: Incarnation, len: usize) -> bool {
        batch
            .is_none_or(|batch| batch == incarnation && self.buffer.len() + len <= self.batch_bytes)
    }
}
