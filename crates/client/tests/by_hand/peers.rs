//! A broker and a control plane whose every answer a test writes.

use std::time::Duration;

use thicket_client::ReasonCode;
use thicket_mqtt::{
    Acknowledgement, Connack, Packet, PacketId, ProtocolVersion, Suback, Unsuback, UserProperties,
    decode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub const V5: ProtocolVersion = ProtocolVersion::V5;
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Broker(pub TcpListener);

/// A control plane by HTTP. It gives each request to a test, and answers what the test says.
pub struct Control(pub TcpListener);

pub struct Asked {
    pub stream: TcpStream,
    pub head: String,
    pub request: serde_json::Value,
}

pub struct Connection {
    pub stream: TcpStream,
    pub bytes: Vec<u8>,
    /// Client identifier and user properties of the CONNECT.
    pub client_id: String,
    pub said: Vec<(String, String)>,
}

/// A packet of a client, as far as the tests look at it.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Connect(String, Vec<(String, String)>),
    Publish(String, Option<PacketId>, bool),
    Pubrel(PacketId),
    Puback(PacketId),
    Pubrec(PacketId),
    Pubcomp(PacketId),
    Pingreq,
    Subscribe(PacketId, String, u8),
    Unsubscribe(PacketId, String),
    Disconnect(Option<u32>),
    Other,
}

impl Said {
    pub fn from_packet(packet: &Packet<'_>) -> Self {
        match packet {
            Packet::Connect(connect) => {
                let owned = |pair: &(&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
                let properties = connect.user_properties.iter().map(owned).collect();
                Self::Connect(connect.client_id.to_owned(), properties)
            }
            Packet::Publish(publish) => {
                Self::Publish(publish.topic.to_owned(), publish.packet_id, publish.dup)
            }
            Packet::Pubrel(pubrel) => Self::Pubrel(pubrel.packet_id),
            Packet::Puback(puback) => Self::Puback(puback.packet_id),
            Packet::Pubrec(pubrec) => Self::Pubrec(pubrec.packet_id),
            Packet::Pubcomp(pubcomp) => Self::Pubcomp(pubcomp.packet_id),
            Packet::Pingreq => Self::Pingreq,
            Packet::Subscribe(subscribe) => {
                let one = &subscribe.filters[0];
                let handling = one.options.retain_handling as u8;
                Self::Subscribe(subscribe.packet_id, one.filter.to_owned(), handling)
            }
            Packet::Unsubscribe(request) => {
                Self::Unsubscribe(request.packet_id, request.filters[0].to_owned())
            }
            Packet::Disconnect(disconnect) => Self::Disconnect(disconnect.session_expiry_interval),
            _ => Self::Other,
        }
    }
}

impl Broker {
    pub async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    pub fn address(&self) -> String {
        self.0.local_addr().expect("bound").to_string()
    }

    /// The next client, after its CONNECT.
    pub async fn next(&self) -> Connection {
        let accepted = tokio::time::timeout(TIMEOUT, self.0.accept()).await;
        let (stream, _) = accepted.expect("in time").expect("a connection");
        let mut connection = Connection {
            stream,
            bytes: Vec::new(),
            client_id: String::new(),
            said: Vec::new(),
        };
        match connection.read().await {
            Said::Connect(client_id, said) => {
                (connection.client_id, connection.said) = (client_id, said);
            }
            other => panic!("expected CONNECT: {other:?}"),
        }
        connection
    }
}

impl Control {
    pub async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("bound"))
    }

    pub async fn next(&self) -> Asked {
        let accepted = tokio::time::timeout(TIMEOUT, self.0.accept()).await;
        let (mut stream, _) = accepted.expect("in time").expect("a connection");
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n")
                && let Ok(request) = serde_json::from_str(body)
            {
                let head = head.to_owned();
                return Asked {
                    stream,
                    head,
                    request,
                };
            }
            let read = tokio::time::timeout(TIMEOUT, stream.read_buf(&mut bytes));
            assert!(
                read.await.expect("in time").expect("a connection") > 0,
                "{text}"
            );
        }
    }
}

impl Asked {
    pub async fn refuse(mut self, field: &str) {
        let answer = problem(field);
        let head = format!(
            "HTTP/1.1 422 Unprocessable Content\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let sent = self.stream.write_all((head + &answer).as_bytes()).await;
        sent.expect("a connection");
    }

    /// The topics and filters of the request.
    pub fn names(&self) -> serde_json::Value {
        serde_json::json!([self.request["publish"], self.request["subscribe"]])
    }

    pub async fn answer(mut self, sessions: &[(&str, &Broker, &[&str])]) {
        let answer = placement(sessions);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let sent = self.stream.write_all((head + &answer).as_bytes()).await;
        sent.expect("a connection");
    }
}

/// A problem document about one field of a request.
pub fn problem(field: &str) -> String {
    serde_json::json!({"status": 422, "detail": format!("{field}: the client may not use it"), "field": field})
        .to_string()
}

/// The placement of a client: of each session its name, its broker and its filters.
pub fn placement(sessions: &[(&str, &Broker, &[&str])]) -> String {
    let sessions: Vec<_> = sessions
        .iter()
        .map(|(name, broker, filters)| {
            serde_json::json!({"client_id": name, "address": broker.address(), "subscribe": filters})
        })
        .collect();
    serde_json::json!({ "sessions": sessions }).to_string()
}

impl Connection {
    pub async fn read(&mut self) -> Said {
        loop {
            if let Some((packet, len)) = decode(&self.bytes, V5, u32::MAX).expect("a packet") {
                let said = Said::from_packet(&packet);
                self.bytes.drain(..len);
                return said;
            }
            let read = tokio::time::timeout(TIMEOUT, self.stream.read_buf(&mut self.bytes));
            let count = read.await.expect("in time").expect("a connection");
            assert!(count > 0, "the client closed the connection");
        }
    }

    pub async fn write(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(V5, &mut bytes).expect("a good packet");
        self.stream.write_all(&bytes).await.expect("a connection");
    }

    /// The topics, or the filters, that the CONNECT names.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let found = self.said.iter().filter(|(key, _)| key == name);
        found.map(|(_, value)| &**value).collect()
    }

    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.said.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| &**value)
    }

    pub async fn connack(&mut self, connack: Connack<'_>) {
        self.write(&Packet::Connack(Box::new(connack))).await;
    }

    pub async fn accept(&mut self) {
        self.connack(Connack::default()).await;
    }

    pub async fn resume(&mut self) {
        let session_present = true;
        self.connack(Connack {
            session_present,
            ..Connack::default()
        })
        .await;
    }

    pub async fn send_to(&mut self, address: &str) {
        self.connack(Connack {
            server_reference: Some(address),
            ..Connack::new(ReasonCode::UseAnotherServer)
        })
        .await;
    }

    /// Answers the SUBSCRIBE that must come; the filter.
    pub async fn grant(&mut self, place: impl Fn(&str) -> Option<String>) -> (String, u8) {
        let Said::Subscribe(packet_id, filter, handling) = self.read().await else {
            panic!("expected SUBSCRIBE");
        };
        let place = place(&filter);
        let user_properties: UserProperties<'_> = place
            .iter()
            .map(|place| ("thicket-place", &**place))
            .collect();
        self.write(&Packet::Suback(Suback {
            user_properties,
            ..Suback::new(packet_id, vec![ReasonCode::GrantedQos1])
        }))
        .await;
        (filter, handling)
    }

    pub async fn place(&mut self, session_present: bool, sessions: &[(&str, &Broker, &[&str])]) {
        let answer = placement(sessions);
        self.connack(Connack {
            session_present,
            user_properties: vec![("thicket-placement", &answer)],
            ..Connack::default()
        })
        .await;
    }

    pub async fn take_publish(&mut self) -> (String, PacketId, bool) {
        match self.read().await {
            Said::Publish(topic, Some(packet_id), dup) => (topic, packet_id, dup),
            other => panic!("expected PUBLISH: {other:?}"),
        }
    }

    pub async fn unsuback(&mut self, packet_id: PacketId) {
        let unsuback = Unsuback::new(packet_id, vec![ReasonCode::Success]);
        self.write(&Packet::Unsuback(unsuback)).await;
    }

    pub async fn puback(&mut self, packet_id: PacketId, place: Option<&str>) {
        let user_properties = place
            .iter()
            .map(|place| ("thicket-place", *place))
            .collect();
        let puback = Acknowledgement {
            user_properties,
            ..Acknowledgement::new(packet_id, ReasonCode::Success)
        };
        self.write(&Packet::Puback(puback)).await;
    }
}
