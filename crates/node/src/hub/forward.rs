//! Records on their way through the hub: from a worker to other nodes, from other nodes to the workers.

use std::ops::RangeInclusive;

use thicket_overlay::{
    Forward, ForwardError, LinkId, StreamId,
    record::{Record, split},
};

use super::{Hub, outgoing::Forwarded, retained::WriteOrder, state::backlog::ForwardBatch};
use crate::{
    EventLevel, Now, WorkerId,
    hub::state::arrivals::Arrivals,
    messages::{ForwardEntry, NumberRuns, Origin, ToWorker, Way},
    work,
};

/// Bytes of a link between two checks of what the round has done.
const PART_BYTES: usize = 16 * 1024;

impl Hub {
    /// Messages of a worker for other nodes.
    pub(super) fn handle_forward(&mut self, now: Now, from: WorkerId, mut batch: ForwardBatch) {
        while let Some((entry, record)) = batch.next() {
            self.backlog.note_forwarded(entry);
            if entry.records > 1 && entry.number > 0 {
                self.forward_in_a_row(now, from, entry, record);
            } else if entry.records > 1 {
                let stream = StreamId(u16::from(from.0));
                let live = self.may_hint().then(|| self.live_of(&entry.destinations));
                self.cx.overlay.forward_plain_all(
                    now.instant,
                    stream,
                    live.as_deref().unwrap_or(&entry.destinations),
                    record,
                    entry.records,
                );
            } else if entry.retain {
                self.forward_retained(now, from, entry, record);
            } else {
                self.forward_one(now, from, entry, record, &entry.destinations);
            }
            batch.advance();
            if self.backlog.is_over() && !batch.is_done() {
                return self.backlog.leave(from, batch);
            }
        }
        if let Some(bytes) =
            (self.cx.outgoing.flow_control).process(usize::from(from.0), batch.bytes())
        {
            self.cx.send_to_worker(from, ToWorker::Processed { bytes });
        }
    }

    /// Records with consecutive numbers for the same nodes.
    fn forward_in_a_row(&mut self, now: Now, from: WorkerId, entry: &ForwardEntry, records: &[u8]) {
        let stream = StreamId(u16::from(from.0));
        let (first, to) = (entry.number, &*entry.destinations);
        if !self.may_hint()
            && !to.is_empty()
            && (self.cx.overlay).forward_in_a_row(
                now.instant,
                stream,
                first,
                to,
                records,
                entry.records,
            )
        {
            return;
        }
        let mut one = ForwardEntry {
            records: 1,
            ..entry.clone()
        };
        for record in split(records) {
            one.len = record.len() as u32;
            self.forward_one(now, from, &one, record, &entry.destinations);
            one.number += 1;
        }
    }

    /// A message of a worker is over the limit: its publisher is refused (rule 18).
    pub(super) fn refuse_forward(&mut self, from: WorkerId, number: u64) {
        if number > 0 {
            self.cx.outgoing.refuse_here(from, number);
        }
    }

    /// Passes a record to the overlay; answers the worker at once when there is nothing to wait for.
    pub(super) fn forward_one(
        &mut self,
        now: Now,
        from: WorkerId,
        entry: &ForwardEntry,
        record: &[u8],
        destinations: &[thicket_overlay::NodeSlot],
    ) -> Forwarded {
        if self.may_hint() {
            return self.forward_or_hint(now, from, entry, record, destinations);
        }
        let forwarded = self.forward_live(now, from, entry, record, destinations);
        if forwarded == Forwarded::Nobody && entry.number > 0 {
            self.cx.outgoing.acknowledge(from, entry.number);
        }
        forwarded
    }

    /// Passes a record to the overlay, for nodes that are up.
    pub(super) fn forward_live(
        &mut self,
        now: Now,
        from: WorkerId,
        entry: &ForwardEntry,
        record: &[u8],
        destinations: &[thicket_overlay::NodeSlot],
    ) -> Forwarded {
        if destinations.is_empty() {
            return Forwarded::Nobody;
        }
        let interested = entry.retain.then_some(&*entry.destinations);
        let live = interested.filter(|_| self.may_hint());
        let live = live.map(|interested| self.live_of(interested));
        let message = Forward {
            stream: StreamId(u16::from(from.0)),
            number: entry.number,
            qos: entry.qos,
            destinations,
            interested: live.as_deref().or(interested),
            record,
        };
        match self.cx.overlay.forward(now.instant, message) {
            Ok(()) => Forwarded::Sent,
            Err(ForwardError::Full { .. } | ForwardError::TooLarge { .. }) => {
                self.refuse_forward(from, entry.number);
                Forwarded::Refused
            }
            Err(error @ ForwardError::NumberNotRising { .. }) => {
                self.cx.event(
                    EventLevel::Error,
                    "numbers of a worker do not rise",
                    vec![("error", error.to_string())],
                );
                Forwarded::Refused
            }
        }
    }

    /// All other nodes have admitted these numbers of a worker.
    pub(super) fn handle_acknowledged(&mut self, stream: StreamId, ranges: &[RangeInclusive<u64>]) {
        let rest = self.release_acknowledged_hints(stream, ranges);
        let outgoing = &mut self.cx.outgoing;
        match rest {
            Some(rest) => outgoing.acknowledge_all(stream, rest),
            None => {
                let all = ranges.iter().map(|range| (*range.start(), *range.end()));
                outgoing.acknowledge_all(stream, all);
            }
        }
    }

    /// Bytes of a link: control is answered, messages go to the workers with matching subscriptions. What other nodes send may be expensive to match,
    /// and after a long round they would consider this node down: so the rest waits for the next one. It is bounded by the credit that other nodes
    /// have.
    pub(super) fn handle_received(&mut self, now: Now, link: LinkId, bytes: &[u8]) {
        if self.unread.is_empty() {
            self.read_link(now, link, bytes);
        } else {
            self.cx.overlay.note_received(now.instant, link);
            self.unread.push_back((link, bytes.to_vec()));
        }
    }

    /// Continues with what waits, until the round has done enough.
    pub(super) fn read_unread(&mut self, now: Now) {
        let mut waiting = std::mem::take(&mut self.unread);
        while let Some((link, bytes)) = waiting.pop_front() {
            self.read_link(now, link, &bytes);
            if !self.unread.is_empty() {
                break;
            }
        }
        self.unread.append(&mut waiting);
    }

    fn read_link(&mut self, now: Now, link: LinkId, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((part, after)) = rest.split_at_checked(PART_BYTES.min(rest.len())) {
            self.read_part(now, link, part);
            rest = after;
            if rest.is_empty() {
                return;
            }
            if self.interests.has_looked_enough() {
                self.cx.overlay.note_received(now.instant, link);
                return self.unread.push_back((link, rest.to_vec()));
            }
        }
    }

    /// The link is gone, and its bytes that wait are void: its node sends them again.
    pub(super) fn drop_unread(&mut self, link: LinkId) {
        self.unread.retain(|(of, _)| *of != link);
    }

    fn read_part(&mut self, now: Now, link: LinkId, bytes: &[u8]) {
        self.arrivals.checks_hints = self.hints.arrivals.may_come_again(now.instant);
        let (interests, arrivals) = (&mut self.interests, &mut self.arrivals);
        self.cx
            .overlay
            .handle_received(now.instant, link, bytes, |delivery| {
                arrivals.take(interests, &delivery)
            });
        let mut arrivals = std::mem::take(&mut self.arrivals);
        // They leave with the round, or before messages that may refer to them: an origin is announced before its first message.
        self.pass_on(&mut arrivals);
        self.drain_overlay(now);
        let mut rest = &arrivals.late_bytes[..];
        for &(origin, len) in &arrivals.late {
            let (record, after) = rest.split_at(len as usize);
            rest = after;
            self.handle_arrival(now, origin, record);
        }
        arrivals.clear();
        self.arrivals = arrivals;
    }

    /// Hands over what is sorted by worker already, and admits what no worker here has to admit.
    fn pass_on(&mut self, arrivals: &mut Arrivals) {
        for (index, batches) in arrivals.records.iter_mut().enumerate() {
            for (origin, bytes) in batches.drain(..) {
                arrivals.expected[index] = bytes.len().min(MAXIMUM_RESERVE);
                if let Some(origin) = self.message_origin(origin) {
                    self.cx
                        .outgoing
                        .add_records(WorkerId(index as u8), origin, bytes);
                }
            }
        }
        for run in arrivals.runs.drain(..) {
            let origin = run.origin;
            let Some(message_origin) = self.message_origin(origin) else {
                continue;
            };
            if run.released > 0 {
                self.release(origin, run.released);
            }
            for (from, to) in run.unwanted {
                self.admit(origin, from..=to);
            }
            for (numbers, workers) in run.several {
                self.admissions.expect(message_origin, numbers, workers);
            }
        }
    }

    /// Messages without numbers were handed to workers: their node may send more, unless a worker has much to take already.
    fn release(&mut self, origin: thicket_overlay::Origin, bytes: u64) {
        let (slot, incarnation) = (origin.slot, origin.incarnation);
        if self.cx.outgoing.flow_control.is_full() {
            self.cx.outgoing.owe(slot, incarnation, bytes);
        } else {
            self.cx.overlay.released(slot, incarnation, bytes);
        }
    }

    /// A worker has processed records.
    pub(super) fn note_processed(&mut self, by: WorkerId, bytes: u64) {
        let outgoing = &mut self.cx.outgoing;
        outgoing
            .flow_control
            .note_processed(usize::from(by.0), bytes);
        if outgoing.flow_control.is_full() {
            return;
        }
        for ((slot, incarnation), bytes) in outgoing.take_owed() {
            self.cx.overlay.released(slot, incarnation, bytes);
        }
    }

    /// The origin as workers identify it; `None`: the node is unknown by now.
    pub(super) fn message_origin(&self, origin: thicket_overlay::Origin) -> Option<Origin> {
        Some(Origin {
            node: self.cx.overlay.node_of(origin.slot)?,
            incarnation: origin.incarnation,
            stream: origin.stream,
        })
    }

    fn handle_arrival(&mut self, now: Now, origin: thicket_overlay::Origin, bytes: &[u8]) {
        let (Ok((record, _)), Some(message_origin)) =
            (Record::decode(bytes), self.message_origin(origin))
        else {
            return;
        };
        // What a comparison of retained messages brought earlier was delivered then, and so was what another node had kept for this one.
        let is_retained = record.retain
            && record.shared.is_empty()
            && self.retained.observe(now, message_origin, &record) == WriteOrder::Known;
        let was_kept = record.shared.is_empty()
            && record.number > 0
            && self.hints.arrivals.has(message_origin, record.number);
        let is_known = is_retained || was_kept;
        let recipients = if is_known {
            0
        } else {
            self.deliver(message_origin, &record, bytes)
        };
        match record.number {
            0 => self.release(origin, bytes.len() as u64),
            number if recipients == 0 => self.admit(origin, number..=number),
            number if recipients > 1 => {
                self.admissions
                    .expect(message_origin, (number, number), recipients);
            }
            _ => {}
        }
    }

    /// Appends a message of another node to the batches of the workers with matching subscriptions. Returns their number.
    pub(super) fn deliver(&mut self, origin: Origin, record: &Record<'_>, bytes: &[u8]) -> u32 {
        let route = self.interests.route(record.topic);
        if record.shared.is_empty() {
            for worker in &route.plain {
                self.cx.outgoing.add_record(*worker, origin, bytes);
            }
            return route.plain.len() as u32;
        }
        let mut recipients = 0;
        for (name, filter) in record.shared.iter() {
            // Without members here any worker can find where there are some.
            let worker = route
                .group(name, filter)
                .and_then(|places| self.interests.choose(places))
                .unwrap_or(WorkerId(0));
            self.cx.outgoing.add_record(worker, origin, bytes);
            recipients += 1;
        }
        self.interests
            .note_work(work::GROUP * u64::from(recipients));
        recipients
    }

    /// Sends a message that does not come in the stream of its origin to the workers with matching subscriptions that are not shared. Returns their
    /// number.
    pub(super) fn deliver_single(
        &mut self,
        origin: Origin,
        topic: &str,
        bytes: &[u8],
        way: Way,
    ) -> u32 {
        let workers = self.interests.route(topic).plain.clone();
        let recipients = workers.len() as u32;
        for worker in workers {
            let bytes = bytes.to_vec();
            let record = ToWorker::Record { origin, bytes, way };
            self.cx.send_to_worker_after_records(worker, record);
        }
        recipients
    }

    /// A worker has admitted messages of another node.
    pub(super) fn handle_admitted(&mut self, origin: Origin, numbers: &NumberRuns) {
        let others = self.settle_hints(origin, numbers);
        let numbers = others.as_ref().unwrap_or(numbers);
        let Some(slot) = self.cx.overlay.slot_of(origin.node) else {
            return;
        };
        let whose = thicket_overlay::Origin {
            slot,
            incarnation: origin.incarnation,
            stream: origin.stream,
        };
        for (from, to) in self.admissions.admit(origin, numbers) {
            self.admit(whose, from..=to);
        }
    }

    /// No worker here has to accept these messages of another node any more.
    fn admit(&mut self, origin: thicket_overlay::Origin, numbers: RangeInclusive<u64>) {
        self.cx.overlay.admitted(origin, numbers.clone());
        if let Some(origin) = self.message_origin(origin) {
            self.settle_doubles(origin, numbers);
        }
    }
}

/// Bytes that a batch begins with at most: as many as the last one had.
const MAXIMUM_RESERVE: usize = 256 * 1024;
