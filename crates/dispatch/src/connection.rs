//! A client's connection, from its first byte to its end.

use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use mio::net::TcpStream;
use thicket_transport::tls::rustls::ServerConnection;

use crate::board::Entry;
use crate::hello::LONGEST_CONNECT;
use crate::relay::{Flow, Tools, Turn};
use crate::tls::{self, Ended};

/// A client's connection and its stage.
#[derive(Debug)]
pub(crate) struct Connection {
    pub client: TcpStream,
    pub stage: Stage,
}

/// The stage of a connection.
///
/// | stage | ends with |
/// | --- | --- |
/// | `Greeting` | a CONNECT: the client is redirected (`Leaving`) or relayed (`Dialling`) |
/// | `Dialling` | the broker's connection (`Relaying`), or its failure: the next broker, or none (`Leaving`) |
/// | `Relaying` | the end of both sides, or a failure of one |
/// | `Leaving` | the end of the client's side |
///
/// All but `Relaying` have a deadline.
#[derive(Debug)]
pub(crate) enum Stage {
    Greeting(Greeting),
    Dialling(Dialling),
    Relaying(Box<Relaying>),
    Leaving { until: Instant },
    Over,
}

/// A client whose CONNECT is incomplete.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub tls: Option<Box<ServerConnection>>,
    /// The received bytes, decrypted; at most [`LONGEST_CONNECT`] and one read.
    pub bytes: Vec<u8>,
    pub listener: usize,
    pub peer: IpAddr,
    pub until: Instant,
}

/// A client whose broker is being connected to.
#[derive(Debug)]
pub(crate) struct Dialling {
    pub greeting: Greeting,
    pub socket: TcpStream,
    pub entry: Arc<Entry>,
    /// Brokers to which the connection failed.
    pub tried: Vec<u64>,
    pub until: Instant,
}

/// A relayed client.
#[derive(Debug)]
pub(crate) struct Relaying {
    pub broker: TcpStream,
    pub flows: Flows,
    pub entry: Arc<Entry>,
}

/// The two directions of a relayed connection.
#[derive(Debug)]
pub(crate) enum Flows {
    /// Bytes are relayed unchanged.
    Plain { up: Flow, down: Flow },
    /// TLS ends here on the client's side.
    Ended(Ended),
}

impl Connection {
    /// The deadline for the next stage.
    pub fn until(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Greeting(greeting) => Some(greeting.until),
            Stage::Dialling(dialling) => Some(dialling.until),
            Stage::Leaving { until } => Some(*until),
            Stage::Relaying(_) | Stage::Over => None,
        }
    }
}

impl Greeting {
    /// Reads available bytes; `true`: nothing follows.
    pub fn read(&mut self, client: &mut TcpStream, buffer: &mut [u8]) -> io::Result<bool> {
        let mut ended = false;
        while !ended && self.bytes.len() < LONGEST_CONNECT {
            match &mut self.tls {
                None => match client.read(buffer) {
                    Ok(0) => ended = true,
                    Ok(len) => self.bytes.extend_from_slice(&buffer[..len]),
                    Err(error) if tls::is_later(&error) => break,
                    Err(error) => return Err(error),
                },
                Some(tls) => {
                    let came = tls::read_in(tls, client, &mut ended);
                    // The alert tells the client why it failed.
                    tls::flush(tls, client)?;
                    if !came? {
                        break;
                    }
                    tls::take_plain(tls, buffer, &mut self.bytes)?;
                }
            }
        }
        Ok(ended)
    }
}

impl Relaying {
    /// Moves available bytes; `None`: the connection is closed. `from_client`: the side of the event.
    pub fn pump(
        &mut self,
        client: &mut TcpStream,
        from_client: Option<bool>,
        tools: &mut Tools,
    ) -> io::Result<Option<Turn>> {
        let (up, down) = match &mut self.flows {
            Flows::Ended(ended) => return ended.pump(client, &mut self.broker, tools),
            Flows::Plain { up, down } => (up, down),
        };
        // Readable bytes flow to the other side; a side that is writable again lets the other flow continue.
        let mut turn = Turn::Waits;
        if from_client != Some(false) || up.is_waiting() {
            turn = up.pump(client, &self.broker, tools)?;
        }
        if (from_client != Some(true) || down.is_waiting())
            && down.pump(&self.broker, client, tools)? == Turn::Again
        {
            turn = Turn::Again;
        }
        Ok((!(up.is_over && down.is_over)).then_some(turn))
    }
}

/// Reads and discards until the client has closed.
pub(crate) fn leave(client: &mut TcpStream, buffer: &mut [u8], until: Instant) -> Stage {
    // More than a client can have sent before it read the refusal.
    for _ in 0..LONGEST_CONNECT / buffer.len() + 1 {
        match client.read(buffer) {
            Ok(1..) => {}
            Err(error) if tls::is_later(&error) => return Stage::Leaving { until },
            Ok(0) | Err(_) => return Stage::Over,
        }
    }
    Stage::Over
}
