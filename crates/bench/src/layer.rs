//! The layers between a client of the generator and its socket: TLS, WebSocket, or WebSocket over TLS.

use std::io::{self, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use thicket_transport::tls::rustls::pki_types::ServerName;
use thicket_transport::tls::rustls::{ClientConfig, ClientConnection};
use thicket_transport::websocket::{
    Control, Decoder, Opcode, Role, apply_mask, decode_response, encode_request, frame_header,
    pong_frame,
};

use crate::random::Random;

/// The largest frame that a broker may send, in bytes.
const MAXIMUM_FRAME: u64 = 256 * 1024 * 1024;

/// The layers over TCP.
#[derive(Debug, Clone, Default)]
pub struct Layering {
    /// TLS; the certificate must have the host's name, if the configuration requires that.
    pub tls: Option<Arc<ClientConfig>>,
    /// WebSocket: the path of the request.
    pub websocket: Option<String>,
}

impl Layering {
    /// Whether there are no layers over TCP.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.tls.is_none() && self.websocket.is_none()
    }
}

/// The layers of one connection.
#[derive(Debug)]
pub(crate) struct Layer {
    tls: Option<ClientConnection>,
    websocket: Option<WebSocket>,
    /// Bytes for the socket, or for TLS above it.
    output: Vec<u8>,
    /// Bytes from below that are not decoded yet.
    input: Vec<u8>,
}

#[derive(Debug)]
struct WebSocket {
    decoder: Decoder,
    random: Random,
    /// The key of the request, until it is answered; bytes sent meanwhile wait.
    awaited: Option<String>,
    waiting: Vec<u8>,
}

impl Layer {
    /// To `node` (HOST:PORT). `seed` is for the masks and the key: security does not matter here.
    pub fn new(layering: &Layering, node: &str, seed: u64) -> io::Result<Self> {
        let host = node.rsplit_once(':').map_or(node, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let tls = layering.tls.as_ref().map(|config| {
            ClientConnection::new(Arc::clone(config), name.clone()).map(|mut tls| {
                // The window of the load limits the buffer.
                tls.set_buffer_limit(None);
                tls
            })
        });
        let mut layer = Self {
            tls: tls.transpose().map_err(io::Error::other)?,
            websocket: None,
            output: Vec::new(),
            input: Vec::new(),
        };
        if let Some(path) = &layering.websocket {
            let mut random = Random::new(seed);
            let nonce = [random.bits().to_le_bytes(), random.bits().to_le_bytes()];
            let nonce = nonce.concat().try_into().expect("twice eight bytes");
            let (request, key) = encode_request(node, path, nonce);
            layer.output.extend_from_slice(&request);
            layer.websocket = Some(WebSocket {
                decoder: Decoder::new(Role::Client, MAXIMUM_FRAME),
                random,
                awaited: Some(key),
                waiting: Vec::new(),
            });
        }
        Ok(layer)
    }

    /// Queues `bytes` for the peer and writes what the socket accepts now.
    pub fn send(&mut self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        match &mut self.websocket {
            None => self.output.extend_from_slice(bytes),
            Some(websocket) => websocket.encode(bytes, &mut self.output),
        }
        self.flush(stream)
    }

    /// Whether bytes wait for the socket.
    pub fn has_unsent(&self) -> bool {
        !self.output.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Writes pending bytes, as far as the socket accepts them.
    pub fn flush(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            while !self.output.is_empty() {
                match stream.write(&self.output) {
                    Ok(count) => drop(self.output.drain(..count)),
                    Err(error) => return nothing_now(error),
                }
            }
            return Ok(());
        };
        if !self.output.is_empty() {
            tls.writer().write_all(&self.output)?;
            self.output.clear();
        }
        while tls.wants_write() {
            if let Err(error) = tls.write_tls(stream) {
                return nothing_now(error);
            }
        }
        Ok(())
    }

    /// Reads available bytes into `buffer`; returns their number, and whether all were read. `Ok((0, true))` may mean that only the layers had data.
    pub fn read(&mut self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
        let is_upgrading = |layer: &Self| {
            let websocket = layer.websocket.as_ref();
            websocket.is_some_and(|websocket| websocket.awaited.is_some())
        };
        let mut is_drained = false;
        // The rest was decoded already.
        if self.input.is_empty() || is_upgrading(self) {
            is_drained = self.fill(stream)?;
            if let Some(websocket) = &mut self.websocket {
                websocket.decode(&mut self.input, &mut self.output)?;
            }
            self.flush(stream)?;
            if is_upgrading(self) {
                return Ok((0, is_drained));
            }
        }
        let count = self.input.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.input[..count]);
        self.input.drain(..count);
        Ok((count, is_drained && self.input.is_empty()))
    }

    /// Reads available bytes through TLS; returns whether the socket has no more.
    fn fill(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            let kept = self.input.len();
            self.input.resize(kept + READ_BYTES, 0);
            let result = stream.read(&mut self.input[kept..]);
            self.input.truncate(kept + *result.as_ref().unwrap_or(&0));
            return match result {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => Ok(count < READ_BYTES),
                Err(error) => nothing_now(error).map(|()| true),
            };
        };
        let is_drained = match tls.read_tls(stream) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            // A full record fills the buffer: there may be more.
            Ok(_) => false,
            Err(error) => nothing_now(error).map(|()| true)?,
        };
        tls.process_new_packets().map_err(io::Error::other)?;
        match tls.reader().read_to_end(&mut self.input) {
            Ok(_) => Ok(is_drained),
            Err(error) => nothing_now(error).map(|()| is_drained),
        }
    }
}

/// Bytes of one read from the socket without TLS.
const READ_BYTES: usize = 64 * 1024;

impl WebSocket {
    fn encode(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        if self.awaited.is_some() {
            self.waiting.extend_from_slice(bytes);
            return;
        }
        let mask = (self.random.bits() as u32).to_le_bytes();
        frame_header(Opcode::Binary, bytes.len(), Some(mask), output);
        let start = output.len();
        output.extend_from_slice(bytes);
        apply_mask(&mut output[start..], mask, 0);
    }

    /// Leaves only payloads in `input`; answers pings.
    fn decode(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>) -> io::Result<()> {
        if let Some(key) = &self.awaited {
            let Some(len) = decode_response(input, key).map_err(io::Error::other)? else {
                return Ok(());
            };
            input.drain(..len);
            self.awaited = None;
            let waiting = std::mem::take(&mut self.waiting);
            if !waiting.is_empty() {
                self.encode(&waiting, output);
            }
        }
        let mask = (self.random.bits() as u32).to_le_bytes();
        let mut is_closed = false;
        let decoded = self.decoder.decode(input, |control| match control {
            Control::Ping(payload) => pong_frame(payload, Some(mask), output),
            Control::Close(_) => is_closed = true,
            Control::Pong => {}
        });
        let count = decoded.map_err(io::Error::other)?;
        input.truncate(count);
        if is_closed && input.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

fn nothing_now(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
