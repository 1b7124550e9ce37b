//! A socket that is read once and written once in each round, for relay and generator.

use std::io::{self, Read, Write};

use mio::net::TcpStream;

use crate::layer::Layer;

/// A non-blocking stream with pending bytes in both directions.
#[derive(Debug)]
pub(crate) struct Socket {
    pub stream: TcpStream,
    /// The start of an incomplete packet.
    partial: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    layer: Option<Box<Layer>>,
    /// Why a layer failed.
    failure: Option<io::Error>,
}

/// Whether another read may bring more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// The buffer was filled.
    More,
    /// The socket was emptied.
    Drained,
    /// The peer has closed.
    Closed,
}

impl Socket {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            partial: Vec::new(),
            output: Vec::new(),
            written: 0,
            layer: None,
            failure: None,
        }
    }

    /// From now on bytes pass through `layer`.
    pub fn set_layer(&mut self, layer: Layer) {
        self.layer = Some(Box::new(layer));
    }

    /// Reads once, after the kept rest; returns how much of `buffer` is filled.
    pub fn read(&mut self, buffer: &mut [u8]) -> (usize, ReadOutcome) {
        let kept = self.partial.len();
        // A packet larger than the buffer cannot be handled.
        if kept >= buffer.len() {
            return (0, ReadOutcome::Closed);
        }
        buffer[..kept].copy_from_slice(&self.partial);
        self.partial.clear();
        if let Some(layer) = &mut self.layer {
            return match layer.read(&mut self.stream, &mut buffer[kept..]) {
                Ok((len, true)) => (kept + len, ReadOutcome::Drained),
                Ok((len, false)) => (kept + len, ReadOutcome::More),
                Err(error) => {
                    self.failure = Some(error);
                    (kept, ReadOutcome::Closed)
                }
            };
        }
        match self.stream.read(&mut buffer[kept..]) {
            Ok(0) => (kept, ReadOutcome::Closed),
            Ok(len) if kept + len == buffer.len() => (kept + len, ReadOutcome::More),
            // A short read empties a stream socket (epoll(7)): no second read is needed to find out.
            Ok(len) => (kept + len, ReadOutcome::Drained),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (kept, ReadOutcome::Drained),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (kept, ReadOutcome::More),
            Err(_) => (kept, ReadOutcome::Closed),
        }
    }

    /// Why the last read ended the connection, if known.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Keeps the bytes of an incomplete packet for the next read.
    pub fn keep_rest(&mut self, rest: &[u8]) {
        self.partial.extend_from_slice(rest);
    }

    /// Number of bytes that wait to be written.
    pub fn unsent(&self) -> usize {
        let in_layer = self.layer.as_ref().is_some_and(|layer| layer.has_unsent());
        self.output.len() - self.written + usize::from(in_layer)
    }

    /// The buffer for the next write.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Writes pending bytes, once.
    pub fn write(&mut self) -> io::Result<()> {
        if self.unsent() == 0 {
            return Ok(());
        }
        if let Some(layer) = &mut self.layer {
            let result = layer.send(&mut self.stream, &self.output);
            self.output.clear();
            return result;
        }
        self.written += write_some(&mut self.stream, &self.output[self.written..])?;
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        } else if self.written > self.output.len() / 2 {
            self.output.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }

    /// Writes `bytes` after pending ones, once; what is not written now waits.
    ///
    /// If nothing is pending, the bytes are not copied.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.unsent() > 0 || self.layer.is_some() {
            self.output.extend_from_slice(bytes);
            return self.write();
        }
        let len = write_some(&mut self.stream, bytes)?;
        self.output.extend_from_slice(&bytes[len..]);
        Ok(())
    }
}

fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(0)
        }
        other => other,
    }
}
