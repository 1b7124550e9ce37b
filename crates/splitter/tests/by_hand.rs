//! The splitter between a client, nodes and a control plane made by hand.

use std::time::Duration;

use thicket_mqtt::{
    Connack, Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, ReasonCode, Suback,
    Subscribe, decode,
};
use thicket_splitter::{Config, Splitter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const V5: ProtocolVersion = ProtocolVersion::V5;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A node, or a control plane.
struct Server(TcpListener);

/// One end of an MQTT connection.
struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

/// A request to the control plane.
struct Asked {
    stream: TcpStream,
    text: String,
}

impl Server {
    async fn start() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    fn address(&self) -> String {
        self.0.local_addr().expect("bound").to_string()
    }

    async fn accept(&self) -> TcpStream {
        let accepted = tokio::time::timeout(TIMEOUT, self.0.accept()).await;
        accepted.expect("in time").expect("a connection").0
    }

    /// The next session at this node, which accepts it: its client identifier.
    async fn session(&self) -> (String, Connection) {
        let mut connection = Connection::new(self.accept().await);
        let client_id = connection
            .next(|packet| match packet {
                Packet::Connect(connect) => connect.client_id.to_owned(),
                other => panic!("expected CONNECT: {other:?}"),
            })
            .await;
        let connack = Packet::Connack(Box::new(Connack::default()));
        connection.write(&connack).await;
        (client_id, connection)
    }

    /// The next request for a placement. A client's placement of earlier is not found.
    async fn asked(&self) -> Asked {
        loop {
            let mut stream = self.accept().await;
            let mut bytes = Vec::new();
            let text = loop {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n")
                    && (head.starts_with("GET") || body.ends_with('}'))
                {
                    break text;
                }
                let read = tokio::time::timeout(TIMEOUT, stream.read_buf(&mut bytes)).await;
                assert!(read.expect("in time").expect("a connection") > 0, "{text}");
            };
            let mut asked = Asked { stream, text };
            if !asked.text.starts_with("GET") {
                return asked;
            }
            asked.answer("404 Not Found", "{}").await;
        }
    }
}

impl Asked {
    async fn answer(&mut self, status: &str, body: &str) {
        let len = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{body}"
        );
        let written = self.stream.write_all(text.as_bytes()).await;
        written.expect("a connection");
    }

    async fn refuse(mut self, field: &str) {
        let body = format!(r#"{{"status":422,"detail":"denied","field":"{field}"}}"#);
        self.answer("422 Unprocessable Content", &body).await;
    }

    /// Places filters in session 2.
    async fn place(mut self, node: &Server, filters: &str) {
        let address = node.address();
        let body = format!(
            r#"{{"sessions":[{{"client_id":"c~2","address":"{address}","subscribe":[{filters}]}}]}}"#
        );
        self.answer("200 OK", &body).await;
    }

    fn assert_names(&self, topics: &str, filters: &str) {
        let expected = format!(r#""publish":[{topics}],"subscribe":[{filters}]"#);
        assert!(self.text.contains(&expected), "{expected}: {}", self.text);
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let bytes = Vec::new();
        Self { stream, bytes }
    }

    /// Connects a client to the splitter.
    async fn open(splitter: &str, client_id: &str) -> Self {
        let stream = TcpStream::connect(splitter).await.expect("it listens");
        let mut client = Self::new(stream);
        let mut connect = Connect::new(V5, client_id);
        connect.clean_start = true;
        // The clock of a test may jump.
        connect.keep_alive = u16::MAX;
        client.write(&Packet::Connect(Box::new(connect))).await;
        client
    }

    async fn next<T>(&mut self, read: impl FnOnce(&Packet<'_>) -> T) -> T {
        loop {
            if let Some((packet, len)) = decode(&self.bytes, V5, u32::MAX).expect("a packet") {
                let said = read(&packet);
                self.bytes.drain(..len);
                return said;
            }
            let more = tokio::time::timeout(TIMEOUT, self.stream.read_buf(&mut self.bytes)).await;
            assert!(more.expect("in time").expect("a connection") > 0, "closed");
        }
    }

    async fn write(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(V5, &mut bytes).expect("a good packet");
        self.stream.write_all(&bytes).await.expect("a connection");
    }

    async fn connack(&mut self) -> ReasonCode {
        self.next(|packet| match packet {
            Packet::Connack(connack) => connack.reason_code,
            other => panic!("expected CONNACK: {other:?}"),
        })
        .await
    }

    async fn subscribe(&mut self, filter: &str) {
        let id = PacketId::new(1).expect("not 0");
        let subscribe = Subscribe::new(id, filter, Qos::AtLeastOnce);
        self.write(&Packet::Subscribe(subscribe)).await;
    }

    async fn suback(&mut self) -> ReasonCode {
        self.next(|packet| match packet {
            Packet::Suback(suback) => suback.reason_codes[0],
            other => panic!("expected SUBACK: {other:?}"),
        })
        .await
    }

    /// Answers the SUBSCRIBE that must come next; its filter.
    async fn answer_subscribe(&mut self, code: ReasonCode) -> String {
        let (id, filter) = self
            .next(|packet| match packet {
                Packet::Subscribe(it) => (it.packet_id, it.filters[0].filter.to_owned()),
                other => panic!("expected SUBSCRIBE: {other:?}"),
            })
            .await;
        let suback = Suback::new(id, vec![code]);
        self.write(&Packet::Suback(suback)).await;
        filter
    }
}

fn config(listen: &str, cluster: Vec<String>, apis: Vec<String>) -> Config {
    Config {
        listen: listen.to_owned(),
        cluster,
        apis,
        max_sessions: 4,
        maximum_packet_size: 1 << 20,
        max_connections: 100,
        connect_timeout: Duration::from_secs(5),
    }
}

async fn start(nodes: &[&Server], control: Option<&Server>) -> String {
    let cluster = nodes.iter().map(|node| node.address()).collect();
    let apis = control.iter().map(|it| format!("http://{}", it.address()));
    let config = config("127.0.0.1:0", cluster, apis.collect());
    let splitter = Splitter::bind(config).await.expect("good settings");
    let address = splitter.address().expect("bound").to_string();
    tokio::spawn(splitter.run());
    address
}

#[tokio::test]
async fn a_denied_filter_is_left_out_of_requests_and_the_others_are_placed() {
    let (first, second) = (Server::start().await, Server::start().await);
    let control = Server::start().await;
    let splitter = start(&[&first], Some(&control)).await;
    let asking = async {
        let mut client = Connection::open(&splitter, "c").await;
        let (_, session) = first.session().await;
        assert_eq!(client.connack().await, ReasonCode::Success);
        client.subscribe("denied").await;
        (client, session)
    };
    let ((mut client, mut session), asked) = tokio::join!(asking, control.asked());
    asked.assert_names("", r#""denied""#);
    asked.refuse("subscribe[0]").await;
    let asked = control.asked().await;
    asked.assert_names("", "");
    asked.place(&second, "").await;
    let code = ReasonCode::NotAuthorized;
    assert_eq!(session.answer_subscribe(code).await, "denied");
    assert_eq!(client.suback().await, code);

    // It is not asked about again, and draws no filter that overlaps it to its session.
    client.subscribe("+").await;
    let asked = control.asked().await;
    asked.assert_names("", r#""+""#);
    asked.refuse("subscribe[0]").await;
    control.asked().await.place(&second, "").await;
    for filter in ["+", "denied"] {
        assert_eq!(session.answer_subscribe(code).await, "+");
        assert_eq!(client.suback().await, code);
        client.subscribe(filter).await;
    }
    assert_eq!(session.answer_subscribe(code).await, "denied");
    assert_eq!(client.suback().await, code);

    client.subscribe("other").await;
    let asked = control.asked().await;
    asked.assert_names("", r#""other""#);
    asked.place(&second, r#""other""#).await;
    let (client_id, mut elsewhere) = second.session().await;
    assert_eq!(client_id, "c~2");
    let code = ReasonCode::GrantedQos1;
    assert_eq!(elsewhere.answer_subscribe(code).await, "other");
    assert_eq!(client.suback().await, code);

    let publish = Packet::Publish(Publish::new("secret", b"x"));
    client.write(&publish).await;
    let asked = control.asked().await;
    asked.assert_names(r#""secret""#, r#""other""#);
    asked.refuse("publish[0]").await;
    let asked = control.asked().await;
    asked.assert_names("", r#""other""#);
    asked.place(&second, r#""other""#).await;
    let topic = session
        .next(|packet| match packet {
            Packet::Publish(publish) => publish.topic.to_owned(),
            other => panic!("expected PUBLISH: {other:?}"),
        })
        .await;
    assert_eq!(topic, "secret");

    // A renewal names everything, as rights may have changed, and leaves out what is still denied.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(241)).await;
    tokio::time::resume();
    let asked = control.asked().await;
    asked.assert_names(r#""secret""#, r#""other""#);
    asked.refuse("publish[0]").await;
    let asked = control.asked().await;
    asked.assert_names("", r#""other""#);
    asked.place(&second, r#""other""#).await;
}

#[tokio::test]
async fn a_node_that_hangs_delays_one_client_and_no_longer_than_a_second() {
    let (node, hanging) = (Server::start().await, Server::start().await);
    let splitter = start(&[&hanging, &node], None).await;
    let mut delayed = 0;
    let mut open = Vec::new();
    for number in 0..20 {
        let begun = std::time::Instant::now();
        let mut client = Connection::open(&splitter, &format!("c{number}")).await;
        open.push(node.session().await.1);
        assert_eq!(client.connack().await, ReasonCode::Success);
        let time = begun.elapsed();
        assert!(time < Duration::from_secs(3), "client {number}: {time:?}");
        delayed += usize::from(time > Duration::from_millis(900));
        open.push(client);
    }
    // Each client draws one of the two: that all draw the one that answers is as good as impossible.
    assert_eq!(delayed, 1);
}

#[tokio::test]
async fn a_splitter_in_front_of_itself_is_refused() {
    let free = Server::start().await.address();
    let (_, port) = free.split_once(':').expect("HOST:PORT");
    let other = "127.0.0.1:1".to_owned();
    for (listen, node) in [("127.0.0.1", "localhost"), ("0.0.0.0", "127.0.0.1")] {
        let cluster = vec![other.clone(), format!("{node}:{port}")];
        let config = config(&format!("{listen}:{port}"), cluster, Vec::new());
        let refused = Splitter::bind(config).await.expect_err(listen).to_string();
        let expected = format!("cluster: {node}:{port}: is this proxy itself");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}
