//! A soak test: clients that connect, use names of their own and never return, and what remains of them in the memory of nodes.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use thicket_mqtt::{Connect, Disconnect, Packet, PacketId, ProtocolVersion, Publish, Qos, Will};

use crate::BenchError;
use crate::cluster::start_nodes;
use crate::dialog::Dialog;
use crate::metrics::Metrics;
use crate::target::Running;

const VERSION: ProtocolVersion = ProtocolVersion::V5;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Expiry of sessions whose clients disconnect and never return, in seconds.
const EXPIRY_S: u32 = 1;
/// Longest wait until the nodes have no session, subscription or retained message of these clients.
const CALM_WITHIN: Duration = Duration::from_secs(60);
/// What must be gone before memory is read.
const LIVE: [&str; 3] = [
    "thicket_sessions",
    "thicket_session_backups",
    "thicket_retained_messages",
];

/// The size of a soak test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Nodes, of one worker each.
    pub nodes: usize,
    /// Clients in all.
    pub clients: u64,
    /// Clients at a time.
    pub at_a_time: usize,
    /// Clients after which memory is read.
    pub step: u64,
}

/// The state after a number of clients.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    /// Clients that have connected and disconnected.
    pub clients: u64,
    /// Seconds since the first.
    pub at_s: f64,
    /// Resident memory of each node, in bytes.
    pub resident_bytes: Vec<u64>,
}

/// A completed soak test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Soak {
    /// The first before any client.
    pub marks: Vec<Mark>,
    /// Growth of all nodes together in bytes for each client, in the second half.
    pub bytes_per_client: f64,
    /// Each node's report of its memory at the end (`GET /v1/memory`).
    pub ledgers: Vec<serde_json::Value>,
}

/// Starts nodes of the program `thicket`, sends them clients, and reads their memory; `tell` receives each mark.
///
/// # Errors
/// The nodes do not start, or a client is refused or not answered, or its data is not removed.
pub fn measure(
    thicket: &Path,
    extent: Extent,
    arguments: &[String],
    tell: &mut dyn FnMut(&Mark),
) -> Result<Soak, BenchError> {
    let nodes = start_nodes(thicket, extent.nodes, arguments, None)?;
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
    let began = Instant::now();
    let mut marks = Vec::new();
    let mut mark = |clients: u64| {
        let mark = Mark {
            clients,
            at_s: began.elapsed().as_secs_f64(),
            resident_bytes: nodes.iter().map(resident_bytes).collect(),
        };
        tell(&mark);
        marks.push(mark);
    };
    mark(0);
    let mut done = 0;
    while done < extent.clients {
        let until = extent.clients.min(done + extent.step);
        send_clients(&addresses, done..until, extent.at_a_time)
            .map_err(BenchError::system("a client"))?;
        wait_until_gone(&nodes)?;
        done = until;
        mark(done);
    }
    Ok(Soak {
        bytes_per_client: growth(&marks),
        marks,
        ledgers: nodes.iter().map(ledger).collect(),
    })
}

/// Sends clients by number, at most `at_a_time` at once.
fn send_clients(
    nodes: &[SocketAddr],
    numbers: std::ops::Range<u64>,
    at_a_time: usize,
) -> io::Result<()> {
    let next = AtomicU64::new(numbers.start);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_a_time)
            .map(|_| {
                scope.spawn(|| -> io::Result<()> {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= numbers.end {
                            return Ok(());
                        }
                        Visitor { number, nodes }.visit()?;
                    }
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a client's thread panicked")))
        })
    })
}

/// A client that connects once. Identifier, filters and topics are its own.
struct Visitor<'a> {
    number: u64,
    nodes: &'a [SocketAddr],
}

impl Visitor<'_> {
    /// The steps of all clients, and then one of four kinds.
    fn visit(&self) -> io::Result<()> {
        let (id, topic) = (self.client_id(), self.topic());
        let connect = Connect {
            session_expiry_interval: (self.kind() == Kind::Expires).then_some(EXPIRY_S),
            will: (self.kind() == Kind::Will).then(|| Will {
                qos: Qos::AtLeastOnce,
                ..Will::new(&topic, b"gone")
            }),
            ..Connect::new(VERSION, &id)
        };
        let mut dialog = self.connect(0, connect)?;
        for filter in [
            topic.clone(),
            format!("soak/+/{}/own", self.number),
            format!("soak/{}/{}/#", self.branch(), self.number),
        ] {
            dialog.subscribe(&filter, Qos::AtLeastOnce)?;
        }
        dialog.publish_all([(topic.as_str(), id.as_bytes())])?;
        match self.kind() {
            Kind::Plain => {}
            Kind::Retained => self.retain(&mut dialog)?,
            // Without a DISCONNECT the will is published.
            Kind::Will => return Ok(()),
            Kind::Expires => {
                dialog.send(&Packet::Disconnect(Disconnect::default()))?;
                return self.leave_a_message();
            }
        }
        dialog.send(&Packet::Disconnect(Disconnect::default()))
    }

    /// Sets and removes a retained message.
    fn retain(&self, dialog: &mut Dialog) -> io::Result<()> {
        let topic = format!("soak/retained/{}", self.number);
        for payload in [b"kept".as_slice(), b""] {
            dialog.publish(Publish {
                retain: true,
                qos: Qos::AtLeastOnce,
                packet_id: PacketId::new(1),
                ..Publish::new(&topic, payload)
            })?;
        }
        Ok(())
    }

    /// Publishes for the waiting session, from another node.
    fn leave_a_message(&self) -> io::Result<()> {
        let id = format!("{}-other", self.client_id());
        let mut other = self.connect(1, Connect::new(VERSION, &id))?;
        other.publish_all([(self.topic().as_str(), b"for later".as_slice())])?;
        other.send(&Packet::Disconnect(Disconnect::default()))
    }

    /// Connects to a node in turn.
    fn connect(&self, further: u64, connect: Connect<'_>) -> io::Result<Dialog> {
        let node = (self.number + further) % self.nodes.len() as u64;
        Dialog::connect(self.nodes[node as usize], connect, TIMEOUT).map(|(dialog, _)| dialog)
    }

    fn kind(&self) -> Kind {
        // Not the number itself, so that each kind connects to each node.
        match (self.number / self.nodes.len() as u64) % 4 {
            0 => Kind::Plain,
            1 => Kind::Retained,
            2 => Kind::Will,
            _ => Kind::Expires,
        }
    }

    fn branch(&self) -> u64 {
        self.number % 1000
    }

    fn client_id(&self) -> String {
        format!("soak-{}", self.number)
    }

    fn topic(&self) -> String {
        format!("soak/{}/{}/own", self.branch(), self.number)
    }
}

/// What a client does besides connecting, subscribing and publishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Retained,
    Will,
    Expires,
}

/// Waits until no node has data of these clients.
fn wait_until_gone(nodes: &[Running]) -> Result<(), BenchError> {
    let until = Instant::now() + CALM_WITHIN;
    loop {
        let left = nodes.iter().map(left_at).sum::<u64>();
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > until {
            let found = format!(
                "{left} sessions, backups and retained messages are left after {} s",
                CALM_WITHIN.as_secs()
            );
            return Err(BenchError::Setting(found));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn left_at(node: &Running) -> u64 {
    let Ok(metrics) = Metrics::fetch(node.other_address) else {
        return 1;
    };
    LIVE.iter().filter_map(|name| metrics.sum(name)).sum()
}

fn resident_bytes(node: &Running) -> u64 {
    crate::process::memory(node.pid()).map_or(0, |memory| memory.rss_kib * 1024)
}

fn ledger(node: &Running) -> serde_json::Value {
    let answer = crate::metrics::page(node.other_address, "/v1/memory").unwrap_or_default();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}

/// Growth in bytes for each client over all nodes, from the middle mark to the last.
fn growth(marks: &[Mark]) -> f64 {
    let (Some(from), Some(to)) = (marks.get(marks.len() / 2), marks.last()) else {
        return 0.0;
    };
    let bytes = |mark: &Mark| mark.resident_bytes.iter().sum::<u64>() as f64;
    let clients = to.clients - from.clients;
    if clients == 0 {
        0.0
    } else {
        (bytes(to) - bytes(from)) / clients as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_the_second_half_only() {
        let mark = |clients, bytes| Mark {
            clients,
            at_s: 0.0,
            resident_bytes: vec![bytes, bytes],
        };
        let marks = [
            mark(0, 0),
            mark(10, 1000),
            mark(20, 1100),
            mark(30, 1150),
            mark(40, 1200),
        ];
        assert_eq!(growth(&marks), 10.0);
        assert_eq!(growth(&marks[..1]), 0.0);
    }

    #[test]
    fn each_kind_of_visitor_comes_to_each_node() {
        let nodes =
            ["127.0.0.1:1", "127.0.0.1:2"].map(|address| address.parse().expect("an address"));
        let mut met: Vec<_> = (0..8)
            .map(|number| {
                (
                    number % 2,
                    Visitor {
                        number,
                        nodes: &nodes,
                    }
                    .kind() as u8,
                )
            })
            .collect();
        met.sort_unstable();
        met.dedup();
        assert_eq!(met.len(), 8);
    }
}
