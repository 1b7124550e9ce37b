//! Forwards multicast between the routers: raw sockets on their interfaces, along the tree of shortest paths from each source.
//!
//! The kernel would do it for a daemon that holds its multicast routing socket, but those options need unsafe code. What is forwarded here is
//! discovery, a few datagrams a second.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};
use thicket_bench::namespace::inside;

use super::control::{Forwarding, Plan, Router};
use crate::topology::site_of;

/// Largest datagram.
const DATAGRAM: usize = 65_535;

/// All routers' sockets.
#[derive(Debug)]
pub(super) struct Multicast {
    /// For each site its interfaces, each with a socket that reads and writes whole IP packets.
    sites: Vec<Vec<Socket>>,
    forwarding: Vec<Vec<Forwarding>>,
    groups: Vec<SocketAddrV4>,
    first_token: usize,
}

impl Multicast {
    /// Opens the sockets; their tokens follow `first_token`.
    pub fn open(plan: &Plan, registry: &Registry, first_token: usize) -> io::Result<Self> {
        let mut sites = Vec::new();
        let mut token = first_token;
        for router in &plan.routers {
            let sockets = if plan.groups.is_empty() {
                Vec::new()
            } else {
                inside(&router.namespace, || open_router(router, &plan.groups))??
            };
            for socket in &sockets {
                registry.register(
                    &mut SourceFd(&socket.as_raw_fd()),
                    Token(token),
                    Interest::READABLE,
                )?;
                token += 1;
            }
            sites.push(sockets);
        }
        Ok(Self {
            sites,
            forwarding: plan.forwarding.clone(),
            groups: plan.groups.clone(),
            first_token,
        })
    }

    /// Forwards what has arrived at the socket of `token`.
    pub fn on_readable(&self, token: usize) {
        let mut place = token - self.first_token;
        for (site, sockets) in self.sites.iter().enumerate() {
            if place < sockets.len() {
                self.forward_all(site, place);
                return;
            }
            place -= sockets.len();
        }
    }

    fn forward_all(&self, site: usize, interface: usize) {
        let mut buffer = vec![0; DATAGRAM];
        let mut socket = &self.sites[site][interface];
        while let Ok(len) = socket.read(&mut buffer) {
            self.forward(site, interface, &mut buffer[..len]);
        }
    }

    fn forward(&self, site: usize, interface: usize, packet: &mut [u8]) {
        let Some((source, group, port)) = addresses(packet) else {
            return;
        };
        let wanted = self
            .groups
            .iter()
            .any(|known| (*known.ip(), known.port()) == (group, port));
        let Some(rule) = site_of(source).and_then(|source| self.forwarding[site].get(source))
        else {
            return;
        };
        // A router drops packets whose hop limit is reached.
        if !wanted || rule.from != interface || packet[8] <= 1 {
            return;
        }
        packet[8] -= 1;
        // The sender's kernel leaves the checksum to its virtual network card, so it is incomplete here: 0 means that there is none (RFC 768).
        let checksum = usize::from(packet[0] & 0x0F) * 4 + 6;
        packet[checksum..checksum + 2].fill(0);
        for &out in &rule.to {
            // Multicast guarantees nothing: what cannot be sent is lost.
            let _ = self.sites[site][out].send_to(
                packet,
                &SocketAddr::from(SocketAddrV4::new(group, port)).into(),
            );
        }
    }
}

/// A raw socket on each interface of a router that is a member of the groups there. Called inside the router's namespace.
fn open_router(router: &Router, groups: &[SocketAddrV4]) -> io::Result<Vec<Socket>> {
    let open = |name: &str, address: &Ipv4Addr| {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.bind_device(Some(name.as_bytes()))?;
        // Forwarded packets keep the sender's address.
        socket.set_header_included_v4(true)?;
        socket.set_multicast_loop_v4(false)?;
        socket.set_multicast_if_v4(address)?;
        for group in groups {
            socket.join_multicast_v4(group.ip(), address)?;
        }
        Ok(socket)
    };
    router
        .interfaces
        .iter()
        .map(|interface| open(&interface.name, &interface.address))
        .collect()
}

/// Source, multicast group and port of an IPv4 packet with UDP in it.
fn addresses(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, u16)> {
    let address = |at: usize| {
        let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    };
    let (source, group) = (address(12)?, address(16)?);
    let header = usize::from(packet[0] & 0x0F) * 4;
    let port = packet.get(header + 2..header + 4)?;
    let is_whole = packet.len() >= header + 8;
    (packet[9] == 17 && is_whole && group.is_multicast())
        .then(|| (source, group, u16::from_be_bytes([port[0], port[1]])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_multicast_datagrams_have_addresses_to_forward_by() {
        let mut packet = vec![
            0x45, 0, 0, 32, 0, 0, 0, 0, 4, 17, 0, 0, 10, 3, 0, 2, 239, 255, 18, 83,
        ];
        packet.extend([0x30, 0x39, 0x49, 0x8E, 0, 12, 0, 0, 1, 2, 3, 4]);
        assert_eq!(
            addresses(&packet),
            Some((
                Ipv4Addr::new(10, 3, 0, 2),
                Ipv4Addr::new(239, 255, 18, 83),
                18_830
            ))
        );
        packet[16] = 10;
        assert_eq!(addresses(&packet), None, "unicast");
        assert_eq!(addresses(&packet[..20]), None, "cut short");
    }
}
