//! The first bytes of a client, and the answer.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thicket_mqtt::{ProtocolVersion, ReasonCode};
use thicket_placement::State;
use thicket_transport::tls::rustls::ServerConnection;

use crate::board::{Entry, count};
use crate::connection::{Greeting, Stage, leave};
use crate::hello::{Hello, examine, refusal};
use crate::options::Tls;
use crate::rounds::Rounds;
use crate::tls;

/// Longest wait for a client to read why it is refused and close.
const LEAVING: Duration = Duration::from_secs(2);

/// Where a client is sent.
enum Way {
    Redirect(Arc<Entry>, String),
    Relay(Arc<Entry>),
    Nowhere,
}

impl Rounds {
    /// Reads the first bytes of a client.
    pub(crate) fn greet(&mut self, index: usize, mut greeting: Greeting) -> Stage {
        let client = &mut self.connections[index].client;
        let ended = match greeting.read(client, self.tools.buffer()) {
            Ok(ended) => ended,
            Err(_) => {
                count(&self.board.counts.failed);
                return Stage::Over;
            }
        };
        let hello = match self.listeners[greeting.listener].listener.tls {
            Tls::PassedThrough if greeting.bytes.is_empty() => Hello::Unfinished,
            // A ClientHello; the client inside cannot be seen.
            Tls::PassedThrough if greeting.bytes[0] == 0x16 => Hello::Relay,
            Tls::PassedThrough => Hello::Strange,
            Tls::Off | Tls::Ended(_) => examine(&greeting.bytes),
        };
        match hello {
            Hello::Unfinished if ended => {
                count(&self.board.counts.failed);
                Stage::Over
            }
            Hello::Unfinished => Stage::Greeting(greeting),
            Hello::Strange => {
                count(&self.board.counts.failed);
                Stage::Over
            }
            Hello::Malformed(code) => {
                count(&self.board.counts.failed);
                self.refuse(
                    index,
                    greeting.tls,
                    &refusal(ProtocolVersion::V5, code, None),
                )
            }
            Hello::Relay => match self.choose(&[]) {
                Some(entry) => self.dial(index, greeting, entry, Vec::new()),
                None => self.without_broker(index, greeting),
            },
            Hello::V5 { client_id } => match self.way_of_v5(&greeting, &client_id) {
                Way::Redirect(entry, server) => {
                    count(&entry.counts.redirected);
                    let now = Instant::now();
                    self.recent
                        .redirected(now, greeting.peer, &client_id, entry.key);
                    let code = ReasonCode::UseAnotherServer;
                    let bytes = refusal(ProtocolVersion::V5, code, Some(&server));
                    self.refuse(index, greeting.tls, &bytes)
                }
                Way::Relay(entry) => self.dial(index, greeting, entry, Vec::new()),
                Way::Nowhere => self.without_broker(index, greeting),
            },
        }
    }

    /// A client that came back instead of following is relayed to where it was redirected, as long as that broker serves.
    fn way_of_v5(&mut self, greeting: &Greeting, client_id: &str) -> Way {
        let lately = self
            .recent
            .broker_of(Instant::now(), greeting.peer, client_id);
        let entries = self.board.entries();
        let back = entries
            .into_iter()
            .find(|entry| Some(entry.key) == lately && entry.state() == State::Serving);
        if let Some(entry) = back {
            count(&self.board.counts.unfollowed);
            return Way::Relay(entry);
        }
        let Some(entry) = self.choose(&[]) else {
            return Way::Nowhere;
        };
        let server = match greeting.tls {
            None => Some(entry.broker.advertised.clone()),
            // A broker without an address of its own for TLS has TLS here.
            Some(_) => entry.broker.tls.clone(),
        };
        match server {
            Some(server) => Way::Redirect(entry, server),
            None => Way::Relay(entry),
        }
    }

    /// Chooses a broker other than `tried`.
    pub(crate) fn choose(&mut self, tried: &[u64]) -> Option<Arc<Entry>> {
        let entries = self.board.entries();
        let candidates = entries
            .iter()
            .filter(|entry| !tried.contains(&entry.key))
            .map(|entry| entry.candidate())
            .collect();
        let now_ms = self.start.elapsed().as_millis() as u64;
        self.balancer.update(now_ms, candidates);
        let key = self.balancer.choose(now_ms)?;
        entries.into_iter().find(|entry| entry.key == key)
    }

    /// Writes the last packet, and waits until the client closes: closing first could destroy the packet.
    fn refuse(&mut self, index: usize, tls: Option<Box<ServerConnection>>, bytes: &[u8]) -> Stage {
        let client = &mut self.connections[index].client;
        let written = match tls {
            // So few bytes always fit into the socket of a new connection.
            None => client.write_all(bytes),
            Some(mut tls) => tls.writer().write_all(bytes).and_then(|()| {
                tls.send_close_notify();
                tls::flush(&mut tls, client).map(drop)
            }),
        };
        if written.is_err() || client.shutdown(std::net::Shutdown::Write).is_err() {
            return Stage::Over;
        }
        let until = Instant::now() + LEAVING;
        leave(client, self.tools.buffer(), until)
    }

    pub(crate) fn without_broker(&mut self, index: usize, greeting: Greeting) -> Stage {
        count(&self.board.counts.without_broker);
        if matches!(
            self.listeners[greeting.listener].listener.tls,
            Tls::PassedThrough
        ) {
            return Stage::Over;
        }
        // The protocol level determines the form of the answer; 3.1 and 3.1.1 have the same.
        let version = match examine(&greeting.bytes) {
            Hello::V5 { .. } => ProtocolVersion::V5,
            _ => ProtocolVersion::V311,
        };
        let bytes = refusal(version, ReasonCode::ServerUnavailable, None);
        self.refuse(index, greeting.tls, &bytes)
    }
}
