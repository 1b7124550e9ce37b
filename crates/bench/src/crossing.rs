//! Instructions of one message that goes alone to another node, or is copied to one: of both nodes
//! together, counted by Callgrind. A closed loop of batches on one node ([`crate::instructions`])
//! shows nothing of what a round costs.

use std::path::Path;
use std::time::Duration;

use thicket_mqtt::{
    Acknowledgement, Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, ReasonCode,
};

use crate::BenchError;
use crate::cluster::{addresses, wait_for_all};
use crate::dialog::Dialog;
use crate::instructions::{callgrind, instructions_of};
use crate::target::{Running, Target};

/// Messages of the short run, and of the long one.
const RUNS: [u64; 2] = [200, 1200];
const PATIENCE: Duration = Duration::from_secs(30);
const TOPIC: &str = "bench/crossing";

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    /// X0: to a subscriber at another node, QoS 0.
    AtMostOnce,
    /// X1: the same at QoS 1.
    AtLeastOnce,
    /// R1: to a persistent session at the publisher's node, QoS 1, with a backup at the other node.
    Replicated,
}

impl Crossing {
    /// By the name in tables.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "X0" => Some(Self::AtMostOnce),
            "X1" => Some(Self::AtLeastOnce),
            "R1" => Some(Self::Replicated),
            _ => None,
        }
    }

    const fn qos(self) -> Qos {
        match self {
            Self::AtMostOnce => Qos::AtMostOnce,
            Self::AtLeastOnce | Self::Replicated => Qos::AtLeastOnce,
        }
    }
}

/// Instructions of two nodes of `program` together for each message.
///
/// # Errors
/// The nodes do not start or do not serve, or Callgrind is missing.
pub fn measure(program: &Path, crossing: Crossing) -> Result<f64, BenchError> {
    let [short, long] = RUNS;
    let few = run(program, crossing, short)?;
    let many = run(program, crossing, long)?;
    Ok((many as f64 - few as f64) / (long - short) as f64)
}

fn run(program: &Path, crossing: Crossing, messages: u64) -> Result<u64, BenchError> {
    let mut nodes: Vec<Running> = Vec::new();
    let mut profiles = Vec::new();
    for index in 0..2 {
        let profile = std::env::temp_dir().join(format!(
            "thicket-callgrind-{}-{index}-{messages}",
            std::process::id()
        ));
        let mut target = Target::node("node", program.to_owned(), &["--workers", "1"]);
        let seeds = addresses(&nodes);
        target
            .arguments
            .extend(seeds.iter().map(|seed| format!("--seed={seed}")));
        target.wrapper = callgrind(&profile);
        profiles.push(profile);
        nodes.push(target.start()?);
    }
    wait_for_all(&nodes)?;
    let played = play(&nodes, crossing, messages);
    for node in nodes {
        node.stop()?;
    }
    played.map_err(BenchError::system("a client of two nodes"))?;
    let counted = profiles
        .iter()
        .map(|profile| instructions_of(profile, program));
    counted.sum()
}

/// One message at a time: the next one leaves when the subscriber has this one, and at QoS 1 when
/// it is acknowledged.
fn play(nodes: &[Running], crossing: Crossing, messages: u64) -> std::io::Result<()> {
    let (here, there) = (nodes[0].address, nodes[1].address);
    let (home, is_kept) = match crossing {
        Crossing::AtMostOnce | Crossing::AtLeastOnce => (there, false),
        Crossing::Replicated => (here, true),
    };
    let connect = Connect {
        clean_start: !is_kept,
        session_expiry_interval: is_kept.then_some(3600),
        ..Connect::new(ProtocolVersion::V5, "subscriber")
    };
    let (mut subscriber, _) = Dialog::connect(home, connect, PATIENCE)?;
    subscriber.subscribe(TOPIC, crossing.qos())?;
    let connect = Connect::new(ProtocolVersion::V5, "publisher");
    let (mut publisher, _) = Dialog::connect(here, connect, PATIENCE)?;
    // The session gets its backup, and nodes hear of the subscription.
    std::thread::sleep(Duration::from_secs(3));
    for number in 0..messages {
        let publish = Publish {
            qos: crossing.qos(),
            packet_id: PacketId::new(1 + (number % 60_000) as u16)
                .filter(|_| crossing.qos() > Qos::AtMostOnce),
            ..Publish::new(TOPIC, &[0; 64])
        };
        publisher.send(&Packet::Publish(publish))?;
        let packet_id = subscriber.expect(|packet| match packet {
            Packet::Publish(publish) => Some(Ok(publish.packet_id)),
            _ => None,
        })?;
        if let Some(packet_id) = packet_id {
            subscriber.send(&Packet::Puback(Acknowledgement::new(
                packet_id,
                ReasonCode::Success,
            )))?;
            publisher.expect(|packet| matches!(packet, Packet::Puback(_)).then_some(Ok(())))?;
        }
    }
    Ok(())
}
