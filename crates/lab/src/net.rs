//! Namespaces, interfaces, addresses and routes of a topology, created by `ip` in batches, one for each namespace.
//!
//! A site has three namespaces: its router with a bridge, its broker and its clients. Names begin with `thicket-PID-`, PID being the lab's, so that
//! the remains of a dead lab can be distinguished from what a running one uses.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use thicket_bench::namespace::inside;

use crate::command;
use crate::error::LabError;
use crate::topology::{Topology, broker_address, client_address, link_addresses, router_address};

/// Beginning of all names.
pub const PREFIX: &str = "thicket-";

/// Namespaces of one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Router and bridge.
    pub router: String,
    /// Broker.
    pub broker: String,
    /// Clients.
    pub clients: String,
}

/// The path of a namespace in the file system.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace)
}

/// Names of the namespaces of site number `site` of the lab `lab`.
#[must_use]
pub fn site(lab: u32, site: usize) -> Site {
    let name = |kind: &str| format!("{PREFIX}{lab}-{kind}{}", site + 1);
    Site {
        router: name("r"),
        broker: name("b"),
        clients: name("c"),
    }
}

/// Name of a router's interface towards another site.
#[must_use]
pub fn wan(other: usize) -> String {
    format!("wan{}", other + 1)
}

/// Creates the namespaces of all sites, with their networks up to the router.
pub fn make_sites(
    sites: &[Site],
    congestion: Option<&str>,
    single_segments: bool,
) -> Result<(), LabError> {
    let mut batch = String::new();
    for site in sites {
        for namespace in [&site.router, &site.broker, &site.clients] {
            let _ = writeln!(batch, "netns add {namespace}");
        }
    }
    command::feed("ip", &["-batch", "-"], &batch)?;
    for (number, site) in sites.iter().enumerate() {
        for namespace in [&site.router, &site.broker, &site.clients] {
            settings(namespace)?;
        }
        ip(&site.router, &router_batch(number, site))?;
        ip(
            &site.broker,
            &host_batch(number, Host::Broker, congestion, single_segments),
        )?;
        ip(
            &site.clients,
            &host_batch(number, Host::Clients, congestion, single_segments),
        )?;
    }
    Ok(())
}

/// Sets the addresses of the ends of all links, and the routes of all routers. The devices must exist.
pub fn make_routes(sites: &[Site], topology: &Topology) -> Result<(), LabError> {
    for (number, site) in sites.iter().enumerate() {
        let mut batch = String::new();
        for (index, link) in topology.links.iter().enumerate() {
            if link.a != number && link.b != number {
                continue;
            }
            let other = topology.other_end(index, number);
            let [a, b] = link_addresses(index);
            let (own, peer) = if link.a == number { (a, b) } else { (b, a) };
            let device = wan(other);
            let _ = writeln!(
                batch,
                "link set {device} address {}",
                link_mac(index, link.a == number)
            );
            let _ = writeln!(batch, "addr add {own}/30 dev {device}");
            let _ = writeln!(batch, "link set {device} mtu 1500 txqueuelen 1000 up");
            let peer_mac = link_mac(index, link.a != number);
            let _ = writeln!(
                batch,
                "neigh replace {peer} lladdr {peer_mac} dev {device} nud permanent"
            );
        }
        for destination in (0..sites.len()).filter(|&destination| destination != number) {
            let Some(link) = topology.next_link(number, destination) else {
                continue;
            };
            let [a, b] = link_addresses(link);
            let via = if topology.links[link].a == number {
                b
            } else {
                a
            };
            let _ = writeln!(batch, "route add 10.{}.0.0/24 via {via}", destination + 1);
        }
        ip(&site.router, &batch)?;
    }
    Ok(())
}

/// Runs a batch of `ip` in a namespace.
pub fn ip(namespace: &str, batch: &str) -> Result<(), LabError> {
    if batch.is_empty() {
        return Ok(());
    }
    command::feed("ip", &["-n", namespace, "-batch", "-"], batch).map(drop)
}

/// Kernel settings: forwarding, and no IPv6, whose neighbour discovery would be counted as traffic between brokers.
fn settings(namespace: &str) -> Result<(), LabError> {
    let write = || -> std::io::Result<()> {
        let base = Path::new("/proc/sys/net");
        std::fs::write(base.join("ipv4/ip_forward"), "1")?;
        for scope in ["all", "default"] {
            std::fs::write(base.join(format!("ipv4/conf/{scope}/rp_filter")), "0")?;
            let ipv6 = base.join(format!("ipv6/conf/{scope}/disable_ipv6"));
            if ipv6.exists() {
                std::fs::write(ipv6, "1")?;
            }
        }
        Ok(())
    };
    inside(&path(namespace), write)
        .and_then(|written| written)
        .map_err(LabError::io(format!("settings of {namespace}")))
}

/// The two hosts of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    Broker,
    Clients,
}

fn router_batch(number: usize, site: &Site) -> String {
    let mut batch = String::new();
    let _ = writeln!(batch, "link set lo up");
    let _ = writeln!(
        batch,
        "link add br0 type bridge mcast_snooping 0 forward_delay 0"
    );
    let _ = writeln!(batch, "link set br0 address {}", lan_mac(number, 1));
    let _ = writeln!(batch, "addr add {}/24 dev br0", router_address(number));
    for (port, namespace) in [("broker", &site.broker), ("clients", &site.clients)] {
        let _ = writeln!(
            batch,
            "link add {port} type veth peer name eth0 netns {namespace}"
        );
        let _ = writeln!(batch, "link set {port} master br0 up");
    }
    let _ = writeln!(batch, "link set br0 up");
    for (address, host) in [(broker_address(number), 2), (client_address(number), 3)] {
        let _ = writeln!(
            batch,
            "neigh replace {address} lladdr {} dev br0 nud permanent",
            lan_mac(number, host)
        );
    }
    batch
}

fn host_batch(
    number: usize,
    host: Host,
    congestion: Option<&str>,
    single_segments: bool,
) -> String {
    let hosts = [
        (router_address(number), 1),
        (broker_address(number), 2),
        (client_address(number), 3),
    ];
    let own = if host == Host::Broker { 1 } else { 2 };
    let mut batch = String::new();
    let _ = writeln!(batch, "link set lo up");
    let _ = writeln!(
        batch,
        "link set eth0 address {}",
        lan_mac(number, hosts[own].1)
    );
    let _ = writeln!(batch, "addr add {}/24 dev eth0", hosts[own].0);
    if single_segments {
        let _ = writeln!(batch, "link set eth0 gso_max_segs 1");
    }
    let _ = writeln!(batch, "link set eth0 up");
    for (place, (address, number_in_lan)) in hosts.iter().enumerate() {
        if place != own {
            let _ = writeln!(
                batch,
                "neigh replace {address} lladdr {} dev eth0 nud permanent",
                lan_mac(number, *number_in_lan)
            );
        }
    }
    let congestion = congestion.map_or(String::new(), |name| format!(" congctl {name}"));
    let _ = writeln!(batch, "route add default via {}{congestion}", hosts[0].0);
    batch
}

fn lan_mac(site: usize, host: u8) -> String {
    format!("02:10:00:00:{:02x}:{host:02x}", site + 1)
}

fn link_mac(link: usize, is_first: bool) -> String {
    format!(
        "02:17:00:{:02x}:{:02x}:{:02x}",
        link >> 8,
        link & 0xFF,
        if is_first { 1 } else { 2 }
    )
}
