//! Listeners: short forms (`--listen wss://0.0.0.0:8084`) and tables (`[[listener]]`) become one checked kind.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use thicket_node::Takes;
use thicket_transport::tls::{ClientCertificates, LinkTls, ServerTls, Validity};

use super::access::names_users_at;
use super::choices::{ClientCertificateChoice, TransportChoice};
use super::faults::Faults;
use super::tables::ListenerSettings;
use super::values::{in_range, invalid, reachable};
use super::{Config, ConfigError, Listen, Settings, Users, WebSocket};

const DEFAULT_LISTEN: &str = "localhost:1883";
const DEFAULT_PATH: &str = "/mqtt";
/// Clients that connect at the same time are accepted at once up to this many a second; more wait in the kernel's queue.
const DEFAULT_CONNECTIONS_PER_S: u32 = 10_000;
/// A frame may hold several packets.
const DEFAULT_FRAME_BYTES: u64 = 16 * 1024 * 1024;
const EXPECTED: &str = "HOST:PORT of this host, such as localhost:1883, 0.0.0.0:1883 or [::]:1883, with tcp://, tls://, ws:// or wss:// before it, or unix:PATH";

/// All listeners: those of `listen`, then the tables; without either, the default. `None`: one of them is not valid.
pub(super) fn check(
    settings: &Settings,
    maximum_packet_size: u32,
    link_tls: Option<&LinkTls>,
    faults: &mut Faults,
) -> Option<Vec<Listen>> {
    let tables = settings.listener.as_deref().unwrap_or_default();
    let short: Vec<String> = match &settings.listen {
        Some(texts) if texts.is_empty() && tables.is_empty() => {
            faults.add(invalid("listen", "[]", "at least one HOST:PORT"));
            return None;
        }
        Some(texts) => texts.clone(),
        None if tables.is_empty() => vec![DEFAULT_LISTEN.to_owned()],
        None => Vec::new(),
    };
    let plain = short.into_iter().map(|text| ListenerSettings {
        address: Some(text),
        ..ListenerSettings::default()
    });
    let all: Vec<Option<Listen>> = plain
        .chain(tables.iter().cloned())
        .map(|table| listener(table, settings, maximum_packet_size, link_tls, faults))
        .collect();
    // All are checked, also after an invalid one.
    let mut all: Vec<Listen> = all.into_iter().collect::<Option<_>>()?;
    if all.iter().any(|listen| listen.takes == Takes::Links) {
        // Links have their own listeners, and are accepted at no other.
        for listen in &mut all {
            if listen.takes == Takes::Both {
                listen.takes = Takes::Clients;
            }
        }
    }
    if link_tls.is_some() && !all.iter().any(Listen::takes_links) {
        faults.add(ConfigError::Conflict(
            "link_tls_certificate needs a listener for links, such as listen = [\"localhost:1883\", \"link://0.0.0.0:1884\"]",
        ));
    }
    if all.iter().all(|listen| listen.takes == Takes::Links) {
        faults.add(ConfigError::Conflict(
            "all listeners are for links: no client could connect",
        ));
    }
    Some(all)
}

impl Config {
    /// Why no other node can reach this one although clients of other hosts can; `None`: they can, or it is to stay alone.
    #[must_use]
    pub fn unreachable_for_nodes(&self) -> Option<&'static str> {
        let is_alone = self.multicast.is_none() && self.dns.is_none() && self.seeds.is_empty();
        let has_open = |takes: fn(&Listen) -> bool| {
            let open = self.listeners.iter().filter(|listen| !listen.is_loopback());
            open.into_iter().any(takes)
        };
        let is_cut_off = has_open(|listen| listen.takes != Takes::Links)
            && !has_open(Listen::takes_links)
            && self.advertise.is_none();
        (is_cut_off && !is_alone).then_some(
            "clients of other hosts can reach this node, and other nodes cannot: no listener for plain TCP is at another address than loopback. \
             For a cluster add a listener for nodes, such as link://0.0.0.0:1884, and a cluster_secret_file; for a node that stays alone set discover = \"off\"",
        )
    }
}

/// Where a node's own bridges connect: the first listener for plain TCP, preferably one without a topic prefix.
pub(super) fn for_own_bridges(listeners: &[Listen]) -> Option<&Listen> {
    let plain = listeners.iter().filter(|listen| listen.is_plain());
    plain.min_by_key(|listen| !listen.topic_prefix.is_empty())
}

/// `None`: it is not valid.
fn listener(
    table: ListenerSettings,
    settings: &Settings,
    maximum_packet_size: u32,
    link_tls: Option<&LinkTls>,
    faults: &mut Faults,
) -> Option<Listen> {
    let before = faults.count();
    let text = faults.keep(table.address.clone().ok_or(ConfigError::Conflict(
        "a [[listener]] without an address: expected address = \"HOST:PORT\"",
    )))?;
    let (transport, rest, path) = faults.keep(split(&text, table.transport))?;
    let (addresses, socket_path) = match transport {
        TransportChoice::Unix => (Vec::new(), Some(PathBuf::from(rest))),
        _ => (faults.or_default(addresses(&text, rest)), None),
    };
    let websocket = matches!(transport, TransportChoice::Ws | TransportChoice::Wss)
        .then(|| faults.keep(websocket(&table, settings, path)))
        .flatten();
    let is_link = transport == TransportChoice::Link;
    let tls = match (transport, link_tls) {
        (TransportChoice::Tls | TransportChoice::Wss, _) => tls(&table, settings, &text, faults),
        (TransportChoice::Link, None) if !names_links(settings) => {
            let expected = "a cluster_secret_file, or link_tls_certificate, link_tls_key and link_tls_ca, for such a listener";
            faults.add(invalid("listen", &text, expected));
            None
        }
        // A link listener uses the TLS of all links.
        (TransportChoice::Link, _)
        | (TransportChoice::Tcp | TransportChoice::Ws | TransportChoice::Unix, _) => None,
    };
    faults.or_default(refuse_strangers(&table, transport));
    let users = table.users.as_deref().map(Users::from_file);
    let users = faults.or_default(users.transpose());
    let requires_certificate = tls
        .as_ref()
        .is_some_and(|tls| tls.client_certificates == ClientCertificates::Required);
    let knows_users = names_users_at(settings, table.certificate_users);
    let is_open = settings.allow_anonymous.unwrap_or(!knows_users);
    let allow_anonymous = table
        .allow_anonymous
        .unwrap_or(users.is_none() && (requires_certificate || is_open));
    if !is_link
        && !allow_anonymous
        && table.users.is_none()
        && !knows_users
        && settings.allow_anonymous != Some(false)
    {
        faults.add(ConfigError::Conflict(
            "allow_anonymous = false at a [[listener]] needs a file of users, there or for the node, or nobody could connect",
        ));
    }
    let asks_for_certificates = tls.as_ref().is_some_and(ServerTls::asks_for_certificates);
    if table.certificate_users == Some(true) && !asks_for_certificates {
        faults.add(ConfigError::Conflict(
            "certificate_users at a [[listener]] needs tls_client_certificate = \"required\" or \"optional\": clients are asked for no certificate there",
        ));
    }
    let listen = Listen {
        addresses,
        socket_path,
        // A choice made for this listener; the node's choice is checked elsewhere.
        is_guarded: is_link
            || users.is_some()
            || table.allow_anonymous == Some(true)
            || table.certificate_users == Some(true)
            || requires_certificate,
        takes: match (is_link, link_tls) {
            (true, _) => Takes::Links,
            (false, Some(_)) => Takes::Clients,
            (false, None) => Takes::Both,
        },
        tls,
        websocket,
        proxy_protocol: table.proxy_protocol.unwrap_or(false),
        topic_prefix: faults.or_default(topic_prefix(table.topic_prefix)),
        allow_anonymous,
        users,
        certificate_users: table.certificate_users.or(settings.certificate_users) == Some(true),
        connections: table.connections,
        connections_per_s: table
            .connections_per_s
            .or(settings.connections_per_s)
            .unwrap_or(DEFAULT_CONNECTIONS_PER_S),
        messages_per_s: table.messages_per_s.unwrap_or(0),
        bytes_per_s: table.bytes_per_s.unwrap_or(0),
        client_messages_per_s: (table.client_messages_per_s)
            .or(settings.client_messages_per_s)
            .unwrap_or(0),
        client_bytes_per_s: (table.client_bytes_per_s)
            .or(settings.client_bytes_per_s)
            .unwrap_or(0),
        maximum_packet_size: faults.in_range(
            "maximum_packet_size",
            table.maximum_packet_size,
            maximum_packet_size,
            64..=maximum_packet_size.max(64),
        ),
        advertise: faults.or_default(advertise(table.advertise)),
        transport,
        text,
    };
    (faults.count() == before).then_some(listen)
}

/// Whether anything is configured by which links authenticate.
const fn names_links(settings: &Settings) -> bool {
    settings.cluster_secret_file.is_some() || settings.link_tls_certificate.is_some()
}

fn advertise(given: Option<String>) -> Result<Option<String>, ConfigError> {
    let Some(text) = given else { return Ok(None) };
    match thicket_mqtt::server_references(&text)[..] {
        [server] if server.port.is_some() => reachable("advertise", text.clone()).map(Some),
        _ => Err(invalid(
            "advertise",
            &text,
            "HOST:PORT where clients reach this listener",
        )),
    }
}

/// Splits into transport, HOST:PORT or path of the socket, and path of the WebSocket if the address names one.
fn split(
    text: &str,
    given: Option<TransportChoice>,
) -> Result<(TransportChoice, &str, Option<&str>), ConfigError> {
    let key = "listen";
    let schemes = [
        ("tcp://", TransportChoice::Tcp),
        ("mqtt://", TransportChoice::Tcp),
        ("tls://", TransportChoice::Tls),
        ("mqtts://", TransportChoice::Tls),
        ("ws://", TransportChoice::Ws),
        ("wss://", TransportChoice::Wss),
        ("link://", TransportChoice::Link),
        ("unix://", TransportChoice::Unix),
        ("unix:", TransportChoice::Unix),
    ];
    let found = schemes
        .iter()
        .find_map(|(scheme, transport)| Some((text.strip_prefix(scheme)?, *transport)));
    let (rest, transport) = match (found, given) {
        (Some((_, named)), Some(given)) if named != given => {
            return Err(invalid(
                key,
                text,
                "the transport that the key `transport` names",
            ));
        }
        (Some((rest, named)), _) => (rest, named),
        (None, given) => (text, given.unwrap_or(TransportChoice::Tcp)),
    };
    if transport == TransportChoice::Unix {
        // Longer paths do not fit into a socket address (unix(7)).
        let good = !rest.is_empty() && rest.len() < 108;
        return if good {
            Ok((transport, rest, None))
        } else {
            Err(invalid(
                key,
                text,
                "unix:PATH with a path of 1 to 107 bytes",
            ))
        };
    }
    let is_websocket = matches!(transport, TransportChoice::Ws | TransportChoice::Wss);
    Ok(match rest.find('/').filter(|_| is_websocket) {
        Some(at) => (transport, &rest[..at], Some(&rest[at..])),
        None => (transport, rest, None),
    })
}

fn addresses(text: &str, host_and_port: &str) -> Result<Vec<SocketAddr>, ConfigError> {
    let resolved = host_and_port
        .to_socket_addrs()
        .map_err(|error| invalid("listen", text, format!("{EXPECTED} ({error})")))?;
    let mut addresses: Vec<SocketAddr> = resolved.collect();
    addresses.sort_unstable_by_key(|address| (address.is_ipv6(), *address));
    addresses.dedup();
    if addresses.is_empty() {
        return Err(invalid("listen", text, EXPECTED));
    }
    Ok(addresses)
}

fn websocket(
    table: &ListenerSettings,
    settings: &Settings,
    path: Option<&str>,
) -> Result<WebSocket, ConfigError> {
    let path = path
        .or(table.websocket_path.as_deref())
        .or(settings.websocket_path.as_deref())
        .unwrap_or(DEFAULT_PATH);
    let good = path.starts_with('/')
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#');
    if !good {
        return Err(invalid("websocket_path", path, "a path such as /mqtt"));
    }
    Ok(WebSocket {
        path: path.to_owned(),
        frame_bytes: in_range(
            "websocket_frame_bytes",
            table.websocket_frame_bytes,
            DEFAULT_FRAME_BYTES,
            1024..=1 << 40,
        )?,
    })
}

fn tls(
    table: &ListenerSettings,
    settings: &Settings,
    text: &str,
    faults: &mut Faults,
) -> Option<ServerTls> {
    let tls = tls_files(table, settings, text, faults)?;
    let of_files = tls.faults();
    of_files.into_iter().for_each(|fault| faults.add(fault));
    Some(tls)
}

/// Determines the files, from the table or the node.
fn tls_files(
    table: &ListenerSettings,
    settings: &Settings,
    text: &str,
    faults: &mut Faults,
) -> Option<ServerTls> {
    let mut given = |own: &Option<PathBuf>, of_node: &Option<PathBuf>, key| {
        let path = own.clone().or_else(|| of_node.clone());
        faults.keep(path.ok_or_else(|| {
            invalid(
                "listen",
                text,
                format!("a `{key}` for this listener, or for the node"),
            )
        }))
    };
    let certificate = given(
        &table.tls_certificate,
        &settings.tls_certificate,
        "tls_certificate",
    );
    let key = given(&table.tls_key, &settings.tls_key, "tls_key");
    if let (Some(certificate), None) = (&certificate, &key) {
        faults.keep(Validity::of_file(certificate));
    }
    let choice = table
        .tls_client_certificate
        .or(settings.tls_client_certificate);
    let client_certificates = match choice.unwrap_or(ClientCertificateChoice::Off) {
        ClientCertificateChoice::Off => ClientCertificates::Off,
        ClientCertificateChoice::Optional => ClientCertificates::Optional,
        ClientCertificateChoice::Required => ClientCertificates::Required,
    };
    let client_authorities = table
        .tls_client_ca
        .clone()
        .or_else(|| settings.tls_client_ca.clone());
    if client_certificates != ClientCertificates::Off && client_authorities.is_none() {
        faults.add(ConfigError::Conflict(
            "tls_client_certificate needs a tls_client_ca: the authorities whose clients are believed",
        ));
        return None;
    }
    // The node's authorities may be meant for a table that sets `tls_client_certificate`.
    let tables = settings.listener.iter().flatten();
    let mut choices = tables.map(|it| it.tls_client_certificate);
    let asks_elsewhere = table.tls_client_ca.is_none() && choices.any(|it| it.is_some());
    let is_asked_at_all = choice.is_some() || asks_elsewhere;
    if client_authorities.is_some() && !is_asked_at_all {
        faults.add(ConfigError::Conflict(
            "tls_client_ca says whose certificates are believed, but clients are not asked for any: add tls_client_certificate = \"required\" (or \"optional\", or \"off\")",
        ));
        return None;
    }
    Some(ServerTls {
        certificate: certificate?,
        key: key?,
        client_authorities,
        client_certificates,
    })
}

/// Refuses keys that have no effect with this transport and would be ignored silently.
fn refuse_strangers(
    table: &ListenerSettings,
    transport: TransportChoice,
) -> Result<(), ConfigError> {
    let is_tls = matches!(transport, TransportChoice::Tls | TransportChoice::Wss);
    let is_websocket = matches!(transport, TransportChoice::Ws | TransportChoice::Wss);
    let about_tls = table.tls_certificate.is_some()
        || table.tls_key.is_some()
        || table.tls_client_ca.is_some()
        || table.tls_client_certificate.is_some();
    let is_client_like = table.users.is_some()
        || table.certificate_users.is_some()
        || table.allow_anonymous.is_some()
        || table.topic_prefix.is_some()
        || table.proxy_protocol.is_some()
        || table.messages_per_s.is_some()
        || table.bytes_per_s.is_some()
        || table.client_messages_per_s.is_some()
        || table.client_bytes_per_s.is_some()
        || table.advertise.is_some();
    if transport == TransportChoice::Link && is_client_like {
        return Err(ConfigError::Conflict(
            "a [[listener]] for links has keys that are for clients: users, certificate_users, allow_anonymous, topic_prefix, proxy_protocol, advertise, or messages or bytes a second",
        ));
    }
    if about_tls && !is_tls {
        return Err(ConfigError::Conflict(
            "a [[listener]] has keys of TLS, but its transport is not tls or wss",
        ));
    }
    if (table.websocket_path.is_some() || table.websocket_frame_bytes.is_some()) && !is_websocket {
        return Err(ConfigError::Conflict(
            "a [[listener]] has keys of WebSocket, but its transport is not ws or wss",
        ));
    }
    Ok(())
}

fn topic_prefix(given: Option<String>) -> Result<String, ConfigError> {
    let prefix = given.unwrap_or_default();
    let reserved = prefix.starts_with('$')
        || prefix.contains(['+', '#'])
        || prefix.chars().any(char::is_control);
    if reserved || prefix.len() > 1024 {
        return Err(invalid(
            "topic_prefix",
            format!("{prefix:?}"),
            "the start of a topic, such as \"tenant-1/\": no `$` at its start, no `+` or `#`, 1024 bytes at most",
        ));
    }
    Ok(prefix)
}

impl Listen {
    /// Whether only this host can reach it.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.addresses
            .iter()
            .all(|address| address.ip().is_loopback())
    }

    /// Whether other nodes can link to it: without TLS for links, they are plain TCP.
    #[must_use]
    pub const fn takes_links(&self) -> bool {
        match self.takes {
            Takes::Links => true,
            Takes::Clients => false,
            Takes::Both => self.is_plain(),
        }
    }

    /// Whether it is MQTT over plain TCP.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        !matches!(self.takes, Takes::Links)
            && self.socket_path.is_none()
            && self.tls.is_none()
            && self.websocket.is_none()
            && !self.proxy_protocol
    }
}
