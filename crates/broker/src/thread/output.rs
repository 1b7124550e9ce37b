//! The second half of a round: outputs are performed in order, then every connection with something to send is flushed once.

use std::io;
use std::sync::{Arc, OnceLock};

use thicket_node::{
    ConnectionId, Handover, Hub, HubInput, HubOutput, Now, Peer, WorkerId, WorkerInput,
    WorkerOutput,
};

use thicket_storage::StorageError;

use super::input::literal;
use super::{Phase, Thread};
use crate::authenticator::{Asker, Request};
use crate::dials::Dial;
use crate::event;
use crate::mailbox::{Letter, Summary};
use crate::sockets::Owner;
use crate::stream::Taken;

/// After the node's last packets, what the peer sent meanwhile is read and discarded, in at most this many reads.
const LAST_READS: usize = 4;
/// Messages between worker 0 and the hub, and capacity freed by writing, lead to more outputs in the same round, in at most this many passes.
const PASSES: usize = 8;

impl Thread {
    /// Performs all outputs. `true`: some are left, so a round must follow at once.
    ///
    /// # Errors
    /// What must be stored before it leaves could not be stored: nothing more may leave.
    pub(super) fn carry_out(&mut self, now: Now) -> io::Result<bool> {
        let mut busy = true;
        for _ in 0..PASSES {
            busy = self.settle(now).map_err(io::Error::other)?;
            // Inputs during the outputs have filled buffers too.
            self.store(now).map_err(io::Error::other)?;
            self.flush_all(now);
            busy |= self.wants_round();
            if !busy {
                break;
            }
        }
        self.sockets.free_removed();
        self.outgoing.post();
        Ok(busy)
    }

    /// Whether worker or hub have more outputs after what was stored and written.
    fn wants_round(&self) -> bool {
        self.worker.wants_round() || self.hub.as_ref().is_some_and(Hub::wants_round)
    }

    /// Stores what worker and hub gathered.
    fn store(&mut self, now: Now) -> Result<(), StorageError> {
        self.store_worker(now)?;
        self.store_hub()
    }

    fn store_worker(&mut self, now: Now) -> Result<(), StorageError> {
        if let Some(storage) = &mut self.storage
            && let Some(unstored) = self.worker.unstored(now)
        {
            let status = storage.store(&unstored)?;
            self.worker.handle_stored(status);
        }
        Ok(())
    }

    fn store_hub(&mut self) -> Result<(), StorageError> {
        if let Some(storage) = &mut self.storage
            && let Some(hub) = &mut self.hub
            && let Some(unstored) = hub.unstored()
        {
            storage.store(&unstored)?;
            hub.handle_stored(storage.store_status());
        }
        Ok(())
    }

    /// Runs what is due on the disk; before the inputs of a round, which depend on its capacity.
    pub(super) fn tick_storage(&mut self, now: Now) -> Result<(), StorageError> {
        let Some(storage) = &mut self.storage else {
            return Ok(());
        };
        if let Some(status) = storage.tick(now.instant)? {
            self.worker.handle_log_status(status);
            if let Some(hub) = &mut self.hub {
                hub.handle_log_status(storage.store_status());
            }
        }
        Ok(())
    }

    /// Lets worker and hub finish and performs their outputs. `true`: one of them has new inputs because of that.
    fn settle(&mut self, now: Now) -> Result<bool, StorageError> {
        self.worker.end_round(now);
        self.store_worker(now)?;
        self.tenants.count(&self.worker);
        self.report_summary(now);
        while let Some(output) = self.worker.egress().and_then(|mut it| it.poll_output()) {
            self.perform_worker(now, output);
        }
        let mut again = self.settle_hub(now)?;
        if !self.verdicts.is_empty() {
            for (connection, verdict) in std::mem::take(&mut self.verdicts) {
                self.hand_in_verdict(now, connection, verdict);
            }
            again = true;
        }
        if !self.ends_due.is_empty() {
            for connection in std::mem::take(&mut self.ends_due) {
                self.notice_end(now, connection);
            }
            again = true;
        }
        Ok(again)
    }

    /// Reports the number of clients to the hub, if that has changed.
    fn report_summary(&mut self, now: Now) {
        let summary = Summary {
            clients: self.worker.view().client_count(),
            subscriptions: self.worker.view().subscription_count(),
        };
        if summary == self.summary {
            return;
        }
        self.summary = summary;
        let from = self.id;
        if self.hub.is_some() {
            self.note_summary(now, from, summary);
        } else {
            self.outgoing
                .add(Peer::Hub, Letter::Summary { from, summary });
        }
    }

    /// On thread 0: the hub reports the sum to the other nodes.
    pub(super) fn note_summary(&mut self, now: Now, from: WorkerId, summary: Summary) {
        self.summaries[usize::from(from.0)] = summary;
        let sum = |part: fn(&Summary) -> u64| self.summaries.iter().map(part).sum();
        let (clients, subscriptions) = (sum(|it| it.clients), sum(|it| it.subscriptions));
        if let Some(hub) = &mut self.hub {
            hub.operate(now).set_summary(clients, subscriptions);
        }
    }

    /// The worker's outputs are drained, so messages from the hub may be handed in at once.
    fn settle_hub(&mut self, now: Now) -> Result<bool, StorageError> {
        let Some(hub) = &mut self.hub else {
            return Ok(false);
        };
        hub.end_round(now);
        self.store_hub()?;
        let mut again = false;
        while let Some(output) = self.next_of_hub() {
            again |= self.perform_hub(now, output);
        }
        if !self.dials_due.is_empty() {
            for dial in std::mem::take(&mut self.dials_due) {
                self.try_next(now, dial, None);
            }
            again = true;
        }
        Ok(again)
    }

    fn next_of_hub(&mut self) -> Option<HubOutput> {
        self.hub.as_mut()?.egress()?.poll_output()
    }

    fn perform_worker(&mut self, now: Now, output: WorkerOutput) {
        match output {
            WorkerOutput::Flush(connection) => self.sockets.mark_dirty(connection),
            WorkerOutput::Close(connection) => self.close(now, connection),
            WorkerOutput::SetReading(connection, reading) => {
                self.sockets.set_reading(connection, reading)
            }
            WorkerOutput::Handover {
                connection,
                to,
                state,
            } => self.hand_over(now, connection, to, state),
            WorkerOutput::HubMessage(message) => {
                let from = self.id;
                match &mut self.hub {
                    Some(hub) => hub.handle_input(now, HubInput::Message { from, message }),
                    None => self
                        .outgoing
                        .add(Peer::Hub, Letter::HubMessage { from, message }),
                }
            }
            WorkerOutput::WorkerMessage { to, message } => {
                let from = Peer::Worker(self.id);
                self.outgoing
                    .add(Peer::Worker(to), Letter::WorkerMessage { from, message });
            }
            question @ WorkerOutput::Authenticate { .. } => self.authenticate(question),
            WorkerOutput::RemoveLogBefore { segment } => {
                if let Some(storage) = &mut self.storage {
                    storage.remove_before(segment);
                }
            }
            WorkerOutput::Published { number, answer } => {
                if let Some(tell) = self.publications.remove(&number) {
                    tell(answer);
                }
            }
            WorkerOutput::Event(event) => {
                event::count(&self.counters, &event);
                event::log(self.id.0, &event);
                self.hooks.note(&event);
                if let Some(ban) = self.flapping.note(now, &event, &self.counters) {
                    self.outgoing.add(Peer::Worker(self.id), ban);
                }
            }
            WorkerOutput::Observed(message) => self.hooks.note_message(*message),
            WorkerOutput::Traced(traced) => {
                if let Some(traces) = &mut self.traces {
                    traces.note(self.round_began, *traced);
                }
            }
        }
    }

    /// `true`: the worker of this thread has a message.
    fn perform_hub(&mut self, now: Now, output: HubOutput) -> bool {
        match output {
            HubOutput::Flush(link) => self.sockets.mark_dirty(link),
            HubOutput::Close(link) => self.close(now, link),
            HubOutput::Dial { address } => match literal(&address) {
                Some(rest) => self.dials_due.push(Dial { address, rest }),
                None => self.resolver.ask(address),
            },
            HubOutput::Plan(task) => self.planner.ask(task),
            HubOutput::WorkerMessage { to, message } => {
                let from = Peer::Hub;
                if to == self.id {
                    self.worker
                        .handle_input(now, WorkerInput::Message { from, message });
                    return true;
                }
                self.outgoing
                    .add(Peer::Worker(to), Letter::WorkerMessage { from, message });
            }
            HubOutput::Placed { number, answer } => {
                if let Some(tell) = self.placements.remove(&number) {
                    tell(*answer);
                }
            }
            HubOutput::End { problem } => self.problem = Some(problem),
            HubOutput::Event(event) => {
                self.counters.last_refusal.note(&event);
                event::log(self.id.0, &event);
                self.hooks.note(&event);
            }
        }
        false
    }

    fn authenticate(&mut self, question: WorkerOutput) {
        let WorkerOutput::Authenticate {
            connection,
            listener,
            peer,
            client_id,
            user_name,
            password,
            enhanced,
        } = question
        else {
            return;
        };
        let Some(socket) = self.sockets.find(connection) else {
            return;
        };
        let certificate_name = socket.transport.certificate_name();
        let name = is_further(&client_id).then(|| {
            let user = user_name.as_deref().or(certificate_name.as_deref());
            self.worker
                .view()
                .name_of_session(connection, user, &client_id)
        });
        let request = Arc::new(Request {
            asker: Asker::Connection {
                worker: self.id,
                connection,
                serial: socket.serial,
            },
            since: self.round_began,
            listener,
            peer,
            client_id,
            placed_as: OnceLock::new(),
            certificate_name,
            user_name,
            password,
            enhanced,
        });
        if let Some(name) = name.flatten() {
            self.authenticator.ask_as_placed(&request, name);
        } else if let Some(verdict) = self.authenticator.ask(&request) {
            self.verdicts.push((connection, verdict));
            return;
        }
        self.asking.insert(connection, request);
        // The end may have come with the CONNECT.
        self.ends_due.push(connection);
    }

    /// Hands a socket over; between worker 0 and the hub it stays where it is.
    fn hand_over(&mut self, now: Now, connection: ConnectionId, to: Peer, state: Box<Handover>) {
        // Outputs that were ordered before must be written.
        self.flush(now, connection);
        if to == Peer::Hub && self.hub.is_some() {
            if let Some(socket) = self.sockets.find(connection) {
                socket.owner = Owner::Hub;
                self.hand_in_adopted(now, connection, to, state);
            }
            return;
        }
        let Some(mut socket) = self.sockets.remove(connection) else {
            return;
        };
        if let Err(error) = socket.transport.deregister(self.poll.registry()) {
            tracing::error!(%error, "cannot hand a connection to another thread");
            return;
        }
        self.outgoing.add(
            to,
            Letter::Socket {
                transport: socket.transport,
                to,
                state,
            },
        );
    }

    /// Writes what the socket accepts at once and closes. A client may read the last packets before the socket is closed (`lingering`).
    fn close(&mut self, now: Now, connection: ConnectionId) {
        self.asking.remove(&connection);
        self.sockets.mark_dirty(connection);
        self.flush(now, connection);
        let Some(socket) = self.sockets.find(connection) else {
            return;
        };
        socket.transport.finish();
        let is_client = socket.owner == Owner::Worker;
        if is_client && self.phase == Phase::Running {
            socket.owner = Owner::Lingering;
            socket.transport.leave_seat();
            self.sockets.set_reading(connection, true);
            self.lingering.begin(now.instant, connection);
            return;
        }
        let Some(mut socket) = self.sockets.remove(connection) else {
            return;
        };
        for _ in 0..LAST_READS {
            let read = socket.transport.try_read(&mut self.buffer);
            if !matches!(read, Ok(Taken::Bytes { .. })) {
                break;
            }
        }
    }

    /// Flushes every dirty connection.
    fn flush_all(&mut self, now: Now) {
        let mut list = std::mem::take(&mut self.to_flush);
        self.sockets.take_dirty(&mut list);
        for connection in list.drain(..) {
            self.flush(now, connection);
        }
        self.to_flush = list;
    }

    /// Writes pending bytes until the socket accepts no more, if the connection is dirty.
    fn flush(&mut self, now: Now, connection: ConnectionId) {
        let Some(socket) = self.sockets.start_flush(connection) else {
            return;
        };
        let owner = socket.owner;
        loop {
            let pending = match (owner, &mut self.hub) {
                (Owner::Worker, _) => {
                    let egress = self.worker.egress();
                    egress.map(|it| it.pending_output(connection))
                }
                (Owner::Hub, Some(hub)) => hub.egress().map(|it| it.pending_output(connection)),
                (Owner::Lingering, _) => Some(&[][..]),
                (Owner::Hub, None) | (Owner::Dial | Owner::Preface, _) => return,
            };
            let Some(pending) = pending else {
                debug_assert!(false, "what is flushed must be stored first");
                return self.sockets.mark_dirty(connection);
            };
            if pending.is_empty() {
                // Output of the layers, their own or encrypted.
                return match socket.transport.try_flush() {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.set_blocked(),
                    Err(_) => self.sockets.mark_lost(connection),
                };
            }
            match socket.transport.try_write(pending) {
                Ok(count) => match (owner, &mut self.hub) {
                    (Owner::Worker, _) => {
                        if let Some(gate) = socket.transport.gate() {
                            gate.bytes_out.add(count);
                        }
                        self.worker.handle_written(connection, count);
                    }
                    (Owner::Hub, Some(hub)) => hub.handle_written(now, connection, count),
                    (Owner::Hub, None) | (Owner::Dial | Owner::Preface | Owner::Lingering, _) => {
                        return;
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return socket.set_blocked();
                }
                Err(_) => return self.sockets.mark_lost(connection),
            }
        }
    }
}

/// Whether a client identifier looks like that of a session above the first of a placed client, `C~2`.
fn is_further(client_id: &str) -> bool {
    let number = client_id.rsplit_once('~').map(|(_, number)| number.parse());
    matches!(number, Some(Ok(2_u16..)))
}
