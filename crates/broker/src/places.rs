//! The host and addresses under which others reach a node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::config::Config;

/// Names and addresses derived from where the node listens.
pub(crate) struct Places {
    pub(crate) name: String,
    /// Where other nodes reach it.
    pub(crate) address: String,
    /// The address in announcements: a wildcard is left to the receivers, which use the datagram's source address.
    pub(crate) announced: String,
    /// The host under which this node is known, if it is configured.
    advertised_host: Option<String>,
}

impl Places {
    pub(crate) fn of(config: &Config, first: SocketAddr) -> Self {
        let reached = SocketAddr::new(outward(first.ip()), first.port());
        // Announcements travel over IPv4, so their source address does not lead to an IPv6 listener.
        let announced = if first.is_ipv4() { first } else { reached };
        Self {
            name: config
                .name
                .clone()
                .unwrap_or_else(|| format!("{}-{}", host_name(), first.port())),
            address: config
                .advertise
                .clone()
                .unwrap_or_else(|| reached.to_string()),
            announced: config
                .advertise
                .clone()
                .unwrap_or_else(|| announced.to_string()),
            advertised_host: config
                .advertise
                .as_deref()
                .and_then(|address| address.rsplit_once(':'))
                .map(|(host, _)| host.to_owned()),
        }
    }

    /// HOST:PORT under which others reach an address of this host.
    pub(crate) fn outward(&self, address: SocketAddr) -> String {
        let port = address.port();
        match &self.advertised_host {
            Some(host) => format!("{host}:{port}"),
            None => SocketAddr::new(outward(address.ip()), port).to_string(),
        }
    }
}

pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// For a wildcard, the address that this host uses towards others; loopback if it has no network.
fn outward(ip: IpAddr) -> IpAddr {
    if !ip.is_unspecified() {
        return ip;
    }
    // Connecting a datagram socket sends nothing; it only queries the routing table. The addresses are for documentation (RFC 5737, RFC 3849).
    let (any, elsewhere, fallback) = match ip {
        IpAddr::V4(_) => ("0.0.0.0:0", "192.0.2.1:9", IpAddr::V4(Ipv4Addr::LOCALHOST)),
        IpAddr::V6(_) => ("[::]:0", "[2001:db8::1]:9", IpAddr::V6(Ipv6Addr::LOCALHOST)),
    };
    let asked = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(elsewhere)?;
        socket.local_addr()
    });
    asked.map_or(fallback, |local| local.ip())
}
