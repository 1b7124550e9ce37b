//! A dispatcher in front of MQTT brokers of any kind: it sends each client to the broker with most capacity (Dispatcher III).
//!
//! A 5.0 client is answered with CONNACK 0x9C and the Server Reference of a broker. Other clients, and those that do not follow, are relayed: their
//! bytes are copied from socket to socket. TLS is passed through or ends here.
//!
//! * `options`: parses `--listen` and `--broker`;
//! * `watch`, `source`: whether a broker is up, and its load;
//! * `board`: the state of all brokers; `http`: the same over HTTP;
//! * `rounds`, `reception`, `connection`, `hello`, `recent`: the clients; `relay`, `tls`: their bytes.
//!
//! Left to others: the choice itself ([`thicket_placement::LoadBalancer`]), and the command line (`thicket dispatch`).
//!
//! Invariants: memory grows only with bytes that have arrived; connections, bytes held for each of them, and remembered clients have limits;
//! dispatchers share no state; a reload ends no connection of a client.

mod board;
mod connection;
mod error;
mod hello;
mod http;
mod options;
mod recent;
mod reception;
mod relay;
mod rounds;
mod source;
mod tls;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use mio::{Interest, Poll, Token, Waker};
use slab::Slab;
use thicket_placement::{LoadBalancer, Policy};

pub use error::DispatchError;
pub use hello::{Hello, examine};
pub use options::{Broker, Listener, Tls};
pub use source::{Figure, Source};
pub use watch::Login;

use board::Board;
use rounds::{Open, Rounds, WAKER};

/// The configuration of a dispatcher.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listeners: Vec<Listener>,
    /// The brokers; at least one.
    pub brokers: Vec<Broker>,
    /// How a load is weighted.
    pub policy: Policy,
    /// The address of the HTTP API; `None`: off.
    pub http: Option<SocketAddr>,
    /// Connections of clients at a time.
    pub max_connections: usize,
    /// The credentials of watching connections.
    pub login: Login,
    /// Breaks ties; different in dispatchers side by side.
    pub seed: u64,
}

/// A running dispatcher.
#[derive(Debug)]
pub struct Dispatcher {
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    http: Option<SocketAddr>,
    board: Arc<Board>,
    login: Login,
    /// In the client identifiers of its watching connections.
    name: String,
    is_stopping: Arc<AtomicBool>,
    waker: Arc<Waker>,
    rounds: Option<JoinHandle<Result<(), DispatchError>>>,
}

impl Dispatcher {
    /// Checks the configuration, listens, and starts to watch the brokers.
    ///
    /// # Errors
    /// An option is not valid, a source of a broker that answers fails, or the system refuses an operation.
    pub fn start(config: Config) -> Result<Self, DispatchError> {
        options::check_together(&config.listeners, &config.brokers)?;
        for broker in &config.brokers {
            watch::check(broker, &config.login)?;
        }
        let poll = Poll::new().map_err(DispatchError::system("epoll"))?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(DispatchError::system("epoll"))?;
        let listeners = open_all(&config.listeners, &poll)?;
        let addresses: Result<Vec<_>, _> = listeners
            .iter()
            .map(|open| open.socket.local_addr())
            .collect();
        let board = Arc::new(Board::default());
        let http = match config.http {
            Some(address) => Some(http::start(address, &board)?),
            None => None,
        };
        let is_stopping = Arc::new(AtomicBool::new(false));
        let rounds = Rounds {
            poll,
            listeners,
            connections: Slab::new(),
            board: Arc::clone(&board),
            balancer: LoadBalancer::new(config.policy, config.seed),
            tools: relay::Tools::new(),
            recent: recent::Recent::default(),
            max_connections: config.max_connections,
            look_from: 0,
            is_stopping: Arc::clone(&is_stopping),
            again: Vec::new(),
            start: Instant::now(),
        };
        let mut dispatcher = Self {
            listeners: config.listeners,
            addresses: addresses.map_err(DispatchError::system("--listen"))?,
            http,
            board,
            login: config.login,
            name: format!("{:08x}", config.seed as u32),
            is_stopping,
            waker: Arc::new(waker),
            rounds: None,
        };
        dispatcher.watch(config.brokers)?;
        let thread = std::thread::Builder::new()
            .name("clients".into())
            .spawn(move || rounds.run())
            .map_err(DispatchError::system("cannot start a thread"))?;
        dispatcher.rounds = Some(thread);
        Ok(dispatcher)
    }

    /// The addresses of the listeners, in their order.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of the HTTP API.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Replaces the brokers. Those that stay keep their state, and no client of any is disconnected.
    ///
    /// # Errors
    /// As at the start; the brokers are unchanged.
    pub fn reload(&self, brokers: Vec<Broker>) -> Result<(), DispatchError> {
        options::check_together(&self.listeners, &brokers)?;
        let known = self.board.entries();
        let is_new = |broker: &&Broker| known.iter().all(|entry| entry.broker != **broker);
        for broker in brokers.iter().filter(is_new) {
            watch::check(broker, &self.login)?;
        }
        self.watch(brokers)
    }

    fn watch(&self, brokers: Vec<Broker>) -> Result<(), DispatchError> {
        for entry in self.board.set(brokers) {
            watch::start(&entry, &self.login, &self.name)?;
        }
        Ok(())
    }

    /// Whether the thread that serves clients has ended unexpectedly.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.rounds.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends all connections.
    ///
    /// # Errors
    /// The error with which the thread that serves clients has ended before.
    pub fn stop(mut self) -> Result<(), DispatchError> {
        self.is_stopping.store(true, Ordering::Relaxed);
        for entry in self.board.entries() {
            entry.is_removed.store(true, Ordering::Relaxed);
        }
        let _ = self.waker.wake();
        match self.rounds.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

fn open_all(listeners: &[Listener], poll: &Poll) -> Result<Vec<Open>, DispatchError> {
    let open = |(index, listener): (usize, &Listener)| {
        let failed = || DispatchError::system(format!("--listen {}", listener.text));
        let tls = match &listener.tls {
            Tls::Off | Tls::PassedThrough => None,
            Tls::Ended(files) => Some(files.load().map_err(|error| DispatchError::Option {
                option: "--listen",
                value: listener.text.clone(),
                problem: error.to_string(),
            })?),
        };
        let mut socket = mio::net::TcpListener::bind(listener.address).map_err(failed())?;
        poll.registry()
            .register(&mut socket, Token(1 + index), Interest::READABLE)
            .map_err(failed())?;
        Ok(Open {
            socket,
            listener: listener.clone(),
            tls,
            waits: false,
        })
    };
    listeners.iter().enumerate().map(open).collect()
}
