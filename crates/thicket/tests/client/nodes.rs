//! Nodes as processes, on ports that were free a moment ago.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_thicket");
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Cluster {
    nodes: Vec<Node>,
}

struct Node {
    port: u16,
    http: u16,
    process: Child,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

fn get(port: u16, path: &str) -> Option<serde_json::Value> {
    let mut answer = ureq::get(format!("http://127.0.0.1:{port}{path}"))
        .call()
        .ok()?;
    serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok()
}

impl Cluster {
    /// Starts `size` nodes, and waits until all see each other.
    pub fn start(size: usize) -> Self {
        let mut cluster = Self { nodes: Vec::new() };
        for number in 0..size {
            let (port, http) = (free_port(), free_port());
            let mut command = Command::new(BINARY);
            command
                .args([
                    "broker",
                    "--name",
                    &format!("n{number}"),
                    "--discover",
                    "off",
                    "--workers",
                    "1",
                ])
                .args([
                    "--listen",
                    &format!("127.0.0.1:{port}"),
                    "--http",
                    &format!("127.0.0.1:{http}"),
                ])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            for node in &cluster.nodes {
                command.args(["--seed", &format!("127.0.0.1:{}", node.port)]);
            }
            let process = command.spawn().expect("the broker starts");
            cluster.nodes.push(Node {
                port,
                http,
                process,
            });
        }
        let deadline = Instant::now() + PATIENCE;
        while !cluster.nodes.iter().all(|node| node.sees() == size) {
            assert!(Instant::now() < deadline, "the nodes do not see each other");
            std::thread::sleep(Duration::from_millis(20));
        }
        cluster
    }

    pub fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.nodes[node].port)
    }

    pub fn addresses(&self) -> Vec<String> {
        (0..self.nodes.len())
            .map(|node| self.address(node))
            .collect()
    }

    pub fn url(&self, node: usize) -> String {
        format!("mqtt://{}", self.address(node))
    }

    pub fn urls(&self) -> Vec<String> {
        (0..self.nodes.len()).map(|node| self.url(node)).collect()
    }

    /// The process ends at once and says goodbye to nobody.
    pub fn kill(&mut self, node: usize) {
        let process = &mut self.nodes[node].process;
        process.kill().expect("it runs");
        process.wait().expect("it ends");
    }

    /// Begins to take a node out on purpose.
    pub fn drain(&self, node: usize) -> Child {
        let api = format!("127.0.0.1:{}", self.nodes[node].http);
        Command::new(BINARY)
            .args(["ctl", "--api", &api, "drain"])
            .stdout(Stdio::null())
            .spawn()
            .expect("ctl starts")
    }

    /// Waits until the clients of `node` have exactly these subscriptions.
    pub async fn wait_for_subscriptions(&self, node: usize, filters: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = get(self.nodes[node].http, "/v1/subscriptions").unwrap_or_default();
            let text = found.to_string();
            let all = filters
                .iter()
                .all(|filter| text.contains(&format!("\"{filter}\"")));
            if all {
                return;
            }
            assert!(Instant::now() < deadline, "expected {filters:?}: {text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Node {
    fn sees(&self) -> usize {
        let nodes = get(self.http, "/v1/nodes").unwrap_or_default();
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        nodes
            .iter()
            .filter(|node| node["reachable"] == true)
            .count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // It may be dead already.
            let _ = node.process.kill();
            let _ = node.process.wait();
        }
    }
}
