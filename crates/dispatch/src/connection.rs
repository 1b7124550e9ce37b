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

/// A connection of a client and how far it has come.
#[derive(Debug)]
pub(crate) struct Connection {
    pub client: TcpStream,
    pub stage: Stage,
}

/// How far a connection has come.
///
/// | stage | ends with |
/// | --- | --- |
/// | `Greeting` | a CONNECT: the client is told another server (`Leaving`) or relayed (`Dialling`) |
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

/// A client that has not said everything yet.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub tls: Option<Box<ServerConnection>>,
    /// What it said, deciphered; at most [`LONGEST_CONNECT`] and one read.
    pub bytes: Vec<u8>,
    pub listener: usize,
    pub peer: IpAddr,
    pub until: Instant,
}

/// A client whose broker is being connected.
#[derive(Debug)]
pub(crate) struct Dialling {
    pub greeting: Greeting,
    pub socket: TcpStream,
    pub entry: Arc<Entry>,
    /// Brokers that could not be connected.
    pub tried: Vec<u64>,
    pub until: Instant,
}

/// A client that is relayed.
#[derive(Debug)]
pub(crate) struct Relaying {
    pub broker: TcpStream,
    pub flows: Flows,
    pub entry: Arc<Entry>,
}

/// The two directions of a relayed connection.
#[derive(Debug)]
pub(crate) enum Flows {
    /// Bytes as they are.
    Plain { up: Flow, down: Flow },
    /// TLS on the client's side.
    Ended(Ended),
}

impl Connection {
    /// When it must have come further.
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
    /// Reads what there is; `true`: nothing follows.
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
                    // An alert says why it failed.
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
    /// Moves what there is; `None`: the connection is over. `from_client` says on which side something happened.
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
        // What can be read on one side flows to the other; a side that can be written again lets the other flow on.
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
