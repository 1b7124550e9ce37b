//! The load generator: many MQTT clients in one thread, against any broker.
//!
//! It must cost so little that the measurement shows the broker. So a round is one wake-up of epoll; each ready socket is read once; a message is
//! found, checked and answered in the read buffer, without a copy or an allocation; each stream's next messages are copied from a template and
//! written at once. The clock is read once for each socket.

mod audience;
mod client;
mod connect;
mod fleet;
mod receiving;
mod reconnect;
mod round;
mod run;
mod scenario;
mod schedule;
mod streams;

use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use rustix::fd::OwnedFd;

pub use audience::Counts;
pub use fleet::Fleet;
pub use receiving::{Acknowledged, Sample};
pub use run::{Progress, Watch};
pub use scenario::{Arrivals, Load, Node, Scenario, Span, Until, WillMessage};
pub use schedule::Schedule;

use crate::BenchError;
use crate::wire::Properties;
use crate::workload::Plan;
use client::Client;
use receiving::{Acknowledging, Receiving};
use streams::Stream;

/// Read buffer, shared by all clients.
const READ_BYTES: usize = 256 * 1024;
/// The timer of the open loop.
const TIMER: Token = Token(usize::MAX);

/// Connected clients, ready to run one load after the other.
#[derive(Debug)]
pub struct Generator {
    scenario: Scenario,
    poll: Poll,
    events: Events,
    buffer: Vec<u8>,
    /// Publishers first, in the order of their streams, then subscribers.
    clients: Vec<Client>,
    /// Clients that may have something to read.
    readable: Vec<u32>,
    /// Clients with bytes to write.
    dirty: Vec<u32>,
    streams: Vec<Stream>,
    /// Streams that may send.
    queued: Vec<u32>,
    receiving: Receiving,
    /// Acknowledgements to publishers.
    acknowledging: Acknowledging,
    /// Clients that lost their connection and are not ready again.
    away: Vec<u32>,
    /// Whether all clients were connected once.
    is_running: bool,
    /// What clients that connect again subscribe to.
    plan: Option<Plan>,
    properties: Properties,
    /// Acknowledgements to the client being read.
    answers: Vec<u8>,
    /// Messages of the stream being written.
    outgoing: Vec<u8>,
    /// Wakes the loop for the next message that is due; milliseconds would be too coarse.
    timer: OwnedFd,
    epoch: Instant,
    /// Clients that have completed CONNECT and SUBSCRIBE.
    ready: usize,
    /// When all clients sent a PINGREQ, on the run's clock.
    pinged_ns: u64,
    connecting: Duration,
}

impl Generator {
    /// Connects and subscribes all clients of `scenario`.
    ///
    /// Any refusal or broken connection results in an error with the client and the node.
    pub fn connect(scenario: Scenario) -> Result<Self, BenchError> {
        connect::connect(scenario)
    }

    /// The scenario that was connected.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// From the first connection attempt to the last answer, including SUBACKs.
    #[must_use]
    pub fn connecting(&self) -> Duration {
        self.connecting
    }

    /// Clients connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Streams without a matching subscription.
    #[must_use]
    pub fn streams_without_recipients(&self) -> usize {
        self.streams
            .iter()
            .filter(|stream| stream.recipients == 0)
            .count()
    }

    /// Keeps the measured arrivals of each run individually, at most `limit` of them. Payloads below 16 bytes give none.
    pub fn keep_samples(&mut self, limit: usize) {
        self.receiving.sample_limit = limit;
        self.acknowledging.sample_limit = limit;
    }

    /// Kept arrivals of the last run, in order.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.receiving.samples
    }

    /// Kept acknowledgements of the last run, in order.
    #[must_use]
    pub fn acknowledgements(&self) -> &[Acknowledged] {
        &self.acknowledging.samples
    }

    /// Latencies of the last run, in nanoseconds.
    pub(crate) fn latency(&self) -> &hdrhistogram::Histogram<u64> {
        &self.receiving.latency.histogram
    }

    /// Times until publishers had the last acknowledgement, likewise.
    pub(crate) fn acknowledgement(&self) -> &hdrhistogram::Histogram<u64> {
        &self.acknowledging.time.histogram
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn client_id(&self, index: usize) -> String {
        match index.checked_sub(self.streams.len()) {
            None => format!("{}-p{index}", self.scenario.prefix),
            Some(subscriber) => format!("{}-s{subscriber}", self.scenario.prefix),
        }
    }

    fn node_name(&self, index: usize) -> String {
        self.clients.get(index).map_or_else(String::new, |client| {
            self.scenario.nodes[client.node].name.clone()
        })
    }
}
