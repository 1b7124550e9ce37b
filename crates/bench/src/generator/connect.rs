//! Connects and subscribes, and handles all packets that are not sent for each message.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{TimerfdClockId, TimerfdFlags};
use thicket_mqtt::{
    Connack, Connect, Packet, PacketId, ReasonCode, Subscribe, SubscribeFilter,
    SubscriptionOptions, Will, decode, server_references,
};

use super::client::{Client, Phase, Role};
use super::receiving::{Acknowledging, Receiving};
use super::scenario::{Node, Scenario};
use super::streams::{Form, Stream};
use super::{Generator, READ_BYTES, TIMER};
use crate::BenchError;
use crate::arrivals::{Redirect, place_of};
use crate::layer::Layer;
use crate::namespace::inside;
use crate::process;
use crate::stamp::StampForm;
use crate::wire::Properties;
use crate::workload::{Plan, attach};

/// Most connections being made at a time: below the backlog of any listener.
const CONCURRENT: usize = 100;
/// Longest sleep where connections are begun at a rate.
const BETWEEN_CONNECTS: Duration = Duration::from_millis(5);
/// Longest wait without progress.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Filters in one SUBSCRIBE.
const FILTERS_PER_SUBSCRIBE: usize = 50;
/// Expiry of persistent sessions of 5.0 after a run.
const SESSION_EXPIRY_S: u32 = 60;
/// Most connections from one loopback address, below the number of its ephemeral ports.
const PER_SOURCE: usize = 20_000;

pub(super) fn connect(scenario: Scenario) -> Result<Generator, BenchError> {
    if scenario.nodes.is_empty() {
        return Err(BenchError::Setting(
            "there is no broker to connect to".to_owned(),
        ));
    }
    let plan = scenario.plan()?;
    if !tells_streams_apart(&scenario, &plan) {
        return Err(BenchError::Setting(
            "payloads below 16 bytes name no publisher: each needs a topic of its own".to_owned(),
        ));
    }
    let clients = plan.topics.len() + plan.subscribers.len();
    let open_files = process::raise_open_files();
    if (clients as u64).saturating_add(64) > open_files {
        return Err(BenchError::Setting(format!(
            "{clients} clients need more open files than the limit of {open_files}"
        )));
    }
    let mut generator = Generator::new(scenario, &plan)?;
    let start = Instant::now();
    generator.connect_all(&plan)?;
    generator.connecting = start.elapsed();
    if !generator.scenario.settle.is_zero() {
        generator.scenario.stop.sleep(generator.scenario.settle)?;
    }
    Ok(generator)
}

/// Whether the publisher of each message is known: by its payload, or by its topic.
fn tells_streams_apart(scenario: &Scenario, plan: &Plan) -> bool {
    let topics: HashSet<&String> = plan.topics.iter().collect();
    StampForm::for_payload(scenario.payload_len) == StampForm::Full
        || topics.len() == plan.topics.len()
}

impl Generator {
    fn new(scenario: Scenario, plan: &Plan) -> Result<Self, BenchError> {
        let system = |what| BenchError::system(what);
        let poll = Poll::new().map_err(system("epoll"))?;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)
            .map_err(|error| system("timer")(error.into()))?;
        let mut source = mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(&timer));
        poll.registry()
            .register(&mut source, TIMER, Interest::READABLE)
            .map_err(system("timer"))?;
        let recipients = plan.recipients();
        let form = Form::of(&scenario);
        let streams: Result<Vec<Stream>, _> = (plan.topics.iter().zip(&recipients).zip(0u32..))
            .map(|((topic, &recipients), index)| Stream::new(index, topic, &form, recipients))
            .collect();
        let streams = streams.map_err(|error| {
            BenchError::Setting(format!("a message cannot be encoded: {error}"))
        })?;
        let properties = if scenario.version.has_properties() {
            Properties::Present
        } else {
            Properties::Absent
        };
        let receiving = Receiving::new(plan, StampForm::for_payload(scenario.payload_len));
        Ok(Self {
            poll,
            events: Events::with_capacity(4096),
            buffer: vec![0; READ_BYTES + scenario.payload_len],
            clients: Vec::with_capacity(plan.topics.len() + plan.subscribers.len()),
            readable: Vec::new(),
            dirty: Vec::new(),
            streams,
            queued: Vec::new(),
            receiving,
            acknowledging: Acknowledging::new(),
            away: Vec::new(),
            is_running: false,
            plan: scenario.reconnect.then(|| plan.clone()),
            properties,
            answers: Vec::new(),
            outgoing: Vec::new(),
            timer,
            epoch: Instant::now(),
            ready: 0,
            pinged_ns: 0,
            connecting: Duration::ZERO,
            scenario,
        })
    }

    fn connect_all(&mut self, plan: &Plan) -> Result<(), BenchError> {
        let (publishers, subscribers) = attach(
            self.scenario.attachment,
            self.scenario.nodes.len(),
            plan.topics.len(),
            plan.subscribers.len(),
            self.scenario.seed,
        );
        let roles = (0..)
            .map(Role::Publisher)
            .zip(publishers)
            .chain((0..).map(Role::Subscriber).zip(subscribers));
        let mut roles = roles.peekable();
        let begun = Instant::now();
        let mut last_step = begun;
        let (mut pending, mut before) = (0, 0);
        while roles.peek().is_some() || pending > 0 {
            let rate = self.scenario.connects_per_s.unwrap_or(f64::INFINITY);
            // The first is due at once.
            let due = (begun.elapsed().as_secs_f64() * rate) as usize;
            while pending < CONCURRENT
                && self.clients.len() <= due
                && let Some((role, node)) = roles.next()
            {
                self.open(role, node)?;
                pending += 1;
            }
            self.scenario.stop.check()?;
            self.connect_round(plan)?;
            let ready = self.ready;
            pending = self.clients.len() - ready;
            if ready > before {
                (last_step, before) = (Instant::now(), ready);
            } else if last_step.elapsed() > TIMEOUT {
                let what = format!(
                    "connecting client {} of {}",
                    ready + 1,
                    plan.topics.len() + plan.subscribers.len()
                );
                return Err(BenchError::Timeout {
                    what,
                    seconds: TIMEOUT.as_secs(),
                });
            }
        }
        Ok(())
    }

    fn open(&mut self, role: Role, node: usize) -> Result<(), BenchError> {
        let stream = self.open_to(self.clients.len(), node)?;
        self.clients.push(Client::new(stream, role, node));
        Ok(())
    }

    /// Starts the connection of a client to a node.
    pub(super) fn open_to(&self, index: usize, node: usize) -> Result<TcpStream, BenchError> {
        let target = &self.scenario.nodes[node];
        let unreachable = |source| BenchError::Unreachable {
            node: self.scenario.nodes[node].name.clone(),
            source,
        };
        let opened = match &target.namespace {
            None => open_stream(target.address, index),
            Some(path) => {
                inside(path, || open_stream(target.address, index)).and_then(|opened| opened)
            }
        };
        let mut stream = opened.map_err(unreachable)?;
        self.poll
            .registry()
            .register(
                &mut stream,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )
            .map_err(unreachable)?;
        Ok(stream)
    }

    /// Redirects a client, once.
    fn go(&mut self, index: usize, place: &str) -> Result<(), BenchError> {
        let client = &self.clients[index];
        let (role, namespace) = (client.role, &self.scenario.nodes[client.node].namespace);
        let node = Node {
            namespace: namespace.clone(),
            ..Node::resolve(place)?
        };
        let nodes = &mut self.scenario.nodes;
        let known = nodes.iter().position(|one| one.address == node.address);
        let at = known.unwrap_or_else(|| {
            nodes.push(node);
            nodes.len() - 1
        });
        let stream = self.open_to(index, at)?;
        self.clients[index] = Client {
            is_redirected: true,
            dialled_ns: self.now_ns(),
            ..Client::new(stream, role, at)
        };
        Ok(())
    }

    fn connect_round(&mut self, plan: &Plan) -> Result<(), BenchError> {
        let longest = match self.scenario.connects_per_s {
            Some(_) => BETWEEN_CONNECTS,
            None => Duration::from_millis(100),
        };
        self.wait(Some(longest))?;
        self.ping()?;
        for index in self.opened() {
            self.send_connect(index)?;
        }
        self.note_events();
        let connacks = self.read_all()?;
        for index in connacks {
            self.subscribe(index as usize, plan)?;
        }
        self.write_dirty()
    }

    /// Clients whose TCP connection may have been made.
    pub(super) fn opened(&self) -> Vec<usize> {
        self.events
            .iter()
            .filter(|event| event.is_writable() && event.token() != TIMER)
            .map(|event| event.token().0)
            .filter(|&index| self.clients[index].phase == Phase::Connecting)
            .collect()
    }

    pub(super) fn send_connect(&mut self, index: usize) -> Result<(), BenchError> {
        let failure = match self.clients[index].socket.stream.take_error() {
            Ok(None) => self.clients[index].socket.stream.peer_addr().err(),
            Ok(Some(error)) | Err(error) => Some(error),
        };
        match failure {
            // Writable, but not yet connected: epoll will report it again.
            Some(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(()),
            Some(source) => {
                return Err(BenchError::Unreachable {
                    node: self.node_name(index),
                    source,
                });
            }
            None => {}
        }
        self.put_layer(index)?;
        let client_id = self.client_id(index);
        let mut connect = Connect::new(self.scenario.version, &client_id);
        connect.keep_alive = self.scenario.keep_alive_s;
        let will = self.scenario.will.as_ref();
        let will_payload = vec![b'.'; will.map_or(0, |will| will.payload_len)];
        connect.will = will.map(|will| Will {
            qos: will.qos,
            retain: will.retain,
            ..Will::new(&will.topic, &will_payload)
        });
        if self.scenario.persistent && matches!(self.clients[index].role, Role::Subscriber(..)) {
            connect.clean_start = false;
            connect.session_expiry_interval = self
                .scenario
                .version
                .has_properties()
                .then_some(SESSION_EXPIRY_S);
        }
        if let Some((user, password)) = &self.scenario.login {
            connect.login.user_name = Some(user);
            connect.login.password = Some(password.as_bytes());
        }
        let packet = Packet::Connect(Box::new(connect));
        let mut bytes = Vec::new();
        packet
            .encode(self.scenario.version, &mut bytes)
            .map_err(|error| BenchError::Setting(format!("CONNECT cannot be encoded: {error}")))?;
        let _ = self.clients[index].socket.stream.set_nodelay(true);
        self.clients[index].phase = Phase::AwaitsConnack;
        self.clients[index]
            .socket
            .send(&bytes)
            .map_err(|source| BenchError::Unreachable {
                node: self.node_name(index),
                source,
            })
    }

    /// Adds TLS and WebSocket, if configured.
    fn put_layer(&mut self, index: usize) -> Result<(), BenchError> {
        if self.scenario.layering.is_plain() {
            return Ok(());
        }
        let seed = self.scenario.seed.wrapping_add(index as u64);
        let node = self.node_name(index);
        match Layer::new(&self.scenario.layering, &node, seed) {
            Ok(layer) => self.clients[index].socket.set_layer(layer),
            Err(source) => return Err(BenchError::Unreachable { node, source }),
        }
        Ok(())
    }

    /// Sends the subscriptions of an accepted client.
    pub(super) fn subscribe(&mut self, index: usize, plan: &Plan) -> Result<(), BenchError> {
        let Role::Subscriber(subscriber) = self.clients[index].role else {
            self.become_ready(index);
            return Ok(());
        };
        let options = SubscriptionOptions {
            qos: self.scenario.subscriptions_qos(),
            ..SubscriptionOptions::default()
        };
        let mut bytes = Vec::new();
        let mut requests = 0;
        for (filters, id) in plan.subscribers[subscriber as usize]
            .filters
            .chunks(FILTERS_PER_SUBSCRIBE)
            .zip(1..)
        {
            let Some(packet_id) = PacketId::new(id) else {
                break;
            };
            let packet = Packet::Subscribe(Subscribe {
                packet_id,
                subscription_identifier: None,
                user_properties: Vec::new(),
                filters: filters
                    .iter()
                    .map(|filter| SubscribeFilter { filter, options })
                    .collect(),
            });
            packet
                .encode(self.scenario.version, &mut bytes)
                .map_err(|error| {
                    BenchError::Setting(format!("SUBSCRIBE cannot be encoded: {error}"))
                })?;
            requests += 1;
        }
        self.clients[index].phase = Phase::AwaitsSuback(requests);
        if requests == 0 {
            self.become_ready(index);
        }
        self.clients[index]
            .socket
            .send(&bytes)
            .map_err(|source| self.broken(index, source))
    }

    fn become_ready(&mut self, index: usize) {
        self.clients[index].phase = Phase::Ready;
        self.ready += 1;
    }

    /// Handles a packet that is neither a message nor an acknowledgement of one. True for an accepting CONNACK.
    pub(super) fn on_control(&mut self, index: usize, bytes: &[u8]) -> Result<bool, BenchError> {
        let names = |generator: &Self| (generator.node_name(index), generator.client_id(index));
        let unexpected = |generator: &Self, what: String| {
            let (node, client_id) = names(generator);
            BenchError::Protocol {
                node,
                client_id,
                what,
            }
        };
        let packet = match decode(bytes, self.scenario.version, u32::MAX) {
            Ok(Some((packet, _))) => packet,
            Ok(None) => return Err(unexpected(self, "an unfinished packet".to_owned())),
            Err(error) => return Err(unexpected(self, error.to_string())),
        };
        match (packet, self.clients[index].phase) {
            (Packet::Connack(connack), Phase::AwaitsConnack) => {
                let may_go = self.scenario.redirect == Redirect::Follow
                    && !self.clients[index].is_redirected;
                if may_go && let Some(place) = elsewhere(&connack) {
                    self.go(index, &place)?;
                    return Ok(false);
                }
                if connack.reason_code.is_error() {
                    let (node, client_id) = names(self);
                    return Err(BenchError::Refused {
                        node,
                        client_id,
                        reason_code: connack.reason_code,
                    });
                }
                if let (Role::Publisher(stream), Some(maximum)) =
                    (self.clients[index].role, connack.receive_maximum)
                {
                    self.streams[stream as usize].limit_in_flight(maximum);
                }
                Ok(true)
            }
            (Packet::Suback(suback), Phase::AwaitsSuback(requests)) => {
                if let Some(&reason_code) = suback.reason_codes.iter().find(|code| code.is_error())
                {
                    let (node, client_id) = names(self);
                    return Err(BenchError::SubscriptionRefused {
                        node,
                        client_id,
                        reason_code,
                    });
                }
                self.clients[index].phase = Phase::AwaitsSuback(requests - 1);
                if requests == 1 {
                    self.become_ready(index);
                }
                Ok(false)
            }
            (Packet::Disconnect(disconnect), _) => {
                let (node, client_id) = names(self);
                let text = disconnect
                    .reason_string
                    .map(|text| format!(", {text}"))
                    .unwrap_or_default();
                let code = disconnect.reason_code;
                let reason = Some(format!("{code:?} (0x{:02X}){text}", code as u8));
                Err(BenchError::Closed {
                    node,
                    client_id,
                    reason,
                })
            }
            (packet, phase) => Err(unexpected(
                self,
                format!("{:?} while {phase:?}", packet.kind()),
            )),
        }
    }

    /// The error of a connection that broke or was closed.
    pub(super) fn broken(&self, index: usize, source: io::Error) -> BenchError {
        let node = self.node_name(index);
        match self.clients[index].phase {
            Phase::Waits { .. } | Phase::Connecting | Phase::AwaitsConnack => {
                BenchError::Unreachable { node, source }
            }
            Phase::AwaitsSuback(_) | Phase::Ready => BenchError::Closed {
                node,
                client_id: self.client_id(index),
                reason: Some(source.to_string()),
            },
        }
    }
}

/// Where a CONNACK redirects its client: HOST:PORT.
fn elsewhere(connack: &Connack<'_>) -> Option<String> {
    let codes = [ReasonCode::UseAnotherServer, ReasonCode::ServerMoved];
    let reference = connack
        .server_reference
        .filter(|_| codes.contains(&connack.reason_code))?;
    let first = *server_references(reference).first()?;
    Some(place_of(&first))
}

/// Starts a connection. When one loopback address has no more ports, others of 127.0.0.0/8 are used.
fn open_stream(address: SocketAddr, index: usize) -> io::Result<TcpStream> {
    let source = u8::try_from(index / PER_SOURCE).unwrap_or(u8::MAX);
    if source == 0 || !matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback()) {
        return TcpStream::connect(address);
    }
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, 1 + source), 0)).into())?;
    match socket.connect(&address.into()) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            Err(error)
        }
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}
