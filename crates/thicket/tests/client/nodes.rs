//! Nodes as processes, on ports that the kernel chooses.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_thicket");
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Cluster {
    nodes: Vec<Node>,
}

struct Node {
    port: u16,
    http: u16,
    process: Child,
}

/// The ports of MQTT and HTTP, from the line of the log that has them. The log is read to its end, so that the node never waits for its reader.
fn ports(log: ChildStderr) -> (u16, u16) {
    let (found, first) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if line.contains("node started") {
                // Nobody waits any more if the test has given up.
                let _ = found.send(line);
            }
        }
    });
    let line = first.recv_timeout(TIMEOUT).expect("the node starts");
    let line: serde_json::Value = serde_json::from_str(&line).expect("a line of JSON");
    let port = |field: &str| {
        let address = line[field].as_str().expect("an address");
        let (_, port) = address.rsplit_once(':').expect("HOST:PORT");
        port.parse().expect("a port")
    };
    (port("listen"), port("http"))
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
            let mut command = Command::new(BINARY);
            command
                .args(["broker", "--name", &format!("n{number}")])
                .args(["--discover", "off", "--workers", "1"])
                .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
                .args(["--log-format", "json"])
                // Round trips on a busy machine are those of several sites, between which clients are not placed.
                .args(["--site", "here"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            for node in &cluster.nodes {
                command.args(["--seed", &format!("127.0.0.1:{}", node.port)]);
            }
            let mut process = command.spawn().expect("the broker starts");
            let (port, http) = ports(process.stderr.take().expect("piped"));
            cluster.nodes.push(Node {
                port,
                http,
                process,
            });
        }
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let seen: Vec<usize> = cluster.nodes.iter().map(Node::sees).collect();
            if seen.iter().all(|nodes| *nodes == size) {
                return cluster;
            }
            assert!(
                Instant::now() < deadline,
                "nodes that each one sees: {seen:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
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
        let deadline = Instant::now() + TIMEOUT;
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
