//! Nodes on ephemeral ports and a client that waits for what it expects, never for a time.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod certificates;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use thicket_broker::{DiscoverChoice, Node, Settings};
use thicket_mqtt::{
    Disconnect, ProtocolVersion, Publish, Qos, ReasonCode, SubscribeFilter, SubscriptionOptions,
};
use thicket_session::client::{CleanStart, Client, ClientConfig, DisconnectReason, Event};
use thicket_transport::client::{self, Place, Reader, Target, Writer};

/// Longer than anything takes on a loaded machine; reached only when a test fails.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Settings of a node that looks for nobody.
pub fn alone() -> Settings {
    Settings {
        listen: Some(vec!["127.0.0.1:0".into()]),
        http: Some("127.0.0.1:0".into()),
        discover: Some(vec![DiscoverChoice::Off]),
        workers: Some(3),
        ..Settings::default()
    }
}

/// Starts a node.
pub fn start(settings: Settings) -> Node {
    Node::start(settings.check().expect("good settings")).expect("a free port")
}

/// A new directory, which goes with what is answered.
pub fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The answer of a node's API: status and body.
pub fn http(node: &Node, path: &str) -> (u16, String) {
    let address = node.http_address().expect("the API is on");
    http_as(address, path, &address.to_string())
}

/// The same, with another Host header.
pub fn http_as(address: SocketAddr, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the API listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the API reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the API answers");
    let status = answer
        .split(' ')
        .nth(1)
        .expect("a status line")
        .parse()
        .expect("a number");
    let body = answer.split_once("\r\n\r\n").expect("a head").1.to_owned();
    (status, body)
}

/// Has a node's API do something: status and body of the answer. `more`: header lines, each with its end.
pub fn http_do(node: &Node, method: &str, path: &str, more: &str, body: &str) -> (u16, String) {
    let address = node.http_address().expect("the API is on");
    let mut stream = TcpStream::connect(address).expect("the API listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let len = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {len}\r\n{more}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("the API reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the API answers");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").expect("a head").1.to_owned();
    (status.expect("a status line"), body)
}

/// Asks until `condition` holds of the body of an answer.
pub fn wait_for_http(node: &Node, path: &str, condition: impl Fn(&serde_json::Value) -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (_, body) = http(node, path);
        if serde_json::from_str(&body).is_ok_and(|json| condition(&json)) {
            return;
        }
        assert!(Instant::now() < deadline, "{path} still says {body}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A listener for plain TCP.
pub fn plain(address: SocketAddr) -> Target {
    Target {
        place: Place::Tcp(address.ip().to_string(), address.port()),
        tls: None,
        websocket: None,
    }
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: Qos,
    pub retain: bool,
}

/// A client of a node.
pub struct TestClient {
    client: Client,
    reader: Reader,
    writer: Writer,
    start: Instant,
    messages: VecDeque<Message>,
    connected: bool,
    session_present: bool,
    granted: Option<Vec<ReasonCode>>,
    /// Why the node ended the connection, by its own word.
    ended: Option<ReasonCode>,
    closed: bool,
}

impl TestClient {
    /// A 5.0 client with a clean start.
    pub fn connect(address: SocketAddr, id: &str) -> Self {
        let config = ClientConfig::new(ProtocolVersion::V5, id);
        Self::try_connect(address, config, CleanStart::Yes).expect("the node accepts")
    }

    /// The code of the refusal if the node does not accept.
    pub fn try_connect(
        address: SocketAddr,
        config: ClientConfig,
        clean_start: CleanStart,
    ) -> Result<Self, ReasonCode> {
        Self::try_connect_to(&plain(address), config, clean_start)
    }

    /// A 5.0 client with a clean start, on whatever it travels.
    pub fn connect_to(target: &Target, id: &str) -> Self {
        let config = ClientConfig::new(ProtocolVersion::V5, id);
        Self::try_connect_to(target, config, CleanStart::Yes).expect("the node accepts")
    }

    /// The code of the refusal if the node does not accept.
    pub fn try_connect_to(
        target: &Target,
        config: ClientConfig,
        clean_start: CleanStart,
    ) -> Result<Self, ReasonCode> {
        let (reader, writer) = client::connect(target).expect("the node listens");
        let mut client = Self {
            client: Client::new(config),
            reader,
            writer,
            start: Instant::now(),
            messages: VecDeque::new(),
            connected: false,
            session_present: false,
            granted: None,
            ended: None,
            closed: false,
        };
        let now = client.now();
        client
            .client
            .connect(now, clean_start)
            .expect("a good configuration");
        client.wait("a CONNACK", |it| it.connected || it.ended.is_some());
        match client.ended {
            Some(code) => Err(code),
            None => Ok(client),
        }
    }

    pub fn session_present(&self) -> bool {
        self.session_present
    }

    pub fn subscribe(&mut self, filter: &str, qos: Qos) {
        let options = SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        };
        let now = self.now();
        let filters = [SubscribeFilter { filter, options }];
        self.client
            .subscribe(now, &filters, None)
            .expect("a good filter");
        self.granted = None;
        self.wait("a SUBACK", |it| it.granted.is_some());
        let granted = self.granted.as_ref().expect("just came");
        assert!(
            granted.iter().all(|code| !code.is_error()),
            "{filter}: {granted:?}"
        );
    }

    /// Sends a message and waits until it is acknowledged.
    pub fn publish(&mut self, topic: &str, payload: &[u8], qos: Qos) {
        self.send(&Publish {
            qos,
            ..Publish::new(topic, payload)
        });
        self.wait("an acknowledgement", |it| it.client.inflight() == 0);
    }

    /// Sends a message.
    pub fn send(&mut self, publish: &Publish<'_>) {
        let now = self.now();
        self.client.publish(now, publish).expect("a good message");
        self.flush();
    }

    /// The next message.
    pub fn message(&mut self) -> Message {
        self.wait("a message", |it| !it.messages.is_empty());
        self.messages.pop_front().expect("just came")
    }

    /// The next message's topic and payload as text.
    pub fn text(&mut self) -> (String, String) {
        let Message { topic, payload, .. } = self.message();
        (topic, String::from_utf8(payload).expect("text"))
    }

    /// Waits until the node ends the connection; its reason, if it said one.
    pub fn ended(&mut self) -> Option<ReasonCode> {
        self.wait("the end", |it| it.ended.is_some() || it.closed);
        self.ended
    }

    /// Says goodbye.
    pub fn disconnect(mut self) {
        self.client
            .disconnect(&Disconnect::new(ReasonCode::Success))
            .expect("connected");
        self.flush();
        self.wait("the end", |it| it.closed);
    }

    fn now(&self) -> thicket_session::Instant {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).expect("a short test");
        thicket_session::Instant::from_millis(elapsed)
    }

    fn flush(&mut self) {
        while !self.client.output().is_empty() {
            let count = self.client.output().len();
            // The node may have closed; then reading tells.
            let _ = self.writer.write_all(self.client.output());
            self.client.consume(count);
        }
    }

    fn wait(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            self.flush();
            if condition(self) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero() && !self.closed,
                "waited for {what}, closed: {}",
                self.closed
            );
            self.reader.set_read_timeout(Some(left)).expect("not zero");
            match self.reader.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(count) => self.handle(&buffer[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => self.closed = true,
            }
        }
    }

    fn handle(&mut self, bytes: &[u8]) {
        let now = self.now();
        let Self {
            client,
            messages,
            connected,
            session_present,
            granted,
            ended,
            ..
        } = self;
        client.handle_bytes(now, bytes, |event| match event {
            Event::Connected {
                session_present: present,
                ..
            } => {
                *connected = true;
                *session_present = present;
            }
            Event::Message(publish) => messages.push_back(Message {
                topic: publish.topic.to_owned(),
                payload: publish.payload.to_vec(),
                qos: publish.qos,
                retain: publish.retain,
            }),
            Event::Subscribed { reason_codes, .. } => *granted = Some(reason_codes.to_vec()),
            Event::Disconnected(DisconnectReason::Refused(connack)) => {
                *ended = Some(connack.reason_code)
            }
            Event::Disconnected(DisconnectReason::ByServer(disconnect)) => {
                *ended = Some(disconnect.reason_code);
            }
            Event::Disconnected(reason) => panic!("{reason:?}"),
            _ => {}
        });
    }
}
