//! Time of the client side per message, printed: `cargo bench -p thicket-session --bench client [-- ROUNDS [ONLY]]`.
//!
//! A round is a batch of messages: published and written, or read and acknowledged. Run it under a heap profiler with two
//! numbers of rounds to see that the allocations do not grow with them. Nothing is asserted about times.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant as Clock;

use thicket_mqtt::{
    Acknowledgement, Connack, Packet, PacketId, ProtocolVersion, Publish, Qos, ReasonCode,
};
use thicket_session::Instant;
use thicket_session::client::{CleanStart, Client, ClientConfig, Event};

const BATCH: u16 = 50;
const TOPIC: &str = "site1/room2/device3/temp";
const PAYLOAD: [u8; 64] = [b'x'; 64];

fn connected(version: ProtocolVersion, aliases: u16) -> Client {
    let config = ClientConfig {
        outbound_topic_aliases: aliases,
        ..ClientConfig::new(version, "bench")
    };
    let mut client = Client::new(config);
    client
        .connect(Instant::default(), CleanStart::Yes)
        .expect("it is not connected");
    client.consume(usize::MAX);
    let connack = Connack {
        topic_alias_maximum: Some(aliases),
        ..Connack::default()
    };
    let bytes = encode(version, &[Packet::Connack(Box::new(connack))]);
    client.handle_bytes(Instant::default(), &bytes, |_| {});
    client
}

fn encode(version: ProtocolVersion, packets: &[Packet<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets {
        packet.encode(version, &mut bytes).expect("a valid packet");
    }
    bytes
}

fn ids() -> impl Iterator<Item = PacketId> {
    (1..=BATCH).filter_map(PacketId::new)
}

fn report(name: &str, start: Clock, rounds: u32) {
    let each = start.elapsed().as_secs_f64() * 1e9 / (f64::from(rounds) * f64::from(BATCH));
    println!("{name}: {each:.1} ns a message");
}

fn bench_publish(version: ProtocolVersion, qos: Qos, aliases: u16, rounds: u32) {
    let mut client = connected(version, aliases);
    let acknowledgements: Vec<_> = ids()
        .map(|id| Packet::Puback(Acknowledgement::new(id, ReasonCode::Success)))
        .collect();
    let acknowledgements = encode(version, &acknowledgements);
    let publish = Publish {
        qos,
        ..Publish::new(TOPIC, &PAYLOAD)
    };
    let start = Clock::now();
    for round in 0..rounds {
        let now = Instant::from_millis(round.into());
        for _ in 0..BATCH {
            black_box(client.publish(now, &publish)).expect("there is room");
        }
        client.consume(black_box(client.output()).len());
        if qos == Qos::AtLeastOnce {
            client.handle_bytes(now, &acknowledgements, |event| {
                black_box(matches!(event, Event::Acknowledged { .. }));
            });
        }
    }
    report(
        &format!("publish {version:?} {qos:?}, {aliases} aliases"),
        start,
        rounds,
    );
}

fn bench_receive(version: ProtocolVersion, qos: Qos, rounds: u32) {
    let mut client = connected(version, 0);
    let deliveries: Vec<_> = ids()
        .map(|id| {
            let packet_id = (qos != Qos::AtMostOnce).then_some(id);
            Packet::Publish(Publish {
                qos,
                packet_id,
                ..Publish::new(TOPIC, &PAYLOAD)
            })
        })
        .collect();
    let deliveries = encode(version, &deliveries);
    let start = Clock::now();
    for round in 0..rounds {
        client.handle_bytes(
            Instant::from_millis(round.into()),
            black_box(&deliveries),
            |event| {
                black_box(matches!(event, Event::Message(_)));
            },
        );
        client.consume(black_box(client.output()).len());
    }
    report(&format!("receive {version:?} {qos:?}"), start, rounds);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let rounds = arguments
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(40_000);
    match arguments.last().map(String::as_str) {
        Some("publish0") => return bench_publish(ProtocolVersion::V5, Qos::AtMostOnce, 0, rounds),
        Some("publish1") => return bench_publish(ProtocolVersion::V5, Qos::AtLeastOnce, 0, rounds),
        Some("receive0") => return bench_receive(ProtocolVersion::V5, Qos::AtMostOnce, rounds),
        Some("receive1") => return bench_receive(ProtocolVersion::V5, Qos::AtLeastOnce, rounds),
        Some(_) | None => {}
    }
    for version in [ProtocolVersion::V311, ProtocolVersion::V5] {
        for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
            bench_publish(version, qos, 0, rounds);
            bench_receive(version, qos, rounds);
        }
    }
    bench_publish(ProtocolVersion::V5, Qos::AtMostOnce, 16, rounds);
    bench_publish(ProtocolVersion::V5, Qos::AtLeastOnce, 16, rounds);
}
