//! TLS that ends here: ciphertext on the client's side, plain bytes on the broker's.

use std::io::{self, Read, Write};

use mio::net::TcpStream;
use thicket_transport::tls::rustls::ServerConnection;

use crate::relay::{Tools, Turn};

/// Reads of each side in a round.
const TURNS: usize = 4;

/// A relayed connection whose client uses TLS.
#[derive(Debug)]
pub(crate) struct Ended {
    tls: Box<ServerConnection>,
    /// Plain bytes that the broker has not accepted yet; nothing more is read until it has.
    to_broker: Vec<u8>,
    client_ended: bool,
    broker_ended: bool,
}

impl Ended {
    /// `first`: plain bytes that were read already.
    pub fn new(tls: Box<ServerConnection>, first: Vec<u8>) -> Self {
        Self {
            tls,
            to_broker: first,
            client_ended: false,
            broker_ended: false,
        }
    }

    /// Moves available bytes, in both directions; `None`: the connection is closed.
    pub fn pump(
        &mut self,
        client: &mut TcpStream,
        broker: &mut TcpStream,
        tools: &mut Tools,
    ) -> io::Result<Option<Turn>> {
        for _ in 0..TURNS {
            let up = self.up(client, broker, tools)?;
            let down = self.down(client, broker, tools)?;
            if self.client_ended || (self.broker_ended && !self.tls.wants_write()) {
                return Ok(None);
            }
            if !up && !down {
                return Ok(Some(Turn::Waits));
            }
        }
        Ok(Some(Turn::Again))
    }

    fn up(
        &mut self,
        client: &mut TcpStream,
        broker: &mut TcpStream,
        tools: &mut Tools,
    ) -> io::Result<bool> {
        if !write_out(broker, &mut self.to_broker)? {
            return Ok(false);
        }
        if !read_in(&mut self.tls, client, &mut self.client_ended)? {
            return Ok(false);
        }
        take_plain(&mut self.tls, tools.buffer(), &mut self.to_broker)?;
        tools.moved += self.to_broker.len() as u64;
        write_out(broker, &mut self.to_broker)?;
        Ok(true)
    }

    fn down(
        &mut self,
        client: &mut TcpStream,
        broker: &mut TcpStream,
        tools: &mut Tools,
    ) -> io::Result<bool> {
        if !flush(&mut self.tls, client)? || self.broker_ended {
            return Ok(false);
        }
        match broker.read(tools.buffer()) {
            Ok(0) => {
                self.broker_ended = true;
                self.tls.send_close_notify();
            }
            Ok(len) => {
                tools.moved += len as u64;
                let (tls, bytes) = (&mut self.tls, &tools.buffer()[..len]);
                tls.writer().write_all(bytes)?;
            }
            Err(error) if is_later(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        flush(&mut self.tls, client)?;
        Ok(true)
    }
}

/// Reads ciphertext; `false`: none is available now.
pub(crate) fn read_in(
    tls: &mut ServerConnection,
    client: &mut TcpStream,
    ended: &mut bool,
) -> io::Result<bool> {
    match tls.read_tls(client) {
        Ok(0) => *ended = true,
        Ok(_) => {}
        Err(error) if is_later(&error) => return Ok(false),
        Err(error) => return Err(error),
    }
    let state = tls
        .process_new_packets()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    *ended |= state.peer_has_closed();
    Ok(true)
}

/// Appends decrypted bytes.
pub(crate) fn take_plain(
    tls: &mut ServerConnection,
    buffer: &mut [u8],
    into: &mut Vec<u8>,
) -> io::Result<()> {
    loop {
        match tls.reader().read(buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => into.extend_from_slice(&buffer[..len]),
            Err(error) if is_later(&error) => return Ok(()),
            // The end without a close_notify: it is treated as the end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Writes ciphertext; returns whether all of it was written.
pub(crate) fn flush(tls: &mut ServerConnection, client: &mut TcpStream) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(client) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if is_later(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Returns whether all bytes were written.
fn write_out(to: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(len) => drop(bytes.drain(..len)),
            Err(error) if is_later(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

pub(crate) fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
