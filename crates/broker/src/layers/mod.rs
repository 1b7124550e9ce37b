//! The layers between a socket and MQTT: a PROXY header at its start, TLS, WebSocket, in this order from the socket.
//!
//! Nothing here blocks. A read passes everything the kernel has through all layers at once; a write encodes everything it is given and passes it to
//! the kernel in as few calls as possible. What the layers themselves must send to the peer (a handshake, a pong, an alert) waits here until the next
//! flush.

mod failure;
mod tls;
mod websocket;

use std::io::{self, IoSlice, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use thicket_transport::proxy_header::{self, Proxied};

use crate::gate::{Gate, Seat};
use crate::links::{Links, Proof, Trust};
use crate::stream::{Stream, Taken, again_if_interrupted};
pub(crate) use failure::Failure;
use failure::invalid;
pub(crate) use tls::Tls;
pub(crate) use websocket::WebSocket;

/// Reads in one turn that yield data only for the layers and none for MQTT; more must wait for the next round.
const IDLE_READS: usize = 8;
/// Longest PROXY header, and a little of what follows.
const PREFACE_READ: usize = 4 * 1024 + 256;

/// A socket with layers.
#[derive(Debug)]
pub(crate) struct Layered {
    stream: Stream,
    /// The address of the client, for the log: the socket no longer has it when the client is gone. `None`: that of the socket.
    peer: Option<SocketAddr>,
    seat: Option<Seat>,
    /// Bytes read together with the PROXY header, or a part of it.
    early: Vec<u8>,
    tls: Option<Tls>,
    websocket: Option<WebSocket>,
    /// The peer has ended its direction.
    is_over: bool,
    /// Set for links between nodes.
    link: Option<LinkLayer>,
}

/// The keys in use when a link began.
#[derive(Debug)]
struct LinkLayer {
    links: Arc<Links>,
    trust: Arc<Trust>,
    /// Its proof was returned.
    is_told: bool,
}

/// The result of reading a PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preface {
    /// It is incomplete.
    Waiting,
    /// It is complete; the address of the client, if it names one.
    Client(Option<SocketAddr>),
}

impl Layered {
    pub(crate) const fn new(
        stream: Stream,
        seat: Option<Seat>,
        tls: Option<Tls>,
        websocket: Option<WebSocket>,
    ) -> Self {
        Self {
            stream,
            peer: None,
            seat,
            early: Vec::new(),
            tls,
            websocket,
            is_over: false,
            link: None,
        }
    }

    /// A link to another node.
    pub(crate) fn link(
        stream: Stream,
        seat: Option<Seat>,
        tls: Tls,
        (links, trust): (Arc<Links>, Arc<Trust>),
    ) -> Self {
        let link = LinkLayer {
            links,
            trust,
            is_told: false,
        };
        Self {
            link: Some(link),
            ..Self::new(stream, seat, Some(tls), None)
        }
    }

    /// Notes the address that the connection was accepted from; a Unix socket has none.
    pub(crate) fn come_from(&mut self, peer: SocketAddr) {
        self.peer = (!peer.ip().is_unspecified()).then_some(peer);
    }

    fn peer(&self) -> String {
        self.peer
            .map_or_else(|| self.stream.peer(), |peer| peer.to_string())
    }

    /// Bytes that were read from the socket before this was created.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.early.extend_from_slice(bytes);
    }

    /// The keys by which both ends of a link have authenticated; returned once, when that is done.
    pub(crate) fn take_proof(&mut self) -> Option<Proof> {
        let link = self.link.as_mut().filter(|link| !link.is_told)?;
        let tls = self.tls.as_ref().filter(|tls| !tls.is_handshaking())?;
        link.is_told = true;
        link.trust.proof(tls.shown())
    }

    /// The keys by which they have authenticated.
    pub(crate) fn proof(&self) -> Option<Proof> {
        let tls = self.tls.as_ref().filter(|tls| !tls.is_handshaking())?;
        self.link.as_ref()?.trust.proof(tls.shown())
    }

    /// Logs that a link, or a client's handshake, has failed. `error`: why it ends; `None`: the peer closed it.
    pub(crate) fn note_end(&self, error: Option<&io::Error>) -> Option<Failure> {
        if self.link.is_some() {
            self.note_end_of_link(error);
            return None;
        }
        let failure = match (&self.tls, &self.websocket) {
            (Some(tls), _) if tls.is_handshaking() => Failure::of_tls(error, tls.first_byte()),
            (_, Some(websocket)) if websocket.is_handshaking() => Failure::of_websocket(error),
            _ => None,
        }?;
        failure.log(&self.peer(), error);
        Some(failure)
    }

    fn note_end_of_link(&self, error: Option<&io::Error>) {
        let (Some(link), Some(tls)) = (&self.link, &self.tls) else {
            return;
        };
        let question = link.links.question();
        let message = match error {
            Some(error) if error.kind() == io::ErrorKind::InvalidData => {
                if tls::is_refusal(error) {
                    format!("link refused by the other node: {question}")
                } else if tls.is_handshaking() {
                    format!(
                        "link refused: the other end did not prove that it belongs to this cluster: {question}"
                    )
                } else {
                    "link closed: data was altered in transit".to_owned()
                }
            }
            // This node has accepted it.
            None if tls.is_handshaking() && self.seat.is_some() => format!(
                "link ended while TLS began: {question} Or a client speaks TLS, and this listener does not: use a tls:// listener"
            ),
            None if tls.is_handshaking() => {
                "link ended while TLS began: the other node wants another secret or certificate, or no TLS".to_owned()
            }
            Some(_) | None => return,
        };
        link.links.complain(&self.peer(), error, &message);
    }

    pub(crate) const fn stream_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// The name in a client's certificate; a node's certificate names no user.
    pub(crate) fn certificate_name(&self) -> Option<String> {
        if self.link.is_some() {
            return None;
        }
        self.tls.as_ref().and_then(Tls::certificate_name)
    }

    /// When a client's certificate expires, in seconds since 1970.
    pub(crate) fn certificate_expires_at_s(&self) -> Option<u64> {
        let tls = self.tls.as_ref().filter(|_| self.link.is_none());
        tls.and_then(Tls::certificate_expires_at_s)
    }

    /// Continues to read the PROXY header. Call it before any other method, until the header is complete.
    pub(crate) fn try_read_preface(&mut self, buffer: &mut [u8]) -> io::Result<Preface> {
        loop {
            let room = buffer.len().min(PREFACE_READ);
            match self.stream.try_read(&mut buffer[..room]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.early.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Preface::Waiting);
                }
                Err(error) => return Err(error),
            }
            if let Some((proxied, len)) = proxy_header::decode(&self.early).map_err(invalid)? {
                self.early.drain(..len);
                let client = match proxied {
                    Proxied::Client(address) => Some(address),
                    Proxied::Unknown => None,
                };
                self.peer = client.or(self.peer);
                return Ok(Preface::Client(client));
            }
        }
    }

    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<Taken> {
        for _ in 0..IDLE_READS {
            if self.is_over {
                // The answer to a close frame; the peer need not read it.
                let _ = self.try_flush();
                return Ok(Taken::End);
            }
            let (count, drained) = match self.read_once(buffer) {
                Ok(Some(read)) => read,
                Ok(None) => return Ok(Taken::End),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Taken::Nothing { drained: true });
                }
                Err(error) => {
                    // An alert or a close frame may name the reason; the peer need not read it.
                    let _ = self.try_flush();
                    return Err(error);
                }
            };
            if count > 0 {
                let drained = drained && !self.is_over;
                return Ok(Taken::Bytes { count, drained });
            }
        }
        Ok(Taken::Nothing { drained: false })
    }

    /// One read of the socket through all layers: number of bytes for MQTT, and whether the kernel has no more. `None`: the end.
    fn read_once(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, bool)>> {
        let Some(tls) = &mut self.tls else {
            let Some((count, drained)) = read_raw(&mut self.stream, &mut self.early, buffer)?
            else {
                return Ok(None);
            };
            return Ok(Some((self.unframe(&mut buffer[..count])?, drained)));
        };
        let (plain, sealed) = Tls::split(buffer);
        let Some((count, drained)) = read_raw(&mut self.stream, &mut self.early, sealed)? else {
            return Ok(None);
        };
        let opened = tls.open(&sealed[..count], plain)?;
        self.is_over |= tls.is_over();
        Ok(Some((self.unframe(&mut plain[..opened])?, drained)))
    }

    fn unframe(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(websocket) = &mut self.websocket else {
            return Ok(bytes.len());
        };
        let count = websocket.unframe(bytes)?;
        self.is_over |= websocket.is_over();
        Ok(count)
    }

    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush_sealed()?;
        let Some(websocket) = &mut self.websocket else {
            return self.write_under(&[], bytes).map(|(_, count)| count);
        };
        if websocket.has_ended() {
            self.try_flush()?;
            return Ok(bytes.len());
        }
        let payload = websocket.begin_frame(bytes.len());
        let head = std::mem::take(&mut websocket.unsent);
        let result = self.write_under(&head, &bytes[..payload]);
        let Some(websocket) = &mut self.websocket else {
            return Ok(0);
        };
        websocket.unsent = head;
        let (of_head, of_payload) = result?;
        websocket.consume(of_head, of_payload);
        Ok(of_payload)
    }

    /// Writes to the layer under WebSocket: how many bytes of head and payload were accepted.
    fn write_under(&mut self, head: &[u8], payload: &[u8]) -> io::Result<(usize, usize)> {
        let slices = [IoSlice::new(head), IoSlice::new(payload)];
        let count = match &mut self.tls {
            None => again_if_interrupted(|| self.stream.write_vectored(&slices))?,
            Some(tls) => {
                let count = tls.seal(&slices)?;
                match tls.write_sealed(&mut self.stream) {
                    // Encrypted bytes count as sent; the flush that follows notices that the peer is slow.
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    Ok(()) | Err(_) => count,
                }
            }
        };
        let of_head = count.min(head.len());
        Ok((of_head, count - of_head))
    }

    /// Writes encrypted records.
    fn flush_sealed(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.write_sealed(&mut self.stream),
            None => Ok(()),
        }
    }

    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        self.flush_sealed()?;
        while let Some(websocket) = &mut self.websocket {
            websocket.queue_owed();
            if websocket.unsent.is_empty() {
                break;
            }
            let head = std::mem::take(&mut websocket.unsent);
            let result = self.write_under(&head, &[]);
            if let Some(websocket) = &mut self.websocket {
                websocket.unsent = head;
                websocket.consume(result?.0, 0);
            }
            self.flush_sealed()?;
        }
        Ok(())
    }

    pub(crate) fn has_unsent(&self) -> bool {
        let sealed = self.tls.as_ref().is_some_and(Tls::has_sealed);
        sealed || self.websocket.as_ref().is_some_and(WebSocket::has_unsent)
    }

    pub(crate) fn gate(&self) -> Option<&Gate> {
        self.seat.as_ref().map(Seat::gate)
    }

    pub(crate) fn leave_seat(&mut self) {
        self.seat = None;
    }

    /// Closes every layer, as far as the socket accepts the bytes at once.
    pub(crate) fn finish(&mut self) {
        if let Some(websocket) = &mut self.websocket {
            websocket.close();
        }
        let _ = self.try_flush();
        if let Some(tls) = &mut self.tls {
            tls.close();
        }
        let _ = self.flush_sealed();
        self.stream.finish();
    }
}

/// Returns bytes that were read early first. `None`: the end.
fn read_raw(
    stream: &mut Stream,
    early: &mut Vec<u8>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, bool)>> {
    if !early.is_empty() {
        let count = early.len().min(buffer.len());
        buffer[..count].copy_from_slice(&early[..count]);
        early.drain(..count);
        if early.is_empty() {
            *early = Vec::new();
        }
        return Ok(Some((count, false)));
    }
    let count = stream.try_read(buffer)?;
    Ok((count > 0).then_some((count, count < buffer.len())))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_address_of_a_client_that_has_reset_its_connection_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let (stream, peer) = listener.accept().expect("connected");
        stream.set_nonblocking(true).expect("a socket");
        let stream = Stream::Tcp(mio::net::TcpStream::from_std(stream));
        let mut layered = Layered::new(stream, None, None, None);
        layered.come_from(peer);
        let linger = Some(Duration::ZERO);
        socket2::SockRef::from(&client)
            .set_linger(linger)
            .expect("a socket");
        drop(client);
        while layered.stream.peer() == peer.to_string() {
            std::thread::yield_now();
        }
        assert_eq!(layered.peer(), peer.to_string());
    }
}
