//! What a PUBLISH costs: `cargo bench -p thicket-mqtt`.
//!
//! 512 packets back to back, topic of 28 bytes, payload of 64; without properties unless said. Each figure is the best of
//! many short runs, in nanoseconds a packet, because other work on the machine can only make a run slower. Decoding reads every
//! field that a broker needs; encoding goes into a buffer that is used again.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;
use thicket_mqtt::{
    ApplicationProperties, ApplicationProperty, Packet, PacketId, ProtocolVersion, Publish, Qos,
    decode,
};

const PACKETS: usize = 512;
// A run of a quarter of a millisecond fits between two switches of the scheduler.
const ROUNDS: usize = 20;
const RUNS: usize = 200;
const TOPIC: &str = "site/7/line/3/motor/12/speed";

fn main() {
    assert_eq!(TOPIC.len(), 28);
    let payload = [b'x'; 64];
    let list = [
        ApplicationProperty::ContentType("application/json"),
        ApplicationProperty::UserProperty("trace", "0af7651916cd43dd"),
    ];
    let bytes = ApplicationProperties::build(list).expect("short");
    let properties = ApplicationProperties::from_encoded(&bytes).expect("valid");
    let plain = Publish::new(TOPIC, &payload);
    let qos1 = Publish {
        qos: Qos::AtLeastOnce,
        packet_id: PacketId::new(7),
        ..plain
    };
    let rich = Publish {
        properties,
        message_expiry_interval: Some(60),
        ..plain
    };
    let cases = [
        ("3.1.1 QoS 0", ProtocolVersion::V311, plain),
        ("3.1.1 QoS 1", ProtocolVersion::V311, qos1),
        ("5.0 QoS 0", ProtocolVersion::V5, plain),
        ("5.0 QoS 1", ProtocolVersion::V5, qos1),
        ("5.0 QoS 0, 3 properties", ProtocolVersion::V5, rich),
    ];
    println!(
        "{:<26}{:>12}{:>12}{:>16}",
        "ns per PUBLISH", "decode", "encode", "copy and patch"
    );
    for (name, version, publish) in cases {
        let decode_ns = best(|| decode_all(version, &publish));
        let encode_ns = best(|| encode_all(version, &publish));
        let copy_ns = best(|| copy_all(version, &publish));
        println!("{name:<26}{decode_ns:>12.1}{encode_ns:>12.1}{copy_ns:>16.1}");
    }
}

/// The least nanoseconds a packet over some runs of `run`, which answers how long its packets took in all.
fn best(run: impl Fn() -> f64) -> f64 {
    (0..RUNS).map(|_| run()).fold(f64::INFINITY, f64::min) / (PACKETS * ROUNDS) as f64
}

fn stream(version: ProtocolVersion, publish: &Publish<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..PACKETS {
        publish.encode(version, &mut stream).expect("valid");
    }
    stream
}

fn decode_all(version: ProtocolVersion, publish: &Publish<'_>) -> f64 {
    let stream = stream(version, publish);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let mut rest = black_box(stream.as_slice());
        while let Some((packet, len)) = decode(rest, version, 1 << 20).expect("valid") {
            let Packet::Publish(publish) = &packet else {
                panic!("no PUBLISH")
            };
            black_box((
                publish.topic,
                publish.payload,
                publish.qos,
                publish.packet_id,
            ));
            black_box((
                publish.message_expiry_interval,
                publish.properties.encoded_len(),
            ));
            rest = &rest[len..];
        }
    }
    start.elapsed().as_nanos() as f64
}

fn encode_all(version: ProtocolVersion, publish: &Publish<'_>) -> f64 {
    let mut out = Vec::with_capacity(PACKETS * 256);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        out.clear();
        for _ in 0..PACKETS {
            if let Some(at) = black_box(publish).encode(version, &mut out).expect("valid") {
                black_box(at);
            }
        }
        black_box(&out);
    }
    start.elapsed().as_nanos() as f64
}

/// What each further subscriber costs: the encoded packet copied, its identifier replaced.
fn copy_all(version: ProtocolVersion, publish: &Publish<'_>) -> f64 {
    let mut encoded = Vec::new();
    let at = publish.encode(version, &mut encoded).expect("valid");
    let mut out = Vec::with_capacity(PACKETS * 256);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        out.clear();
        for id in 0..PACKETS as u16 {
            let copy_at = out.len();
            out.extend_from_slice(black_box(&encoded));
            if let Some(at) = at {
                out[copy_at + at..copy_at + at + 2].copy_from_slice(&id.to_be_bytes());
            }
        }
        black_box(&out);
    }
    start.elapsed().as_nanos() as f64
}
