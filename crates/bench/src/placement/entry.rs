//! Nodes as clients and the experiment reach them: started here, or elsewhere in networks of their own.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::runtime::Handle;

use crate::metrics::{Metrics, page};
use crate::namespace::inside;
use crate::target::Running;

/// A node, and the clients that connect to it first.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The address for clients.
    pub address: SocketAddr,
    /// Its HTTP API.
    pub api: SocketAddr,
    /// The network namespace from which the API is reached; `None`: that of this thread.
    pub api_namespace: Option<PathBuf>,
    /// Its process.
    pub pid: u32,
    /// The runtime of its clients: their connections start in the network namespace of that runtime's thread.
    pub clients: Handle,
}

impl Entry {
    /// A node on loopback, with all clients on one runtime.
    pub(super) fn on_loopback(node: &Running, clients: &Handle) -> Self {
        Self {
            address: node.address,
            api: node.other_address,
            api_namespace: None,
            pid: node.pid(),
            clients: clients.clone(),
        }
    }

    pub(super) fn metrics(&self) -> io::Result<Metrics> {
        self.ask(|| Metrics::fetch(self.api))
    }

    pub(super) fn page(&self, path: &str) -> io::Result<String> {
        self.ask(|| page(self.api, path))
    }

    pub(super) fn memory_kib(&self) -> u64 {
        crate::process::memory(self.pid).map_or(0, |memory| memory.rss_kib)
    }

    fn ask<T>(&self, question: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match &self.api_namespace {
            Some(namespace) => inside(namespace, question)?,
            None => question(),
        }
    }
}
