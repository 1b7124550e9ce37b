//! Records on their way through the hub: from a worker to other nodes, from other nodes to the workers.

use std::{collections::VecDeque, ops::RangeInclusive};

use hashbrown::HashMap;
use thicket_overlay::{Delivery, Forward, ForwardError, LinkId, StreamId, record::Record};

use super::{Hub, retained::Observed};
use crate::{
    EventLevel, HubOutput, Now, WorkerId,
    mail::{Content, ForwardEntry, Mail, NumberRuns, Origin, is_share_key, push_number},
};

/// What leaves for the workers at the end of the round.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// By worker: batches of one origin each, in order.
    records: Vec<Vec<(Origin, Vec<u8>)>>,
    /// By worker: its own numbers that all other nodes have admitted, and those that were refused.
    acknowledged: Vec<NumberRuns>,
    refused: Vec<NumberRuns>,
    /// The acknowledged ones wait until it is known how this side of the cluster stands.
    holds_acknowledgements: bool,
}

impl Outgoing {
    pub fn new(workers: u8) -> Self {
        let workers = usize::from(workers);
        Self {
            records: vec![Vec::new(); workers],
            acknowledged: vec![Vec::new(); workers],
            refused: vec![Vec::new(); workers],
            holds_acknowledgements: false,
        }
    }

    pub const fn hold_acknowledgements(&mut self, holds: bool) {
        self.holds_acknowledgements = holds;
    }

    /// Turns everything into mail.
    pub fn seal(&mut self, outputs: &mut VecDeque<HubOutput>) {
        for index in 0..self.records.len() {
            let to = WorkerId(index as u8);
            let mut mail = |content| {
                outputs.push_back(HubOutput::Mail {
                    to,
                    mail: Mail(content),
                })
            };
            for (origin, bytes) in self.records[index].drain(..) {
                mail(Content::Records { origin, bytes });
            }
            if !self.acknowledged[index].is_empty() && !self.holds_acknowledgements {
                mail(Content::Acknowledged(std::mem::take(
                    &mut self.acknowledged[index],
                )));
            }
            if !self.refused[index].is_empty() {
                mail(Content::Refused(std::mem::take(&mut self.refused[index])));
            }
        }
    }

    pub fn add_record(&mut self, worker: WorkerId, origin: Origin, record: &[u8]) {
        let batches = &mut self.records[usize::from(worker.0)];
        match batches.last_mut() {
            Some((last, bytes)) if *last == origin => bytes.extend_from_slice(record),
            Some(_) | None => batches.push((origin, record.to_vec())),
        }
    }
}

/// Messages of other nodes that more than one worker has to admit. What only one worker takes is acknowledged as that worker says.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    open: HashMap<(Origin, u64), u32, foldhash::fast::FixedState>,
}

impl Hub {
    /// Messages of a worker for other nodes.
    pub(super) fn handle_forward(
        &mut self,
        now: Now,
        from: WorkerId,
        records: &[u8],
        entries: &[ForwardEntry],
    ) {
        let mut rest = records;
        for entry in entries {
            let (record, after) = rest.split_at(entry.len as usize);
            rest = after;
            if entry.retain {
                self.forward_retained(now, from, entry, record);
            } else {
                self.forward_one(now, from, entry, record, &entry.destinations);
            }
        }
    }

    /// There is no room for a message of a worker: its publisher is told (rule 18).
    pub(super) fn refuse_forward(&mut self, from: WorkerId, number: u64) {
        if number > 0 {
            push_number(&mut self.outgoing.refused[usize::from(from.0)], number);
        }
    }

    /// Hands a record to the overlay; answers the worker at once when there is nothing to wait for.
    pub(super) fn forward_one(
        &mut self,
        now: Now,
        from: WorkerId,
        entry: &ForwardEntry,
        record: &[u8],
        destinations: &[thicket_overlay::NodeSlot],
    ) {
        let index = usize::from(from.0);
        if destinations.is_empty() {
            if entry.number > 0 {
                push_number(&mut self.outgoing.acknowledged[index], entry.number);
            }
            return;
        }
        let message = Forward {
            stream: StreamId(u16::from(from.0)),
            number: entry.number,
            qos: entry.qos,
            destinations,
            interested: entry.retain.then_some(&*entry.destinations),
            record,
        };
        match self.overlay.forward(now.instant, message) {
            Ok(()) => {}
            Err(ForwardError::Full { .. } | ForwardError::TooLarge { .. }) if entry.number > 0 => {
                push_number(&mut self.outgoing.refused[index], entry.number);
            }
            Err(ForwardError::Full { .. } | ForwardError::TooLarge { .. }) => {}
            Err(error @ ForwardError::NumberNotRising { .. }) => {
                self.event(
                    EventLevel::Error,
                    "numbers of a worker do not rise",
                    vec![("error", error.to_string())],
                );
            }
        }
    }

    /// All other nodes have admitted these numbers of a worker.
    pub(super) fn handle_acknowledged(&mut self, stream: StreamId, ranges: &[RangeInclusive<u64>]) {
        let Some(runs) = self.outgoing.acknowledged.get_mut(usize::from(stream.0)) else {
            return;
        };
        runs.extend(ranges.iter().map(|range| (*range.start(), *range.end())));
    }

    /// Bytes of a link: control is answered, messages go to the workers that want them.
    pub(super) fn handle_received(&mut self, now: Now, link: LinkId, bytes: &[u8]) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        self.overlay
            .handle_received(now.instant, link, bytes, |delivery| {
                arrivals.push(&delivery)
            });
        // Who is new must be known before its first message.
        self.drain_overlay(now);
        let mut rest = &arrivals.bytes[..];
        for &(origin, len) in &arrivals.records {
            let (record, after) = rest.split_at(len as usize);
            rest = after;
            self.handle_arrival(now, origin, record);
        }
        arrivals.clear();
        self.arrivals = arrivals;
    }

    fn handle_arrival(&mut self, now: Now, origin: thicket_overlay::Origin, bytes: &[u8]) {
        let (Ok((record, _)), Some(node)) =
            (Record::decode(bytes), self.overlay.node_of(origin.slot))
        else {
            return;
        };
        let mail_origin = Origin {
            node,
            incarnation: origin.incarnation,
            stream: origin.stream,
        };
        // What a comparison of retained messages brought earlier was delivered then.
        let is_known = record.retain
            && record.shared.is_empty()
            && self.retained.observe(now, mail_origin, &record) == Observed::Known;
        let takers = if is_known {
            0
        } else {
            self.deliver(mail_origin, &record, bytes)
        };
        match record.number {
            0 => self
                .overlay
                .released(origin.slot, origin.incarnation, bytes.len() as u64),
            number if takers == 0 => self.overlay.admitted(origin, number..=number),
            number if takers > 1 => {
                self.admissions.open.insert((mail_origin, number), takers);
            }
            _ => {}
        }
    }

    /// Appends a message of another node to the batches of the workers that want it; how many they are.
    pub(super) fn deliver(&mut self, origin: Origin, record: &Record<'_>, bytes: &[u8]) -> u32 {
        let route = self.wanted.route(record.topic);
        if record.shared.is_empty() {
            for worker in &route.plain {
                self.outgoing.add_record(*worker, origin, bytes);
            }
            return route.plain.len() as u32;
        }
        let mut takers = 0;
        for (name, filter) in record.shared.iter() {
            let group = route
                .groups
                .iter()
                .find(|(key, _)| is_share_key(key, name, filter));
            // Without members here any worker knows where there are some.
            let worker = group
                .and_then(|(_, places)| self.wanted.choose(places))
                .unwrap_or(WorkerId(0));
            self.outgoing.add_record(worker, origin, bytes);
            takers += 1;
        }
        takers
    }

    /// A worker has admitted messages of another node.
    pub(super) fn handle_admitted(&mut self, origin: Origin, numbers: &NumberRuns) {
        let Some(slot) = self.overlay.slot_of(origin.node) else {
            return;
        };
        let whose = thicket_overlay::Origin {
            slot,
            incarnation: origin.incarnation,
            stream: origin.stream,
        };
        for &(from, to) in numbers {
            if self.admissions.open.is_empty() {
                self.overlay.admitted(whose, from..=to);
                continue;
            }
            for number in from..=to {
                if self.admissions.is_last(origin, number) {
                    self.overlay.admitted(whose, number..=number);
                }
            }
        }
    }
}

impl Admissions {
    /// Whether no other worker has still to admit the message.
    fn is_last(&mut self, origin: Origin, number: u64) -> bool {
        let key = (origin, number);
        match self.open.get_mut(&key) {
            None => true,
            Some(1) => self.open.remove(&key).is_some(),
            Some(open) => {
                *open -= 1;
                false
            }
        }
    }
}

/// Messages of one read from a link.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    bytes: Vec<u8>,
    records: Vec<(thicket_overlay::Origin, u32)>,
}

impl Arrivals {
    fn push(&mut self, delivery: &Delivery<'_>) {
        self.bytes.extend_from_slice(delivery.bytes);
        self.records
            .push((delivery.origin, delivery.bytes.len() as u32));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }
}
