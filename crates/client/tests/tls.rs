//! Brokers and control planes that show a certificate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use thicket_client::{Client, ClientTls, Error, Options, Placement};
use thicket_transport::tls::rustls::{ServerConfig, ServerConnection, StreamOwned};
use thicket_transport::tls::{ClientCertificates, ServerTls};

/// CONNACK: no session, success, no properties.
const CONNACK: [u8; 5] = [0x20, 3, 0, 0, 0];

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// A folder with a certificate for 127.0.0.1 and its key.
struct Certificate(PathBuf);

impl Certificate {
    fn make() -> Self {
        let folder = std::env::temp_dir().join(format!("thicket-client-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let made = Self(folder);
        let kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost";
        let status = Command::new("openssl")
            .args(kind.split(' '))
            .args(["-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(made.key())
            .arg("-out")
            .arg(made.path())
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("openssl is installed").success());
        made
    }

    fn path(&self) -> PathBuf {
        self.0.join("certificate.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Places clients by HTTPS at itself, and takes them; ends with the process. Answers its address.
fn start(config: Arc<ServerConfig>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let own = address.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection =
                ServerConnection::new(Arc::clone(&config)).expect("a good configuration");
            let (stream, own) = (StreamOwned::new(connection, stream), own.clone());
            std::thread::spawn(move || serve(BufReader::new(stream), &own));
        }
    });
    address
}

fn serve(mut stream: BufReader<Stream>, address: &str) {
    match stream.fill_buf() {
        Ok(bytes) if bytes.starts_with(b"POST") => place(stream, address),
        Ok(bytes) if !bytes.is_empty() => {
            let _ = stream.get_mut().write_all(&CONNACK);
            // Until the client goes.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        // It does not trust this server.
        Ok(_) | Err(_) => {}
    }
}

fn place(mut stream: BufReader<Stream>, address: &str) {
    let (mut length, mut line) = (0, String::new());
    while stream.read_line(&mut line).is_ok_and(|count| count > 2) {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        line.clear();
    }
    stream.read_exact(&mut vec![0; length]).expect("a body");
    let session = serde_json::json!({"client_id": "c", "address": "127.0.0.1:1", "tls": address});
    let answer = serde_json::json!({ "sessions": [session] }).to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    let _ = stream.get_mut().write_all((head + &answer).as_bytes());
}

#[tokio::test]
async fn tls_takes_servers_whose_certificate_is_trusted_and_no_others() {
    let certificate = Certificate::make();
    let server = ServerTls {
        certificate: certificate.path(),
        key: certificate.key(),
        client_authorities: None,
        client_certificates: ClientCertificates::Off,
    };
    let address = start(server.load().expect("a good certificate"));
    let options = Options {
        client_id: "c".to_owned(),
        placement: Placement::Http(vec![format!("https://{address}")]),
        connect_timeout: Duration::from_millis(500),
        ..Options::new(format!("mqtts://{address}"))
    };
    let refused = Client::connect(options.clone()).await.map(|_| ());
    assert!(
        matches!(&refused, Err(Error::Connect(problem)) if problem.contains("certificate")),
        "{refused:?}"
    );
    let client = Client::connect(Options {
        tls: ClientTls {
            authorities: Some(certificate.path()),
            identity: Some((certificate.path(), certificate.key())),
            insecure: false,
        },
        connect_timeout: Duration::from_secs(60),
        ..options
    })
    .await
    .expect("served");
    let status = client.status();
    assert!(status.is_placed, "{status:?}");
    assert_eq!(status.sessions[&1], address);
}
