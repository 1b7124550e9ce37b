//! A client's byte stream to a broker, over any transport. It blocks; one thread may read while another writes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::websocket::{
    Control, Decoder, Opcode, Role, apply_mask, close_frame, decode_response, encode_request,
    frame_header, pong_frame,
};

/// Timeout of the connection to each address, and of each answer in a handshake.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of one read of the socket.
const READ: usize = 64 * 1024;
/// Longest frame accepted from a broker: more than the largest MQTT packet.
const LONGEST_FRAME: u64 = 1 << 30;
/// The status of a close frame for a normal end.
const NORMAL: u16 = 1000;

/// Where to connect, and which layers lie between the socket and MQTT.
#[derive(Debug, Clone)]
pub struct Target {
    /// The socket.
    pub place: Place,
    /// TLS, if the broker uses it.
    pub tls: Option<Arc<ClientConfig>>,
    /// Path of the WebSocket, if the broker uses it.
    pub websocket: Option<String>,
}

/// The address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A host by name or address, and a port.
    Tcp(String, u16),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

/// A connection that failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host name resolves to no address.
    #[error("cannot find the host {host}: {problem}")]
    NoHost {
        /// As given.
        host: String,
        /// Why.
        problem: String,
    },
    /// The connection was refused.
    #[error("nobody listens on {0} (connection refused): is a broker running there?")]
    Refused(String),
    /// The socket could not be connected.
    #[error("cannot connect to {place}: {source}")]
    Socket {
        /// The address.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// TLS failed; often the certificate.
    #[error("TLS with {place} failed: {problem}")]
    Tls {
        /// The address.
        place: String,
        /// Why.
        problem: String,
    },
    /// The server does not offer a WebSocket for MQTT there.
    #[error("WebSocket with {place} failed: {problem}")]
    WebSocket {
        /// The address.
        place: String,
        /// Why.
        problem: String,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Connects and completes the handshakes of all layers.
///
/// # Errors
/// There is no server, or it uses another protocol.
pub fn connect(target: &Target) -> Result<(Reader, Writer), ConnectError> {
    let place = target.place.to_string();
    let mut raw = dial(&target.place)?;
    let in_time = |raw: &Raw, limit| {
        raw.set_timeout(limit)
            .map_err(|source| ConnectError::Socket {
                place: place.clone(),
                source,
            })
    };
    in_time(&raw, Some(TIMEOUT))?;
    let mut layers = Layers::default();
    if let Some(config) = &target.tls {
        let tls = start_tls(&target.place, Arc::clone(config), &mut raw).map_err(|problem| {
            ConnectError::Tls {
                place: place.clone(),
                problem,
            }
        })?;
        layers.tls = Some(tls);
    }
    let mut ready = Vec::new();
    if let Some(path) = &target.websocket {
        ready = layers
            .start_websocket(&place, path, &mut raw)
            .map_err(|problem| ConnectError::WebSocket {
                place: place.clone(),
                problem,
            })?;
    }
    in_time(&raw, None)?;
    let unusable = |source| ConnectError::Socket {
        place: place.clone(),
        source,
    };
    let reading = raw.try_clone().map_err(unusable)?;
    let ending = raw.try_clone().map_err(unusable)?;
    let shared = Arc::new(Shared {
        is_plain: layers.tls.is_none() && layers.websocket.is_none(),
        ending,
        layers: Mutex::new(layers),
        raw: Mutex::new(raw),
    });
    let reader = Reader {
        raw: reading,
        shared: Arc::clone(&shared),
        buffer: vec![0; READ].into_boxed_slice(),
        ready,
        start: 0,
        is_over: false,
    };
    Ok((reader, Writer { shared }))
}

/// The half that reads.
#[derive(Debug)]
pub struct Reader {
    raw: Raw,
    shared: Arc<Shared>,
    buffer: Box<[u8]>,
    /// Decoded bytes; those from `start` on were not read yet.
    ready: Vec<u8>,
    start: usize,
    is_over: bool,
}

/// The half that writes.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    is_plain: bool,
    /// Of the same socket: ends what waits in the others.
    ending: Raw,
    /// Locked after `raw` by a thread that needs both.
    layers: Mutex<Layers>,
    raw: Mutex<Raw>,
}

#[derive(Debug, Default)]
struct Layers {
    tls: Option<ClientConnection>,
    websocket: Option<Decoder>,
    /// Control frames to send.
    owed: Vec<u8>,
}

impl Reader {
    /// Makes a `read` that waits longer return `WouldBlock` or `TimedOut`; `None`: it waits forever.
    ///
    /// # Errors
    /// The socket is unusable, or the time is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.raw.set_timeout(timeout)
    }

    fn fill(&mut self) -> io::Result<()> {
        let count = self.raw.read(&mut self.buffer)?;
        if count == 0 {
            self.is_over = true;
            return Ok(());
        }
        let mut layers = lock(&self.shared.layers);
        self.is_over = layers.open(&self.buffer[..count], &mut self.ready)?;
        let owes =
            !layers.owed.is_empty() || layers.tls.as_ref().is_some_and(|tls| tls.wants_write());
        drop(layers);
        if owes {
            // A thread that is writing sends it too.
            match self.shared.raw.try_lock() {
                Ok(mut raw) => raw.write_all(&lock(&self.shared.layers).seal(&[])?)?,
                Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {}
            }
        }
        Ok(())
    }
}

impl Read for Reader {
    /// Reads available bytes; 0 is the end.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.shared.is_plain {
            return self.raw.read(into);
        }
        while self.start == self.ready.len() {
            if self.is_over {
                return Ok(0);
            }
            self.ready.clear();
            self.start = 0;
            self.fill()?;
        }
        let count = into.len().min(self.ready.len() - self.start);
        into[..count].copy_from_slice(&self.ready[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

impl Writer {
    /// Writes all bytes, as one frame and in as few records as possible.
    ///
    /// # Errors
    /// The connection broke.
    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut raw = lock(&self.shared.raw);
        if self.shared.is_plain {
            return raw.write_all(bytes);
        }
        let sealed = lock(&self.shared.layers).seal(bytes)?;
        raw.write_all(&sealed)
    }

    /// Makes a `write_all` that waits longer fail; `None`: it waits forever.
    ///
    /// # Errors
    /// The socket is unusable, or the time is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.shared.ending {
            Raw::Tcp(stream) => stream.set_write_timeout(timeout),
            Raw::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    /// Closes the socket in both directions, without a farewell, and ends a read and a write that wait.
    pub fn end(&self) {
        // It may be closed already.
        let _ = match &self.shared.ending {
            Raw::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Raw::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Closes every layer for sending. The reader may continue.
    pub fn close(&self) {
        let mut raw = lock(&self.shared.raw);
        let sealed = {
            let mut layers = lock(&self.shared.layers);
            if layers.websocket.is_some() {
                let mask = mask();
                close_frame(Some(NORMAL), Some(mask), &mut layers.owed);
            }
            layers.seal_last()
        };
        // The broker may have closed already.
        let _ = sealed.and_then(|sealed| raw.write_all(&sealed));
        let _ = raw.shutdown();
    }
}

impl Layers {
    /// Decodes bytes from the socket and appends the result. `true`: nothing follows.
    fn open(&mut self, bytes: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
        let from = into.len();
        let mut is_over = false;
        match &mut self.tls {
            None => into.extend_from_slice(bytes),
            Some(tls) => is_over = open_tls(tls, bytes, into)?,
        }
        let Some(websocket) = &mut self.websocket else {
            return Ok(is_over);
        };
        let owed = &mut self.owed;
        let decoded = websocket.decode(&mut into[from..], |control| match control {
            Control::Ping(payload) => pong_frame(payload, Some(mask()), owed),
            Control::Close(status) => {
                close_frame(Some(status.unwrap_or(NORMAL)), Some(mask()), owed)
            }
            Control::Pong => {}
        });
        let count = decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        into.truncate(from + count);
        Ok(is_over || websocket.is_closed())
    }

    /// Encodes pending control frames, then `bytes` as a frame if there are any, as they are sent over the socket.
    fn seal(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut framed = std::mem::take(&mut self.owed);
        if self.websocket.is_some() && !bytes.is_empty() {
            let mask = mask();
            frame_header(Opcode::Binary, bytes.len(), Some(mask), &mut framed);
            let start = framed.len();
            framed.extend_from_slice(bytes);
            apply_mask(&mut framed[start..], mask, 0);
        } else {
            framed.extend_from_slice(bytes);
        }
        let Some(tls) = &mut self.tls else {
            return Ok(framed);
        };
        tls.set_buffer_limit(None);
        tls.writer().write_all(&framed)?;
        take_sealed(tls)
    }

    fn seal_last(&mut self) -> io::Result<Vec<u8>> {
        let mut sealed = self.seal(&[])?;
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            sealed.extend(take_sealed(tls)?);
        }
        Ok(sealed)
    }

    /// Requests a WebSocket; returns what the broker has sent after its answer.
    fn start_websocket(
        &mut self,
        host: &str,
        path: &str,
        raw: &mut Raw,
    ) -> Result<Vec<u8>, String> {
        let words = |error: io::Error| error.to_string();
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
        let (request, key) = encode_request(host, path, nonce);
        let sealed = self.seal(&request).map_err(words)?;
        raw.write_all(&sealed).map_err(words)?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        let len = loop {
            let count = raw.read(&mut buffer).map_err(words)?;
            if count == 0 {
                return Err("the broker closed the connection".to_owned());
            }
            self.open(&buffer[..count], &mut answer).map_err(words)?;
            if let Some(len) = decode_response(&answer, &key).map_err(|error| error.to_string())? {
                break len;
            }
        };
        let mut rest = answer.split_off(len);
        let mut decoder = Decoder::new(Role::Client, LONGEST_FRAME);
        let count = decoder
            .decode(&mut rest, |_| {})
            .map_err(|error| error.to_string())?;
        rest.truncate(count);
        self.websocket = Some(decoder);
        Ok(rest)
    }
}

/// `true`: nothing follows.
fn open_tls(tls: &mut ClientConnection, mut bytes: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
    while !bytes.is_empty() {
        tls.read_tls(&mut bytes)?;
        let state = tls
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let start = into.len();
        into.resize(start + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut into[start..])?;
        if state.peer_has_closed() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn take_sealed(tls: &mut ClientConnection) -> io::Result<Vec<u8>> {
    let mut sealed = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut sealed)?;
    }
    Ok(sealed)
}

fn start_tls(
    place: &Place,
    config: Arc<ClientConfig>,
    raw: &mut Raw,
) -> Result<ClientConnection, String> {
    let host = match place {
        Place::Tcp(host, _) => host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned(),
        Place::Unix(_) => "localhost".to_owned(),
    };
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let mut tls = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
    while tls.is_handshaking() {
        tls.complete_io(raw).map_err(|error| tls_problem(&error))?;
    }
    Ok(tls)
}

/// Why a handshake failed. A server without TLS closes the connection or answers something else.
fn tls_problem(error: &io::Error) -> String {
    let inside = error.get_ref().and_then(|it| it.downcast_ref());
    let is_no_tls = match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => true,
        _ => matches!(inside, Some(rustls::Error::InvalidMessage(_))),
    };
    if is_no_tls {
        format!(
            "{error}; this is probably a port without TLS: connect without TLS, or to the port of a TLS listener"
        )
    } else {
        error.to_string()
    }
}

/// Unpredictable, so that no page can make us write bytes of its choice (RFC 6455 10.3).
fn mask() -> [u8; 4] {
    let mut mask = [0; 4];
    // Without randomness the frame is still valid.
    let _ = getrandom::fill(&mut mask);
    mask
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The socket itself.
#[derive(Debug)]
enum Raw {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Raw {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let result = match self {
                Self::Tcp(stream) => stream.read(buffer),
                Self::Unix(stream) => stream.read(buffer),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn dial(place: &Place) -> Result<Raw, ConnectError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused(place.to_string()),
        _ => ConnectError::Socket {
            place: place.to_string(),
            source,
        },
    };
    let (host, port) = match place {
        Place::Unix(path) => return UnixStream::connect(path).map(Raw::Unix).map_err(failed),
        Place::Tcp(host, port) => (host.trim_start_matches('[').trim_end_matches(']'), *port),
    };
    let no_host = |problem: String| ConnectError::NoHost {
        host: host.to_owned(),
        problem,
    };
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| no_host(error.to_string()))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(failed)?;
                return Ok(Raw::Tcp(stream));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| no_host("it has no address".to_owned()), failed))
}
