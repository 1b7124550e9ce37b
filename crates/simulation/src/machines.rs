//! The machines of a running node, with their sockets, mailboxes and what waits for them.

use std::collections::{BTreeMap, VecDeque};

use thicket_node::{
    ConnectionId, Egress, Handover, Hub, HubInput, HubMessage, ListenerId, Now, Peer,
    RebalanceDone, Verdict, Worker, WorkerId, WorkerInput, WorkerMessage,
};

use crate::{
    disk::Disk,
    net::{Net, Place, Wake, thread_of},
    pipe::{EndId, Read},
    slots::Slots,
};

/// A message in a mailbox.
#[derive(Debug)]
pub(crate) enum Letter {
    HubMessage(WorkerId, HubMessage),
    WorkerMessage(WorkerId, WorkerMessage),
    Socket(EndId, Box<Handover>),
    Planned(Box<RebalanceDone>),
}

/// The machines of a running node: its workers and its hub.
#[derive(Debug)]
pub struct Machines {
    /// Its workers, by number.
    pub workers: Vec<Worker>,
    /// Its hub.
    pub hub: Hub,
    pub(crate) threads: Vec<Slots>,
    pub(crate) mail: BTreeMap<(Peer, Peer), VecDeque<(u64, Letter)>>,
    pub(crate) accepts: Vec<VecDeque<(u64, EndId)>>,
    /// Connections are accepted: all workers have recovered what was stored.
    pub(crate) is_open: bool,
    pub(crate) verdicts: Vec<VecDeque<(u64, ConnectionId, EndId, Verdict)>>,
    /// Dials that have ended, with the connection if one was established.
    pub dialled: VecDeque<(String, Option<EndId>)>,
    /// Addresses from discovery.
    pub heard_of: VecDeque<String>,
    /// Machines whose round waits for the disk, with the connections to write to afterwards.
    pub(crate) stuck: BTreeMap<Peer, Vec<ConnectionId>>,
    /// Messages to clients that each worker had sent when its last round ended.
    pub(crate) delivered: BTreeMap<WorkerId, u64>,
    /// The most of them that one round of a worker has sent.
    pub most_delivered: u64,
}

/// The egress, which is available after storing.
pub(crate) fn egress<M>(egress: Option<Egress<'_, M>>) -> Egress<'_, M> {
    egress.expect("what was gathered is stored")
}

impl Machines {
    pub(crate) fn end_round(&mut self, now: Now, peer: Peer) {
        match peer {
            Peer::Worker(id) => {
                let worker = &mut self.workers[usize::from(id.0)];
                let before = self.delivered.insert(id, worker.view().delivered());
                let delivered = worker.view().delivered() - before.unwrap_or_default();
                self.most_delivered = self.most_delivered.max(delivered);
                worker.end_round(now);
            }
            Peer::Hub => self.hub.end_round(now),
        }
    }

    /// Stores what the machine must have stored before its output may leave.
    pub(crate) fn store(&mut self, now: Now, peer: Peer, disk: &mut Disk) {
        match peer {
            Peer::Worker(id) => {
                let worker = &mut self.workers[usize::from(id.0)];
                if let Some(unstored) = worker.unstored(now) {
                    let status = disk.store(id.0, &unstored);
                    worker.handle_stored(status);
                }
            }
            Peer::Hub => {
                if let Some(unstored) = self.hub.unstored() {
                    let status = disk.store(0, &unstored);
                    self.hub.handle_stored(status);
                }
            }
        }
    }

    /// Whether the machine has something to store.
    pub(crate) fn has_unstored(&mut self, now: Now, peer: Peer) -> bool {
        match peer {
            Peer::Worker(id) => self.workers[usize::from(id.0)].unstored(now).is_some(),
            Peer::Hub => self.hub.unstored().is_some(),
        }
    }

    /// Whether the machine needs another round after storing and writing.
    pub(crate) fn wants_round(&self, peer: Peer) -> bool {
        match peer {
            Peer::Worker(id) => self.workers[usize::from(id.0)].wants_round(),
            Peer::Hub => self.hub.wants_round(),
        }
    }

    /// Reports the status of the disk, which is full or has space again.
    pub fn tell_space(&mut self, disk: &Disk) {
        for (log, worker) in self.workers.iter_mut().enumerate() {
            worker.handle_log_status(disk.status(log as u8));
        }
        self.hub.handle_log_status(disk.status(0));
    }

    pub(crate) fn post(
        &mut self,
        node: usize,
        from: Peer,
        to: Peer,
        letter: Letter,
        net: &mut Net,
    ) {
        let letters = self.mail.entry((from, to)).or_default();
        let at = net.now + net.random.between(0, net.weather.mail_delay);
        let at = letters.back().map_or(at, |(last, _)| at.max(*last));
        letters.push_back((at, letter));
        net.wake(at, Wake::Shell(node, to));
    }

    pub(crate) fn open(
        &mut self,
        node: usize,
        now: Now,
        from: Peer,
        to: Peer,
        letter: Letter,
        net: &mut Net,
    ) {
        match letter {
            Letter::WorkerMessage(to, message) => self.workers[usize::from(to.0)]
                .handle_input(now, WorkerInput::Message { from, message }),
            Letter::Planned(done) => self.hub.handle_input(now, HubInput::Planned(done)),
            Letter::HubMessage(from, message) => self
                .hub
                .handle_input(now, HubInput::Message { from, message }),
            Letter::Socket(end, state) => {
                let connection = self.threads[thread_of(to)].insert(end, to);
                match to {
                    Peer::Worker(id) => self.workers[usize::from(id.0)]
                        .handle_input(now, WorkerInput::Adopted { connection, state }),
                    Peer::Hub => self.hub.handle_input(
                        now,
                        HubInput::LinkAdopted {
                            link: connection,
                            state,
                            key: None,
                        },
                    ),
                }
                let place = Place::Shell {
                    node,
                    owner: to,
                    connection,
                };
                net.give(end, place);
            }
        }
    }

    /// Opens the listeners when all workers have recovered. Returns whether that is now.
    pub(crate) fn opens(&mut self) -> bool {
        let was_open = self.is_open;
        self.is_open |= self.workers.iter().all(|worker| worker.view().is_settled());
        self.is_open && !was_open
    }

    pub(crate) fn accept(&mut self, node: usize, now: Now, id: WorkerId, net: &mut Net) {
        let thread = usize::from(id.0);
        if !self.is_open {
            return;
        }
        while let Some((_, end)) = self.accepts[thread].pop_front() {
            let owner = Peer::Worker(id);
            let connection = self.threads[thread].insert(end, owner);
            let input = WorkerInput::Accepted {
                connection,
                listener: ListenerId(0),
                peer: ([127, 0, 0, 1], 40_000).into(),
            };
            self.workers[thread].handle_input(now, input);
            let place = Place::Shell {
                node,
                owner,
                connection,
            };
            net.give(end, place);
        }
    }

    pub(crate) fn read(&mut self, now: Now, peer: Peer, connection: ConnectionId, net: &mut Net) {
        let slots = &mut self.threads[thread_of(peer)];
        let Some(slot) = slots.get_mut(connection).filter(|slot| !slot.is_paused) else {
            return;
        };
        let end = slot.end;
        if !net.is_readable(end) {
            return;
        }
        match (net.read(end), peer) {
            (Read::Nothing, _) => {}
            (Read::Bytes(bytes), Peer::Worker(id)) => {
                let bytes = &bytes;
                self.workers[usize::from(id.0)]
                    .handle_input(now, WorkerInput::Received { connection, bytes });
            }
            (Read::Bytes(bytes), Peer::Hub) => {
                let (link, bytes) = (connection, &bytes[..]);
                self.hub
                    .handle_input(now, HubInput::Received { link, bytes });
            }
            (Read::End, _) => {
                match peer {
                    Peer::Worker(id) => self.workers[usize::from(id.0)]
                        .handle_input(now, WorkerInput::Closed { connection }),
                    Peer::Hub => self
                        .hub
                        .handle_input(now, HubInput::Closed { link: connection }),
                }
                self.threads[thread_of(peer)].remove(connection);
                net.close(end);
            }
        }
    }

    pub(crate) fn answer_later(
        &mut self,
        node: usize,
        id: WorkerId,
        connection: ConnectionId,
        verdict: Verdict,
        net: &mut Net,
    ) {
        let thread = usize::from(id.0);
        if let Some(slot) = self.threads[thread].get_mut(connection) {
            let at = net.now + net.random.below(10);
            self.verdicts[thread].push_back((at, connection, slot.end, verdict));
            net.wake(at, Wake::Shell(node, Peer::Worker(id)));
        }
    }

    pub(crate) fn answer_verdicts(&mut self, now: Now, id: WorkerId, net: &Net) {
        let thread = usize::from(id.0);
        while let Some((_, connection, end, verdict)) =
            self.verdicts[thread].pop_front_if(|(at, ..)| *at <= net.now)
        {
            let slot = self.threads[thread].get_mut(connection);
            if slot.is_some_and(|slot| slot.end == end) {
                let input = WorkerInput::Authenticated {
                    connection,
                    verdict,
                };
                self.workers[thread].handle_input(now, input);
            }
        }
    }

    pub(crate) fn send_to_hub(&mut self, node: usize, now: Now, net: &mut Net) {
        for address in std::mem::take(&mut self.heard_of) {
            self.hub.handle_input(now, HubInput::Discovered { address });
        }
        for (address, end) in std::mem::take(&mut self.dialled) {
            let Some(end) = end else {
                let error = "refused".to_owned();
                self.hub
                    .handle_input(now, HubInput::DialFailed { address, error });
                continue;
            };
            let link = self.threads[0].insert(end, Peer::Hub);
            self.hub
                .handle_input(now, HubInput::Dialled { address, link });
            let owner = Peer::Hub;
            let place = Place::Shell {
                node,
                owner,
                connection: link,
            };
            net.give(end, place);
        }
    }

    /// Adds the connections whose last write was incomplete.
    pub(crate) fn add_blocked(&mut self, peer: Peer, to_flush: &mut Vec<ConnectionId>) {
        let slots = &mut self.threads[thread_of(peer)];
        for connection in slots.blocked.clone() {
            let slot = slots.get_mut(connection).filter(|slot| slot.is_blocked);
            let Some(owner) = slot.map(|slot| slot.owner) else {
                slots.blocked.remove(&connection);
                continue;
            };
            if owner == peer && !to_flush.contains(&connection) {
                to_flush.push(connection);
            }
        }
    }

    /// Writes until nothing is pending or the connection accepts no more.
    pub(crate) fn flush(&mut self, now: Now, peer: Peer, connection: ConnectionId, net: &mut Net) {
        loop {
            let Some(slot) = self.threads[thread_of(peer)].get_mut(connection) else {
                return;
            };
            let pending = match peer {
                Peer::Worker(id) => {
                    egress(self.workers[usize::from(id.0)].egress()).pending_output(connection)
                }
                Peer::Hub => egress(self.hub.egress()).pending_output(connection),
            };
            slot.is_blocked = !pending.is_empty();
            if pending.is_empty() {
                return;
            }
            let count = net.write(slot.end, pending);
            if count == 0 {
                self.threads[thread_of(peer)].blocked.insert(connection);
                return;
            }
            match peer {
                Peer::Worker(id) => {
                    self.workers[usize::from(id.0)].handle_written(connection, count)
                }
                Peer::Hub => self.hub.handle_written(now, connection, count),
            }
        }
    }

    pub(crate) fn close(&mut self, now: Now, peer: Peer, connection: ConnectionId, net: &mut Net) {
        self.flush(now, peer, connection, net);
        if let Some(slot) = self.threads[thread_of(peer)].remove(connection) {
            net.close(slot.end);
        }
    }
}
