//! The settings of a measurement.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use thicket_mqtt::{ProtocolVersion, Qos};

use crate::BenchError;
use crate::arrivals::Redirect;
use crate::layer::Layering;
use crate::stop::Stop;
use crate::workload::{Attachment, Workload};

/// A broker's address with the name the user gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// As given, for output.
    pub name: String,
    /// Where to connect.
    pub address: SocketAddr,
    /// The network namespace to connect from (`/run/netns/NAME`), if it differs from this thread's.
    pub namespace: Option<PathBuf>,
}

impl Node {
    /// Resolves HOST:PORT; without a port, 1883.
    pub fn resolve(text: &str) -> Result<Self, BenchError> {
        let with_port = if text
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        {
            text.to_owned()
        } else {
            format!("{text}:1883")
        };
        let fail = |reason: String| BenchError::Address {
            node: text.to_owned(),
            reason,
        };
        let mut addresses = with_port
            .to_socket_addrs()
            .map_err(|error| fail(error.to_string()))?;
        let address = addresses
            .next()
            .ok_or_else(|| fail("the name has no address".to_owned()))?;
        Ok(Self {
            name: with_port,
            address,
            namespace: None,
        })
    }
}

/// Clients, their traffic pattern and protocol. The load is given for each run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Brokers of one cluster, at least one.
    pub nodes: Vec<Node>,
    /// Traffic pattern.
    pub workload: Workload,
    /// Distribution of clients over nodes.
    pub attachment: Attachment,
    /// Protocol of all clients.
    pub version: ProtocolVersion,
    /// Quality of service of publications and subscriptions.
    pub qos: Qos,
    /// Payload of each message in bytes.
    pub payload_len: usize,
    /// First level of every topic, and prefix of every client identifier: must be distinct for simultaneous runs.
    pub prefix: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Wait between the last SUBACK and the first message, for clusters that propagate interests later.
    pub settle: Duration,
    /// Whether sessions of subscribers are persistent, with an expiry of a minute in 5.0.
    pub persistent: bool,
    /// User name and password.
    pub login: Option<(String, String)>,
    /// TLS and WebSocket.
    pub layering: Layering,
    /// How a Server Reference in a CONNACK is handled.
    pub redirect: Redirect,
    /// Whether clients that lose their connection in the middle of a run make another one. Otherwise it is an error.
    pub reconnect: bool,
    /// Ends connecting and running, with an error.
    pub stop: Stop,
}

impl Scenario {
    /// A scenario with 64 B payloads at QoS 0 over 3.1.1, clients in turn over `nodes`.
    #[must_use]
    pub fn new(nodes: Vec<Node>, workload: Workload) -> Self {
        Self {
            nodes,
            workload,
            attachment: Attachment::RoundRobin,
            version: ProtocolVersion::V311,
            qos: Qos::AtMostOnce,
            payload_len: 64,
            prefix: format!("b{}", std::process::id()),
            seed: 1,
            settle: Duration::ZERO,
            persistent: false,
            login: None,
            layering: Layering::default(),
            redirect: Redirect::Follow,
            reconnect: false,
            stop: Stop::default(),
        }
    }
}

/// How much is sent, and when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Load {
    /// Closed loop: at most `window` messages of a stream are under way, as fast as the broker accepts them.
    ///
    /// A message is under way until all its recipients have it and, above QoS 0, until it is acknowledged. At QoS 0 a stream without recipients
    /// cannot close its loop and stays silent.
    Closed {
        /// Messages under way, for each stream.
        window: u32,
    },
    /// Closed loop in step: every stream sends a whole window when all messages of all streams have arrived.
    ///
    /// Slower than a plain closed loop, but every run gives the broker the same batches: for counting instructions.
    Volleys {
        /// Messages of a volley, for each stream.
        window: u32,
    },
    /// Open loop: messages are due at times that do not depend on the broker.
    Open {
        /// Messages published in a second by all publishers together.
        rate_per_s: f64,
        /// Spacing of the messages.
        arrivals: Arrivals,
    },
}

/// Spacing of messages in an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "process")]
pub enum Arrivals {
    /// Regular, the publishers in turn.
    Constant,
    /// A Poisson process at each publisher.
    Poisson,
    /// Log-normal gaps at each publisher.
    LogNormal {
        /// Standard deviation of the gaps over their mean.
        coefficient_of_variation: f64,
    },
}

/// How long to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Load before the measured interval.
    pub warm_up: Duration,
    /// The end of sending.
    pub until: Until,
    /// Longest wait for messages under way when no more arrive.
    pub drain: Duration,
}

/// When sending ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Until {
    /// After a measured interval of this length.
    Elapsed(Duration),
    /// After this many messages were published, including warm-up; the interval ends with the last arrival.
    Published(u64),
}

impl Span {
    /// A measured interval of `seconds` after one second of warm-up.
    #[must_use]
    pub fn seconds(seconds: f64) -> Self {
        Self {
            warm_up: Duration::from_secs(1),
            until: Until::Elapsed(Duration::from_secs_f64(seconds)),
            drain: Duration::from_secs(2),
        }
    }

    /// `count` messages, all of them measured.
    #[must_use]
    pub fn messages(count: u64) -> Self {
        Self {
            warm_up: Duration::ZERO,
            until: Until::Published(count),
            drain: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_resolved_with_or_without_a_port() {
        for (text, expected) in [
            ("127.0.0.1:1884", "127.0.0.1:1884"),
            ("127.0.0.1", "127.0.0.1:1883"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(
                Node::resolve(text).unwrap().address.to_string(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused_with_its_text() {
        let error = Node::resolve("::::").unwrap_err().to_string();
        assert!(
            error.starts_with(":::: is no address of a broker"),
            "{error}"
        );
    }
}
