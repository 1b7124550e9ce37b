//! To other workers of this node and, through the hub, to other nodes: one record a message, appended to the batch of each place.

use std::sync::Arc;

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::record::Record;
use thicket_session::server::MessageId;

use super::{
    Worker,
    arrivals::note_late,
    capacity::{choose_here, is_handed_over, member_with_capacity, refuse_over_limit},
    context::Context,
    effort::leave_records,
    groups::{Reach, Search},
    replication::wait_for_backups,
    state::{
        batches::Leaving,
        debts::Debt,
        effort::RecordBatch,
        interests::Route,
        outgoing::Outgoing,
        publication::Source,
        records::{message_id, publish_of, record_of, stream_of},
    },
};
use crate::{
    EventLevel, Now, Peer,
    marks::Mark,
    messages::{NumberRuns, Origin, ToHub, ToWorker, Way, push_number},
};

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

/// Records of another thread were taken: it is sent a report now and then.
fn report_taken(cx: &mut Context, from: Peer, bytes: u64) {
    let index = cx.batches.index_of(from);
    let Some(bytes) = cx.batches.flow_control.process(index, bytes) else {
        return;
    };
    match from {
        Peer::Worker(to) => cx.send_to_worker(to, ToWorker::Processed { bytes }),
        Peer::Hub => cx.send_to_hub(ToHub::Processed { bytes }),
    }
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

    /// A message that does not come in the stream of its origin.
    pub(super) fn handle_single_record(
        &mut self,
        now: Now,
        origin: Origin,
        bytes: &[u8],
        way: Way,
    ) {
        let Ok((mut record, _)) = Record::decode(bytes) else {
            let message = "unreadable record inside the node";
            return self.cx.event(EventLevel::Error, message, Vec::new());
        };
        if way == Way::LastWrite {
            if self.cx.has_last(now, origin, &record) {
                return;
            }
            // Without an identity: it is no duplicate.
            (record.number, record.publication) = (0, None);
        }
        let is_accepted = match way {
            Way::Stream | Way::Hint => self.handle_record(now, Peer::Hub, origin, &record, way),
            Way::Comparison | Way::LastWrite => {
                self.deliver_record(now, Peer::Hub, origin, &record, way);
                true
            }
        };
        if is_accepted && record.number > 0 {
            note_late(&mut self.cx, now, origin, record.number);
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
        if record.number > 0 && refuse_over_limit(&mut self.cx, now, from, origin, record) {
            return false;
        }
        let taken = if self.cx.observed.traces.is_some() {
            self.deliver_traced(now, from, origin, record, way)
        } else {
            self.deliver_record(now, from, origin, record, way)
        };
        match taken {
            // The messages of this round leave when all of the round is stored: the acknowledgement may go.
            Taken::Here if record.number > 0 => {
                self.cx.batches.admit(from, origin, record.number);
            }
            Taken::Here | Taken::SentOn => {}
            Taken::Refused => refuse_for_members(&mut self.cx, from, record),
        }
        taken != Taken::Refused
    }

    pub(super) fn deliver_record(
        &mut self,
        now: Now,
        from: Peer,
        origin: Origin,
        record: &Record<'_>,
        way: Way,
    ) -> Taken {
        let Self { cx, groups, .. } = self;
        let (publish, expires_at) = publish_of(record, now);
        let mut outgoing = Outgoing::new(&publish, expires_at);
        outgoing.id = message_id(origin, record.number);
        outgoing.set_publication(record.publication.as_ref());
        outgoing.bypasses_backups = way == Way::Hint;
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
                cx.effort.spend_on_group(record.payload);
                let debt = Debt::Sender {
                    from,
                    origin,
                    number: record.number,
                };
                let debt = (record.number > 0 && sent_on == 0).then_some(debt);
                let Some(index) = choose_here(cx, group) else {
                    // The members here have gone meanwhile: another place has some, or there is none.
                    let search = Search::of_sender(Reach::Everywhere, debt);
                    groups.publish_to_group(cx, now, group, &mut outgoing, search, &mut sent_on);
                    continue;
                };
                // If all members here are handed over, the message waits: those where it came from may be too, and it would come back.
                let with_capacity = member_with_capacity(cx, now, group, index, outgoing.publish);
                let stays = !is_handed_over(cx, group.local[index].recipient.session);
                match (with_capacity, from) {
                    (None, Peer::Worker(_)) if record.number > 0 && stays => {
                        return Taken::Refused;
                    }
                    // Other workers of this node may have members with capacity.
                    (None, Peer::Hub) if record.number > 0 && stays => {
                        let search = Search::of_sender(Reach::Node, debt);
                        let outgoing = &mut outgoing;
                        groups.publish_to_group(cx, now, group, outgoing, search, &mut sent_on);
                        continue;
                    }
                    (Some(_) | None, Peer::Worker(_) | Peer::Hub) => {}
                }
                let index = with_capacity.unwrap_or(index);
                sent_on += groups.give_to_member(cx, now, group, index, &mut outgoing, debt);
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
        if sent_on > 0 {
            Taken::SentOn
        } else {
            Taken::Here
        }
    }
}

/// What became of a message that another place sent here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Its acknowledgement may go.
    Here,
    /// Its acknowledgement waits for other places.
    SentOn,
    /// All members here that it is for are over their limits: the worker that sent it here looks for others.
    Refused,
}

/// Sends a message for a shared subscription back to the worker that chose this one.
fn refuse_for_members(cx: &mut Context, from: Peer, record: &Record<'_>) {
    if let Peer::Worker(to) = from {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        cx.send_to_worker(to, ToWorker::MembersRefused { record: bytes });
    }
}
