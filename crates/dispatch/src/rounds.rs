//! The thread that serves clients: one return of epoll is a round.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;
use thicket_placement::{Held, JUST_CONNECTED, LOOKED_AT, LoadBalancer, State, heaviest};
use thicket_transport::tls::rustls::{ServerConfig, ServerConnection};

use crate::DispatchError;
use crate::board::{Board, Entry, count};
use crate::connection::{Connection, Dialling, Flows, Greeting, Relaying, Stage, leave};
use crate::options::{Listener, Tls};
use crate::recent::Recent;
use crate::relay::{Flow, Tools, Turn};
use crate::tls::Ended;

/// Longest wait for a CONNECT.
const GREETING: Duration = Duration::from_secs(10);
/// Longest wait for a broker to accept a connection.
const DIALLING: Duration = Duration::from_secs(2);
/// Interval of checking deadlines.
const TICK: Duration = Duration::from_millis(250);
/// Connections accepted of one listener in a round.
const ACCEPTS: usize = 256;
/// Shortest time between the starts of two rounds: when many clients send a message now and then, one wake-up serves several of them. A message of a
/// client that sends rarely is not delayed.
const PACE: Duration = Duration::from_micros(300);
/// A relayed connection that is idle for this time is probed by TCP keep-alive.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Wakes this thread.
pub(crate) const WAKER: Token = Token(0);
/// Tokens of listeners follow; then two for each connection.
const FIRST_LISTENER: usize = 1;

/// An open listener.
#[derive(Debug)]
pub(crate) struct Open {
    pub socket: TcpListener,
    pub listener: Listener,
    pub tls: Option<Arc<ServerConfig>>,
    /// No connection could be accepted, as with no descriptors left: the listener waits for the next tick.
    pub waits: bool,
}

/// All clients and their state.
pub(crate) struct Rounds {
    pub poll: Poll,
    pub listeners: Vec<Open>,
    pub connections: Slab<Connection>,
    pub board: Arc<Board>,
    pub balancer: LoadBalancer,
    pub tools: Tools,
    pub recent: Recent,
    pub max_connections: usize,
    /// Where the next look for a connection that yields begins.
    pub look_from: usize,
    pub is_stopping: Arc<AtomicBool>,
    /// Connections that may have more bytes to move.
    pub again: Vec<usize>,
    pub start: Instant,
}

/// The side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Broker,
}

impl Rounds {
    /// Runs rounds until it is stopped.
    pub fn run(mut self) -> Result<(), DispatchError> {
        let mut events = Events::with_capacity(4096);
        let mut next_tick = Instant::now() + TICK;
        let mut last_round = Instant::now();
        while !self.is_stopping.load(Ordering::Relaxed) {
            if let Some(rest) = PACE.checked_sub(last_round.elapsed()) {
                std::thread::sleep(rest);
            }
            let timeout = if self.again.is_empty() {
                next_tick.saturating_duration_since(Instant::now())
            } else {
                Duration::ZERO
            };
            if let Err(error) = self.poll.poll(&mut events, Some(timeout))
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(DispatchError::system("epoll")(error));
            }
            last_round = Instant::now();
            for index in std::mem::take(&mut self.again) {
                self.step(index, None);
            }
            for event in &events {
                self.handle(event.token());
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.end_late();
                for listener in 0..self.listeners.len() {
                    if std::mem::take(&mut self.listeners[listener].waits) {
                        self.accept(listener);
                    }
                }
                let moved = std::mem::take(&mut self.tools.moved);
                self.board.counts.bytes.fetch_add(moved, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn handle(&mut self, token: Token) {
        if token == WAKER {
            return;
        }
        let listeners = self.listeners.len();
        match token.0 - FIRST_LISTENER {
            listener if listener < listeners => self.accept(listener),
            other => {
                let side = if (other - listeners).is_multiple_of(2) {
                    Side::Client
                } else {
                    Side::Broker
                };
                self.step((other - listeners) / 2, Some(side));
            }
        }
    }

    fn token(&self, index: usize, side: Side) -> Token {
        Token(FIRST_LISTENER + self.listeners.len() + 2 * index + usize::from(side == Side::Broker))
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            match self.listeners[listener].socket.accept() {
                Ok((socket, peer)) => self.admit(listener, socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The connection was closed already, or no descriptors are left.
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        self.listeners[listener].waits = true;
                        return;
                    }
                }
            }
        }
        // Epoll reports waiting connections only once.
        let socket = &mut self.listeners[listener].socket;
        let token = Token(FIRST_LISTENER + listener);
        let _ = self
            .poll
            .registry()
            .reregister(socket, token, Interest::READABLE);
    }

    fn admit(&mut self, listener: usize, mut socket: TcpStream, peer: SocketAddr) {
        if self.connections.len() >= self.max_connections && !self.make_way() {
            count(&self.board.counts.refused);
            return;
        }
        let tls = match &self.listeners[listener].tls {
            None => None,
            Some(config) => match ServerConnection::new(Arc::clone(config)) {
                Ok(tls) => Some(Box::new(tls)),
                Err(error) => {
                    tracing::warn!(%error, "cannot begin TLS");
                    return;
                }
            },
        };
        let _ = socket.set_nodelay(true);
        let index = self.connections.vacant_key();
        let token = self.token(index, Side::Client);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self
            .poll
            .registry()
            .register(&mut socket, token, interest)
            .is_err()
        {
            return;
        }
        count(&self.board.counts.accepted);
        self.connections.insert(Connection {
            client: socket,
            stage: Stage::Greeting(Greeting {
                tls,
                bytes: Vec::new(),
                listener,
                peer: peer.ip(),
                until: Instant::now() + GREETING,
            }),
        });
        self.count_connections();
        self.step(index, Some(Side::Client));
    }

    /// There is no place for another connection: of some that have sent no CONNECT yet, the oldest of the address with most of them is closed. `false`:
    /// there are none.
    fn make_way(&mut self) -> bool {
        let now = Instant::now();
        let first = self.look_from;
        self.look_from = first.wrapping_add(LOOKED_AT);
        let some = (first..first + LOOKED_AT).map(|at| at % self.max_connections);
        let some = some.filter_map(|index| {
            let Stage::Greeting(greeting) = &self.connections.get(index)?.stage else {
                return None;
            };
            let since = greeting.until - GREETING;
            let has_waited = now.saturating_duration_since(since) >= JUST_CONNECTED;
            Some(Held {
                id: index,
                source: greeting.peer.into(),
                serial: since.saturating_duration_since(self.start).as_micros() as u64,
                amount: usize::from(has_waited),
            })
        });
        let Some((index, _)) = heaviest(some, 1).pop() else {
            return false;
        };
        count(&self.board.counts.failed);
        self.connections.remove(index);
        true
    }

    fn count_connections(&self) {
        let there_are = self.connections.len() as u64;
        self.board
            .counts
            .connections
            .store(there_are, Ordering::Relaxed);
    }

    /// Does what is possible for a connection now. `side`: the side of the event; `None`: there was more to move.
    fn step(&mut self, index: usize, side: Option<Side>) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let stage = std::mem::replace(&mut connection.stage, Stage::Over);
        let next = match stage {
            Stage::Greeting(greeting) => self.greet(index, greeting),
            Stage::Dialling(dialling) if side == Some(Side::Broker) => {
                self.dialled(index, dialling)
            }
            Stage::Dialling(dialling) => Stage::Dialling(dialling),
            Stage::Relaying(relaying) => self.relay(index, relaying, side),
            Stage::Leaving { until } => leave(&mut connection.client, self.tools.buffer(), until),
            Stage::Over => Stage::Over,
        };
        if matches!(next, Stage::Over) {
            self.connections.remove(index);
            self.count_connections();
        } else {
            self.connections[index].stage = next;
        }
    }

    /// Starts the connection to a broker for a relayed client; tries others if that fails.
    pub(crate) fn dial(
        &mut self,
        index: usize,
        greeting: Greeting,
        entry: Arc<Entry>,
        mut tried: Vec<u64>,
    ) -> Stage {
        let is_tls = matches!(
            self.listeners[greeting.listener].listener.tls,
            Tls::PassedThrough
        );
        let socket = match entry.address(is_tls) {
            Some(address) => TcpStream::connect(address),
            None => Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        let token = self.token(index, Side::Broker);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = socket.and_then(|mut socket| {
            self.poll
                .registry()
                .register(&mut socket, token, interest)?;
            socket.set_nodelay(true).map(|()| socket)
        });
        match registered {
            Ok(socket) => Stage::Dialling(Dialling {
                greeting,
                socket,
                entry,
                tried,
                until: Instant::now() + DIALLING,
            }),
            Err(error) => {
                count(&entry.counts.failed);
                tracing::debug!(broker = entry.broker.name, %error, "cannot relay to");
                tried.push(entry.key);
                self.dial_another(index, greeting, tried)
            }
        }
    }

    fn dial_another(&mut self, index: usize, greeting: Greeting, tried: Vec<u64>) -> Stage {
        match self.choose(&tried) {
            Some(entry) => self.dial(index, greeting, entry, tried),
            None => self.without_broker(index, greeting),
        }
    }

    /// The connection to a broker is established, or failed.
    fn dialled(&mut self, index: usize, dialling: Dialling) -> Stage {
        let failure = match dialling.socket.take_error() {
            Ok(None) => dialling.socket.peer_addr().err(),
            Ok(Some(error)) | Err(error) => Some(error),
        };
        match failure {
            Some(error) if error.kind() == io::ErrorKind::NotConnected => Stage::Dialling(dialling),
            Some(error) => {
                let reason = format!("a relayed client could not be connected: {error}");
                self.dial_failed(index, dialling, &reason)
            }
            None => {
                let Dialling {
                    greeting,
                    socket,
                    entry,
                    ..
                } = dialling;
                count(&entry.counts.relayed);
                count(&entry.counts.relaying);
                for socket in [&self.connections[index].client, &socket] {
                    let probes = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE);
                    let _ = socket2::SockRef::from(socket).set_tcp_keepalive(&probes);
                }
                let flows = match greeting.tls {
                    Some(tls) => Flows::Ended(Ended::new(tls, greeting.bytes)),
                    None => Flows::Plain {
                        up: Flow::beginning_with(greeting.bytes),
                        down: Flow::default(),
                    },
                };
                let relaying = Relaying {
                    broker: socket,
                    flows,
                    entry,
                };
                self.relay(index, Box::new(relaying), None)
            }
        }
    }

    /// The broker is not chosen until its probe succeeds again, and the client goes to another.
    fn dial_failed(&mut self, index: usize, dialling: Dialling, reason: &str) -> Stage {
        let Dialling {
            greeting,
            entry,
            mut tried,
            socket,
            ..
        } = dialling;
        drop(socket);
        count(&entry.counts.failed);
        entry.set_state(State::Down, reason);
        tried.push(entry.key);
        self.dial_another(index, greeting, tried)
    }

    fn relay(&mut self, index: usize, mut relaying: Box<Relaying>, side: Option<Side>) -> Stage {
        let client = &mut self.connections[index].client;
        match relaying.pump(
            client,
            side.map(|side| side == Side::Client),
            &mut self.tools,
        ) {
            Ok(Some(turn)) => {
                if turn == Turn::Again {
                    self.again.push(index);
                }
                Stage::Relaying(relaying)
            }
            Ok(None) | Err(_) => {
                relaying
                    .entry
                    .counts
                    .relaying
                    .fetch_sub(1, Ordering::Relaxed);
                Stage::Over
            }
        }
    }

    /// Ends connections that exceed their deadlines.
    fn end_late(&mut self) {
        let now = Instant::now();
        let late: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.until().is_some_and(|until| until <= now))
            .map(|(index, _)| index)
            .collect();
        for index in late {
            let stage = std::mem::replace(&mut self.connections[index].stage, Stage::Over);
            let next = match stage {
                Stage::Dialling(dialling) => self.dial_failed(
                    index,
                    dialling,
                    "it did not accept a relayed client in time",
                ),
                Stage::Greeting(_) => {
                    count(&self.board.counts.failed);
                    Stage::Over
                }
                Stage::Relaying(_) | Stage::Leaving { .. } | Stage::Over => Stage::Over,
            };
            if matches!(next, Stage::Over) {
                self.connections.remove(index);
            } else {
                self.connections[index].stage = next;
            }
        }
        self.count_connections();
    }
}
