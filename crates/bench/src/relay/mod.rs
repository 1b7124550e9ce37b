//! The relay: the baseline for brokers.
//!
//! One thread copies the bytes of PUBLISH packets from publishers' sockets to subscribers' sockets with the least work that is still MQTT on the
//! wire: one wake-up of epoll for each round, one read for each ready socket, one write for each dirty one, and one topic look-up for a run of
//! messages. It keeps no session, checks no rule, stores nothing and answers every request with success. The cost of a broker above it is the cost of
//! being a broker; its own cost is that of the kernel.
//!
//! All clients of one relay must use the same version and the same quality of service, since bytes are copied unchanged. Wildcards work (a topic's
//! subscribers are looked up once and cached); shared subscriptions are refused.

mod connection;
mod routes;

#[cfg(test)]
pub(crate) use routes::matches;

use std::io;
use std::net::SocketAddr;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::socket::ReadOutcome;
use crate::wire::{self, Malformed};
use connection::Connection;
use routes::{Route, Routes};

/// Read buffer, shared by all connections.
const READ_BYTES: usize = 256 * 1024;
/// Unsent bytes of a subscriber above which publishers are held back.
const CONGESTED_BYTES: usize = 1024 * 1024;
const LISTENER: Token = Token(usize::MAX);

/// A listening relay.
#[derive(Debug)]
pub struct Relay {
    poll: Poll,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    routes: Routes,
    /// Connections that may have something to read: epoll reports each only once.
    readable: Vec<usize>,
    /// Connections with bytes to write.
    dirty: Vec<usize>,
    /// Number of connections whose unsent bytes exceed the limit.
    congested: usize,
}

/// What a run of packets in one read means for the loop.
enum After {
    Keep,
    Close,
}

impl Relay {
    /// Binds to `address`; for port 0 a free port is used, which [`Relay::local_addr`] returns.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            routes: Routes::default(),
            readable: Vec::new(),
            dirty: Vec::new(),
            congested: 0,
        })
    }

    /// Its address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Copies until the process ends; returns only when epoll itself fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(4096);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            self.round(&mut events, &mut buffer)?;
        }
    }

    fn round(&mut self, events: &mut Events, buffer: &mut [u8]) -> io::Result<()> {
        // Held-back publishers wait until a subscriber drains, which epoll reports.
        let timeout =
            (!self.readable.is_empty() && self.congested == 0).then_some(std::time::Duration::ZERO);
        if let Err(error) = self.poll.poll(events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        for event in events.iter() {
            if event.token() == LISTENER {
                self.accept()?;
                continue;
            }
            let index = event.token().0;
            let Some(Some(connection)) = self.connections.get_mut(index) else {
                continue;
            };
            if event.is_readable() && !connection.readable {
                connection.readable = true;
                self.readable.push(index);
            }
            if event.is_writable() && connection.socket.unsent() > 0 && !connection.dirty {
                connection.dirty = true;
                self.dirty.push(index);
            }
        }
        self.read_all(buffer);
        self.write_all();
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // A client that disconnected before it was accepted, or no more descriptors: the others continue.
                Err(_) => return Ok(()),
            };
            let index = self.free.pop().unwrap_or(self.connections.len());
            let _ = stream.set_nodelay(true);
            self.poll.registry().register(
                &mut stream,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            if index == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[index] = Some(Connection::new(stream));
        }
    }

    fn read_all(&mut self, buffer: &mut [u8]) {
        let ready = std::mem::take(&mut self.readable);
        for index in ready {
            let Some(connection) = &mut self.connections[index] else {
                continue;
            };
            if connection.publishes && self.congested > 0 {
                self.readable.push(index);
                continue;
            }
            let (len, outcome) = connection.socket.read(buffer);
            let after = self
                .handle_bytes(index, &buffer[..len])
                .unwrap_or(After::Close);
            match (outcome, after) {
                (ReadOutcome::Closed, _) | (_, After::Close) => self.close(index),
                (ReadOutcome::More, After::Keep) => self.readable.push(index),
                (ReadOutcome::Drained, After::Keep) => {
                    if let Some(connection) = &mut self.connections[index] {
                        connection.readable = false;
                    }
                }
            }
        }
    }

    /// Handles the complete packets in `bytes` and keeps the rest for the next read.
    fn handle_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<After, Malformed> {
        let mut at = 0;
        // Adjacent messages at QoS 0 to one topic are copied together.
        let mut run: Option<Route> = None;
        let mut run_start = 0;
        while let Some(frame) = wire::frame(bytes, at)? {
            if frame.first_byte & 0xF0 == wire::PUBLISH {
                let parts = wire::publish_parts(bytes, frame)?;
                let topic = &bytes[parts.topic..parts.topic_end];
                if !run.is_some_and(|route| self.routes.is(route, topic)) {
                    self.copy_run(run, &bytes[run_start..at]);
                    run = Some(self.routes.route(topic));
                    run_start = at;
                }
                if parts.qos > 0 {
                    self.copy_acknowledged(
                        index,
                        run,
                        &bytes[at..frame.end],
                        parts.topic_end - at,
                        parts.qos,
                    );
                    run_start = frame.end;
                }
            } else {
                self.copy_run(run.take(), &bytes[run_start..at]);
                if let After::Close =
                    self.answer(index, frame.first_byte, &bytes[frame.body..frame.end])?
                {
                    return Ok(After::Close);
                }
            }
            at = frame.end;
        }
        self.copy_run(run, &bytes[run_start.min(at)..at]);
        if let Some(connection) = &mut self.connections[index] {
            connection.publishes |= run.is_some();
            connection.socket.keep_rest(&bytes[at..]);
        }
        Ok(After::Keep)
    }

    /// Appends QoS 0 messages of one topic to its subscribers.
    fn copy_run(&mut self, route: Option<Route>, messages: &[u8]) {
        let Some(route) = route else { return };
        if messages.is_empty() {
            return;
        }
        for &subscriber in self.routes.subscribers(route) {
            Self::append(
                &mut self.connections,
                &mut self.dirty,
                subscriber as usize,
                |out, _| out.extend_from_slice(messages),
            );
        }
    }

    /// Appends one message above QoS 0 to its subscribers, each with its own identifier, and acknowledges it.
    fn copy_acknowledged(
        &mut self,
        publisher: usize,
        route: Option<Route>,
        message: &[u8],
        id_at: usize,
        qos: u8,
    ) {
        let Some(route) = route else { return };
        for &subscriber in self.routes.subscribers(route) {
            Self::append(
                &mut self.connections,
                &mut self.dirty,
                subscriber as usize,
                |out, packet_id| {
                    let start = out.len();
                    out.extend_from_slice(message);
                    *packet_id = packet_id.checked_add(1).unwrap_or(1);
                    out[start + id_at..start + id_at + 2].copy_from_slice(&packet_id.to_be_bytes());
                },
            );
        }
        let id = u16::from_be_bytes([message[id_at], message[id_at + 1]]);
        let answer = if qos == 1 { wire::PUBACK } else { wire::PUBREC };
        self.send(publisher, |out| wire::push_acknowledgement(out, answer, id));
    }

    /// Answers a packet that is not a PUBLISH.
    fn answer(&mut self, index: usize, first_byte: u8, body: &[u8]) -> Result<After, Malformed> {
        match first_byte & 0xF0 {
            0x10 => {
                let v5 = body.get(6) == Some(&5);
                if let Some(connection) = &mut self.connections[index] {
                    connection.v5 = v5;
                }
                let connack: &[u8] = if v5 {
                    &[0x20, 3, 0, 0, 0]
                } else {
                    &[0x20, 2, 0, 0]
                };
                self.send(index, |out| out.extend_from_slice(connack));
            }
            0x50 => {
                let id = wire::number_u16(body, 0)?;
                self.send(index, |out| {
                    wire::push_acknowledgement(out, wire::PUBREL, id)
                });
            }
            0x60 => {
                let id = wire::number_u16(body, 0)?;
                self.send(index, |out| {
                    wire::push_acknowledgement(out, wire::PUBCOMP, id)
                });
            }
            0x80 => self.subscribe(index, body)?,
            0xC0 => self.send(index, |out| out.extend_from_slice(&wire::PINGRESP)),
            0xE0 => return Ok(After::Close),
            // PUBACK and PUBCOMP end an exchange that is not tracked.
            _ => {}
        }
        Ok(After::Keep)
    }

    fn subscribe(&mut self, index: usize, body: &[u8]) -> Result<(), Malformed> {
        let Some(connection) = &self.connections[index] else {
            return Ok(());
        };
        let v5 = connection.v5;
        let id = wire::number_u16(body, 0)?;
        let mut at = 2;
        if v5 {
            let (length, width) = wire::variable_byte_integer(&body[at..])?.ok_or(Malformed)?;
            at += length + width;
        }
        let mut codes = Vec::new();
        while at < body.len() {
            let len = usize::from(wire::number_u16(body, at)?);
            let filter = body.get(at + 2..at + 2 + len).ok_or(Malformed)?;
            let options = body.get(at + 2 + len).ok_or(Malformed)?;
            at += 3 + len;
            if filter.starts_with(b"$share/") {
                codes.push(0x80);
            } else {
                self.routes.subscribe(filter, index as u32);
                codes.push(options & 3);
            }
        }
        let [high, low] = id.to_be_bytes();
        let properties: &[u8] = if v5 { &[0] } else { &[] };
        self.send(index, |out| {
            push_header(out, 0x90, 2 + properties.len() + codes.len());
            out.extend_from_slice(&[high, low]);
            out.extend_from_slice(properties);
            out.extend_from_slice(&codes);
        });
        Ok(())
    }

    fn send(&mut self, index: usize, write: impl FnOnce(&mut Vec<u8>)) {
        Self::append(&mut self.connections, &mut self.dirty, index, |out, _| {
            write(out)
        });
    }

    fn append(
        connections: &mut [Option<Connection>],
        dirty: &mut Vec<usize>,
        index: usize,
        write: impl FnOnce(&mut Vec<u8>, &mut u16),
    ) {
        let Some(connection) = &mut connections[index] else {
            return;
        };
        write(connection.socket.output(), &mut connection.last_packet_id);
        if !connection.dirty {
            connection.dirty = true;
            dirty.push(index);
        }
    }

    fn write_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            let Some(connection) = &mut self.connections[index] else {
                continue;
            };
            connection.dirty = false;
            let written = connection.socket.write();
            let congested = connection.socket.unsent() > CONGESTED_BYTES;
            match (connection.congested, congested) {
                (false, true) => self.congested += 1,
                (true, false) => self.congested -= 1,
                (true, true) | (false, false) => {}
            }
            connection.congested = congested;
            if written.is_err() {
                self.close(index);
            }
        }
        // Closing marks no connection dirty, so the list is still empty: reuse its memory.
        self.dirty = dirty;
    }

    fn close(&mut self, index: usize) {
        let Some(mut connection) = self.connections[index].take() else {
            return;
        };
        let _ = self
            .poll
            .registry()
            .deregister(&mut connection.socket.stream);
        if connection.congested {
            self.congested -= 1;
        }
        self.routes.forget(index as u32);
        self.dirty.retain(|&other| other != index);
        self.readable.retain(|&other| other != index);
        self.free.push(index);
    }
}

/// Appends a fixed header.
fn push_header(out: &mut Vec<u8>, first_byte: u8, mut length: usize) {
    out.push(first_byte);
    loop {
        let byte = (length & 0x7F) as u8;
        length >>= 7;
        if length == 0 {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}
