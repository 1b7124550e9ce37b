//! The first half of a round: inputs.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Token};
use socket2::SockRef;
use thicket_node::{ConnectionId, HubInput, ListenerId, Now, Peer, Verdict, WorkerInput};
use thicket_overlay::KeyId;

use super::{MAILBOX, Thread};
use crate::dials::Dial;
use crate::entrance::Entrance;
use crate::gate::Full;
use crate::layers::Preface;
use crate::links::Proof;
use crate::listener::{Accept, keep_alive};
use crate::log;
use crate::mailbox::Letter;
use crate::sockets::{Owner, Read};
use crate::stream::Stream;
use crate::transport::Transport;

/// Bytes read in one round before outputs are performed; the rest is read in the next, which follows at once.
const READ_PER_ROUND: usize = 8 * 1024 * 1024;
/// Reads in which the end of a client that has given up is looked for.
const END_READS: usize = 4;
/// Connections above the limit of these that may turn out to be links, of all threads.
const EXPECTED_LINKS: usize = 64;
/// This many bytes waiting to be stored also end the reading of a round: one message may have many recipients.
const UNSTORED: usize = 4 * 1024 * 1024;

impl Thread {
    /// Hands in lost connections, new connections, bytes, letters and timeouts.
    pub(super) fn take_in(&mut self, now: Now, events: &Events) {
        for event in events {
            self.note_event(now, event);
        }
        while let Some((connection, owner)) = self.sockets.next_lost() {
            self.hand_in_closed(now, connection, owner);
        }
        for index in 0..self.listeners.len() {
            self.accept_from(now, index);
        }
        self.read_sockets(now);
        self.read_mail(now);
        self.take_timeouts(now);
    }

    fn note_event(&mut self, now: Now, event: &Event) {
        let Token(token) = event.token();
        let first_socket = MAILBOX.0 + 1 + self.listener_tokens;
        if event.token() == MAILBOX {
            return;
        }
        if token < first_socket {
            if let Some(listener) = self.listeners.get_mut(token - MAILBOX.0 - 1) {
                listener.set_ready();
            }
            return;
        }
        let Ok(index) = u32::try_from(token - first_socket) else {
            return;
        };
        self.note_socket(now, ConnectionId(index), event);
    }

    /// An event may be meant for an earlier socket of this index; it then changes nothing.
    fn note_socket(&mut self, now: Now, connection: ConnectionId, event: &Event) {
        let Some(socket) = self.sockets.find(connection) else {
            return;
        };
        let (owner, reading) = (socket.owner, socket.is_reading());
        let broken = event.is_error() || (event.is_read_closed() && event.is_write_closed());
        if event.is_readable() || broken {
            self.sockets
                .set_readable(connection, event.is_read_closed() || broken);
        }
        if owner == Owner::Dial {
            self.advance_dial(now, connection);
            return;
        }
        if event.is_writable() {
            self.sockets.set_writable(connection);
        }
        // A peer that is not read from would otherwise never be detected as gone.
        if broken && !reading {
            self.sockets.mark_lost(connection);
        } else if event.is_read_closed() {
            self.notice_end(now, connection);
        }
    }

    /// A client that waits for a verdict is not read from. If it has ended its direction and sent nothing since its CONNECT, it has given up, and nothing
    /// is to be hashed for it. What it has sent stays for after the verdict: a client may publish and leave without waiting for CONNACK.
    pub(super) fn notice_end(&mut self, now: Now, connection: ConnectionId) {
        let is_waiting = self.asking.contains_key(&connection);
        if !is_waiting || self.worker.view().has_sent_more_than_connect(connection) {
            return;
        }
        for _ in 0..END_READS {
            if !self.sockets.is_ending(connection) {
                return;
            }
            match self.sockets.read(connection, &mut self.buffer) {
                Read::Bytes(count) => {
                    return self.hand_in_bytes(now, connection, Owner::Worker, count);
                }
                // Records of TLS that contain no bytes of the client.
                Read::Nothing => {}
                Read::Closed(_) => return self.hand_in_closed(now, connection, Owner::Worker),
            }
        }
    }

    /// Notifies the owner that the connection is closed; its index is freed.
    pub(super) fn hand_in_closed(&mut self, now: Now, connection: ConnectionId, owner: Owner) {
        if owner == Owner::Preface {
            return self.fail_preface(connection, &io::ErrorKind::ConnectionReset.into());
        }
        if owner == Owner::Lingering {
            return self.end_lingering(connection);
        }
        self.sockets.remove(connection);
        self.asking.remove(&connection);
        match (owner, &mut self.hub) {
            (Owner::Worker, _) => self
                .worker
                .handle_input(now, WorkerInput::Closed { connection }),
            (Owner::Hub, Some(hub)) => hub.handle_input(now, HubInput::Closed { link: connection }),
            (Owner::Hub, None) | (Owner::Dial | Owner::Preface | Owner::Lingering, _) => {}
        }
    }

    fn accept_from(&mut self, now: Now, index: usize) {
        for _ in 0..self.listeners[index].quota(now.instant) {
            let listener = &mut self.listeners[index];
            match listener.accept(now.instant) {
                Accept::Connection(stream, peer) => {
                    let (id, entrance) = (listener.id, Arc::clone(&listener.entrance));
                    self.welcome(now, id, &entrance, stream, peer);
                }
                Accept::Exhausted(error) => {
                    self.counters.accept_exhausted.add_one();
                    if listener.may_complain(now.instant) {
                        tracing::error!(%error, "cannot accept connections for the moment");
                    }
                    return;
                }
                Accept::Nothing => return,
            }
        }
    }

    fn welcome(
        &mut self,
        now: Now,
        listener: ListenerId,
        entrance: &Entrance,
        stream: Stream,
        peer: SocketAddr,
    ) {
        self.counters.accepted.add_one();
        // Without a place the socket is dropped, which closes it.
        let (worker, for_links) = (&mut self.worker, &self.expected_links);
        let seat = entrance.gate.admit(entrance.takes_links(), |full| {
            worker.operate(now).make_way(|id, at| {
                let is_for_link = for_links.iter().any(|(link, _)| *link == id);
                !is_for_link && (full == Full::Node || at == listener)
            })
        });
        let Some(seat) = seat else {
            return;
        };
        let is_for_link = seat.is_for_link();
        if let Stream::Tcp(stream) = &stream {
            // Fails only on a connection that is closed already, which the first read will show.
            let _ = stream.set_nodelay(true);
        }
        let transport = match entrance.dress(stream, peer, seat) {
            Ok(transport) => transport,
            Err(error) => return tracing::error!(%error, "cannot begin a connection"),
        };
        if entrance.has_preface {
            if let Some(connection) = self.keep(transport, Owner::Preface) {
                self.prefaces
                    .start(now.instant, connection, (listener, peer));
            }
            return;
        }
        if let Some(connection) = self.keep(transport, Owner::Worker) {
            if is_for_link {
                self.expect_link(connection);
            }
            self.worker.handle_input(
                now,
                WorkerInput::Accepted {
                    connection,
                    listener,
                    peer,
                },
            );
        }
    }

    /// A connection is to prove that it is a link. Too many at a time displace the oldest: a node proves it within some round trips.
    fn expect_link(&mut self, connection: ConnectionId) {
        let serial = self.sockets.find(connection).map(|socket| socket.serial);
        let sockets = &mut self.sockets;
        self.expected_links.retain(|(connection, serial)| {
            let socket = sockets.find(*connection);
            socket.is_some_and(|it| it.serial == *serial && it.owner == Owner::Worker)
        });
        let most = (EXPECTED_LINKS / self.summaries.len()).max(1);
        while self.expected_links.len() >= most
            && let Some((oldest, _)) = self.expected_links.pop_front()
        {
            self.sockets.mark_lost(oldest);
        }
        self.expected_links
            .extend(serial.map(|serial| (connection, serial)));
    }

    /// Continues to read the PROXY header of a connection; when it is complete, the connection is handed to the worker.
    fn advance_preface(&mut self, now: Now, connection: ConnectionId) {
        match self.sockets.read_preface(connection, &mut self.buffer) {
            Ok(Preface::Waiting) => {}
            Ok(Preface::Client(address)) => {
                let Some((listener, peer)) = self.prefaces.finish(connection) else {
                    return;
                };
                self.worker.handle_input(
                    now,
                    WorkerInput::Accepted {
                        connection,
                        listener,
                        peer: address.unwrap_or(peer),
                    },
                );
            }
            Err(error) => self.fail_preface(connection, &error),
        }
    }

    /// The connection has no owner yet, so nobody is notified.
    pub(super) fn fail_preface(&mut self, connection: ConnectionId, error: &io::Error) {
        self.sockets.remove(connection);
        if let Some((_, peer)) = self.prefaces.finish(connection) {
            self.counters.prefaces_refused.add_one();
            if let Some(suppressed) = log::may_say(peer) {
                tracing::warn!(%peer, %error, suppressed, "connection ended: no good PROXY header");
            }
        }
    }

    /// Registers a socket with this thread; bytes that the kernel holds already arrive as a first event.
    fn keep(&mut self, mut transport: Transport, owner: Owner) -> Option<ConnectionId> {
        let token = self.token_of(self.sockets.next_id());
        if let Err(error) = transport.register(self.poll.registry(), token) {
            tracing::error!(%error, "cannot watch a connection");
            return None;
        }
        Some(self.sockets.insert(transport, owner))
    }

    const fn token_of(&self, connection: ConnectionId) -> Token {
        Token(MAILBOX.0 + 1 + self.listener_tokens + connection.0 as usize)
    }

    fn read_sockets(&mut self, now: Now) {
        let mut budget = READ_PER_ROUND;
        let unstored = self.storage.as_ref().map_or(UNSTORED, |storage| {
            UNSTORED.min(usize::try_from(storage.round_bytes()).unwrap_or(usize::MAX))
        });
        // Sockets that join the queue meanwhile have had their turn.
        for _ in 0..self.sockets.reads_waiting() {
            let Some((connection, owner)) = self.sockets.next_to_read() else {
                return;
            };
            if owner == Owner::Preface {
                self.advance_preface(now, connection);
                continue;
            }
            if owner == Owner::Lingering {
                budget = budget.saturating_sub(self.drop_bytes(connection));
                continue;
            }
            match self.sockets.read(connection, &mut self.buffer) {
                Read::Bytes(count) => {
                    if owner == Owner::Hub && !self.note_proof(now, connection) {
                        self.sockets.mark_lost(connection);
                        continue;
                    }
                    self.hand_in_bytes(now, connection, owner, count);
                    budget = budget.saturating_sub(count);
                }
                Read::Nothing => {}
                Read::Closed(failure) => {
                    if let Some(failure) = failure {
                        self.counters.handshakes_failed.add_one(failure.reason);
                    }
                    self.hand_in_closed(now, connection, owner);
                }
            }
            if budget == 0 || self.worker.unstored_bytes() > unstored {
                return;
            }
        }
    }

    /// Discards what the client of a closed connection still sends; returns the number of bytes.
    fn drop_bytes(&mut self, connection: ConnectionId) -> usize {
        match self.sockets.drop_bytes(connection, &mut self.buffer) {
            Read::Bytes(count) => {
                if !self.lingering.note_read(connection, count) {
                    self.end_lingering(connection);
                }
                count
            }
            Read::Nothing => 0,
            Read::Closed(_) => {
                self.end_lingering(connection);
                0
            }
        }
    }

    pub(super) fn end_lingering(&mut self, connection: ConnectionId) {
        self.lingering.end(connection);
        self.sockets.remove(connection);
    }

    fn hand_in_bytes(&mut self, now: Now, connection: ConnectionId, owner: Owner, count: usize) {
        let bytes = &self.buffer[..count];
        match (owner, &mut self.hub) {
            (Owner::Worker, _) => self
                .worker
                .handle_input(now, WorkerInput::Received { connection, bytes }),
            (Owner::Hub, Some(hub)) => hub.handle_input(
                now,
                HubInput::Received {
                    link: connection,
                    bytes,
                },
            ),
            (Owner::Hub, None) | (Owner::Dial | Owner::Preface | Owner::Lingering, _) => {}
        }
    }

    fn read_mail(&mut self, now: Now) {
        let mut letters = std::mem::take(&mut self.letters);
        self.mailbox.swap(&mut letters);
        if !letters.is_empty() {
            for letter in letters.drain(..) {
                self.open(now, letter);
            }
        }
        self.letters = letters;
    }

    fn open(&mut self, now: Now, letter: Letter) {
        match letter {
            Letter::WorkerMessage { from, message } => self
                .worker
                .handle_input(now, WorkerInput::Message { from, message }),
            Letter::HubMessage { from, message } => {
                // The hub is on thread 0, and its mailbox is that thread's.
                if let Some(hub) = &mut self.hub {
                    hub.handle_input(now, HubInput::Message { from, message });
                }
            }
            Letter::Socket {
                transport,
                to,
                state,
            } => self.adopt(now, transport, to, state),
            Letter::Authenticated {
                connection,
                serial,
                verdict,
            } => {
                // The connection may be closed, and its index reused.
                let socket = self.sockets.find(connection);
                if socket.is_some_and(|socket| socket.serial == serial) {
                    self.asking.remove(&connection);
                    self.hand_in_verdict(now, connection, verdict);
                }
            }
            Letter::Reloaded(policy) => self
                .worker
                .handle_input(now, WorkerInput::Reloaded { policy }),
            Letter::Planned(done) => {
                if let Some(hub) = &mut self.hub {
                    hub.handle_input(now, HubInput::Planned(done));
                }
            }
            Letter::Resolved { address, found } => match found {
                Ok(found) => self.try_next(
                    now,
                    Dial {
                        address,
                        rest: found.into(),
                    },
                    None,
                ),
                Err(error) => {
                    tracing::warn!(name = address, %error, "cannot look up the name of a node");
                    self.counters
                        .last_refusal
                        .note_unknown_name(&address, &error);
                    self.hand_in_failed_dial(now, address, &error);
                }
            },
            Letter::Discovered { address } => {
                if let Some(hub) = &mut self.hub {
                    hub.handle_input(now, HubInput::Discovered { address });
                }
            }
            Letter::Announced { address } => {
                if let Some(hub) = &mut self.hub {
                    hub.handle_input(now, HubInput::Announced { address });
                }
            }
            Letter::LinksChanged => self.end_outdated_links(),
            Letter::Summary { from, summary } => self.note_summary(now, from, summary),
            Letter::Ask(question) => {
                question(self.worker.view(), self.hub.as_ref().map(|hub| hub.view()));
            }
            Letter::Order(order) => order(&mut self.worker, now),
            Letter::OrderHub(order) => {
                if let Some(hub) = &mut self.hub {
                    order(hub, now);
                }
            }
            Letter::Place(order, answer) => {
                if let Some(hub) = &mut self.hub {
                    self.next_placement += 1;
                    self.placements.insert(self.next_placement, answer);
                    order(hub, now, self.next_placement);
                }
            }
            Letter::Publish(order, answer) => {
                self.next_publication += 1;
                self.publications.insert(self.next_publication, answer);
                order(&mut self.worker, now, self.next_publication);
            }
            Letter::Serve => self.listeners = std::mem::take(&mut self.waiting_listeners),
            Letter::StopWorker => self.stop_worker(now),
            Letter::StopHub => self.stop_hub(now),
        }
    }

    /// A socket from another thread belongs to this one now.
    fn adopt(
        &mut self,
        now: Now,
        transport: Transport,
        to: Peer,
        state: Box<thicket_node::Handover>,
    ) {
        let owner = match to {
            Peer::Worker(_) => Owner::Worker,
            Peer::Hub => Owner::Hub,
        };
        let Some(connection) = self.keep(transport, owner) else {
            return;
        };
        self.hand_in_adopted(now, connection, to, state);
    }

    pub(super) fn hand_in_adopted(
        &mut self,
        now: Now,
        connection: ConnectionId,
        to: Peer,
        state: Box<thicket_node::Handover>,
    ) {
        match (to, &mut self.hub) {
            (Peer::Worker(_), _) => self
                .worker
                .handle_input(now, WorkerInput::Adopted { connection, state }),
            (Peer::Hub, Some(_)) => self.adopt_link(now, connection, state),
            (Peer::Hub, None) => {}
        }
    }

    /// A link's socket arrives with its proof; it is closed if that is no longer accepted.
    fn adopt_link(
        &mut self,
        now: Now,
        connection: ConnectionId,
        state: Box<thicket_node::Handover>,
    ) {
        let Some(socket) = self.sockets.find(connection) else {
            return;
        };
        let proof = socket.transport.take_proof();
        if !self.allows(proof) {
            self.sockets.remove(connection);
            return;
        }
        let Some(hub) = &mut self.hub else {
            return;
        };
        let key = proof.map(|proof| KeyId(proof.other));
        let link = connection;
        hub.handle_input(now, HubInput::LinkAdopted { link, state, key });
    }

    /// Notifies the hub, once, of the key by which the other end of a link has authenticated. `false`: it is no longer accepted.
    fn note_proof(&mut self, now: Now, connection: ConnectionId) -> bool {
        let socket = self.sockets.find(connection);
        let Some(proof) = socket.and_then(|socket| socket.transport.take_proof()) else {
            return true;
        };
        if !self.allows(Some(proof)) {
            return false;
        }
        if let Some(hub) = &mut self.hub {
            let (link, key) = (connection, KeyId(proof.other));
            hub.handle_input(now, HubInput::LinkProved { link, key });
        }
        true
    }

    /// Whether a link with this proof would be accepted now; one without a proof is left to the hub to refuse.
    fn allows(&self, proof: Option<Proof>) -> bool {
        match (&self.links, proof) {
            (Some(links), Some(proof)) => links.trust().allows(proof),
            (None, _) | (_, None) => true,
        }
    }

    /// Closes and redials links whose keys are no longer accepted, or no longer this node's own.
    fn end_outdated_links(&mut self) {
        let Some(links) = &self.links else {
            return;
        };
        let trust = links.trust();
        let is_outdated =
            |transport: &Transport| transport.proof().is_some_and(|proof| !trust.allows(proof));
        for link in self.sockets.of_hub(is_outdated) {
            self.sockets.mark_lost(link);
        }
    }

    /// A client is served no longer than its certificate is valid.
    pub(super) fn hand_in_verdict(
        &mut self,
        now: Now,
        connection: ConnectionId,
        mut verdict: Verdict,
    ) {
        let socket = self.sockets.find(connection);
        let expires_at_s = socket.and_then(|it| it.transport.certificate_expires_at_s());
        if let (Verdict::Allowed(admission), Some(at_s)) = (&mut verdict, expires_at_s)
            && let Some(grant) = &mut admission.grant
        {
            Arc::make_mut(grant).limit(at_s);
        }
        self.worker.handle_input(
            now,
            WorkerInput::Authenticated {
                connection,
                verdict,
            },
        );
    }

    /// Tries the next address of a dial; `last` is why the previous one failed.
    pub(super) fn try_next(&mut self, now: Now, mut dial: Dial, last: Option<&io::Error>) {
        let Some(address) = dial.rest.pop_front() else {
            let none = io::Error::from(io::ErrorKind::NotFound);
            return self.hand_in_failed_dial(now, dial.address, last.unwrap_or(&none));
        };
        match connect(address).and_then(|stream| self.dress_link(stream)) {
            Ok(transport) => {
                if let Some(connection) = self.keep(transport, Owner::Dial) {
                    self.dials.start(now.instant, connection, dial);
                } else {
                    self.hand_in_failed_dial(
                        now,
                        dial.address,
                        &io::Error::other("cannot watch the connection"),
                    );
                }
            }
            Err(error) => self.try_next(now, dial, Some(&error)),
        }
    }

    /// The layers for a link to another node.
    fn dress_link(&self, stream: TcpStream) -> io::Result<Transport> {
        let stream = Stream::Tcp(stream);
        match &self.links {
            Some(links) => Transport::dial_link(links, stream),
            None => Ok(Transport::Plain { stream, seat: None }),
        }
    }

    /// The kernel reported an event of a connection that this node opened.
    fn advance_dial(&mut self, now: Now, connection: ConnectionId) {
        let Some(socket) = self.sockets.find(connection) else {
            return;
        };
        match socket.transport.is_connected() {
            Ok(false) => {}
            Ok(true) => {
                let Some(dial) = self.dials.finish(connection) else {
                    return;
                };
                self.sockets.set_connected(connection);
                // TLS must send first.
                self.sockets.set_writable(connection);
                if let Some(hub) = &mut self.hub {
                    hub.handle_input(
                        now,
                        HubInput::Dialled {
                            address: dial.address,
                            link: connection,
                        },
                    );
                }
            }
            Err(error) => self.fail_dial(now, connection, &error),
        }
    }

    pub(super) fn fail_dial(&mut self, now: Now, connection: ConnectionId, error: &io::Error) {
        self.sockets.remove(connection);
        if let Some(dial) = self.dials.finish(connection) {
            self.try_next(now, dial, Some(error));
        }
    }

    fn hand_in_failed_dial(&mut self, now: Now, address: String, error: &io::Error) {
        if let Some(hub) = &mut self.hub {
            hub.handle_input(
                now,
                HubInput::DialFailed {
                    address,
                    error: error.to_string(),
                },
            );
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&keep_alive())?;
    Ok(stream)
}

/// The address in a `Dial`, if it needs no resolver.
pub(super) fn literal(address: &str) -> Option<VecDeque<SocketAddr>> {
    address
        .parse()
        .ok()
        .map(|literal| VecDeque::from([literal]))
}
