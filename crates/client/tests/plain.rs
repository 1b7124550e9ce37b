//! A plain broker, Mosquitto: one session, no placement.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use thicket_client::{Client, Message, Options, ProtocolVersion, Qos};

const TIMEOUT: Duration = Duration::from_secs(60);

struct Mosquitto {
    process: Child,
    port: u16,
}

impl Mosquitto {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let path = std::env::var("PATH").unwrap_or_default();
        let process = Command::new("mosquitto")
            // Where distributions put it.
            .env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin"))
            .args(["-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Mosquitto is installed (scripts/setup)");
        let broker = Self { process, port };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < TIMEOUT, "Mosquitto does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        broker
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn every_qos_goes_through_in_both_versions() {
    let broker = Mosquitto::start();
    for version in [ProtocolVersion::V311, ProtocolVersion::V5] {
        let client = Client::connect(Options {
            version,
            ..Options::new(format!("mqtt://127.0.0.1:{}", broker.port))
        })
        .await
        .expect("served");
        let status = client.status();
        assert_eq!((status.sessions.len(), status.is_placed), (1, false));
        let granted = client.subscribe("a/+", Qos::ExactlyOnce).await;
        assert_eq!(granted.expect("granted"), Qos::ExactlyOnce);
        let all = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];
        for qos in all {
            let message = Message::new(format!("a/{}", qos as u8), [qos as u8]).qos(qos);
            client.publish(message).await.expect("acknowledged");
        }
        for qos in all {
            let next = tokio::time::timeout(TIMEOUT, client.next()).await;
            let message = next.expect("in time").expect("it serves");
            let message = message.into_message();
            let found = (message.topic, message.payload, message.qos);
            assert_eq!(found, (format!("a/{}", qos as u8), vec![qos as u8], qos));
        }
        client.unsubscribe("a/+").await.expect("answered");
        client.close().await;
    }
}

/// The URL of the broker, for the process of a consumer.
const URL: &str = "THICKET_TEST_CONSUMER_URL";
/// What a consumer prints before the number of a message that it has handled.
const HANDLED: &str = "handled ";
const COUNT: usize = 300;
const KILLED_AT: usize = 26;

/// A process that handles messages and can be killed.
struct Consumer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Consumer {
    fn start(url: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args(["consumer_process", "--exact", "--ignored", "--nocapture"])
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test runs");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut consumer = Self { process, lines };
        assert_eq!(consumer.handled(), Some(usize::MAX), "it has subscribed");
        consumer
    }

    /// The next message that it has handled; `None` when it was killed.
    fn handled(&mut self) -> Option<usize> {
        self.lines.find_map(|line| {
            let line = line.ok()?;
            let number = line.strip_prefix(HANDLED)?;
            number.parse().ok()
        })
    }

    fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

#[tokio::test(flavor = "current_thread")]
#[ignore = "the process that another test starts and kills"]
async fn consumer_process() {
    let url = std::env::var(URL).expect("the URL of a broker");
    let client = Client::connect(Options {
        client_id: "consumer".to_owned(),
        resume: true,
        subscribe: vec![("work/#".to_owned(), Qos::ExactlyOnce.into())],
        ..Options::new(url)
    })
    .await
    .expect("served");
    println!("\n{HANDLED}{}", usize::MAX);
    while let Some(message) = client.next().await {
        // What is handled takes a moment.
        tokio::time::sleep(Duration::from_millis(2)).await;
        println!("{HANDLED}{}", message.text().expect("a number"));
    }
}

#[tokio::test]
async fn a_process_that_is_killed_loses_nothing() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let broker = Mosquitto::start();
        let url = format!("mqtt://127.0.0.1:{}", broker.port);
        let mut first = Consumer::start(&url);
        let publisher = Client::connect(Options::new(&*url)).await.expect("served");
        let publish = async |number: usize| {
            let message = Message::new("work", number.to_string()).qos(qos);
            publisher.publish(message).await.expect("acknowledged");
        };
        for number in 0..COUNT {
            publish(number).await;
        }
        let mut before: Vec<usize> = (0..KILLED_AT).filter_map(|_| first.handled()).collect();
        first.kill();
        // What it had printed when it was killed.
        before.extend(std::iter::from_fn(|| first.handled()));
        let mut second = Consumer::start(&url);
        publish(COUNT).await;
        let mut after = Vec::new();
        while after.last() != Some(&COUNT) {
            after.push(second.handled().expect("it runs"));
        }
        second.kill();
        let all: BTreeSet<usize> = before.iter().chain(&after).copied().collect();
        assert_eq!(all.len(), COUNT + 1, "{qos:?}: {before:?}, then {after:?}");
        assert!(after.is_sorted(), "{qos:?}: {after:?}");
        let twice = before
            .iter()
            .filter(|number| after.contains(number))
            .count();
        // The message that it had, and one whose acknowledgement was not sent yet.
        assert!(twice <= 2, "{qos:?}: {twice}");
    }
}
