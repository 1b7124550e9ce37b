//! To other workers of this node and, through the hub, to other nodes: one record a message, appended to the batch of each place.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::{
    NodeSlot,
    record::{PublicationId, Record, Records, SharedChoices},
};
use thicket_session::{
    server::{MessageId, seconds_left},
    time::Instant,
};

use super::{Debt, Worker, deliver::Outgoing, interests::Route, publish::Source};
use crate::{
    EventLevel, Now, Peer, WorkerId, WorkerOutput,
    mail::{Content, ForwardEntry, Mail, NumberRuns, Origin, Place, is_share_key, push_number},
    queue::Mark,
};

/// What leaves for one other thread at the end of the round.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<u8>,
    entries: Vec<ForwardEntry>,
}

/// What leaves at the end of the round.
#[derive(Debug)]
pub(super) struct Batches {
    workers: Vec<Batch>,
    hub: Batch,
    /// Numbers of others that were admitted here in this round.
    admitted: Vec<(Peer, Origin, NumberRuns)>,
    /// The record of this moment, with what the hub must know of it.
    record: Vec<u8>,
    number: u64,
    qos: Qos,
}

impl Batches {
    pub fn new(workers: u8) -> Self {
        Self {
            workers: (0..workers).map(|_| Batch::default()).collect(),
            hub: Batch::default(),
            admitted: Vec::new(),
            record: Vec::new(),
            number: 0,
            qos: Qos::AtMostOnce,
        }
    }

    /// Turns everything into mail.
    pub fn seal(&mut self, origin: Origin, outputs: &mut VecDeque<WorkerOutput>) {
        for (index, batch) in self.workers.iter_mut().enumerate() {
            if !batch.records.is_empty() {
                let bytes = std::mem::take(&mut batch.records);
                let to = Peer::Worker(WorkerId(index as u8));
                outputs.push_back(WorkerOutput::Mail {
                    to,
                    mail: Mail(Content::Records { origin, bytes }),
                });
            }
        }
        if !self.hub.entries.is_empty() {
            let Batch { records, entries } = std::mem::take(&mut self.hub);
            outputs.push_back(WorkerOutput::Mail {
                to: Peer::Hub,
                mail: Mail(Content::Forward { records, entries }),
            });
        }
        for (to, origin, numbers) in self.admitted.drain(..) {
            let content = match to {
                Peer::Worker(_) => Content::Acknowledged(numbers),
                Peer::Hub => Content::Admitted { origin, numbers },
            };
            outputs.push_back(WorkerOutput::Mail {
                to,
                mail: Mail(content),
            });
        }
    }

    pub fn add(
        &mut self,
        place: Place,
        retain: bool,
        destinations: impl FnOnce() -> Arc<[NodeSlot]>,
    ) {
        match place {
            Place::Worker(worker) => {
                if let Some(batch) = self.workers.get_mut(usize::from(worker.0)) {
                    batch.records.extend_from_slice(&self.record);
                }
            }
            Place::Node(_) => {
                self.hub.records.extend_from_slice(&self.record);
                let len = u32::try_from(self.record.len())
                    .expect("a record is little more than a packet");
                self.hub.entries.push(ForwardEntry {
                    len,
                    destinations: destinations(),
                    number: self.number,
                    qos: self.qos,
                    retain,
                });
            }
        }
    }

    pub fn admit(&mut self, to: Peer, origin: Origin, number: u64) {
        match self.admitted.last_mut() {
            Some((last_to, last_origin, numbers)) if *last_to == to && *last_origin == origin => {
                push_number(numbers, number)
            }
            Some(_) | None => self.admitted.push((to, origin, vec![(number, number)])),
        }
    }
}

impl Worker {
    /// Hands a message to the other workers and nodes that want it, and to the hub if it is to be retained. `open` grows by one if
    /// acknowledgements are owed.
    pub(super) fn forward(
        &mut self,
        route: &Route,
        publish: &Publish<'_>,
        source: Source<'_>,
        open: &mut u16,
    ) -> MessageId {
        let is_acknowledged = publish.qos > Qos::AtMostOnce;
        let asks_hub = publish.retain || !route.nodes.is_empty();
        let waits_for = route
            .workers
            .iter()
            .filter(|(_, qos)| is_acknowledged && *qos > Qos::AtMostOnce)
            .count() as u32
            + u32::from(is_acknowledged && asks_hub);
        let number = if waits_for > 0 {
            *open += u16::from(source.debt.is_some());
            self.pending.add(waits_for, source.debt)
        } else if publish.retain {
            self.pending.skip()
        } else {
            0
        };
        let mut qos0_workers = Vec::new();
        self.encode_record(publish, number, publish.qos, source.publication, None);
        for (worker, qos) in &route.workers {
            if is_acknowledged && *qos == Qos::AtMostOnce {
                qos0_workers.push(*worker);
            } else {
                self.batches
                    .add(Place::Worker(*worker), false, || Arc::new([]));
            }
        }
        if asks_hub || (!is_acknowledged && !route.nodes_qos0.is_empty()) {
            let everyone = || {
                if route.nodes_qos0.is_empty() {
                    Arc::clone(&route.nodes)
                } else {
                    union(route)
                }
            };
            let some = || Arc::clone(&route.nodes);
            if is_acknowledged && !publish.retain {
                self.batches.add(Place::Node(NodeSlot::LOCAL), false, some);
            } else {
                self.batches
                    .add(Place::Node(NodeSlot::LOCAL), publish.retain, everyone);
            }
        }
        let qos0_nodes = is_acknowledged && !publish.retain && !route.nodes_qos0.is_empty();
        if qos0_nodes || !qos0_workers.is_empty() {
            self.encode_record(publish, 0, Qos::AtMostOnce, source.publication, None);
            for worker in qos0_workers {
                self.batches
                    .add(Place::Worker(worker), false, || Arc::new([]));
            }
            if qos0_nodes {
                self.batches.add(Place::Node(NodeSlot::LOCAL), false, || {
                    Arc::clone(&route.nodes_qos0)
                });
            }
        }
        let origin = self.origin();
        MessageId {
            node: origin.node.0,
            incarnation: origin.incarnation.0,
            stream: self.id.0,
            number,
        }
    }

    pub(super) fn encode_record(
        &mut self,
        publish: &Publish<'_>,
        number: u64,
        qos: Qos,
        publication: Option<&PublicationId>,
        group: Option<&str>,
    ) {
        let mut choices = Vec::new();
        let shared = match group
            .and_then(|key| key.strip_prefix("$share/"))
            .and_then(|key| key.split_once('/'))
        {
            Some(choice) => SharedChoices::build([choice], &mut choices),
            None => SharedChoices::default(),
        };
        let record = Record {
            number,
            qos,
            retain: publish.retain,
            expiry_left_ms: publish
                .message_expiry_interval
                .map(|seconds| u64::from(seconds) * 1000),
            time: None,
            publication: publication.copied(),
            publisher: None,
            shared,
            topic: publish.topic,
            properties: publish.properties,
            payload: publish.payload,
            ..Record::default()
        };
        self.batches.number = number;
        self.batches.qos = qos;
        self.batches.record.clear();
        record.encode(&mut self.batches.record);
    }

    /// Messages of another worker's, or of another node's, stream.
    pub(super) fn handle_records(&mut self, now: Now, from: Peer, origin: Origin, bytes: &[u8]) {
        for record in Records::new(bytes) {
            match record {
                Ok((record, _)) => self.handle_record(now, from, origin, &record),
                Err(error) => {
                    self.event(
                        EventLevel::Error,
                        "unreadable record inside the node",
                        vec![("error", error.to_string())],
                    );
                    return;
                }
            }
        }
    }

    /// Retained messages that the hub learned of from another node.
    pub(super) fn handle_copies(&mut self, now: Now, origin: Origin, bytes: &[u8]) {
        for (record, _) in Records::new(bytes).flatten() {
            self.deliver_record(now, Peer::Hub, origin, &record);
        }
    }

    fn handle_record(&mut self, now: Now, from: Peer, origin: Origin, record: &Record<'_>) {
        if record.number > 0 && self.refuse_without_room(from, origin, record) {
            return;
        }
        let is_sent_on = self.deliver_record(now, from, origin, record);
        if record.number == 0 {
            return;
        }
        let stream = (origin.node.0, origin.incarnation.0, origin.stream.0 as u8);
        let mark = self.marks.entry(stream);
        mark.or_insert_with(|| Mark::new(now.instant))
            .note(now.instant, record.number);
        // The mail of this round leaves when all of the round is stored: the acknowledgement may go.
        if !is_sent_on {
            self.batches.admit(from, origin, record.number);
        }
    }

    /// Whether the message was sent on, so that its acknowledgement waits.
    fn deliver_record(
        &mut self,
        now: Now,
        from: Peer,
        origin: Origin,
        record: &Record<'_>,
    ) -> bool {
        let (publish, expires_at) = publish_of(record, now);
        let mut outgoing = Outgoing::new(&publish, expires_at);
        outgoing.id = MessageId {
            node: origin.node.0,
            incarnation: origin.incarnation.0,
            stream: origin.stream.0 as u8,
            number: record.number,
        };
        outgoing.publication = record.publication.as_ref();
        let route = self.route(record.topic);
        if route.withheld > 0 {
            self.traffic.withheld_messages += u64::from(route.withheld);
        }
        let mut sent_on = 0;
        if record.shared.is_empty() {
            outgoing.is_seen = record.publication.is_some_and(|id| !self.seen.insert(id));
            self.deliver(now, &route.takers, &mut outgoing, None);
            self.journal.note(&outgoing);
        } else {
            for (name, filter) in record.shared.iter() {
                let group = route
                    .groups
                    .iter()
                    .find(|group| is_share_key(&group.key, name, filter));
                let Some(group) = group else { continue };
                if let Some(index) = self.choose_here(group) {
                    let index = self.member_with_room(group, index, outgoing.publish);
                    self.deliver_alone(now, &group.local[index].taker, &group.key, &mut outgoing);
                    continue;
                }
                // The members here have gone meanwhile: another place has some, or nobody has.
                let debt = Debt::Sender {
                    from,
                    origin,
                    number: record.number,
                };
                let debt = (record.number > 0 && sent_on == 0).then_some(debt);
                self.publish_to_group(now, group, &mut outgoing, debt, &mut sent_on);
            }
        }
        if sent_on == 0 && record.number > 0 {
            let debt = Debt::Sender {
                from,
                origin,
                number: record.number,
            };
            sent_on += self.wait_for_copies(&outgoing, Some(debt));
        }
        sent_on > 0
    }
}

/// The message of a record, and when it expires.
pub(super) fn publish_of<'a>(record: &Record<'a>, now: Now) -> (Publish<'a>, Option<Instant>) {
    let expires_at = record
        .expiry_left_ms
        .map(|ms| now.instant + Duration::from_millis(ms));
    let publish = Publish {
        qos: record.qos,
        retain: record.retain,
        message_expiry_interval: expires_at.map(|at| seconds_left(at, now.instant)),
        properties: record.properties,
        ..Publish::new(record.topic, record.payload)
    };
    (publish, expires_at)
}

/// All nodes of a route, ascending.
fn union(route: &Route) -> Arc<[NodeSlot]> {
    let mut nodes: Vec<NodeSlot> = route
        .nodes
        .iter()
        .chain(route.nodes_qos0.iter())
        .copied()
        .collect();
    nodes.sort_unstable();
    nodes.into()
}
