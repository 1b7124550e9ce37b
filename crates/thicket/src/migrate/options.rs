//! Options of Mosquitto (mosquitto.conf(5)) and what they are here.

use toml::Table;

use crate::files;

use super::draft::{Draft, Remark, Weight, for_ipv4, host_and_port};

/// What becomes of an option.
#[derive(Debug, Clone, Copy)]
enum Take {
    /// The same number under our key; what is below the least that makes sense here is not taken over.
    Number(&'static str, i64),
    /// The same text under our key.
    Text(&'static str),
    /// Text of the listener it follows.
    ListenerText(&'static str),
    /// Text of the bridge it follows.
    BridgeText(&'static str),
    /// A number of the bridge it follows.
    BridgeNumber(&'static str),
    /// Not, how much that matters, and why.
    No(Weight, &'static str),
}

use Take::{BridgeNumber, BridgeText, ListenerText, No, Number, Text};
use Weight::{Differs, First, Note};

const SERVICE: &str = "is for the service manager to say: deploy/thicket.service";
const TLS: &str = "a node speaks TLS 1.2 and 1.3 with the ciphers of rustls";
const NO_PLUGIN: &str =
    "there are no plugins: use users, acl, jwt_key or auth_hook (docs/access.md)";

/// Options with nothing to decide. Those that need a look are in [`take`].
const OPTIONS: &[(&str, Take)] = &[
    ("acl_file", Text("acl")),
    (
        "allow_zero_length_clientid",
        No(
            Differs,
            "a node accepts clients without an identifier, and makes one for each: no setting refuses them",
        ),
    ),
    ("auth_plugin", No(First, NO_PLUGIN)),
    (
        "auto_id_prefix",
        No(Note, "identifiers that a node makes have no prefix"),
    ),
    (
        "autosave_interval",
        No(
            Note,
            "a node writes what must survive as it comes; see `sync`",
        ),
    ),
    (
        "autosave_on_changes",
        No(
            Note,
            "a node writes what must survive as it comes; see `sync`",
        ),
    ),
    ("bridge_cafile", BridgeText("tls_ca")),
    (
        "bridge_capath",
        No(First, "name one file in the bridge's tls_ca"),
    ),
    ("bridge_certfile", BridgeText("tls_certificate")),
    ("bridge_keyfile", BridgeText("tls_key")),
    (
        "bridge_insecure",
        No(
            Differs,
            "the certificate of the other broker is always checked",
        ),
    ),
    ("capath", No(First, "name one file in tls_client_ca")),
    ("certfile", ListenerText("tls_certificate")),
    ("cafile", ListenerText("tls_client_ca")),
    ("keyfile", ListenerText("tls_key")),
    ("ciphers", No(Note, TLS)),
    ("ciphers_tls1.3", No(Note, TLS)),
    ("tls_version", No(Note, TLS)),
    (
        "crlfile",
        No(
            First,
            "lists of revoked certificates are not read: take such users out of the rights",
        ),
    ),
    ("clientid", BridgeText("client_id")),
    ("remote_clientid", BridgeText("client_id")),
    ("remote_username", BridgeText("user")),
    ("username", BridgeText("user")),
    ("local_username", BridgeText("local_user")),
    (
        "remote_password",
        No(First, "write it to a file and name that in password_file"),
    ),
    (
        "password",
        No(First, "write it to a file and name that in password_file"),
    ),
    (
        "local_password",
        No(
            First,
            "write it to a file and name that in local_password_file",
        ),
    ),
    ("keepalive_interval", BridgeNumber("keep_alive_s")),
    ("start_type", No(Differs, "a bridge is always connected")),
    (
        "cleansession",
        No(Differs, "a bridge keeps its session for session_expiry_s"),
    ),
    (
        "notifications",
        No(
            Note,
            "`thicket ctl bridges` and metrics tell the state of a bridge",
        ),
    ),
    (
        "try_private",
        No(
            Note,
            "a bridge knows what has crossed by its id, whatever the other broker is",
        ),
    ),
    (
        "connection_messages",
        No(Note, "log_level decides; `info` has each connection"),
    ),
    ("http_dir", No(Differs, "a node serves no files")),
    ("log_dest", No(Note, "the log goes to standard error")),
    ("log_facility", No(Note, "the log goes to standard error")),
    (
        "log_timestamp",
        No(Note, "every line of the log has its time"),
    ),
    (
        "log_timestamp_format",
        No(Note, "times are those of RFC 3339"),
    ),
    ("max_inflight_messages", Number("inflight_maximum", 1)),
    ("max_keepalive", Number("keep_alive_maximum_s", 0)),
    ("max_queued_bytes", Number("queue_bytes", 1)),
    ("max_queued_messages", Number("queue_messages", 1)),
    ("max_topic_alias", Number("topic_alias_maximum", 0)),
    ("memory_limit", Number("memory_bytes", 0)),
    ("mount_point", ListenerText("topic_prefix")),
    (
        "persistence_file",
        No(
            Note,
            "the files of a data directory have names of their own",
        ),
    ),
    ("pid_file", No(Note, SERVICE)),
    ("user", No(Note, SERVICE)),
    ("plugin", No(First, NO_PLUGIN)),
    ("global_plugin", No(First, NO_PLUGIN)),
    (
        "psk_file",
        No(
            First,
            "there is no TLS with pre-shared keys: use certificates",
        ),
    ),
    (
        "psk_hint",
        No(
            First,
            "there is no TLS with pre-shared keys: use certificates",
        ),
    ),
    (
        "queue_qos0_messages",
        No(
            Differs,
            "messages of QoS 0 do not wait for clients that are away",
        ),
    ),
    (
        "retain_available",
        No(Differs, "messages are always retained if they ask for it"),
    ),
    (
        "retain_expiry_interval",
        No(
            Differs,
            "a retained message expires when its publisher says so (Message Expiry Interval of MQTT 5.0); retained_messages and retained_bytes bound all of them",
        ),
    ),
    (
        "set_tcp_nodelay",
        No(Note, "a node always sets TCP_NODELAY"),
    ),
    ("sys_interval", Number("sys_interval_s", 0)),
    (
        "upgrade_outgoing_qos",
        No(
            Differs,
            "a message has the lower QoS of publication and subscription",
        ),
    ),
    (
        "use_subject_as_username",
        No(First, "the name in a certificate is its common name"),
    ),
    (
        "use_username_as_clientid",
        No(
            First,
            "use session_scope, and `pattern` lines with %u in the rights",
        ),
    ),
];

/// Takes all lines of a file over.
pub fn take_all(draft: &mut Draft, text: &str) {
    for (number, line) in text.lines().enumerate() {
        take(draft, number + 1, line.trim());
    }
}

/// Takes one line over, or says why not.
fn take(draft: &mut Draft, number: usize, line: &str) {
    if line.is_empty() || line.starts_with('#') {
        return;
    }
    let (option, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let value = value.trim();
    if is_secret(option) {
        draft.at(number, &format!("{option} ..."));
    } else {
        draft.at(number, line);
    }
    if let Err(remark) = take_option(draft, option, value) {
        draft.remark(remark);
    }
}

/// A value that cannot be read is not taken over.
impl From<String> for Remark {
    fn from(why: String) -> Self {
        Self::first(why)
    }
}

impl From<&str> for Remark {
    fn from(why: &str) -> Self {
        Self::first(why)
    }
}

/// Whether its value must not be in a remark; also of options of plugins, such as `auth_opt_mysql_password`.
fn is_secret(option: &str) -> bool {
    ["password", "_pass", "psk", "secret"]
        .iter()
        .any(|end| option.ends_with(end))
}

fn take_option(draft: &mut Draft, option: &str, value: &str) -> Result<(), Remark> {
    match option {
        "listener" => return listener(draft, value),
        "port" => draft.default_listener(integer(value)?),
        "bind_address" if value.is_empty() => return Err("expected an address".into()),
        "bind_address" => draft.bind_address(value),
        "bind_interface" => return interface(draft, value),
        "max_packet_size" => draft.bound_packets(at_least(1, "maximum_packet_size", value)?),
        "message_size_limit" => return message_size(draft, value),
        "protocol" => return protocol(draft, value),
        "max_connections" if value == "-1" => {}
        "max_connections" => draft.set_here("connections", integer(value)?),
        "require_certificate" if flag(value)? => {
            let listener = draft.current_listener();
            listener.insert("tls_client_certificate".to_owned(), "required".into());
        }
        "require_certificate" => {}
        "include_dir" => return include(draft, value),
        "use_identity_as_username" if flag(value)? => draft.certificate_users_here(),
        "use_identity_as_username" => {}
        "per_listener_settings" => draft.per_listener = flag(value)?,
        "allow_anonymous" if draft.per_listener => draft.set_here("allow_anonymous", flag(value)?),
        "allow_anonymous" => draft.set("allow_anonymous", flag(value)?),
        "acl_file" if draft.per_listener => draft.rights_here(value),
        "password_file" => return users(draft, value),
        // Without it nothing is kept, as here without `data`.
        "persistence" if !flag(value)? => {}
        "persistence" => draft.set("data", "/var/lib/thicket"),
        "persistence_location" => {
            return Err(Remark::differs(
                "`data` must be a directory of Thicket's own. `thicket migrate --database mosquitto.db` converts the sessions and retained messages that \
                 Mosquitto has stored there (docs/mosquitto.md)",
            ));
        }
        "persistent_client_expiration" => draft.set("session_expiry_maximum_s", seconds(value)?),
        "log_type" => return log(draft, value),
        "connection" => draft.bridge(value),
        "address" | "addresses" => return bridge_address(draft, value),
        "bridge_protocol_version" => return bridge_version(draft, value),
        "restart_timeout" => return restart_timeout(draft, value),
        "topic" => return rule(draft, value),
        _ => return take_from_table(draft, option, value),
    }
    Ok(())
}

fn take_from_table(draft: &mut Draft, option: &str, value: &str) -> Result<(), Remark> {
    let known = OPTIONS.iter().find(|(name, _)| *name == option);
    let Some((_, take)) = known else {
        return Err(Remark::differs("Thicket has nothing like it"));
    };
    let in_bridge = match *take {
        Number(key, least) => {
            draft.set(key, at_least(least, key, value)?);
            true
        }
        Text(key) => {
            draft.set(key, value);
            true
        }
        ListenerText(key) => {
            draft
                .current_listener()
                .insert(key.to_owned(), value.into());
            true
        }
        BridgeText(key) => draft.set_bridge(key, value),
        BridgeNumber(key) => draft.set_bridge(key, integer(value)?),
        No(weight, why) => return Err(Remark::of(weight, why)),
    };
    in_bridge.then_some(()).ok_or_else(no_bridge)?;
    match option {
        "max_keepalive" => Err(Remark::note(
            "holds for clients of MQTT 5.0 only, as there: they are told a Server Keep Alive",
        )),
        _ => Ok(()),
    }
}

fn no_bridge() -> Remark {
    Remark::first("no `connection` comes before it")
}

fn integer(value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| format!("{value:?} is no number"))
}

/// A number for a key of ours that has a least value.
fn at_least(least: i64, key: &str, value: &str) -> Result<i64, String> {
    let value = integer(value)?;
    if value < least {
        return Err(format!(
            "{key} must be {least} or more: there is no \"without bound\""
        ));
    }
    Ok(value)
}

fn flag(value: &str) -> Result<bool, String> {
    value
        .parse()
        .map_err(|_| format!("{value:?} is neither true nor false"))
}

/// The files of a directory whose names end with `.conf`, in the order of Mosquitto: that of the alphabet, of a letter the upper case first.
fn include(draft: &mut Draft, directory: &str) -> Result<(), Remark> {
    if draft.is_included() {
        return Err(Remark::note(
            "Mosquitto follows it only in its first file, and so it is not followed here",
        ));
    }
    let unreadable =
        |error: &dyn std::fmt::Display| Remark::first(format!("cannot read {directory}: {error}"));
    let entries = std::fs::read_dir(directory).map_err(|error| unreadable(&error))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| unreadable(&error))?.file_name();
        names.extend(name.into_string().ok().filter(|it| it.ends_with(".conf")));
    }
    names.sort_by_cached_key(|name| (name.to_lowercase(), name.clone()));
    for name in names {
        let path = std::path::Path::new(directory).join(name);
        let text = files::read_text(&path).map_err(|error| Remark::first(format!("{error:#}")))?;
        let place = draft.enter(&path.display().to_string());
        take_all(draft, &text);
        draft.leave(place);
    }
    Ok(())
}

/// `listener PORT [ADDRESS | PATH]`.
fn listener(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    let (port, place) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
    let (port, place) = (integer(port)?, place.trim());
    let port_text = port.to_string();
    draft.listener(match place {
        _ if port == 0 && !place.is_empty() => format!("unix:{place}"),
        "" => format!("0.0.0.0:{port}"),
        _ => host_and_port(place, &port_text),
    });
    match place {
        "" => Err(for_ipv4(&port_text)),
        _ => Ok(()),
    }
}

/// An interface has addresses of its own, which another machine cannot know.
fn interface(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    match (draft.bind_interface(), value) {
        (_, "lo") => Ok(()),
        (false, _) => Err(Remark::first(format!(
            "a listener has an address, not an interface: it is on localhost until you write the address of {value} there"
        ))),
        (true, _) => Err(Remark::differs(
            "a listener has an address, not an interface: its address is kept",
        )),
    }
}

/// There it bounds the payload.
fn message_size(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    if value == "0" {
        return Err(Remark::differs(
            "no bound there; here maximum_packet_size is 1 MiB if it is not set",
        ));
    }
    draft.bound_packets(at_least(1, "maximum_packet_size", value)?);
    Err(Remark::differs(
        "maximum_packet_size bounds a whole packet, with topic and properties: raise it where payloads come near the limit",
    ))
}

fn protocol(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    match value {
        "mqtt" => Ok(()),
        "websockets" => {
            let listener = draft.current_listener();
            listener.insert("transport".to_owned(), "ws".into());
            // Mosquitto does not look at the path.
            Err(Remark::differs(
                "clients must ask for websocket_path (/mqtt), which Mosquitto does not look at",
            ))
        }
        _ => Err("expected mqtt or websockets".into()),
    }
}

/// Argon2 is what our files of users have too, and PBKDF2 of Mosquitto 2.0 is read; older hashes are not.
fn users(draft: &mut Draft, path: &str) -> Result<(), Remark> {
    let text = files::read_text(std::path::Path::new(path)).map_err(|error| {
        format!("cannot look at its hashes: {error:#}; `users` wants lines of `thicket passwd`")
    })?;
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let is_read = |line: &&str| line.contains(":$argon2id$") || line.contains(":$7$");
    let old = lines.filter(|line| !is_read(line)).count();
    if old > 0 {
        return Err(Remark::first(format!(
            "{old} of its users have hashes of another kind: make their lines anew with `thicket passwd NAME`, then set `users`"
        )));
    }
    if draft.per_listener {
        draft.set_here("users", path);
    } else {
        draft.set("users", path);
    }
    Ok(())
}

/// `14d`, `2w`, `1m`, `1y`, `6h`.
fn seconds(value: &str) -> Result<i64, String> {
    let problem = || format!("{value:?} is no time such as 14d");
    let unit = value.chars().last().ok_or_else(problem)?;
    let days = match unit {
        'h' => return Ok(integer(&value[..value.len() - 1])? * 3600),
        'd' => 1,
        'w' => 7,
        'm' => 30,
        'y' => 365,
        _ => return Err(problem()),
    };
    Ok(integer(&value[..value.len() - 1])? * days * 86_400)
}

/// Several such lines add up there; here a level has all above it.
fn log(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    let level = match value {
        "error" => "error",
        "warning" => "warn",
        "notice" | "information" => "info",
        "debug" | "all" => "debug",
        _ => return Err("log_level has error, warn, info, debug and trace".into()),
    };
    draft.raise_log_level(level);
    Ok(())
}

fn bridge_address(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    let mut addresses = value.split_whitespace();
    let first = addresses.next().ok_or("expected HOST:PORT")?;
    let first = if first.contains(':') {
        first.to_owned()
    } else {
        format!("{first}:1883")
    };
    if !draft.set_bridge("address", first) {
        return Err(no_bridge());
    }
    match addresses.next() {
        Some(_) => Err(Remark::differs(
            "a bridge has one address: the first was taken over",
        )),
        None => Ok(()),
    }
}

fn bridge_version(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    let version = match value {
        "mqttv50" => "5.0",
        "mqttv311" => "3.1.1",
        _ => return Err("a bridge speaks 5.0 or 3.1.1".into()),
    };
    draft
        .set_bridge("version", version)
        .then_some(())
        .ok_or_else(no_bridge)
}

/// `restart_timeout CONSTANT` or `restart_timeout FIRST LONGEST`, in seconds.
fn restart_timeout(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    let longest = integer(value.split_whitespace().last().unwrap_or_default())?;
    if longest < 1 {
        return Err("reconnect_maximum_s must be 1 or more".into());
    }
    draft
        .set_bridge("reconnect_maximum_s", longest)
        .then_some(())
        .ok_or_else(no_bridge)
}

/// `topic PATTERN [DIRECTION [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]]`; `""` stands for nothing.
fn rule(draft: &mut Draft, value: &str) -> Result<(), Remark> {
    let mut words = value
        .split_whitespace()
        .map(|word| if word == "\"\"" { "" } else { word });
    let mut rule = Table::new();
    let topic = words.next().filter(|topic| !topic.is_empty());
    rule.insert(
        "topic".into(),
        topic.ok_or("a rule of a bridge needs a topic")?.into(),
    );
    rule.insert("direction".into(), words.next().unwrap_or("out").into());
    rule.insert("qos".into(), integer(words.next().unwrap_or("0"))?.into());
    for key in ["local_prefix", "remote_prefix"] {
        if let Some(prefix) = words.next() {
            rule.insert(key.into(), prefix.into());
        }
    }
    draft.add_rule(rule).then_some(()).ok_or_else(no_bridge)
}
