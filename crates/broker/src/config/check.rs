//! Turns settings into a checked configuration. All defaults are here and in `node::Limits`.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::time::Duration;

use thicket_node::{Limits, MAXIMUM_BACKUPS, RetainedLimits, Takes};
use thicket_transport::tls::LinkTls;

use super::access::names_users;
use super::error::TooOpen;
use super::faults::Faults;
use super::values::{all_hosts_and_ports, checked_name, in_range, invalid, reachable};
use super::{
    Access, ClusterSecret, Config, ConfigError, ConfigErrors, DiscoverChoice, Dns, Listen,
    Multicast, PartitionChoice, PlacementListen, RebalanceChoice, RedirectChoice, Settings, bridge,
    listener,
};

const DEFAULT_CLUSTER_NAME: &str = "thicket";
/// For monitoring, probes and people: each request is a connection.
const DEFAULT_HTTP_CONNECTIONS: u32 = 64;
const DEFAULT_HTTP: &str = "127.0.0.1:18830";
/// In the block for private use within an organisation (RFC 2365).
const DEFAULT_GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 18, 83), 18830);
const DEFAULT_TTL: u8 = 1;
const DEFAULT_ANNOUNCE_INTERVAL_MS: u64 = 3000;
const DEFAULT_DNS_INTERVAL_S: u64 = 15;
const DEFAULT_SYS_INTERVAL_S: u64 = 10;
/// Long enough for two announcements of a running node.
const DEFAULT_DISCOVERY_GRACE_MS: u64 = 500;
/// Workers are numbered in a byte; a machine with more cores should run two nodes.
const MOST_WORKERS: u32 = 128;

impl Settings {
    /// The configuration, if every value is valid. Reads the named files and resolves the names of listeners.
    ///
    /// # Errors
    /// All invalid values and combinations.
    pub fn check(self) -> Result<Config, ConfigErrors> {
        self.check_after(Vec::new())
    }

    /// As [`Settings::check`], where some keys of the file could not be read.
    ///
    /// # Errors
    /// The faults of the file, if there are any, and all invalid values. Combinations are not checked then: a missing part may be in a key that could
    /// not be read.
    pub fn check_after(self, faults: Vec<ConfigError>) -> Result<Config, ConfigErrors> {
        check(self, Faults::of_file(faults))
    }
}

/// Reports all faults together: an invalid value is noted and replaced by its default for the checks that follow.
fn check(settings: Settings, mut faults: Faults) -> Result<Config, ConfigErrors> {
    let config = config(&settings, &mut faults);
    super::addresses::check(&config, &mut faults);
    faults.end(config)
}

fn config(settings: &Settings, faults: &mut Faults) -> Config {
    let workers = faults.or_default(workers(settings.workers));
    let limits = limits(settings, workers, faults);
    let link_tls = link_tls(settings, faults);
    let listeners = listener::check(
        settings,
        limits.maximum_packet_size,
        link_tls.as_ref(),
        faults,
    );
    let secret = trust(settings, listeners.as_deref(), faults);
    // True if every listener has its own users, or requires certificates.
    let is_guarded = listeners.iter().flatten().all(|listen| listen.is_guarded);
    let access = Access::check(settings, is_guarded, faults);
    let is_loopback = listeners.iter().flatten().all(Listen::is_loopback);
    let multicast = faults.or_default(multicast(settings, is_loopback));
    let dns = faults.or_default(dns(settings));
    let seeds = faults.or_default(all_hosts_and_ports("seed", settings.seed.as_deref()));
    let is_alone = multicast.is_none() && dns.is_none() && seeds.is_empty();
    let (site, site_prices) = super::sites::check(settings, faults);
    let placement = listeners
        .as_deref()
        .map(|listeners| placement(settings, listeners));
    let plain = listeners.as_deref().map(listener::for_own_bridges);
    Config {
        name: faults.or_default(
            settings
                .name
                .clone()
                .map(|name| checked_name("name", name))
                .transpose(),
        ),
        cluster_name: faults.or_default(checked_name(
            "cluster_name",
            settings
                .cluster_name
                .clone()
                .unwrap_or_else(|| DEFAULT_CLUSTER_NAME.into()),
        )),
        advertise: faults.or_default(
            settings
                .advertise
                .clone()
                .map(|address| reachable("advertise", address))
                .transpose(),
        ),
        http: faults.or_default(http(settings.http.as_deref(), has_api_users(settings))),
        probe: faults.or_default(probe(settings.probe.as_deref())),
        placement: faults.or_default(placement.unwrap_or(Ok(None))),
        http_hosts: faults.or_default(http_hosts(settings)),
        http_connections: faults.in_range(
            "http_connections",
            settings.http_connections,
            DEFAULT_HTTP_CONNECTIONS,
            1..=1024,
        ),
        expect_nodes: faults.in_range(
            "expect_nodes",
            settings.expect_nodes,
            // Seeds and names say that there are others.
            if seeds.is_empty() && dns.is_none() {
                1
            } else {
                2
            },
            1..=4096,
        ),
        seeds,
        multicast,
        dns,
        restart_grace: Duration::from_secs(faults.in_range(
            "restart_grace_s",
            settings.restart_grace_s,
            30,
            0..=3600,
        )),
        discovery_grace: faults.or_default(discovery_grace(settings.discovery_grace_ms, is_alone)),
        routing: super::routing::check(settings, faults),
        workers,
        data: settings.data.clone(),
        sync: settings.sync.unwrap_or_default(),
        backups: faults.or_default(backups(settings.backups)),
        hint_bytes: settings.hint_bytes.unwrap_or(thicket_node::HINT_BYTES),
        ack: settings.ack.unwrap_or_default(),
        partition: faults.or_default(partition(settings)),
        redirect: faults.or_default(redirect(settings)),
        redirect_by_topics: settings.redirect == Some(RedirectChoice::Topics),
        redirect_refusals: faults.or_default(redirect_refusals(settings)),
        redirect_per_s: faults.in_range(
            "redirect_per_s",
            settings.redirect_per_s,
            DEFAULT_REDIRECT_PER_S,
            1..=1_000_000,
        ),
        redirect_references: faults.in_range(
            "redirect_references",
            settings.redirect_references,
            1,
            1..=8,
        ) as u8,
        rebalance: faults.or_default(rebalance(settings)),
        site,
        site_prices,
        file_warnings: super::file_warnings::file_warnings(
            settings,
            &access,
            listeners.as_deref().unwrap_or_default(),
        ),
        access,
        secret,
        link_tls,
        sandbox: settings.sandbox.unwrap_or_default(),
        limits,
        connections: settings.connections.unwrap_or(0),
        flapping: super::flapping::check(settings, faults),
        memory_bytes: settings.memory_bytes,
        system_interval: Duration::from_secs(
            settings.sys_interval_s.unwrap_or(DEFAULT_SYS_INTERVAL_S),
        ),
        retained: retained(settings),
        tenants: super::tenant::check(settings, listeners.as_deref(), faults),
        hooks: super::hook::check(settings, faults),
        telemetry: super::telemetry::check(settings, faults),
        bridges: bridge::check(settings, plain, faults),
        listeners: listeners.unwrap_or_default(),
    }
}

fn rebalance(settings: &Settings) -> Result<thicket_node::RebalanceConfig, ConfigError> {
    let default = thicket_node::RebalanceConfig::default();
    let rest_s = in_range(
        "rebalance_rest_s",
        settings.rebalance_rest_s,
        default.rest.as_secs(),
        1..=86_400,
    )?;
    let mode = settings.rebalance.unwrap_or(RebalanceChoice::Suggest);
    Ok(thicket_node::RebalanceConfig {
        mode: mode.into(),
        rest: Duration::from_secs(rest_s),
        ..default
    })
}

/// Redirections a second.
const DEFAULT_REDIRECT_PER_S: u32 = 500;

fn redirect(settings: &Settings) -> Result<Option<thicket_placement::Policy>, ConfigError> {
    match settings.redirect.unwrap_or(RedirectChoice::Off) {
        RedirectChoice::Off if settings.redirect_policy.is_some() => Err(ConfigError::Conflict(
            "redirect_policy says what of a load counts, but redirect is off: expected redirect = \"load\"",
        )),
        RedirectChoice::Off => Ok(None),
        RedirectChoice::Load | RedirectChoice::Topics => {
            let policy = settings.redirect_policy.map(Into::into);
            Ok(Some(policy.unwrap_or_default()))
        }
    }
}

fn redirect_refusals(settings: &Settings) -> Result<u8, ConfigError> {
    let count = in_range("redirect_refusals", settings.redirect_refusals, 0, 0..=64)?;
    if count > 0 && settings.redirect != Some(RedirectChoice::Topics) {
        return Err(ConfigError::Conflict(
            "redirect_refusals sends clients to their topics, but redirect does not go by them: expected redirect = \"topics\"",
        ));
    }
    Ok(count as u8)
}

fn backups(count: Option<u32>) -> Result<u8, ConfigError> {
    let count = count.unwrap_or(1);
    let known = u8::try_from(count).ok();
    known
        .filter(|count| *count <= MAXIMUM_BACKUPS)
        .ok_or_else(|| invalid("backups", count, "a number from 0 to 3"))
}

/// A node that stores nothing is another member at each start, and those before it count towards the majority.
fn partition(settings: &Settings) -> Result<thicket_node::Partition, ConfigError> {
    if settings.partition == Some(PartitionChoice::Majority) && settings.data.is_none() {
        let expected = "`data`, so that a node is the same member after a restart; or `majority-without-data`, if each start may add a member that counts towards the majority until `thicket ctl forget NODE`";
        return Err(invalid("partition", "majority", expected));
    }
    Ok(settings.partition.map(Into::into).unwrap_or_default())
}

/// Reads the secret of the cluster. If other hosts can reach a listener, the settings must say who may connect and which nodes may join.
fn trust(
    settings: &Settings,
    listeners: Option<&[Listen]>,
    faults: &mut Faults,
) -> Option<ClusterSecret> {
    let file = settings.cluster_secret_file.as_deref();
    let secret = faults.or_default(file.map(ClusterSecret::from_file).transpose());
    if file.is_some() && settings.insecure_links == Some(true) {
        faults.add(ConfigError::Conflict(
            "cluster_secret_file and insecure_links exclude each other: links have a secret or they have none",
        ));
    }
    let has_certificate = settings.link_tls_certificate.is_some();
    if has_certificate && settings.insecure_links == Some(true) {
        faults.add(ConfigError::Conflict(
            "link_tls_certificate and insecure_links exclude each other: links have certificates or they have none",
        ));
    }
    let links_are_guarded = file.is_some() || has_certificate;
    let node_is_guarded = names_users(settings) || settings.allow_anonymous == Some(true);
    let Some(listeners) = listeners else {
        return secret;
    };
    let open = listeners.iter().filter(|listen| !listen.is_loopback());
    // The least guarded one, for the message.
    if let Some(open) = open.min_by_key(|listen| listen.is_guarded) {
        let clients = !node_is_guarded && !open.is_guarded;
        let links = !links_are_guarded && settings.insecure_links != Some(true);
        if clients || links {
            faults.add(ConfigError::TooOpen(TooOpen {
                listen: open.text.clone(),
                clients,
                links,
            }));
        }
    } else if !links_are_guarded && settings.insecure_links == Some(false) {
        faults.add(ConfigError::Conflict(
            "insecure_links = false needs a cluster_secret_file or a link_tls_certificate",
        ));
    }
    secret
}

/// Certificate, key and authority of links: all of them or none.
fn link_tls(settings: &Settings, faults: &mut Faults) -> Option<LinkTls> {
    let (certificate, key, authority) = match (
        &settings.link_tls_certificate,
        &settings.link_tls_key,
        &settings.link_tls_ca,
    ) {
        (None, None, None) => return None,
        (Some(certificate), Some(key), Some(authority)) => (certificate, key, authority),
        _ => {
            faults.add(ConfigError::Conflict(
                "link_tls_certificate, link_tls_key and link_tls_ca belong together: give all three or none",
            ));
            return None;
        }
    };
    let tls = LinkTls {
        certificate: certificate.clone(),
        key: key.clone(),
        authority: authority.clone(),
    };
    let of_files = tls.server().faults();
    if of_files.is_empty() {
        faults.or_default(tls.load().map(drop));
    }
    of_files.into_iter().for_each(|fault| faults.add(fault));
    Some(tls)
}

fn http(text: Option<&str>, has_users: bool) -> Result<Option<SocketAddr>, ConfigError> {
    let text = text.unwrap_or(DEFAULT_HTTP);
    if text == "off" {
        return Ok(None);
    }
    let expected = if has_users {
        "`off`, or an address and port of this host, such as 127.0.0.1:18830"
    } else {
        "`off`, or an address and port on loopback, such as 127.0.0.1:18830"
    };
    let address = text
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .ok_or_else(|| invalid("http", text, expected))?;
    if !address.ip().is_loopback() && !has_users {
        let why = "without `http_users` or `http_tokens` everybody who reaches the HTTP API may use it, so it must not be reached from other machines";
        return Err(invalid("http", text, format!("{expected}; {why}")));
    }
    Ok(Some(address))
}

/// Probes answer nothing that needs a user, so any address is allowed.
fn probe(text: Option<&str>) -> Result<Option<SocketAddr>, ConfigError> {
    let Some(text) = text.filter(|text| *text != "off") else {
        return Ok(None);
    };
    let mut found = text.to_socket_addrs().into_iter().flatten();
    let expected = "`off`, or an address and port of this host, such as 0.0.0.0:18831";
    found
        .next()
        .map(Some)
        .ok_or_else(|| invalid("probe", text, expected))
}

/// The listener of the placement API belongs to an MQTT listener, and has the same access rules.
fn placement(
    settings: &Settings,
    listeners: &[Listen],
) -> Result<Option<PlacementListen>, ConfigError> {
    let Some(text) = settings.placement_listen.as_deref() else {
        return match settings.placement_listener {
            Some(_) => Err(ConfigError::Conflict(
                "placement_listener names the MQTT listener of placement_listen, which is not set: add placement_listen = \"HOST:PORT\"",
            )),
            None => Ok(None),
        };
    };
    let address = text
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .ok_or_else(|| {
            let expected = "an address and port of this host, such as 0.0.0.0:18840";
            invalid("placement_listen", text, expected)
        })?;
    let of_clients = || listeners.iter().filter(|it| it.takes != Takes::Links);
    let names = || {
        let names: Vec<&str> = of_clients().map(|it| &*it.text).collect();
        format!("a listener for clients, one of: {}", names.join(", "))
    };
    let mut all = of_clients();
    let listener = match (&settings.placement_listener, all.next(), all.next()) {
        (Some(text), ..) => of_clients()
            .find(|it| it.text == *text)
            .ok_or_else(|| invalid("placement_listener", text, names()))?,
        (None, Some(only), None) => only,
        (None, ..) => return Err(invalid("placement_listener", "nothing", names())),
    };
    let is_open = !address.ip().is_loopback() && listener.is_loopback();
    let is_chosen = names_users(settings) || settings.allow_anonymous == Some(true);
    if is_open && !listener.is_guarded && !is_chosen {
        return Err(ConfigError::Conflict(
            "placement_listen can be reached from other machines, but its placement_listener is on loopback and lets everybody in: give that listener users, or bind placement_listen to loopback",
        ));
    }
    Ok(Some(PlacementListen {
        address,
        listener: listener.text.clone(),
    }))
}

/// Whether requests to the HTTP API need a password or a token.
const fn has_api_users(settings: &Settings) -> bool {
    settings.http_users.is_some() || settings.http_tokens.is_some()
}

/// Names only: browsers append the port, and it is ignored.
fn http_hosts(settings: &Settings) -> Result<Vec<String>, ConfigError> {
    let names = settings.http_hosts.clone().unwrap_or_default();
    if !names.is_empty() && !has_api_users(settings) {
        return Err(ConfigError::Conflict(
            "http_hosts has no effect without http_users or http_tokens: the API answers to this host only",
        ));
    }
    let is_name = |name: &String| {
        let mut chars = name.chars();
        !name.is_empty() && chars.all(|it| it.is_ascii_alphanumeric() || "-._".contains(it))
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(other) => Err(invalid(
            "http_hosts",
            other,
            "names of hosts without a port, such as broker.example",
        )),
        None => Ok(names),
    }
}

/// The methods that `discover` names; by default multicast, and DNS if names are configured.
fn discovers(settings: &Settings, choice: DiscoverChoice) -> bool {
    match &settings.discover {
        Some(choices) => choices.contains(&choice),
        None => match choice {
            DiscoverChoice::Multicast => true,
            DiscoverChoice::Dns => settings.dns_name.is_some(),
            DiscoverChoice::Off => false,
        },
    }
}

fn multicast(settings: &Settings, loopback_only: bool) -> Result<Option<Multicast>, ConfigError> {
    let off = discovers(settings, DiscoverChoice::Off);
    let multicast = discovers(settings, DiscoverChoice::Multicast);
    if off && (multicast || discovers(settings, DiscoverChoice::Dns)) {
        return Err(ConfigError::Conflict(
            "discover = off excludes the other ways to discover",
        ));
    }
    if !multicast {
        return Ok(None);
    }
    let group = match &settings.multicast_group {
        None => DEFAULT_GROUP,
        Some(text) => text
            .parse()
            .ok()
            .filter(|group: &SocketAddrV4| group.ip().is_multicast() && group.port() != 0)
            .ok_or_else(|| {
                invalid(
                    "multicast_group",
                    text,
                    "an IPv4 multicast address and port, such as 239.255.18.83:18830",
                )
            })?,
    };
    let interface = match &settings.multicast_interface {
        None if loopback_only => Ipv4Addr::LOCALHOST,
        None => Ipv4Addr::UNSPECIFIED,
        Some(text) => text.parse().map_err(|_| {
            invalid(
                "multicast_interface",
                text,
                "the IPv4 address of an interface of this host",
            )
        })?,
    };
    let interval_ms = in_range(
        "multicast_interval_ms",
        settings.multicast_interval_ms,
        DEFAULT_ANNOUNCE_INTERVAL_MS,
        100..=3_600_000,
    )?;
    let ttl = settings.multicast_ttl.unwrap_or(DEFAULT_TTL);
    Ok(Some(Multicast {
        group,
        ttl,
        interface,
        interval: Duration::from_millis(interval_ms),
    }))
}

fn dns(settings: &Settings) -> Result<Option<Dns>, ConfigError> {
    let names = all_hosts_and_ports("dns_name", settings.dns_name.as_deref())?;
    match (discovers(settings, DiscoverChoice::Dns), names.is_empty()) {
        (true, false) => {
            let seconds = in_range(
                "dns_interval_s",
                settings.dns_interval_s,
                DEFAULT_DNS_INTERVAL_S,
                1..=86_400,
            )?;
            Ok(Some(Dns {
                names,
                interval: Duration::from_secs(seconds),
            }))
        }
        (true, true) => Err(ConfigError::Conflict(
            "discover = dns needs a dns_name to look up, such as brokers.example:1883",
        )),
        (false, false) => Err(ConfigError::Conflict(
            "there is a dns_name, but discover does not list dns",
        )),
        (false, true) => Ok(None),
    }
}

fn discovery_grace(given: Option<u64>, is_alone: bool) -> Result<Duration, ConfigError> {
    let default = if is_alone {
        0
    } else {
        DEFAULT_DISCOVERY_GRACE_MS
    };
    in_range("discovery_grace_ms", given, default, 0..=600_000).map(Duration::from_millis)
}

fn workers(given: Option<u32>) -> Result<u8, ConfigError> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| {
        u32::try_from(cores.get()).unwrap_or(MOST_WORKERS)
    });
    let count = in_range("workers", given, cores.min(MOST_WORKERS), 1..=MOST_WORKERS)?;
    Ok(u8::try_from(count).expect("at most 128"))
}

/// What all threads together may keep for one user by default, as a part of `memory_bytes`, so that no user alone takes what new clients need.
const USER_QUEUES: u64 = 4;
/// The same for subscriptions.
const USER_SUBSCRIPTIONS: u64 = 8;

fn limits(settings: &Settings, workers: u8, faults: &mut Faults) -> Limits {
    let default = Limits::default();
    let memory = crate::memory::limit_bytes(settings.memory_bytes);
    // The default of a bound for each thread: less than `most` if that would be more than one part in `parts` of the memory limit in all threads.
    let share = |most: u64, parts: u64| {
        let of_all = memory.map_or(u64::MAX, |limit| limit / parts);
        most.min(of_all / u64::from(workers.max(1)))
    };
    // The lower bound admits the smallest CONNECT with a client id of 23 bytes; the upper is the largest packet (5.0 section 2.1.4).
    let packet = faults.in_range(
        "maximum_packet_size",
        settings.maximum_packet_size,
        default.maximum_packet_size,
        64..=268_435_460,
    );
    let connect_timeout = faults.in_range(
        "connect_timeout_s",
        settings.connect_timeout_s,
        default.connect_timeout.as_secs(),
        1..=3600,
    );
    Limits {
        maximum_packet_size: packet,
        receive_maximum: faults.in_range(
            "receive_maximum",
            settings.receive_maximum,
            default.receive_maximum,
            1..=u16::MAX,
        ),
        topic_alias_maximum: settings
            .topic_alias_maximum
            .unwrap_or(default.topic_alias_maximum),
        inflight_maximum: faults.in_range(
            "inflight_maximum",
            settings.inflight_maximum,
            default.inflight_maximum,
            1..=u16::MAX,
        ),
        queue_messages: settings.queue_messages.unwrap_or(default.queue_messages),
        queue_bytes: settings.queue_bytes.unwrap_or(default.queue_bytes),
        on_full: settings.on_full.map_or(default.on_full, Into::into),
        out_buffer_bytes: faults.in_range(
            "out_buffer_bytes",
            settings.out_buffer_bytes,
            default.out_buffer_bytes,
            1024..=u32::MAX,
        ),
        subscriptions: settings.subscriptions.unwrap_or(default.subscriptions),
        client_id_bytes: faults.in_range(
            "client_id_bytes",
            settings.client_id_bytes,
            default.client_id_bytes,
            // The length that every server must accept [MQTT-3.1.3-5].
            23..=u16::MAX,
        ),
        session_scope: settings
            .session_scope
            .map_or(default.session_scope, Into::into),
        sessions: settings.sessions.unwrap_or(default.sessions),
        user_sessions: settings.user_sessions.unwrap_or(default.user_sessions),
        address_sessions: settings
            .address_sessions
            .unwrap_or(default.address_sessions),
        user_subscription_bytes: settings
            .user_subscription_bytes
            .unwrap_or_else(|| share(default.user_subscription_bytes, USER_SUBSCRIPTIONS)),
        user_queue_bytes: settings
            .user_queue_bytes
            .unwrap_or_else(|| share(default.user_queue_bytes, USER_QUEUES)),
        topic_levels: faults.in_range(
            "topic_levels",
            settings.topic_levels,
            default.topic_levels,
            1..=u16::MAX,
        ),
        session_expiry_maximum: settings
            .session_expiry_maximum_s
            .unwrap_or(default.session_expiry_maximum),
        keep_alive_maximum: settings
            .keep_alive_maximum_s
            .unwrap_or(default.keep_alive_maximum),
        half_open_bytes: settings.half_open_bytes.unwrap_or(default.half_open_bytes),
        connect_timeout: Duration::from_secs(connect_timeout),
        relocate_after: settings.relocate_after.unwrap_or(default.relocate_after),
        reason_strings: settings.reason_strings.unwrap_or(default.reason_strings),
    }
}

fn retained(settings: &Settings) -> RetainedLimits {
    let default = RetainedLimits::default();
    RetainedLimits {
        messages: settings.retained_messages.unwrap_or(default.messages),
        bytes: settings.retained_bytes.unwrap_or(default.bytes),
        user_messages: settings
            .user_retained_messages
            .unwrap_or(default.user_messages),
        user_bytes: settings.user_retained_bytes.unwrap_or(default.user_bytes),
    }
}

#[cfg(test)]
mod tests;
