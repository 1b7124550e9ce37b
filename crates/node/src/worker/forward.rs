//! To other workers of this node and, through the hub, to other nodes: one record a message, appended to the batch of each place.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::{
    NodeSlot,
    record::{PublicationId, Record, Records, SharedChoices},
};
use thicket_session::{
    server::{MessageId, MessageStream, seconds_left},
    time::Instant,
};

use super::{
    Worker,
    capacity::{member_with_capacity, refuse_over_limit},
    context::Context,
    debts::Debt,
    deliver::Outgoing,
    effort::{RecordBatch, leave_records},
    groups::{choose_here, is_handed_over},
    interests::Route,
    publish::Source,
    replication::wait_for_backups,
};
use crate::{
    EventLevel, Now, Peer, WorkerId, WorkerOutput,
    handed::{Handed, forward_bytes},
    marks::Mark,
    messages::{
        ForwardEntry, HubMessage, NumberRuns, Origin, Place, ToHub, ToWorker, WorkerMessage,
        push_number,
    },
};

/// How a message arrived here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// In its origin's stream, as at all its destinations.
    Stream,
    /// Other nodes kept it while this node was down: backups of sessions here do not receive it by themselves.
    Hint,
}

/// Bytes that a batch begins with at most: as many as the last one had.
const MAXIMUM_RESERVE: usize = 256 * 1024;

/// Records for one other thread, back to back.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<u8>,
    /// Bytes of the batch before it: what this one is likely to need.
    expected: usize,
}

impl Batch {
    /// Where the next record goes.
    fn end(&mut self) -> &mut Vec<u8> {
        if self.records.capacity() == 0 {
            self.records.reserve(self.expected);
        }
        &mut self.records
    }

    /// Takes all of them; another batch begins.
    fn take(&mut self) -> Vec<u8> {
        self.expected = self.records.len().min(MAXIMUM_RESERVE);
        std::mem::take(&mut self.records)
    }
}

/// A record on its way into the batches of all its places: encoded into the first one, copied from there into the others.
#[derive(Debug)]
pub(super) struct Leaving<'a> {
    record: Record<'a>,
    /// The batch that has it, and where in it.
    encoded: Option<(usize, Range<usize>)>,
}

impl<'a> Leaving<'a> {
    pub const fn new(record: Record<'a>) -> Self {
        Self {
            record,
            encoded: None,
        }
    }
}

/// What leaves at the end of the round.
#[derive(Debug)]
pub(super) struct Batches {
    /// One a worker, then the hub's.
    batches: Vec<Batch>,
    /// What the hub must do with its records.
    entries: Vec<ForwardEntry>,
    /// Numbers of others that were admitted here in this round.
    admitted: Vec<(Peer, Origin, NumberRuns)>,
    /// What the others have not taken yet, by their place in `batches`.
    pub handed: Handed,
}

impl Batches {
    pub fn new(workers: u8) -> Self {
        Self {
            batches: (0..=workers).map(|_| Batch::default()).collect(),
            entries: Vec::new(),
            admitted: Vec::new(),
            handed: Handed::new(usize::from(workers) + 1),
        }
    }

    /// The place of another thread.
    fn index_of(&self, peer: Peer) -> usize {
        match peer {
            Peer::Worker(worker) => usize::from(worker.0),
            Peer::Hub => self.hub(),
        }
    }

    /// Another thread reports that it has taken records.
    pub fn note_taken(&mut self, by: Peer, bytes: u64) {
        self.handed.note_taken(self.index_of(by), bytes);
    }

    const fn hub(&self) -> usize {
        self.batches.len() - 1
    }

    /// Turns everything into messages.
    pub fn seal(&mut self, origin: Origin, outputs: &mut VecDeque<WorkerOutput>) {
        let hub = self.hub();
        for (index, batch) in self.batches.iter_mut().enumerate() {
            if batch.records.is_empty() {
                continue;
            }
            let bytes = batch.take();
            let output = if index == hub {
                let entries = std::mem::take(&mut self.entries);
                let records = bytes;
                self.handed.hand(index, forward_bytes(&records, &entries));
                WorkerOutput::HubMessage(HubMessage(ToHub::Forward { records, entries }))
            } else {
                self.handed.hand(index, bytes.len() as u64);
                let to = WorkerId(index as u8);
                let message = WorkerMessage(ToWorker::Records { origin, bytes });
                WorkerOutput::WorkerMessage { to, message }
            };
            outputs.push_back(output);
        }
        for (to, origin, numbers) in self.admitted.drain(..) {
            let output = match to {
                Peer::Worker(to) => {
                    let message = WorkerMessage(ToWorker::Acknowledged(numbers));
                    WorkerOutput::WorkerMessage { to, message }
                }
                Peer::Hub => {
                    WorkerOutput::HubMessage(HubMessage(ToHub::Admitted { origin, numbers }))
                }
            };
            outputs.push_back(output);
        }
    }

    /// Adds a record to the batch of a worker.
    pub fn add_for_worker(&mut self, worker: WorkerId, leaving: &mut Leaving<'_>) {
        let index = usize::from(worker.0);
        if index < self.hub() {
            self.append(index, leaving);
        }
    }

    /// Adds a record to the batch of the hub, for these nodes.
    pub fn add_for_nodes(&mut self, destinations: &Arc<[NodeSlot]>, leaving: &mut Leaving<'_>) {
        let len = self.append(self.hub(), leaving);
        let len = u32::try_from(len).expect("a record is little more than a packet");
        let Record { number, qos, .. } = leaving.record;
        if let Some(last) = self.entries.last_mut()
            && last.absorb(len, number, qos, destinations)
        {
            return;
        }
        self.entries.push(ForwardEntry {
            len,
            records: 1,
            destinations: Arc::clone(destinations),
            number,
            qos,
            retain: false,
        });
    }

    /// Adds a record to the batch of the hub, to be retained on every node.
    pub fn add_retained(&mut self, destinations: &Arc<[NodeSlot]>, leaving: &mut Leaving<'_>) {
        let len = self.append(self.hub(), leaving);
        self.entries.push(ForwardEntry {
            len: u32::try_from(len).expect("a record is little more than a packet"),
            records: 1,
            destinations: Arc::clone(destinations),
            number: leaving.record.number,
            qos: leaving.record.qos,
            retain: true,
        });
    }

    /// Appends a record to a batch. Returns its length.
    fn append(&mut self, index: usize, leaving: &mut Leaving<'_>) -> usize {
        let Some((first, range)) = &leaving.encoded else {
            let out = self.batches[index].end();
            let start = out.len();
            leaving.record.encode(out);
            let range = start..out.len();
            let len = range.len();
            leaving.encoded = Some((index, range));
            return len;
        };
        debug_assert_ne!(*first, index, "a place has a record once");
        let source = std::mem::take(&mut self.batches[*first].records);
        self.batches[index]
            .end()
            .extend_from_slice(&source[range.clone()]);
        self.batches[*first].records = source;
        range.len()
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

/// Sends a message to the other workers and nodes with matching subscriptions, and to the hub if it is to be retained. `open` grows by one if
/// acknowledgements are owed.
pub(super) fn forward(
    cx: &mut Context,
    route: &Route,
    publish: &Publish<'_>,
    source: Source<'_>,
    open: &mut u16,
) -> MessageId {
    let is_acknowledged = publish.qos > Qos::AtMostOnce;
    let asks_hub = publish.retain || !route.nodes.is_empty();
    // What is to be retained has its number wherever it goes: without one, the last value of a contended topic would be taken for another message
    // by recipients that got it at QoS 0.
    let is_numbered =
        |granted: Qos| is_acknowledged && (publish.retain || granted > Qos::AtMostOnce);
    let waits_for = route
        .workers
        .iter()
        .filter(|(_, qos)| is_numbered(*qos))
        .count() as u32
        + u32::from(is_acknowledged && asks_hub);
    let number = if waits_for > 0 {
        *open += u16::from(source.debt.is_some());
        cx.debts.pending.add(waits_for, source.debt)
    } else if publish.retain {
        cx.debts.pending.skip()
    } else {
        0
    };
    let is_qos0_too = is_acknowledged && !publish.retain;
    let publisher = publish.retain.then(|| publisher_of(cx, source)).flatten();
    let mut record = record_of(publish, number, publish.qos, source.publication);
    record.publisher = publisher.as_deref();
    let mut leaving = Leaving::new(record);
    let mut has_qos0_workers = false;
    for (worker, qos) in &route.workers {
        if is_acknowledged && !is_numbered(*qos) {
            has_qos0_workers = true;
        } else {
            cx.batches.add_for_worker(*worker, &mut leaving);
        }
    }
    let nodes = if is_qos0_too {
        &route.nodes
    } else {
        &route.nodes_all
    };
    if publish.retain {
        cx.batches.add_retained(nodes, &mut leaving);
    } else if asks_hub || (!is_acknowledged && !route.nodes_qos0.is_empty()) {
        cx.batches.add_for_nodes(nodes, &mut leaving);
    }
    let has_qos0_nodes = is_qos0_too && !route.nodes_qos0.is_empty();
    if has_qos0_nodes || has_qos0_workers {
        let record = record_of(publish, 0, Qos::AtMostOnce, source.publication);
        let mut leaving = Leaving::new(record);
        for (worker, qos) in &route.workers {
            if !is_numbered(*qos) {
                cx.batches.add_for_worker(*worker, &mut leaving);
            }
        }
        if has_qos0_nodes {
            cx.batches.add_for_nodes(&route.nodes_qos0, &mut leaving);
        }
    }
    message_id(cx.origin(), number)
}

/// Whose quota a retained message counts towards.
fn publisher_of(cx: &Context, source: Source<'_>) -> Option<Arc<str>> {
    let session = source.session.and_then(|key| cx.sessions.get(key));
    session.and_then(|session| session.charge.publisher().cloned())
}

/// Sends a message to another place that has members of a group: one of them gets it.
pub(super) fn forward_to_group(
    cx: &mut Context,
    publish: &Publish<'_>,
    number: u64,
    group: &str,
    place: Place,
) {
    let mut choices = Vec::new();
    let choice = group
        .strip_prefix("$share/")
        .and_then(|key| key.split_once('/'));
    let shared = choice.map_or_else(SharedChoices::default, |choice| {
        SharedChoices::build([choice], &mut choices)
    });
    let mut leaving = Leaving::new(Record {
        shared,
        ..record_of(publish, number, publish.qos, None)
    });
    match place {
        Place::Worker(worker) => cx.batches.add_for_worker(worker, &mut leaving),
        Place::Node(slot) => {
            let nodes: Arc<[NodeSlot]> = Arc::new([slot]);
            cx.batches.add_for_nodes(&nodes, &mut leaving);
        }
    }
}

/// Records of another thread were taken: it is sent a report now and then.
fn report_taken(cx: &mut Context, from: Peer, bytes: u64) {
    let index = cx.batches.index_of(from);
    let Some(bytes) = cx.batches.handed.take(index, bytes) else {
        return;
    };
    match from {
        Peer::Worker(to) => cx.send_to_worker(to, ToWorker::Taken { bytes }),
        Peer::Hub => cx.send_to_hub(ToHub::Taken { bytes }),
    }
}

/// A message arrived otherwise than in the stream of its origin.
pub(super) fn note_late(cx: &mut Context, now: Now, origin: Origin, number: u64) {
    let stream = stream_of(origin);
    let new = || Mark::new(now.instant);
    let mark = cx.arrivals.marks.entry(stream).or_insert_with(new);
    mark.note_late(number);
}

impl Worker {
    /// Messages of another worker's, or of another node's, stream.
    pub(super) fn handle_records(&mut self, now: Now, from: Peer, batch: RecordBatch) {
        let origin = batch.origin;
        let mut taken = NumberRuns::new();
        let mut records = batch.records();
        let mut record = Record::default();
        let mut left = None;
        loop {
            if self.cx.effort.is_over() && !records.rest().is_empty() {
                left = Some((records.topic().to_owned(), records.rest().len()));
                break;
            }
            match records.read_into(&mut record) {
                Ok(None) => break,
                Ok(Some(_)) => {
                    let is_taken = self.handle_record(now, from, origin, &record, Way::Stream);
                    if is_taken && record.number > 0 {
                        push_number(&mut taken, record.number);
                    }
                }
                Err(error) => {
                    self.cx.event(
                        EventLevel::Error,
                        "unreadable record inside the node",
                        vec![("error", error.to_string())],
                    );
                    break;
                }
            }
        }
        if !taken.is_empty() {
            self.cx.arrivals.begun = None;
            let stream = stream_of(origin);
            let new = || Mark::new(now.instant);
            let mark = self.cx.arrivals.marks.entry(stream).or_insert_with(new);
            for number in taken.into_iter().flat_map(|(from, to)| from..=to) {
                mark.note(now.instant, number);
            }
        }
        match left {
            Some(left) => leave_records(&mut self.cx, from, batch, left),
            None => report_taken(&mut self.cx, from, batch.bytes()),
        }
    }

    /// Retained messages that the hub received from another node. They did not arrive here in their streams.
    pub(super) fn handle_retained_records(&mut self, now: Now, origin: Origin, bytes: &[u8]) {
        for (record, _) in Records::new(bytes).flatten() {
            self.deliver_record(now, Peer::Hub, origin, &record, Way::Stream);
            if record.number > 0 {
                note_late(&mut self.cx, now, origin, record.number);
            }
        }
    }

    /// Whether the message was accepted: not if it is over the limit.
    pub(super) fn handle_record(
        &mut self,
        now: Now,
        from: Peer,
        origin: Origin,
        record: &Record<'_>,
        way: Way,
    ) -> bool {
        if record.number > 0 && refuse_over_limit(&mut self.cx, from, origin, record) {
            return false;
        }
        let is_sent_on = if self.cx.observed.traces.is_some() {
            self.deliver_traced(now, from, origin, record, way)
        } else {
            self.deliver_record(now, from, origin, record, way)
        };
        // The messages of this round leave when all of the round is stored: the acknowledgement may go.
        if record.number > 0 && !is_sent_on {
            self.cx.batches.admit(from, origin, record.number);
        }
        true
    }

    /// Whether the message was sent on, so that its acknowledgement waits.
    pub(super) fn deliver_record(
        &mut self,
        now: Now,
        from: Peer,
        origin: Origin,
        record: &Record<'_>,
        way: Way,
    ) -> bool {
        let Self { cx, groups, .. } = self;
        let (publish, expires_at) = publish_of(record, now);
        let mut outgoing = Outgoing::new(&publish, expires_at);
        outgoing.id = message_id(origin, record.number);
        outgoing.set_publication(record.publication.as_ref());
        outgoing.is_alone = way == Way::Hint;
        let route = cx.route(record.topic);
        if route.withheld > 0 {
            cx.traffic.withheld_messages += u64::from(route.withheld);
        }
        let mut sent_on = 0;
        if record.shared.is_empty() {
            outgoing.is_seen = cx.arrivals.note(&outgoing);
            cx.deliver(now, &route.recipients, &mut outgoing, None);
            cx.journal.note(&outgoing);
        } else {
            for (name, filter) in record.shared.iter() {
                let Some(group) = route.group(name, filter) else {
                    continue;
                };
                cx.effort.spend_on_group();
                let here = choose_here(cx, group);
                let is_here =
                    |index: &usize| !is_handed_over(cx, group.local[*index].recipient.session);
                if let Some(index) = here.filter(is_here) {
                    let with_room = member_with_capacity(cx, group, index, outgoing.publish);
                    let index = with_room.unwrap_or(index);
                    cx.deliver_alone(
                        now,
                        &group.local[index].recipient,
                        &group.key,
                        &mut outgoing,
                    );
                    continue;
                }
                // The members here have gone meanwhile: another place has some, or there is none.
                let debt = Debt::Sender {
                    from,
                    origin,
                    number: record.number,
                };
                let debt = (record.number > 0 && sent_on == 0).then_some(debt);
                groups.publish_to_group(cx, now, group, &mut outgoing, debt, &mut sent_on);
            }
        }
        if sent_on == 0 && record.number > 0 {
            let debt = Debt::Sender {
                from,
                origin,
                number: record.number,
            };
            sent_on += wait_for_backups(cx, &outgoing, Some(debt));
        }
        sent_on > 0
    }
}

/// The identity of a message.
pub(super) const fn message_id(origin: Origin, number: u64) -> MessageId {
    MessageId {
        node: origin.node.0,
        incarnation: origin.incarnation.0,
        stream: origin.stream.0 as u8,
        number,
    }
}

/// The record of a message.
fn record_of<'a>(
    publish: &Publish<'a>,
    number: u64,
    qos: Qos,
    publication: Option<&PublicationId>,
) -> Record<'a> {
    Record {
        number,
        qos,
        retain: publish.retain,
        expiry_left_ms: publish
            .message_expiry_interval
            .map(|seconds| u64::from(seconds) * 1000),
        publication: publication.copied(),
        topic: publish.topic,
        properties: publish.properties,
        payload: publish.payload,
        ..Record::default()
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

/// The stream of messages with an origin.
const fn stream_of(origin: Origin) -> MessageStream {
    MessageStream {
        node: origin.node.0,
        incarnation: origin.incarnation.0,
        stream: origin.stream.0 as u8,
    }
}
