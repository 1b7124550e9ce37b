//! What a message costs a client in the process, without sockets: the codec alone, and the client machine of `session`.
//!
//! The generator's goal is 0.25 microseconds a delivered message, kernel included; this tells how much of it either way
//! would take. `cargo bench -p thicket-bench` prints nanoseconds for a message sent and received.

use std::hint::black_box;
use std::time::Instant as Clock;

use thicket_bench::report::Table;
use thicket_mqtt::{PacketId, ProtocolVersion, Publish, Qos, decode};
use thicket_session::Instant;
use thicket_session::client::{CleanStart, Client, ClientConfig, Event};

const TOPIC: &str = "b12345/pair/17";
const PAYLOAD: [u8; 64] = [b'.'; 64];
const BATCH: u16 = 50;
const ROUNDS: u32 = 40_000;

fn main() {
    let mut table = Table::new(["ns a message, batches of 50", "QoS 0", "QoS 1"]);
    for (name, of) in [
        ("codec: encode and decode", codec as fn(Qos) -> f64),
        ("client machine: publish, deliver", machine),
    ] {
        let best = |qos| (0..5).map(|_| of(qos)).fold(f64::INFINITY, f64::min);
        table.row([
            name.to_owned(),
            format!("{:.1}", best(Qos::AtMostOnce)),
            format!("{:.1}", best(Qos::AtLeastOnce)),
        ]);
    }
    print!("{}", table.to_text());
}

fn per_message(started: Clock) -> f64 {
    started.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / f64::from(BATCH)
}

fn message(qos: Qos, number: u16) -> Publish<'static> {
    let mut publish = Publish::new(TOPIC, &PAYLOAD);
    publish.qos = qos;
    publish.packet_id = (qos != Qos::AtMostOnce)
        .then(|| PacketId::new(number))
        .flatten();
    publish
}

fn codec(qos: Qos) -> f64 {
    let version = ProtocolVersion::V311;
    let mut bytes = Vec::new();
    let started = Clock::now();
    for _ in 0..ROUNDS {
        bytes.clear();
        for number in 1..=BATCH {
            black_box(message(qos, number))
                .encode(version, &mut bytes)
                .expect("a message can be encoded");
        }
        let mut at = 0;
        while let Ok(Some((packet, len))) = decode(black_box(&bytes[at..]), version, u32::MAX) {
            black_box(packet);
            at += len;
        }
        assert_eq!(at, bytes.len());
    }
    per_message(started)
}

/// A client that publishes and one that receives; above QoS 0 the server's answers are written by hand.
fn machine(qos: Qos) -> f64 {
    let now = Instant::from_millis(0);
    let connected = |name: &str| {
        let mut client = Client::new(ClientConfig::new(ProtocolVersion::V311, name));
        client
            .connect(now, CleanStart::Yes)
            .expect("a new client can connect");
        client.consume(client.output().len());
        client.handle_bytes(now, &[0x20, 2, 0, 0], |_| {});
        client
    };
    let (mut publisher, mut subscriber) = (connected("publisher"), connected("subscriber"));
    let mut answers = Vec::new();
    let mut received = 0u64;
    let started = Clock::now();
    for _ in 0..ROUNDS {
        for _ in 0..BATCH {
            let mut publish = black_box(message(qos, 1));
            publish.packet_id = None;
            publisher
                .publish(now, &publish)
                .expect("the window has room");
        }
        subscriber.handle_bytes(now, black_box(publisher.output()), |event| {
            received += u64::from(matches!(event, Event::Message { .. }));
        });
        answers.clear();
        // PUBACKs of the subscriber have the identifiers the publisher chose: they serve as those of a server.
        answers.extend_from_slice(subscriber.output());
        publisher.consume(publisher.output().len());
        subscriber.consume(subscriber.output().len());
        publisher.handle_bytes(now, &answers, |_| {});
    }
    assert_eq!(received, u64::from(ROUNDS) * u64::from(BATCH));
    per_message(started)
}
