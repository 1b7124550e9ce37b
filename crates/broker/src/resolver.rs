//! Resolves names: the system's resolver blocks.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::mailbox::Letter;

/// The letter with the addresses of HOST:PORT, for a dial.
pub(crate) fn resolved(address: String) -> Letter {
    let found = resolve(&address);
    Letter::Resolved { address, found }
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
