//! A control plane that answers what it was told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::nodes::Cluster;

/// A session: its name, the number of its node, what it publishes and what it subscribes to.
pub type Session<'a> = (&'a str, usize, &'a [&'a str], &'a [&'a str]);

#[derive(Clone)]
pub struct Control {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    answer: Value,
    requests: Vec<Value>,
}

impl Control {
    pub fn start(cluster: &Cluster, sessions: &[Session<'_>]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let control = Self {
            port: listener.local_addr().expect("bound").port(),
            state: Arc::default(),
        };
        control.place(&cluster.addresses(), sessions);
        let state = Arc::clone(&control.state);
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let (mut length, mut line) = (0, String::new());
                while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                    let lower = line.to_lowercase();
                    if let Some(value) = lower.strip_prefix("content-length:") {
                        length = value.trim().parse().expect("a length");
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).expect("a body");
                let answer = {
                    let mut state = state.lock().expect("no panic");
                    state
                        .requests
                        .push(serde_json::from_slice(&body).expect("JSON"));
                    state.answer.to_string()
                };
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    answer.len()
                );
                let _ = reader.into_inner().write_all((head + &answer).as_bytes());
            }
        });
        control
    }

    /// What is answered from now on.
    pub fn place(&self, addresses: &[String], sessions: &[Session<'_>]) {
        let sessions: Vec<Value> = sessions
            .iter()
            .map(|(name, node, publish, subscribe)| {
                json!({"node": format!("n{node}"), "address": addresses[*node], "tls": null, "ws": null,
                       "client_id": name, "publish": publish, "subscribe": subscribe})
            })
            .collect();
        self.state.lock().expect("no panic").answer = json!({ "sessions": sessions });
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn asked(&self) -> usize {
        self.state.lock().expect("no panic").requests.len()
    }

    pub fn last_request(&self) -> Value {
        let state = self.state.lock().expect("no panic");
        state.requests.last().cloned().expect("a request")
    }
}
