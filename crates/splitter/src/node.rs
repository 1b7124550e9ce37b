//! A session at a node: connected, and accepted by a CONNACK.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thicket_client::placement::session_name;
use thicket_mqtt::{
    Connack, Connect, Packet, ProtocolVersion, ReasonCode, decode, server_references,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::{Config, Shared};

/// Most redirections followed in a row.
const REDIRECTIONS: usize = 4;
/// Longest wait for an answer of a node while there is another one to try.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A node that did not answer is tried last for this long.
const LAST_FOR: Duration = Duration::from_secs(10);
/// Most nodes that are remembered for not answering.
const SILENT: usize = 1_000;
/// For sessions whose client uses no keep alive: the loss of a node must be detected.
const KEEP_ALIVE: u16 = 60;
/// User property that shows a node that the client was redirected.
const REDIRECTED: &str = "thicket-redirected";

/// A session that a node has accepted.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) stream: TcpStream,
    pub(crate) address: String,
    pub(crate) session_present: bool,
    pub(crate) keep_alive: u16,
    /// The CONNACK as received.
    pub(crate) connack: Vec<u8>,
    /// Bytes received after it.
    pub(crate) rest: Vec<u8>,
}

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The node's CONNACK, as received.
    Refused(Vec<u8>),
    /// No node answered.
    Unreachable(String),
}

/// How a session's CONNECT differs from the client's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) number: usize,
    pub(crate) clean_start: bool,
    /// The session ends with its connection (5.0; before, clean start has this effect).
    pub(crate) is_to_end: bool,
}

/// The client's CONNECT, and its current identifier.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) raw: Vec<u8>,
    pub(crate) version: ProtocolVersion,
    pub(crate) client_id: String,
    /// Sessions that the client may have.
    pub(crate) sessions: usize,
    /// Clean Start of the client, before 5.0 Clean Session.
    pub(crate) clean_start: bool,
}

/// Nodes that accepted a connection, or might have, but did not answer in time.
#[derive(Debug, Default)]
pub(crate) struct Silent(Mutex<HashMap<String, Instant>>);

impl Silent {
    /// Whether others should be tried before this one. When its time is over, one attempt is made again, and others follow if it is answered.
    fn is_last(&self, address: &str) -> bool {
        let mut silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(until) = silent.get_mut(address) else {
            return false;
        };
        let now = Instant::now();
        let is_last = now < *until;
        if !is_last {
            *until = now + LAST_FOR;
        }
        is_last
    }

    fn note(&self, address: &str, has_answered: bool) {
        let mut silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if has_answered {
            silent.remove(address);
        } else if silent.len() < SILENT || silent.contains_key(address) {
            silent.insert(address.to_owned(), Instant::now() + LAST_FOR);
        }
    }
}

/// The host and port of `HOST:PORT`.
pub(crate) fn address_of(text: &str) -> Option<(String, u16)> {
    match server_references(text)[..] {
        [server] => Some((server.host.to_owned(), server.port?)),
        _ => None,
    }
}

impl Template {
    /// The CONNECT of a session. The client's Receive Maximum is divided, so that all of them together respect it.
    fn connect(&self, opening: Opening, redirections: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Ok(Some((Packet::Connect(client), _))) = decode(&self.raw, self.version, u32::MAX)
        else {
            return bytes;
        };
        let client_id = session_name(&self.client_id, opening.number);
        let redirected = redirections.to_string();
        let mut connect: Connect<'_> = (*client).clone();
        connect.client_id = &client_id;
        connect.clean_start = opening.clean_start;
        if opening.number > 1 {
            connect.will = None;
        }
        if connect.keep_alive == 0 {
            connect.keep_alive = KEEP_ALIVE;
        }
        if self.version.has_properties() {
            // Sessions would use the same alias for different topics.
            connect.topic_alias_maximum = 0;
            connect.receive_maximum = Some(self.receive_maximum(connect.receive_maximum));
            if redirections > 0 {
                connect.user_properties.push((REDIRECTED, &redirected));
            }
            if opening.is_to_end {
                connect.session_expiry_interval = None;
            }
        }
        let encoded = Packet::Connect(Box::new(connect)).encode(self.version, &mut bytes);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        bytes
    }

    fn receive_maximum(&self, of_client: Option<u16>) -> u16 {
        let sessions = u16::try_from(self.sessions).unwrap_or(u16::MAX);
        (of_client.unwrap_or(u16::MAX) / sessions.max(1)).max(1)
    }
}

/// Opens a session at the first of `addresses` that answers, and follows redirections. Those that did not answer lately are tried last.
pub(crate) async fn open(
    shared: &Shared,
    template: &Template,
    opening: Opening,
    addresses: Vec<String>,
) -> Result<Session, Failure> {
    let mut problem = "no node is known".to_owned();
    let mut addresses: VecDeque<String> = addresses.into();
    let mut postponed = BTreeSet::new();
    let config = &shared.config;
    let mut redirections = 0;
    while let Some(address) = addresses.pop_front() {
        let may_wait = !addresses.is_empty() && !postponed.contains(&address);
        if may_wait && shared.silent.is_last(&address) {
            postponed.insert(address.clone());
            addresses.push_back(address);
            continue;
        }
        let limit = if addresses.is_empty() {
            config.connect_timeout
        } else {
            config.connect_timeout.min(TIMEOUT)
        };
        let connect = template.connect(opening, redirections);
        let attempt = try_open(config, template.version, &address, &connect);
        let attempt = tokio::time::timeout(limit, attempt).await;
        shared.silent.note(&address, attempt.is_ok());
        match attempt {
            Err(_) => problem = format!("{address}: no answer in time"),
            Ok(Err(error)) => problem = format!("{address}: {error}"),
            Ok(Ok((session, code, reference))) => {
                if !code.is_error() {
                    return Ok(session);
                }
                let elsewhere = reference.filter(|_| {
                    matches!(code, ReasonCode::UseAnotherServer | ReasonCode::ServerMoved)
                        && redirections < REDIRECTIONS
                });
                let Some(reference) = elsewhere else {
                    return Err(Failure::Refused(session.connack));
                };
                redirections += 1;
                let servers = server_references(&reference);
                for server in servers.iter().rev() {
                    let port = server.port.unwrap_or(1883);
                    addresses.push_front(format!("{}:{port}", bracketed(server.host)));
                }
            }
        }
    }
    Err(Failure::Unreachable(problem))
}

/// Opens a new, empty session with the expiry that the client requested.
pub(crate) async fn open_new(
    shared: &Shared,
    template: &Template,
    number: usize,
    addresses: Vec<String>,
) -> Result<Session, Failure> {
    let opening = |clean_start| Opening {
        number,
        clean_start,
        is_to_end: false,
    };
    if template.version.has_properties() || template.clean_start {
        return open(shared, template, opening(true), addresses).await;
    }
    // Before 5.0 a persistent session cannot be requested as new: an existing one is ended first.
    let session = open(shared, template, opening(false), addresses.clone()).await?;
    if !session.session_present {
        return Ok(session);
    }
    open(shared, template, opening(true), addresses.clone()).await?;
    open(shared, template, opening(false), addresses).await
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

async fn try_open(
    config: &Config,
    version: ProtocolVersion,
    address: &str,
    connect: &[u8],
) -> io::Result<(Session, ReasonCode, Option<String>)> {
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let (host, port) = address_of(address).ok_or_else(|| invalid("no HOST:PORT".to_owned()))?;
    let mut stream = TcpStream::connect((&*host, port)).await?;
    stream.set_nodelay(true)?;
    stream.write_all(connect).await?;
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let decoded = decode(&bytes, version, config.maximum_packet_size)
            .map_err(|error| invalid(error.to_string()))?;
        match decoded {
            Some((Packet::Connack(connack), len)) => {
                let connack: &Connack<'_> = &connack;
                let (code, reference) = (connack.reason_code, connack.server_reference);
                let reference = reference.map(str::to_owned);
                let session_present = connack.session_present;
                let keep_alive = connack.server_keep_alive.unwrap_or_else(|| asked(connect));
                let rest = bytes.split_off(len);
                let session = Session {
                    stream,
                    address: address.to_owned(),
                    session_present,
                    keep_alive,
                    connack: bytes,
                    rest,
                };
                return Ok((session, code, reference));
            }
            Some(_) => return Err(invalid("the answer to CONNECT is no CONNACK".to_owned())),
            None => {
                if stream.read_buf(&mut bytes).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

/// The keep alive in a CONNECT of ours.
fn asked(connect: &[u8]) -> u16 {
    match decode(connect, ProtocolVersion::V5, u32::MAX) {
        Ok(Some((Packet::Connect(connect), _))) => connect.keep_alive,
        _ => KEEP_ALIVE,
    }
}
