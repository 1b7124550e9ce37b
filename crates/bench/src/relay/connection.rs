//! One client of the relay.

use std::io::{self, Read, Write};

use mio::net::TcpStream;

/// A connection and what waits on it.
#[derive(Debug)]
pub struct Connection {
    pub stream: TcpStream,
    /// The beginning of a packet whose end has not come yet.
    partial: Vec<u8>,
    pub output: Vec<u8>,
    written: usize,
    pub last_packet_id: u16,
    pub v5: bool,
    /// Has sent a PUBLISH: held back while a subscriber is congested.
    pub publishes: bool,
    pub readable: bool,
    pub dirty: bool,
    pub congested: bool,
}

/// Whether another read may bring more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The buffer was filled.
    More,
    /// The socket was emptied.
    Drained,
    /// The peer has gone.
    Closed,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            partial: Vec::new(),
            output: Vec::new(),
            written: 0,
            last_packet_id: 0,
            v5: false,
            publishes: false,
            readable: false,
            dirty: false,
            congested: false,
        }
    }

    /// Reads once behind what was left over; answers how much of `buffer` is filled.
    pub fn read(&mut self, buffer: &mut [u8]) -> (usize, ReadOutcome) {
        let kept = self.partial.len();
        // A packet larger than the buffer cannot be relayed.
        if kept >= buffer.len() {
            return (0, ReadOutcome::Closed);
        }
        buffer[..kept].copy_from_slice(&self.partial);
        self.partial.clear();
        match self.stream.read(&mut buffer[kept..]) {
            Ok(0) => (kept, ReadOutcome::Closed),
            Ok(len) if kept + len == buffer.len() => (kept + len, ReadOutcome::More),
            // A short read empties a stream socket (epoll(7)): no second read to learn that.
            Ok(len) => (kept + len, ReadOutcome::Drained),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (kept, ReadOutcome::Drained),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (kept, ReadOutcome::More),
            Err(_) => (kept, ReadOutcome::Closed),
        }
    }

    pub fn keep_rest(&mut self, rest: &[u8]) {
        self.partial.extend_from_slice(rest);
    }

    pub fn unsent(&self) -> usize {
        self.output.len() - self.written
    }

    /// Writes once.
    pub fn write(&mut self) -> io::Result<()> {
        if self.unsent() == 0 {
            return Ok(());
        }
        match self.stream.write(&self.output[self.written..]) {
            Ok(len) => self.written += len,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        } else if self.written > self.output.len() / 2 {
            self.output.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }
}
