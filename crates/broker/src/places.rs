//! The host and addresses under which others reach a node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use getifaddrs::{Interface, InterfaceFlags};

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

/// For a wildcard, the address that this host uses towards others: the source address of its default route, or without one the first address of an
/// interface; loopback if it has no network.
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
    let of_route = asked.ok().map(|local| local.ip());
    let of_interface = || first_address(ip, getifaddrs::getifaddrs().into_iter().flatten());
    of_route.or_else(of_interface).unwrap_or(fallback)
}

/// The first address of the family of `like` that other hosts can use. Link-local addresses of IPv6 mean nothing without an interface's name.
fn first_address(like: IpAddr, interfaces: impl Iterator<Item = Interface>) -> Option<IpAddr> {
    interfaces
        .filter(|it| it.flags.contains(InterfaceFlags::UP))
        .filter_map(|it| it.address.ip_addr())
        .filter(|ip| ip.is_ipv4() == like.is_ipv4() && !ip.is_loopback())
        .find(|ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()))
}

#[cfg(test)]
mod tests {
    use getifaddrs::{Address, NetworkAddress};

    use super::*;

    fn interface(address: &str, flags: InterfaceFlags) -> Interface {
        let address = match address.parse().expect("an address") {
            IpAddr::V4(address) => Address::V4(NetworkAddress {
                address,
                netmask: None,
                associated_address: None,
            }),
            IpAddr::V6(address) => Address::V6(NetworkAddress {
                address,
                netmask: None,
                associated_address: None,
            }),
        };
        Interface {
            name: "eth0".into(),
            address,
            flags,
            index: None,
        }
    }

    #[test]
    fn without_a_default_route_the_first_address_for_others_is_announced() {
        let all = || {
            [
                interface("127.0.0.1", InterfaceFlags::UP),
                interface("10.1.0.1", InterfaceFlags::empty()),
                interface("fe80::1", InterfaceFlags::UP),
                interface("fd00::1", InterfaceFlags::UP),
                interface("10.2.0.1", InterfaceFlags::UP),
                interface("10.3.0.1", InterfaceFlags::UP),
            ]
            .into_iter()
        };
        for (like, expected) in [("0.0.0.0", "10.2.0.1"), ("::", "fd00::1")] {
            let like: IpAddr = like.parse().expect("an address");
            let found = first_address(like, all()).map(|ip| ip.to_string());
            assert_eq!(found.as_deref(), Some(expected));
            assert_eq!(first_address(like, all().take(3)), None);
        }
    }
}
