//! Resolves names on a thread of its own: the system's resolver blocks.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::mailbox::{Letter, Mailboxes};

/// Resolves the hosts of dials.
#[derive(Debug, Clone)]
pub(crate) struct Resolver {
    names: Sender<String>,
}

impl Resolver {
    /// Starts the thread. It ends when the last resolver is dropped; answers go to thread 0, where the hub is.
    pub(crate) fn start(boxes: &Mailboxes) -> io::Result<Self> {
        let (names, receiver) = channel();
        let hub = Arc::clone(&boxes[0]);
        std::thread::Builder::new()
            .name("resolver".into())
            .spawn(move || resolve_all(&receiver, &hub))?;
        Ok(Self { names })
    }

    /// The addresses of HOST:PORT arrive as a letter.
    pub(crate) fn ask(&self, address: String) {
        // Fails only if the thread has ended, and then the node is stopping.
        let _ = self.names.send(address);
    }
}

fn resolve_all(names: &Receiver<String>, hub: &crate::mailbox::Mailbox) {
    for address in names {
        let found = resolve(&address);
        hub.post(Letter::Resolved { address, found });
    }
}

/// All addresses of HOST:PORT, in the order the system prefers.
pub(crate) fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = address.to_socket_addrs()?.collect();
    if found.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the name has no address",
        ));
    }
    Ok(found)
}
