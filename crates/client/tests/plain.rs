//! A plain broker, Mosquitto: one session, no placement.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
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
            let found = (message.topic, message.payload, message.qos);
            assert_eq!(found, (format!("a/{}", qos as u8), vec![qos as u8], qos));
        }
        client.unsubscribe("a/+").await.expect("answered");
        client.close().await;
    }
}
