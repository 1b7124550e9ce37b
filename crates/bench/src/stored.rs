//! The start of a node with a large data directory: filled over MQTT, killed, restarted.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use thicket_mqtt::{Connect, Disconnect, Packet, PacketId, ProtocolVersion, Qos, Subscribe};

use crate::BenchError;
use crate::dialog::{Dialog, encode};
use crate::random::Random;
use crate::target::{Readiness, Target};

const VERSION: ProtocolVersion = ProtocolVersion::V5;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Connections at a time while sessions are created.
const CONNECTIONS: usize = 100;
/// Most messages under way while they are published, below any known Receive Maximum.
const WINDOW: usize = 500;

/// The data of a node before it is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Sessions without a connection, each with one subscription of its own.
    pub sessions: usize,
    /// Messages at QoS 1 in their queues, distributed in turn.
    pub messages: usize,
    /// Bytes of a payload.
    pub payload_len: usize,
}

/// The starts of a node with stored data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stored {
    /// How long filling took, in seconds.
    pub filling_s: f64,
    /// Bytes of the data directory.
    pub disk_bytes: u64,
    /// Each start: until a connection was accepted, and until a random session had received its first message.
    pub starts: Vec<Readiness>,
    /// Resident memory of the process after the last start, in bytes.
    pub memory_bytes: u64,
}

/// Fills a node of the program `thicket` with data in `data`, then kills and starts it `starts` times.
///
/// # Errors
/// The node does not start, or refuses the data, or has lost a session or message.
pub fn measure(
    thicket: &Path,
    data: &Path,
    fill: Fill,
    starts: u32,
    extra: &[&str],
) -> Result<Stored, BenchError> {
    let data = data.display().to_string();
    let mut arguments = vec!["--data", data.as_str()];
    arguments.extend_from_slice(extra);
    let target = Target::node("node", thicket.to_owned(), &arguments);
    let mut running = target.start()?;
    let began = Instant::now();
    fill_node(running.address, fill).map_err(BenchError::system("cannot fill the node"))?;
    let mut stored = Stored {
        filling_s: began.elapsed().as_secs_f64(),
        disk_bytes: bytes_below(Path::new(&data)),
        starts: Vec::new(),
        memory_bytes: 0,
    };
    let mut random = Random::new(1);
    for _ in 0..starts {
        running.kill()?;
        let session = random.below(fill.sessions);
        running = target.start_until(|address| reconnect(address, session))?;
        stored.starts.push(running.readiness);
    }
    stored.memory_bytes =
        crate::process::memory(running.pid()).map_or(0, |memory| memory.rss_kib * 1024);
    running.stop()?;
    Ok(stored)
}

fn fill_node(address: SocketAddr, fill: Fill) -> io::Result<()> {
    for first in (0..fill.sessions).step_by(CONNECTIONS) {
        make_sessions(address, first..fill.sessions.min(first + CONNECTIONS))?;
    }
    let (mut publisher, _) = Dialog::connect(address, Connect::new(VERSION, "fill"), TIMEOUT)?;
    let payload = vec![b'x'; fill.payload_len];
    for first in (0..fill.messages).step_by(WINDOW) {
        let numbers = first..fill.messages.min(first + WINDOW);
        let topics: Vec<String> = numbers
            .map(|number| topic(number % fill.sessions))
            .collect();
        publisher.publish_all(
            topics
                .iter()
                .map(|topic| (topic.as_str(), payload.as_slice())),
        )?;
    }
    Ok(())
}

/// Connects, subscribes and disconnects, all sessions in parallel.
fn make_sessions(address: SocketAddr, sessions: std::ops::Range<usize>) -> io::Result<()> {
    let mut streams = Vec::new();
    for session in sessions {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let (name, filter) = (client_id(session), topic(session));
        let id = PacketId::new(1).expect("1 is not 0");
        let mut bytes = Vec::new();
        for packet in [
            Packet::Connect(Box::new(lasting(&name))),
            Packet::Subscribe(Subscribe::new(id, &filter, Qos::AtLeastOnce)),
            Packet::Disconnect(Disconnect::default()),
        ] {
            encode(&packet, VERSION, &mut bytes)?;
        }
        stream.write_all(&bytes)?;
        streams.push(stream);
    }
    // The node closes them when it has processed everything.
    for mut stream in streams {
        stream.read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

/// Reconnects a session and waits for its first message.
fn reconnect(address: SocketAddr, session: usize) -> io::Result<()> {
    let name = client_id(session);
    let (mut dialog, session_present) = Dialog::connect(address, lasting(&name), TIMEOUT)?;
    if !session_present {
        return Err(io::Error::other(format!("the session of {name} is lost")));
    }
    let topic = topic(session);
    dialog.expect(|packet| {
        matches!(packet, Packet::Publish(publish) if publish.topic == topic).then_some(Ok(()))
    })
}

fn lasting(client_id: &str) -> Connect<'_> {
    Connect {
        clean_start: false,
        session_expiry_interval: Some(u32::MAX),
        ..Connect::new(VERSION, client_id)
    }
}

fn client_id(session: usize) -> String {
    format!("stored-{session}")
}

fn topic(session: usize) -> String {
    format!("stored/{}/{}", session % 1000, session / 1000)
}

fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return std::fs::metadata(path).map_or(0, |facts| facts.len());
    };
    entries
        .flatten()
        .map(|entry| bytes_below(&entry.path()))
        .sum()
}
