//! Watches a broker: a connection that shows whether it is up, and the sources of its load. Two threads for each broker.
//!
//! The MQTT connection is kept open: it breaks when the broker dies, and a broker that hangs does not answer its PINGREQ. So a dead broker is
//! detected at once, and a silent one after [`SILENCE`].

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thicket_mqtt::{
    Connect, Disconnect, Packet, PacketId, ProtocolVersion, Qos, ReasonCode, Subscribe,
    SubscribeFilter, SubscriptionOptions, decode,
};
use thicket_placement::State;

use crate::DispatchError;
use crate::board::Entry;
use crate::options::{Broker, resolve};
use crate::source::sys::{SysTopics, TOPICS};
use crate::source::{self, Reader, Source};

/// Time between two PINGREQ, and between two attempts to connect.
const BEAT: Duration = Duration::from_millis(250);
/// A broker that is silent for this long is down.
const SILENCE: Duration = Duration::from_millis(750);
/// How long a check before the start waits for the first `$SYS` topic.
const FIRST_TOPIC: Duration = Duration::from_secs(3);
/// Longest packet accepted from a broker: the subscribed topics are short.
const LONGEST: usize = 64 * 1024;
/// A packet without properties is the same in all versions, so use the oldest that all support.
const VERSION: ProtocolVersion = ProtocolVersion::V311;

/// User name and password of watching connections.
pub type Login = Option<(String, Vec<u8>)>;

/// Watches a broker until it is removed.
pub(crate) fn start(entry: &Arc<Entry>, login: &Login, name: &str) -> Result<(), DispatchError> {
    let spawn = |what: &str, run: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(what.to_owned());
        thread
            .spawn(run)
            .map(drop)
            .map_err(DispatchError::system("cannot start a thread"))
    };
    let (watched, login) = (Arc::clone(entry), login.clone());
    // Of its own at each broker: those of one cluster give a client identifier to one connection only.
    let client_id = format!("thicket-dispatch-{name}-{}", entry.broker.name);
    spawn(
        "probe",
        Box::new(move || probe(&watched, &login, &client_id)),
    )?;
    let polled = entry
        .broker
        .sources
        .iter()
        .any(|source| *source != Source::Sys);
    if polled {
        let watched = Arc::clone(entry);
        spawn("sources", Box::new(move || read_sources(&watched)))?;
    }
    Ok(())
}

/// Queries every source of a broker that answers once, so that a wrong one is reported at the start and not at night.
///
/// A broker that does not answer is not an error: it may come back later.
pub(crate) fn check(broker: &Broker, login: &Login) -> Result<(), DispatchError> {
    let Ok(address) = resolve(&broker.name) else {
        return Ok(());
    };
    if TcpStream::connect_timeout(&address, SILENCE).is_err() {
        return Ok(());
    }
    for source in &broker.sources {
        let result = match source {
            Source::Sys => check_sys(address, login),
            other => Reader::new(other.clone()).read(0.0).map(drop),
        };
        result.map_err(|problem| DispatchError::Source {
            broker: broker.name.clone(),
            load_source: source.to_string(),
            problem,
        })?;
    }
    Ok(())
}

fn check_sys(address: SocketAddr, login: &Login) -> Result<(), String> {
    let id = format!("thicket-dispatch-check-{}", std::process::id());
    let mut connection = Connection::open(address, login, &id)?;
    if let Verdict::Refused(code) = connection.verdict {
        return Err(format!("the broker refused the connection: {code:?}"));
    }
    connection.subscribe()?;
    let (began, mut heard) = (Instant::now(), false);
    while !heard {
        if began.elapsed() > FIRST_TOPIC {
            return Err(format!(
                "the broker sends nothing on {} and the like",
                TOPICS[1]
            ));
        }
        connection.read(&mut |_, _| heard = true)?;
    }
    Ok(())
}

fn probe(entry: &Entry, login: &Login, client_id: &str) {
    while !entry.is_removed.load(Ordering::Relaxed) {
        if let Err(problem) = attend(entry, login, client_id) {
            entry.set_state(State::Down, &problem);
        }
        std::thread::sleep(BEAT);
    }
}

/// One connection to a broker, from start to end.
fn attend(entry: &Entry, login: &Login, client_id: &str) -> Result<(), String> {
    let address = resolve(&entry.broker.name)?;
    let tls_address = entry.broker.tls.as_deref().map(resolve).transpose()?;
    let mut connection = Connection::open(address, login, client_id)?;
    entry.set_addresses(address, tls_address);
    let sys = entry
        .broker
        .sources
        .iter()
        .position(|source| *source == Source::Sys);
    match connection.verdict {
        Verdict::Accepted => entry.set_state(State::Serving, ""),
        Verdict::Refused(ReasonCode::ServerUnavailable) => {
            entry.set_state(State::Full, "it refuses clients as unavailable");
            return Ok(());
        }
        // It may refuse this connection and accept others: it speaks MQTT, so it is up.
        Verdict::Refused(code) => {
            entry.set_state(State::Serving, "");
            if let Some(sys) = sys {
                entry.set_problem(sys, format!("the broker refused the connection: {code:?}"));
            }
            return Ok(());
        }
    }
    if sys.is_some() {
        connection.subscribe()?;
    }
    let start = Instant::now();
    let mut topics = SysTopics::default();
    let (mut last_ping, mut last_heard) = (start, start);
    while !entry.is_removed.load(Ordering::Relaxed) {
        let now_s = start.elapsed().as_secs_f64();
        let heard = connection.read(&mut |topic, payload| topics.handle(now_s, topic, payload))?;
        if heard {
            last_heard = Instant::now();
            // A failed relay may have set another state.
            entry.set_state(State::Serving, "");
        } else if last_heard.elapsed() > SILENCE {
            return Err(format!("it said nothing for {} ms", SILENCE.as_millis()));
        }
        if last_ping.elapsed() >= BEAT {
            last_ping = Instant::now();
            connection.send(&Packet::Pingreq)?;
        }
        if let Some(sys) = sys {
            tell_topics(entry, sys, &mut topics, start.elapsed().as_secs_f64());
        }
    }
    connection.send(&Packet::Disconnect(Disconnect::new(ReasonCode::Success)))
}

fn tell_topics(entry: &Entry, source: usize, topics: &mut SysTopics, now_s: f64) {
    if let Some((figures, hold_s)) = topics.poll(now_s) {
        entry.set_figures(source, &figures, Duration::from_secs_f64(hold_s));
    }
    let silent_s = now_s - topics.last_tick_s().unwrap_or(0.0);
    if silent_s > topics.patience_s() {
        entry.set_problem(source, format!("nothing on {} any more", TOPICS[0]));
    }
}

fn read_sources(entry: &Entry) {
    let start = Instant::now();
    let mut readers: Vec<(usize, Reader)> = (0..)
        .zip(&entry.broker.sources)
        .filter(|(_, source)| **source != Source::Sys)
        .map(|(index, source)| (index, Reader::new(source.clone())))
        .collect();
    while !entry.is_removed.load(Ordering::Relaxed) {
        let began = Instant::now();
        // Unknown after a failure: then the earlier value stays.
        let mut is_draining = Some(false);
        for (index, reader) in &mut readers {
            match reader.read(start.elapsed().as_secs_f64()) {
                Ok(reading) => {
                    entry.set_figures(*index, &reading.figures, source::STALE);
                    is_draining = is_draining.map(|it| it || reading.is_draining);
                }
                Err(problem) => {
                    entry.set_problem(*index, problem);
                    is_draining = None;
                }
            }
        }
        if let Some(is_draining) = is_draining {
            entry.set_draining(is_draining);
        }
        std::thread::sleep(source::EVERY.saturating_sub(began.elapsed()));
    }
}

/// The broker's answer to our CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Accepted,
    Refused(ReasonCode),
}

/// An MQTT connection, which blocks only for a short time.
struct Connection {
    stream: TcpStream,
    verdict: Verdict,
    /// The start of a packet.
    partial: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr, login: &Login, client_id: &str) -> Result<Self, String> {
        let words = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect_timeout(&address, SILENCE).map_err(words)?;
        stream.set_nodelay(true).map_err(words)?;
        stream.set_write_timeout(Some(SILENCE)).map_err(words)?;
        stream.set_read_timeout(Some(BEAT / 2)).map_err(words)?;
        let mut connection = Self {
            stream,
            verdict: Verdict::Accepted,
            partial: Vec::new(),
        };
        let mut connect = Connect::new(VERSION, client_id);
        if let Some((user, password)) = login {
            connect.login.user_name = Some(user);
            connect.login.password = Some(password);
        }
        connection.send(&Packet::Connect(Box::new(connect)))?;
        connection.await_connack()?;
        Ok(connection)
    }

    fn await_connack(&mut self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            self.fill()?;
            let decoded = decode(&self.partial, VERSION, u32::MAX);
            let (code, len) = match decoded.map_err(|error| error.to_string())? {
                Some((Packet::Connack(connack), len)) => (connack.reason_code, len),
                Some((packet, _)) => {
                    return Err(format!("it answered CONNECT with {:?}", packet.kind()));
                }
                None if began.elapsed() > SILENCE => {
                    return Err("it does not answer CONNECT".to_owned());
                }
                None => continue,
            };
            self.partial.drain(..len);
            if code.is_error() {
                self.verdict = Verdict::Refused(code);
            }
            return Ok(());
        }
    }

    fn subscribe(&mut self) -> Result<(), String> {
        let options = SubscriptionOptions {
            qos: Qos::AtMostOnce,
            ..SubscriptionOptions::default()
        };
        let filters = TOPICS
            .iter()
            .map(|&filter| SubscribeFilter { filter, options })
            .collect();
        let packet_id = PacketId::new(1).ok_or("no packet identifier")?;
        self.send(&Packet::Subscribe(Subscribe {
            packet_id,
            subscription_identifier: None,
            user_properties: Vec::new(),
            filters,
        }))
    }

    fn send(&mut self, packet: &Packet<'_>) -> Result<(), String> {
        let mut bytes = Vec::new();
        packet
            .encode(VERSION, &mut bytes)
            .map_err(|error| error.to_string())?;
        self.stream
            .write_all(&bytes)
            .map_err(|error| error.to_string())
    }

    /// Reads for a while; `on_message` receives topics and payloads. Returns whether anything arrived.
    fn read(&mut self, on_message: &mut dyn FnMut(&str, &[u8])) -> Result<bool, String> {
        if !self.fill()? {
            return Ok(false);
        }
        let mut at = 0;
        while let Some((packet, len)) =
            decode(&self.partial[at..], VERSION, u32::MAX).map_err(|error| error.to_string())?
        {
            if let Packet::Publish(publish) = packet {
                on_message(publish.topic, publish.payload);
            }
            at += len;
        }
        self.partial.drain(..at);
        if self.partial.len() > LONGEST {
            return Err("it sends what nobody asked for".to_owned());
        }
        Ok(true)
    }

    fn fill(&mut self) -> Result<bool, String> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err("it closed the connection".to_owned()),
            Ok(len) => {
                self.partial.extend_from_slice(&buffer[..len]);
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
