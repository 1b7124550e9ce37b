//! Bridges: tables `[[bridge]]` of the file, with their rules, become checked plans.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use thicket_bridge::{Bounds, BridgeConfig, Direction, Retain, Rule, RuleConfig, SideConfig};
use thicket_mqtt::{ProtocolVersion, Qos};
use thicket_transport::client::Place;
use thicket_transport::tls::ClientTls;

use super::choices::{BridgeDirection, BridgeVersion};
use super::faults::Faults;
use super::tables::{BridgeRuleSettings, BridgeSettings};
use super::values::{checked_name, host_and_port, invalid, password};
use super::{ConfigError, Listen, Settings};

/// Path of a WebSocket for MQTT if the address names none.
const DEFAULT_PATH: &str = "/mqtt";

/// Where the other broker of a bridge is, and what lies between the socket and MQTT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeAddress {
    /// As configured.
    pub text: String,
    /// Host and port.
    pub place: Place,
    /// What TLS needs, if the broker uses it.
    pub tls: Option<ClientTls>,
    /// Path of the WebSocket, if the broker uses it.
    pub websocket: Option<String>,
}

impl BridgeAddress {
    /// HOST:PORT over plain TCP.
    pub(crate) fn tcp(text: String) -> Self {
        let (host, port) = text.rsplit_once(':').unwrap_or_default();
        Self {
            place: Place::Tcp(host.to_owned(), port.parse().unwrap_or_default()),
            tls: None,
            websocket: None,
            text,
        }
    }
}

/// A bridge, checked. Values that depend on the node's name and identity are filled in when these are known.
#[derive(Debug, Clone)]
pub struct BridgePlan {
    /// Name of this bridge.
    pub name: String,
    /// The other broker.
    pub address: BridgeAddress,
    id: Option<String>,
    client_id: Option<String>,
    config: BridgeConfig,
}

impl BridgePlan {
    /// The bridge of a node. `node` is its identity in hexadecimal, `node_name` its name.
    #[must_use]
    pub fn config(&self, node: &str, node_name: &str) -> BridgeConfig {
        let mut config = self.config.clone();
        // An identity that changes at every start suffices: it only marks messages under way.
        config.id = self
            .id
            .clone()
            .unwrap_or_else(|| format!("{node}/{}", self.name));
        let client_id = format!("thicket-bridge-{node_name}-{}", self.name);
        config.remote.client_id = self.client_id.clone().unwrap_or_else(|| client_id.clone());
        config.local.client_id = client_id;
        config
    }
}

/// Checks all bridges. Reads their password files. `local`: the listener that they connect to, if the listeners are valid.
pub(super) fn check(
    settings: &Settings,
    local: Option<Option<&Listen>>,
    faults: &mut Faults,
) -> Vec<BridgePlan> {
    let tables = settings.bridge.as_deref().unwrap_or_default();
    if !tables.is_empty() && local == Some(None) {
        faults.add(ConfigError::Conflict(
            "a bridge connects to its own node over plain TCP, so the node needs a listener for that, such as localhost:1883",
        ));
    }
    let mut plans: Vec<BridgePlan> = Vec::new();
    for table in tables {
        let plan = faults.within("bridge", table.name.as_deref(), |faults| {
            let is_closed = local.flatten().is_some_and(|it| !it.allow_anonymous);
            if is_closed && table.local_user.is_none() {
                faults.add(ConfigError::Conflict(
                    "a bridge connects to its own node as a client, and clients without a user name are refused: set bridge.local_user and bridge.local_password_file, to a user with the rights of the bridge",
                ));
            }
            plan(table, faults)
        });
        let is_same = |other: &BridgePlan| !plan.name.is_empty() && other.name == plan.name;
        if plans.iter().any(is_same) {
            let expected = "another name than other bridges";
            faults.add(invalid("bridge.name", &plan.name, expected));
        }
        plans.push(plan);
    }
    plans
}

fn plan(table: &BridgeSettings, faults: &mut Faults) -> BridgePlan {
    let name = table.name.clone().unwrap_or_default();
    let name = faults.or_default(checked_name("bridge.name", name));
    let address = address(table, faults);
    let id = table.id.clone().map(|id| checked_name("bridge.id", id));
    let client_id = table.client_id.clone();
    let client_id = client_id.map(|id| checked_name("bridge.client_id", id));
    if table.rule.is_empty() {
        faults.add(invalid("bridge.rule", "[]", "at least one rule"));
    }
    let rules = table.rule.iter();
    let rules = rules.filter_map(|table| rule(table, faults)).collect();
    let version = match table.version.unwrap_or_default() {
        BridgeVersion::V311 => ProtocolVersion::V311,
        BridgeVersion::V5 => ProtocolVersion::V5,
    };
    let default = BridgeConfig::new("", version, rules);
    let retry = default.longest_retry.as_secs();
    BridgePlan {
        name,
        address,
        id: faults.or_default(id.transpose()),
        client_id: faults.or_default(client_id.transpose()),
        config: BridgeConfig {
            local: side(
                table,
                default.local,
                table.local_user.clone(),
                (
                    "bridge.local_password_file",
                    table.local_password_file.as_deref(),
                ),
                faults,
            ),
            remote: side(
                table,
                default.remote,
                table.user.clone(),
                ("bridge.password_file", table.password_file.as_deref()),
                faults,
            ),
            bounds: bounds(table, default.bounds, faults),
            memory: Duration::from_secs(faults.in_range(
                "bridge.memory_s",
                table.memory_s,
                default.memory.as_secs(),
                0..=3600,
            )),
            ring_repeats: table.ring_repeats.unwrap_or(default.ring_repeats),
            longest_retry: Duration::from_secs(faults.in_range(
                "bridge.reconnect_maximum_s",
                table.reconnect_maximum_s,
                retry,
                1..=86_400,
            )),
            ..default
        },
    }
}

fn address(table: &BridgeSettings, faults: &mut Faults) -> BridgeAddress {
    let text = table.address.clone().unwrap_or_default();
    let schemes = [
        ("tcp://", false, false),
        ("tls://", true, false),
        ("ws://", false, true),
        ("wss://", true, true),
    ];
    let found = schemes
        .iter()
        .find_map(|(scheme, tls, ws)| Some((text.strip_prefix(scheme)?, *tls, *ws)));
    let (rest, has_tls, is_websocket) = found.unwrap_or((&text, false, false));
    let (place, path) = match rest.find('/').filter(|_| is_websocket) {
        Some(at) => rest.split_at(at),
        None => (rest, DEFAULT_PATH),
    };
    let place = faults.or_default(host_and_port("bridge.address", place.to_owned()));
    let names_tls =
        table.tls_ca.is_some() || table.tls_certificate.is_some() || table.tls_key.is_some();
    if names_tls && !has_tls {
        faults.add(ConfigError::Conflict(
            "bridge.tls_ca, bridge.tls_certificate and bridge.tls_key are for a bridge.address with tls:// or wss:// before it",
        ));
    }
    if table.tls_certificate.is_some() != table.tls_key.is_some() {
        faults.add(ConfigError::Conflict(
            "bridge.tls_certificate and bridge.tls_key belong together",
        ));
    }
    let tls = has_tls.then(|| ClientTls {
        authorities: table.tls_ca.clone(),
        identity: table.tls_certificate.clone().zip(table.tls_key.clone()),
        insecure: false,
    });
    if let Some(tls) = &tls {
        faults.keep(tls.load());
    }
    BridgeAddress {
        tls,
        websocket: is_websocket.then(|| path.to_owned()),
        text: text.clone(),
        ..BridgeAddress::tcp(place)
    }
}

fn bounds(table: &BridgeSettings, default: Bounds, faults: &mut Faults) -> Bounds {
    Bounds {
        messages: faults.in_range(
            "bridge.queue_messages",
            table.queue_messages,
            default.messages,
            1..=10_000_000,
        ),
        bytes: faults.in_range(
            "bridge.queue_bytes",
            table.queue_bytes,
            default.bytes,
            1024..=usize::MAX,
        ),
    }
}

fn side(
    table: &BridgeSettings,
    default: SideConfig,
    user_name: Option<String>,
    (key, password_file): (&'static str, Option<&Path>),
    faults: &mut Faults,
) -> SideConfig {
    let password = password_file.map(|path| password(key, path));
    SideConfig {
        user_name,
        password: faults.or_default(password.transpose()),
        keep_alive: table.keep_alive_s.unwrap_or(default.keep_alive),
        session_expiry_interval: faults.in_range(
            "bridge.session_expiry_s",
            table.session_expiry_s,
            default.session_expiry_interval,
            1..=u32::MAX,
        ),
        ..default
    }
}

/// `None`: it is not valid.
fn rule(table: &BridgeRuleSettings, faults: &mut Faults) -> Option<Rule> {
    let direction = match table.direction {
        None => {
            let expected = "in, out or both";
            faults.add(invalid("bridge.rule.direction", "nothing", expected));
            Direction::Both
        }
        Some(BridgeDirection::In) => Direction::In,
        Some(BridgeDirection::Out) => Direction::Out,
        Some(BridgeDirection::Both) => Direction::Both,
    };
    let qos = faults.in_range("bridge.rule.qos", table.qos, 1, 0..=2);
    let config = RuleConfig {
        local_prefix: table.local_prefix.clone().unwrap_or_default(),
        remote_prefix: table.remote_prefix.clone().unwrap_or_default(),
        qos: Qos::from_bits(qos).unwrap_or_default(),
        retain: if table.retain == Some(false) {
            Retain::Clear
        } else {
            Retain::Keep
        },
        ..RuleConfig::new(table.topic.clone().unwrap_or_default(), direction)
    };
    let rule = Rule::new(&config).map_err(|error| {
        let value = format!("{:?}", config.topic);
        let expected = format!("a topic filter with its prefixes ({error})");
        invalid("bridge.rule.topic", value, expected)
    });
    faults.keep(rule)
}

/// The address at which a bridge reaches its own node, which listens on `address`.
pub(crate) fn reached(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::super::checked;
    use super::*;

    const GOOD: &str = "[[bridge]]\nname = 'plant'\naddress = 'broker:1883'\n[[bridge.rule]]\ntopic = 'a/#'\ndirection = 'both'\n";

    #[test]
    fn a_bridge_is_marked_by_its_node_and_finds_its_sessions_by_the_nodes_name() {
        let config = checked(GOOD).unwrap();
        let bridge = config.bridges[0].config("00ff", "node-1");
        assert_eq!(bridge.id, "00ff/plant");
        assert_eq!(bridge.remote.client_id, "thicket-bridge-node-1-plant");
        assert_eq!(bridge.remote.version, ProtocolVersion::V5);
        assert_eq!(config.bridges[0].address.text, "broker:1883");
    }

    #[test]
    fn the_address_of_a_bridge_says_what_lies_between_the_socket_and_mqtt() {
        for (text, has_tls, websocket) in [
            ("broker:8883", false, None),
            ("tcp://broker:8883", false, None),
            ("tls://broker:8883", true, None),
            ("ws://broker:8883", false, Some("/mqtt")),
            ("wss://broker:8883/a/b", true, Some("/a/b")),
        ] {
            let config = checked(&GOOD.replace("broker:1883", text)).unwrap();
            let address = &config.bridges[0].address;
            assert_eq!(address.place, Place::Tcp("broker".into(), 8883), "{text}");
            assert_eq!(address.tls.is_some(), has_tls, "{text}");
            assert_eq!(address.websocket.as_deref(), websocket, "{text}");
        }
    }

    #[test]
    fn bad_bridges_are_refused_with_key_value_and_expectation() {
        let rule = "[[bridge.rule]]\ntopic = 'a'\ndirection = 'in'\n";
        let cases = [
            (
                "no name",
                format!("[[bridge]]\naddress = 'a:1'\n{rule}"),
                "bridge.name",
            ),
            (
                "no address",
                format!("[[bridge]]\nname = 'a'\n{rule}"),
                "bridge.address",
            ),
            (
                "a path without WebSocket",
                GOOD.replace("broker:1883", "tls://broker:1883/mqtt"),
                "bridge.address",
            ),
            (
                "an authority without TLS",
                GOOD.replace("address", "tls_ca = '/x'\naddress"),
                "with tls:// or wss:// before it",
            ),
            (
                "a certificate without its key",
                GOOD.replace("broker:", "tls://broker:")
                    .replace("address", "tls_certificate = '/x'\naddress"),
                "belong together",
            ),
            (
                "an authority that is not there",
                GOOD.replace("broker:", "tls://broker:")
                    .replace("address", "tls_ca = '/nowhere/x'\naddress"),
                "/nowhere/x",
            ),
            (
                "no rule",
                "[[bridge]]\nname = 'a'\naddress = 'a:1'\n".into(),
                "at least one rule",
            ),
            (
                "no direction",
                "[[bridge]]\nname = 'a'\naddress = 'a:1'\nrule = [{ topic = 'a' }]\n".into(),
                "in, out or both",
            ),
            (
                "a bad filter",
                GOOD.replace("a/#", "a#"),
                "bridge.rule.topic = \"a#\": expected a topic filter with its prefixes (local filter \"a#\"",
            ),
            (
                "which bridge",
                GOOD.replace("a/#", "a/#/b"),
                "(in [[bridge]] plant)",
            ),
            (
                "a bad filter without a direction",
                "[[bridge]]\nname = 'a'\naddress = 'a:1'\nrule = [{ topic = 'a/#/b' }]\n".into(),
                "bridge.rule.topic = \"a/#/b\"",
            ),
            (
                "a bad version",
                GOOD.replace("address", "version = '4'\naddress"),
                "expected `3.1.1` or `5.0`",
            ),
            (
                "twice the same name",
                format!("{GOOD}{GOOD}"),
                "bridge.name = plant",
            ),
            (
                "a mistyped key",
                GOOD.replace("address", "adress"),
                "did you mean `address`",
            ),
            (
                "a mistyped key of a rule",
                GOOD.replace("topic", "topics"),
                "did you mean `topic`",
            ),
            (
                "QoS 3",
                format!("{GOOD}qos = 3\n"),
                "bridge.rule.qos = 3: expected 0 to 2",
            ),
            (
                "no plain listener",
                format!("listen = ['unix:/tmp/x']\n{GOOD}"),
                "plain TCP",
            ),
            (
                "no local user",
                format!(
                    "allow_anonymous = false\ncertificate_users = true\nlisten = ['localhost:1883']\n{GOOD}"
                ),
                "set bridge.local_user",
            ),
            (
                "no password",
                GOOD.replace("address", "password_file = '/nowhere/x'\naddress"),
                "bridge.password_file: cannot read",
            ),
        ];
        for (name, text, expected) in cases {
            let error = checked(&text).expect_err(name).to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }

    #[test]
    fn the_sample_of_a_bridge_names_every_key_of_one() {
        let sample = include_str!("../../../../deploy/thicket.toml");
        let start = sample.find("# [[bridge]]").expect("there is one");
        let lines = sample[start..]
            .lines()
            .map_while(|line| line.strip_prefix("# "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let (settings, faults) =
            Settings::from_toml(Path::new("deploy/thicket.toml"), &text).expect("TOML");
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(settings.bridge.map(|all| all[0].rule.len()), Some(2));
        for key in BridgeSettings::KEYS.iter().chain(&BridgeRuleSettings::KEYS) {
            let is_shown = *key == "rule" || text.contains(&format!("{key} = "));
            assert!(is_shown, "{key}");
        }
    }
}
