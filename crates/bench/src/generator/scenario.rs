//! The settings of a measurement.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thicket_mqtt::{ProtocolVersion, Qos};

use crate::BenchError;
use crate::arrivals::Redirect;
use crate::layer::Layering;
use crate::stop::Stop;
use crate::workload::{Attachment, Plan, PlanError, TopicTemplate, Workload};

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
    /// Quality of service of publications, and of subscriptions unless those have their own.
    pub qos: Qos,
    /// Quality of service of subscriptions, if it is another one.
    pub subscriber_qos: Option<Qos>,
    /// Payload of each message in bytes; of the longest if they differ.
    pub payload_len: usize,
    /// Payloads in bytes in the order of sending, from the first again after the last; each stream
    /// begins elsewhere. None is above `payload_len`.
    pub payload_sizes: Option<Arc<[u32]>>,
    /// Whether publications have the RETAIN flag.
    pub retain: bool,
    /// Names of topics; `None`: the usual ones, which start with `prefix`.
    pub topic: Option<TopicTemplate>,
    /// First level of the usual topics, and prefix of every client identifier: must be distinct for
    /// simultaneous runs.
    pub prefix: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Wait between the last SUBACK and the first message, for clusters that propagate interests later.
    pub settle: Duration,
    /// Whether sessions of subscribers are persistent, with an expiry of a minute in 5.0.
    pub persistent: bool,
    /// The will of every client.
    pub will: Option<WillMessage>,
    /// Keep Alive in seconds, 0: off. A client sends a PINGREQ after three quarters of it, whatever
    /// else it sends.
    pub keep_alive_s: u16,
    /// Connections begun in a second at most, above 0; `None`: as fast as the brokers accept them.
    pub connects_per_s: Option<f64>,
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
            subscriber_qos: None,
            payload_len: 64,
            payload_sizes: None,
            retain: false,
            topic: None,
            prefix: format!("b{}", std::process::id()),
            seed: 1,
            settle: Duration::ZERO,
            persistent: false,
            will: None,
            keep_alive_s: 0,
            connects_per_s: None,
            login: None,
            layering: Layering::default(),
            redirect: Redirect::Follow,
            reconnect: false,
            stop: Stop::default(),
        }
    }

    /// The plan of its workload, with its names of topics.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        (self.workload).plan_named(self.topic.as_ref(), &self.prefix, self.seed)
    }

    /// Quality of service of subscriptions.
    #[must_use]
    pub fn subscriptions_qos(&self) -> Qos {
        self.subscriber_qos.unwrap_or(self.qos)
    }

    /// The payload in bytes of a stream's message with this number.
    #[must_use]
    pub fn payload_of(&self, stream: u32, number: u32) -> usize {
        let sizes = self.payload_sizes.as_deref();
        sizes.map_or(self.payload_len, |sizes| size_of(sizes, stream, number))
    }
}

/// A will, the same for all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WillMessage {
    /// Its topic.
    pub topic: String,
    /// Its payload in bytes.
    pub payload_len: usize,
    /// Its quality of service.
    pub qos: Qos,
    /// Whether it is retained.
    pub retain: bool,
}

/// Where a stream begins in the sizes, so that two do not send the same ones at the same time.
const STRIDE: usize = 1_009;

/// The size of a stream's message with this number; 0 without sizes.
pub(super) fn size_of(sizes: &[u32], stream: u32, number: u32) -> usize {
    let at = (stream as usize)
        .wrapping_mul(STRIDE)
        .wrapping_add(number as usize);
    sizes
        .get(at % sizes.len().max(1))
        .map_or(0, |&size| size as usize)
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
