//! From the first byte of a client to its CONNACK.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thicket_client::placement::{Answer, Placed};
use thicket_mqtt::{
    Connack, Connect, Packet, ProtocolVersion, ReasonCode, connect_version, decode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedMutexGuard;

use crate::Shared;
use crate::memory::{Key, Place, Remembered, Turn};
use crate::newcomers::Newcomer;
use crate::node::{self, Failure, Opening, Session, Template};

/// Timeout of a CONNECT, and of the end of an earlier connection of the same client.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An accepted client, and its sessions.
pub(crate) struct Admitted {
    pub(crate) stream: TcpStream,
    /// Bytes that the client sent after its CONNECT.
    pub(crate) rest: Vec<u8>,
    pub(crate) template: Template,
    pub(crate) login: Option<(String, Vec<u8>)>,
    pub(crate) connack: Vec<u8>,
    pub(crate) session_present: bool,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) keeps_session: bool,
    pub(crate) sessions: BTreeMap<usize, Session>,
    pub(crate) remembered: OwnedMutexGuard<Remembered>,
    pub(crate) place: Arc<Place>,
    pub(crate) turn: Turn,
    pub(crate) key: Key,
}

/// Fields of the client's CONNECT.
struct Asked {
    keep_alive: u16,
    keeps_session: bool,
    is_assigned: bool,
    maximum_packet_size: usize,
    login: Option<(String, Vec<u8>)>,
}

/// Reads a CONNECT, opens the client's sessions or new ones, and makes the CONNACK. Returns the problem if the client is refused; the answer was sent
/// already.
pub(crate) async fn admit(
    mut stream: TcpStream,
    newcomer: Newcomer,
    shared: &Arc<Shared>,
) -> Result<Admitted, String> {
    // A failure does not matter: the client is served all the same.
    let _ = stream.set_nodelay(true);
    let mut bytes = Vec::with_capacity(1024);
    let reading = read_connect(&mut stream, &mut bytes, shared.config.maximum_packet_size);
    let reading = tokio::time::timeout(TIMEOUT, reading);
    let read_len = tokio::select! {
        read_len = reading => read_len,
        () = newcomer.must_yield() => return Err("yielded its place before its CONNECT".to_owned()),
    };
    let len = match read_len {
        Err(_) => return Err("no CONNECT in time".to_owned()),
        Ok(Err(problem)) => return Err(problem),
        Ok(Ok(len)) => len,
    };
    drop(newcomer);
    let rest = bytes.split_off(len);
    let (template, asked) = match read(bytes, shared) {
        Ok(read) => read,
        Err((version, code)) => return refuse(stream, version, code).await,
    };
    let known = known_sessions(&template, &asked, shared).await;
    let opening = Opening {
        number: 1,
        clean_start: template.clean_start,
        is_to_end: false,
    };
    let user = asked.login.as_ref().map(|(user, _)| user.clone());
    let key = (user, template.client_id.clone());
    let reopened = shared.memories.reopened(&key);
    let at = addresses(1, &known, shared);
    let mut first = match node::open(shared, &template, opening, at).await {
        Ok(first) => first,
        Err(Failure::Refused(connack)) => {
            // The connection is closed in any case.
            let _ = stream.write_all(&connack).await;
            return Err("a node refused it".to_owned());
        }
        Err(Failure::Unreachable(problem)) => {
            tracing::warn!(client_id = template.client_id, problem, "no node");
            return refuse(stream, template.version, ReasonCode::ServerUnavailable).await;
        }
    };
    // An earlier connection of the same client ends, as the node has ended the one behind it.
    let place = shared.memories.place(&key);
    let mut turn = place.take_turn();
    let locking = Arc::clone(&place.remembered).lock_owned();
    let mut remembered = tokio::select! {
        remembered = locking => remembered,
        () = turn.is_over() => return Err("a newer connection took the session".to_owned()),
    };
    if place.reopened() != reopened {
        // The earlier one was opening session 1 elsewhere, and may have taken it over again.
        let at = addresses(1, &known, shared);
        first = match node::open(shared, &template, opening, at).await {
            Ok(again) => again,
            Err(failure) => {
                tracing::warn!(
                    client_id = template.client_id,
                    ?failure,
                    "session 1 is gone"
                );
                return refuse(stream, template.version, ReasonCode::ServerUnavailable).await;
            }
        };
    }
    let mut sessions = BTreeMap::new();
    if first.session_present {
        if !remembered.is_known {
            learn(&mut remembered, &known);
        }
        let numbers = beyond_first(&remembered.memory.sessions());
        let again = match resume(&template, &numbers, &known, shared).await {
            Ok(Some(others)) => {
                sessions = others;
                None
            }
            Ok(None) => {
                // Without all of its parts a session is lost: the client starts a new one, as its CONNACK shows.
                tracing::warn!(
                    client_id = template.client_id,
                    "sessions are gone: begins anew"
                );
                let addresses = addresses(1, &known, shared);
                Some(node::open_new(shared, &template, 1, addresses).await)
            }
            Err(failure) => Some(Err(failure)),
        };
        match again {
            None => {}
            Some(Ok(anew)) => first = anew,
            // Nothing is lost: the client reconnects.
            Some(Err(failure)) => {
                tracing::warn!(
                    client_id = template.client_id,
                    ?failure,
                    "not all sessions open"
                );
                return refuse(stream, template.version, ReasonCode::ServerUnavailable).await;
            }
        }
    }
    if !first.session_present {
        let mut numbers = remembered.memory.sessions();
        numbers.extend(known.keys());
        let numbers = beyond_first(&numbers);
        remembered.memory = crate::split::Memory::default();
        end_all(&template, &numbers, &known, shared).await;
    }
    let connack = connack_for(&first, &template, &asked);
    if connack.len() > asked.maximum_packet_size {
        // [MQTT-3.1.2-24]
        return Err("the CONNACK is larger than the client takes".to_owned());
    }
    let keep_alive = if asked.keep_alive == 0 {
        0
    } else {
        first.keep_alive
    };
    let session_present = first.session_present;
    sessions.insert(1, first);
    Ok(Admitted {
        stream,
        rest,
        template,
        login: asked.login,
        connack,
        session_present,
        keep_alive: (keep_alive > 0).then(|| Duration::from_secs(u64::from(keep_alive))),
        keeps_session: asked.keeps_session,
        sessions,
        remembered,
        place,
        turn,
        key,
    })
}

/// The length of the CONNECT at the start of `bytes`.
async fn read_connect(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    maximum: u32,
) -> Result<usize, String> {
    loop {
        match decode(bytes, ProtocolVersion::V5, maximum) {
            Ok(Some((Packet::Connect(_), len))) => return Ok(len),
            Ok(Some(_)) => return Err("the first packet is no CONNECT".to_owned()),
            Ok(None) => {}
            Err(error) => {
                if let Some(version) = error.connack_version() {
                    let mut answer = Vec::new();
                    let connack = Packet::Connack(Box::new(Connack::new(error.reason_code())));
                    if connack.encode(version, &mut answer).is_ok() {
                        // The connection is closed in any case.
                        let _ = stream.write_all(&answer).await;
                    }
                }
                return Err(error.to_string());
            }
        }
        match stream.read_buf(bytes).await {
            Ok(0) => return Err("closed before its CONNECT".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn read(raw: Vec<u8>, shared: &Shared) -> Result<(Template, Asked), (ProtocolVersion, ReasonCode)> {
    let version = connect_version(&raw).unwrap_or(ProtocolVersion::V5);
    let Ok(Some((Packet::Connect(connect), _))) = decode(&raw, version, u32::MAX) else {
        return Err((version, ReasonCode::MalformedPacket));
    };
    let connect: &Connect<'_> = &connect;
    if connect.authentication_method.is_some() {
        // Each session would need an exchange of its own, which the client does not expect.
        return Err((version, ReasonCode::BadAuthenticationMethod));
    }
    // The node refuses a client that must have an identifier and has none.
    let may_be_nameless = match version {
        ProtocolVersion::V31 => false,
        ProtocolVersion::V311 => connect.clean_start,
        ProtocolVersion::V5 => true,
    };
    let is_assigned = connect.client_id.is_empty() && may_be_nameless;
    let client_id = if is_assigned {
        format!("thicket-{:016x}", getrandom::u64().unwrap_or_default())
    } else {
        connect.client_id.to_owned()
    };
    let keeps_session = if version.has_properties() {
        connect.session_expiry_interval.unwrap_or(0) > 0
    } else {
        !connect.clean_start
    };
    let login = connect.login.user_name.map(|user| {
        let password = connect.login.password.unwrap_or_default();
        (user.to_owned(), password.to_vec())
    });
    let asked = Asked {
        keep_alive: connect.keep_alive,
        keeps_session,
        is_assigned,
        maximum_packet_size: connect.maximum_packet_size.unwrap_or(u32::MAX) as usize,
        login,
    };
    let most = if connect.bridge {
        // It is to get none of its own messages, and only one session recognises them.
        1
    } else {
        usize::from(connect.receive_maximum.unwrap_or(u16::MAX))
    };
    let sessions = shared.config.max_sessions.min(most);
    let clean_start = connect.clean_start;
    let template = Template {
        version,
        clean_start,
        client_id,
        sessions,
        raw,
    };
    Ok((template, asked))
}

/// The sessions that a placement names: the splitter may have restarted since.
async fn known_sessions(
    template: &Template,
    asked: &Asked,
    shared: &Shared,
) -> BTreeMap<usize, Placed> {
    if shared.config.apis.is_empty() || asked.is_assigned || template.client_id.is_empty() {
        return BTreeMap::new();
    }
    let control = shared.config.control(asked.login.clone());
    let client_id = template.client_id.clone();
    let finding = tokio::task::spawn_blocking(move || control.find(&client_id)).await;
    let answer = match finding {
        Ok(Ok(Some(json))) => json,
        Ok(Ok(None)) | Err(_) => return BTreeMap::new(),
        Ok(Err(problem)) => {
            tracing::warn!(
                client_id = template.client_id,
                problem,
                "placement not known"
            );
            return BTreeMap::new();
        }
    };
    Answer::parse(&answer, &template.client_id, crate::MOST_SESSIONS).unwrap_or_default()
}

fn addresses(number: usize, known: &BTreeMap<usize, Placed>, shared: &Shared) -> Vec<String> {
    let placed = known.get(&number).map(|placed| placed.address.clone());
    let mut others = shared.config.cluster.clone();
    if !others.is_empty() {
        let first = getrandom::u64().unwrap_or_default() % others.len() as u64;
        others.rotate_left(usize::try_from(first).unwrap_or(0));
    }
    placed.into_iter().chain(others).collect()
}

/// Topics and filters that only the placement has.
fn learn(remembered: &mut Remembered, known: &BTreeMap<usize, Placed>) {
    for (number, placed) in known {
        remembered
            .memory
            .assign(*number, &placed.publish, &placed.subscribe);
    }
}

fn beyond_first(numbers: &BTreeSet<usize>) -> BTreeSet<usize> {
    numbers
        .iter()
        .copied()
        .filter(|number| *number > 1)
        .collect()
}

/// Resumes the sessions beyond the first; `None` if one of them no longer exists.
async fn resume(
    template: &Template,
    numbers: &BTreeSet<usize>,
    known: &BTreeMap<usize, Placed>,
    shared: &Shared,
) -> Result<Option<BTreeMap<usize, Session>>, Failure> {
    let mut sessions = BTreeMap::new();
    for number in numbers {
        let opening = Opening {
            number: *number,
            clean_start: false,
            is_to_end: false,
        };
        let addresses = addresses(*number, known, shared);
        let session = node::open(shared, template, opening, addresses).await?;
        if !session.session_present {
            return Ok(None);
        }
        sessions.insert(*number, session);
    }
    Ok(Some(sessions))
}

/// Ends sessions of an earlier run. An unreachable one expires.
async fn end_all(
    template: &Template,
    numbers: &BTreeSet<usize>,
    known: &BTreeMap<usize, Placed>,
    shared: &Shared,
) {
    for number in numbers {
        let opening = Opening {
            number: *number,
            clean_start: true,
            is_to_end: true,
        };
        let addresses = addresses(*number, known, shared);
        let opened = node::open(shared, template, opening, addresses).await;
        if let Ok(mut session) = opened {
            let disconnect = Packet::Disconnect(thicket_mqtt::Disconnect::default());
            let mut bytes = Vec::new();
            if disconnect.encode(template.version, &mut bytes).is_ok() {
                // The session ends with its connection in any case.
                let _ = session.stream.write_all(&bytes).await;
            }
        }
    }
}

/// The node's answer, with the client identifier if the splitter assigned it.
fn connack_for(first: &Session, template: &Template, asked: &Asked) -> Vec<u8> {
    if !asked.is_assigned || !template.version.has_properties() {
        return first.connack.clone();
    }
    let mut bytes = Vec::new();
    if let Ok(Some((Packet::Connack(mut connack), _))) =
        decode(&first.connack, template.version, u32::MAX)
    {
        connack.assigned_client_identifier = Some(&template.client_id);
        let encoded = Packet::Connack(connack).encode(template.version, &mut bytes);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
    }
    bytes
}

async fn refuse<T>(
    mut stream: TcpStream,
    version: ProtocolVersion,
    code: ReasonCode,
) -> Result<T, String> {
    let mut bytes = Vec::new();
    let connack = Packet::Connack(Box::new(Connack::new(code)));
    if connack.encode(version, &mut bytes).is_ok() {
        // The connection is closed in any case.
        let _ = stream.write_all(&bytes).await;
    }
    Err(format!("refused: {code:?}"))
}
