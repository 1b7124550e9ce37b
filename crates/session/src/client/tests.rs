//! The whole client against packets made by hand, and against a naive server over connections that break.

mod connection;
mod flows;
mod hostile;
mod limits;
mod lossy;

use thicket_mqtt::{
    Acknowledgement, Connack, Packet, PacketId, ProtocolVersion, Publish, Qos, ReasonCode, decode,
};

use super::*;

const V311: ProtocolVersion = ProtocolVersion::V311;
const V5: ProtocolVersion = ProtocolVersion::V5;

fn id(value: u16) -> PacketId {
    PacketId::new(value).unwrap()
}

fn qos(number: u8) -> Qos {
    Qos::from_bits(number).unwrap()
}

fn message<'a>(topic: &'a str, payload: &'a str, number: u8) -> Publish<'a> {
    Publish {
        qos: qos(number),
        ..Publish::new(topic, payload.as_bytes())
    }
}

/// A PUBLISH as a server sends it.
fn delivery<'a>(topic: &'a str, payload: &'a str, number: u8, packet_id: u16) -> Packet<'a> {
    Packet::Publish(Publish {
        packet_id: PacketId::new(packet_id),
        ..message(topic, payload, number)
    })
}

fn acknowledgement(packet_id: u16) -> Acknowledgement<'static> {
    Acknowledgement::new(id(packet_id), ReasonCode::Success)
}

/// A client with its events and what it sent, in words.
struct Bench {
    client: Client,
    now: Instant,
    events: Vec<String>,
}

impl Bench {
    fn new(config: ClientConfig) -> Self {
        Self {
            client: Client::new(config),
            now: Instant::from_millis(1000),
            events: Vec::new(),
        }
    }

    /// A client that is connected and has written its CONNECT.
    fn connected(config: ClientConfig) -> Self {
        let mut bench = Self::new(config);
        bench.reconnect(CleanStart::Yes, &Connack::default());
        bench.events.clear();
        bench
    }

    fn with_version(version: ProtocolVersion) -> Self {
        Self::connected(ClientConfig::new(version, "c"))
    }

    /// Connects, and makes the server answer.
    fn reconnect(&mut self, clean_start: CleanStart, connack: &Connack<'_>) {
        self.client.connect(self.now, clean_start).unwrap();
        assert!(self.sent()[0].starts_with("CONNECT"));
        self.feed(&Packet::Connack(Box::new(connack.clone())));
    }

    fn feed(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet
            .encode(self.client.config().version, &mut bytes)
            .unwrap();
        self.feed_bytes(&bytes);
    }

    fn feed_bytes(&mut self, bytes: &[u8]) {
        let events = &mut self.events;
        self.client
            .handle_bytes(self.now, bytes, |event| events.push(say_event(&event)));
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + std::time::Duration::from_secs(seconds);
        let events = &mut self.events;
        self.client
            .handle_timeout(self.now, |event| events.push(say_event(&event)));
    }

    fn publish(&mut self, publish: &Publish<'_>) -> Result<Option<u16>, ClientError> {
        self.client
            .publish(self.now, publish)
            .map(|packet_id| packet_id.map(PacketId::value))
    }

    /// What the client wrote, in words.
    fn sent(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        let mut len = 0;
        while let Some((packet, packet_len)) = decode(
            &self.client.output()[len..],
            self.client.config().version,
            u32::MAX,
        )
        .unwrap()
        {
            words.push(say_packet(&packet));
            len += packet_len;
        }
        assert_eq!(
            len,
            self.client.output().len(),
            "only whole packets are written"
        );
        self.client.consume(len);
        words
    }

    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }
}

fn say_publish(publish: &Publish<'_>) -> String {
    let mut words = format!(
        "{}={}",
        publish.topic,
        String::from_utf8_lossy(publish.payload)
    );
    if let Some(packet_id) = publish.packet_id {
        words += &format!(" q{} #{}", publish.qos as u8, packet_id.value());
    }
    if let Some(alias) = publish.topic_alias {
        words += &format!(" alias {alias}");
    }
    if publish.dup {
        words += " dup";
    }
    words
}

fn say_event(event: &Event<'_>) -> String {
    match event {
        Event::Connected {
            session_present, ..
        } => format!("connected, session {session_present}"),
        Event::Message(publish) => say_publish(publish),
        Event::Acknowledged {
            packet_id,
            reason_code,
        } => format!("#{} {reason_code:?}", packet_id.value()),
        Event::Discarded { packet_id, publish } => {
            let publish = publish.as_ref().map(say_publish).unwrap_or_default();
            format!("#{} discarded {publish}", packet_id.value())
        }
        Event::Subscribed {
            packet_id,
            reason_codes,
        } => format!("#{} subscribed {reason_codes:?}", packet_id.value()),
        Event::Unsubscribed {
            packet_id,
            reason_codes,
        } => {
            format!("#{} unsubscribed {reason_codes:?}", packet_id.value())
        }
        Event::Authentication(auth) => format!("auth {:?}", auth.reason_code),
        Event::Pong => "pong".to_owned(),
        Event::Disconnected(DisconnectReason::Refused(connack)) => {
            format!("refused {:?}", connack.reason_code)
        }
        Event::Disconnected(DisconnectReason::ByServer(disconnect)) => {
            format!("by server {:?}", disconnect.reason_code)
        }
        Event::Disconnected(DisconnectReason::PeerError(error)) => format!("error: {error}"),
        Event::Disconnected(reason) => format!("{reason:?}"),
    }
}

fn say_packet(packet: &Packet<'_>) -> String {
    let acknowledged = |name: &str, packet: &Acknowledgement<'_>| match packet.reason_code {
        ReasonCode::Success => format!("{name} #{}", packet.packet_id.value()),
        code => format!("{name} #{} {code:?}", packet.packet_id.value()),
    };
    match packet {
        Packet::Connect(connect) => format!("CONNECT {}", connect.client_id),
        Packet::Publish(publish) => say_publish(publish),
        Packet::Puback(packet) => acknowledged("PUBACK", packet),
        Packet::Pubrec(packet) => acknowledged("PUBREC", packet),
        Packet::Pubrel(packet) => acknowledged("PUBREL", packet),
        Packet::Pubcomp(packet) => acknowledged("PUBCOMP", packet),
        Packet::Subscribe(subscribe) => format!("SUBSCRIBE #{}", subscribe.packet_id.value()),
        Packet::Unsubscribe(unsubscribe) => {
            format!("UNSUBSCRIBE #{}", unsubscribe.packet_id.value())
        }
        Packet::Disconnect(disconnect) => format!("DISCONNECT {:?}", disconnect.reason_code),
        Packet::Auth(auth) => format!("AUTH {:?}", auth.reason_code),
        Packet::Connack(_)
        | Packet::Suback(_)
        | Packet::Unsuback(_)
        | Packet::Pingreq
        | Packet::Pingresp => {
            format!("{:?}", packet.kind())
        }
    }
}
