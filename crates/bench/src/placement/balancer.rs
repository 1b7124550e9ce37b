//! A load balancer between clients and nodes for clients without placement: it chooses a random node for each connection.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::random::Random;

/// A connection that lasts this long was not refused.
const SERVED: Duration = Duration::from_millis(300);

/// The balancer of one client: it has the client's current node.
#[derive(Debug, Clone)]
pub(super) struct Balancer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    nodes: Vec<SocketAddr>,
    node: AtomicUsize,
    connections: AtomicUsize,
    /// When the connection was opened.
    open_since: Mutex<Option<Instant>>,
    cut: Notify,
}

impl Balancer {
    pub async fn start(nodes: Vec<SocketAddr>, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let shared = Arc::new(Shared {
            nodes,
            node: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            open_since: Mutex::new(None),
            cut: Notify::new(),
        });
        let address = listener.local_addr()?;
        tokio::spawn(serve(listener, Arc::clone(&shared), Random::new(seed)));
        Ok(Self { address, shared })
    }

    /// The client's current or last node.
    pub fn node(&self) -> usize {
        self.shared.node.load(Ordering::Relaxed)
    }

    /// Connections so far, including refused ones.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    pub fn is_served(&self) -> bool {
        let since = self.shared.open_since();
        since.is_some_and(|since| since.elapsed() >= SERVED)
    }

    /// Breaks the connection: the client reconnects by itself.
    pub fn cut(&self) {
        *self.shared.open_since() = None;
        self.shared.cut.notify_one();
    }
}

impl Shared {
    fn open_since(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        let since = self.open_since.lock();
        since.unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, mut random: Random) {
    while let Ok((mut client, _)) = listener.accept().await {
        let drawn = random.below(shared.nodes.len());
        let Ok(mut node) = TcpStream::connect(shared.nodes[drawn]).await else {
            continue;
        };
        let _ = client.set_nodelay(true);
        let _ = node.set_nodelay(true);
        shared.node.store(drawn, Ordering::Relaxed);
        shared.connections.fetch_add(1, Ordering::Relaxed);
        *shared.open_since() = Some(Instant::now());
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut node) => {}
            () = shared.cut.notified() => {}
        }
        *shared.open_since() = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn each_connection_comes_to_a_node_that_is_drawn_and_can_be_cut() {
        let mut nodes = Vec::new();
        for name in [b'a', b'b'] {
            let node = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            nodes.push(node.local_addr().unwrap());
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = node.accept().await {
                    tokio::spawn(async move {
                        let _ = stream.write_all(&[name]).await;
                        let _ = stream.read(&mut [0]).await;
                    });
                }
            });
        }
        let balancer = Balancer::start(nodes, 1).await.unwrap();
        let mut seen = [0, 0];
        for number in 1..=20 {
            let mut client = TcpStream::connect(balancer.address).await.unwrap();
            let name = client.read_u8().await.unwrap();
            seen[balancer.node()] += 1;
            assert_eq!(usize::from(name - b'a'), balancer.node());
            assert_eq!(balancer.connections(), number);
            balancer.cut();
            assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0, "it is cut");
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}
