//! A configuration in the making: what the node, its listeners and its bridges are told, and what could not be.

use std::fmt::Write as _;
use std::rc::Rc;

use toml::{Table, Value};

use super::Prefixes;

/// What has been read so far.
#[derive(Debug, Default)]
pub struct Draft {
    node: Table,
    listeners: Vec<Table>,
    /// Where each of them begins.
    listener_lines: Vec<Line>,
    bridges: Vec<Bridge>,
    remarks: Vec<Noted>,
    line: Line,
    /// The listener that the file being read has named last, by its place among the listeners.
    current: Option<usize>,
    /// The listener of `port`, by its place among the listeners.
    default_listener: Option<(usize, Line)>,
    /// The host of that listener, which may stand before or after it.
    bind_address: Option<(String, Line)>,
    /// Rights that hold at one listener there, with its place among the listeners; `None`: no listener stands before.
    rights: Vec<(Option<usize>, String, Line)>,
    /// The listeners whose clients have the names in their certificates, by their place among the listeners.
    certificate_users: Vec<(usize, Line)>,
    /// What follows belongs to the bridge that was named last, no more to a listener.
    in_bridge: bool,
    /// Users and rights after a listener are those of that listener.
    pub per_listener: bool,
}

#[derive(Debug, Default)]
struct Bridge {
    settings: Table,
    rules: Vec<Table>,
    line: Line,
}

/// A line of the file, for remarks.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    /// A file that the first one includes.
    file: Option<Rc<str>>,
    number: usize,
    text: String,
}

/// How much a remark matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Until somebody has done what it says, the node does not start, refuses clients that came in before, or lets in others.
    First,
    /// The node does something else than Mosquitto did.
    Differs,
    /// Nothing has to be done.
    Note,
}

/// Why a line is not taken over, or not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub weight: Weight,
    pub why: String,
}

impl Remark {
    pub fn first(why: impl Into<String>) -> Self {
        Self::of(Weight::First, why)
    }

    pub fn differs(why: impl Into<String>) -> Self {
        Self::of(Weight::Differs, why)
    }

    pub fn note(why: impl Into<String>) -> Self {
        Self::of(Weight::Note, why)
    }

    pub fn of(weight: Weight, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { weight, why }
    }
}

/// A remark and its line; `None`: what the file does not say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Noted {
    weight: Weight,
    line: Option<Line>,
    why: String,
}

/// What the file that was being read had named last, while one that it includes is read.
#[derive(Debug)]
pub struct Place {
    current: Option<usize>,
    in_bridge: bool,
    line: Line,
}

/// A whole configuration.
#[derive(Debug)]
pub struct Finished {
    /// As TOML.
    pub text: String,
    /// How many remarks of each weight it has.
    pub remarks: [usize; 3],
}

impl Draft {
    /// What follows stands in this line.
    pub fn at(&mut self, number: usize, text: &str) {
        self.line.number = number;
        text.clone_into(&mut self.line.text);
    }

    /// What follows stands in a file that the one being read includes: there no listener and no bridge has been named.
    pub fn enter(&mut self, file: &str) -> Place {
        let place = Place {
            current: self.current.take(),
            in_bridge: std::mem::take(&mut self.in_bridge),
            line: self.line.clone(),
        };
        self.line.file = Some(file.into());
        place
    }

    /// The included file has ended.
    pub fn leave(&mut self, place: Place) {
        self.current = place.current;
        self.in_bridge = place.in_bridge;
        self.line = place.line;
    }

    /// Whether the file being read is included by another one.
    pub const fn is_included(&self) -> bool {
        self.line.file.is_some()
    }

    /// Says why the line is not taken over, or not as it was.
    pub fn remark(&mut self, remark: Remark) {
        self.remark_at(self.line.clone(), remark);
    }

    fn remark_at(&mut self, line: Line, remark: Remark) {
        let Remark { weight, why } = remark;
        let line = Some(line);
        self.remarks.push(Noted { weight, line, why });
    }

    /// A setting of the node.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.node.insert(key.to_owned(), value.into());
    }

    /// The log has this level at least.
    pub fn raise_log_level(&mut self, level: &str) {
        const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];
        let place = |level: &str| LEVELS.iter().position(|it| *it == level);
        let now = self.node.get("log_level").and_then(Value::as_str);
        if now.and_then(place) < place(level) {
            self.set("log_level", level);
        }
    }

    /// A setting of the listener that was named last, or of the node if none was.
    pub fn set_here(&mut self, key: &str, value: impl Into<Value>) {
        let table = match self.here() {
            Some(place) => &mut self.listeners[place],
            None => &mut self.node,
        };
        table.insert(key.to_owned(), value.into());
    }

    /// The listener that what follows belongs to: the default one until another one is named.
    fn here(&self) -> Option<usize> {
        let default_place = self.default_listener.as_ref().map(|(place, _)| *place);
        self.current.or(default_place)
    }

    /// What follows belongs to a listener at this address.
    pub fn listener(&mut self, address: String) {
        self.in_bridge = false;
        self.current = Some(self.add_listener(address));
    }

    fn add_listener(&mut self, address: String) -> usize {
        let mut table = Table::new();
        table.insert("address".to_owned(), address.into());
        self.listeners.push(table);
        self.listener_lines.push(self.line.clone());
        self.listeners.len() - 1
    }

    /// The listener of `port`: it is at all addresses, unless there is a `bind_address`.
    pub fn default_listener(&mut self, port: i64) {
        let place = self.add_listener(format!("0.0.0.0:{port}"));
        self.default_listener = Some((place, self.line.clone()));
    }

    /// The host of the default listener.
    pub fn bind_address(&mut self, host: &str) {
        self.bind_address = Some((host.to_owned(), self.line.clone()));
    }

    /// The listener that was named last is at one interface, of which only the name is known. What would be at all addresses is on loopback instead.
    /// Returns whether it has an address of its own, which stays.
    pub fn bind_interface(&mut self) -> bool {
        if self.current.is_none() {
            let had = self.bind_address.is_some();
            let line = self.line.clone();
            self.bind_address
                .get_or_insert_with(|| ("localhost".to_owned(), line));
            return had;
        }
        let listener = self.current_listener();
        let address = listener["address"].as_str().unwrap_or_default();
        let Some(port) = address.strip_prefix("0.0.0.0:") else {
            return true;
        };
        let address = host_and_port("localhost", port);
        listener.insert("address".to_owned(), address.into());
        false
    }

    /// No packet is larger than this.
    pub fn bound_packets(&mut self, bytes: i64) {
        let key = "maximum_packet_size";
        let now = self.node.get(key).and_then(Value::as_integer);
        self.set(key, now.map_or(bytes, |now| now.min(bytes)));
    }

    /// A file of rights that holds at the listener that was named last.
    pub fn rights_here(&mut self, path: &str) {
        let listener = self.here();
        self.rights
            .push((listener, path.to_owned(), self.line.clone()));
    }

    /// Clients of the listener that was named last have the names in their certificates.
    pub fn certificate_users_here(&mut self) {
        let listener = self.place_here();
        self.certificate_users.push((listener, self.line.clone()));
    }

    /// The listener that was named last; one for port 1883 if none was.
    pub fn current_listener(&mut self) -> &mut Table {
        let place = self.place_here();
        &mut self.listeners[place]
    }

    fn place_here(&mut self) -> usize {
        self.here().unwrap_or_else(|| {
            let place = self.add_listener("localhost:1883".to_owned());
            self.current = Some(place);
            place
        })
    }

    /// What follows belongs to a bridge of this name.
    pub fn bridge(&mut self, name: &str) {
        self.in_bridge = true;
        let mut bridge = Bridge {
            line: self.line.clone(),
            ..Bridge::default()
        };
        bridge.settings.insert("name".to_owned(), name.into());
        self.bridges.push(bridge);
    }

    /// A setting of the bridge that was named last; whether there is one.
    pub fn set_bridge(&mut self, key: &str, value: impl Into<Value>) -> bool {
        let Some(bridge) = self.current_bridge() else {
            return false;
        };
        bridge.settings.insert(key.to_owned(), value.into());
        true
    }

    /// A rule of the bridge that was named last; whether there is one.
    pub fn add_rule(&mut self, rule: Table) -> bool {
        let Some(bridge) = self.current_bridge() else {
            return false;
        };
        bridge.rules.push(rule);
        true
    }

    fn current_bridge(&mut self) -> Option<&mut Bridge> {
        self.in_bridge.then(|| self.bridges.last_mut()).flatten()
    }

    /// The topic prefixes of the listeners, by port.
    pub fn prefixes(mut self) -> Prefixes {
        self.place_default_listener();
        let of_listener = |listener: &Table| {
            let prefix = listener.get("topic_prefix")?.as_str()?;
            let (_, port) = listener["address"].as_str()?.rsplit_once(':')?;
            Some((port.parse().ok()?, prefix.to_owned()))
        };
        self.listeners.iter().filter_map(of_listener).collect()
    }

    /// Remarks first, then the node, then tables, as TOML wants them.
    pub fn finish(mut self) -> Finished {
        self.place_default_listener();
        self.take_certificate_users();
        self.take_rights();
        let nobody_is_named = self.close_to_strangers();
        self.leave_out_useless_bridges();
        self.ask_for_users_of_bridges();
        for listener in &mut self.listeners {
            choose_transport(listener);
        }
        for bridge in &mut self.bridges {
            choose_bridge_transport(&mut bridge.settings);
            // What Mosquitto speaks if nothing is said.
            let version = bridge.settings.entry("version");
            version.or_insert_with(|| "3.1.1".into());
        }
        self.take_prefix_from_rules();
        self.note_what_is_not_said();
        self.remarks.sort();
        let mut text = String::from("# Written by `thicket migrate`.\n");
        if self.is_open() {
            text += "# Other machines can reach this node, so say which nodes may join it: the same secret on every node\n\
                     # (head -c 32 /dev/urandom | base64 > FILE).\n# cluster_secret_file = \"/etc/thicket/cluster-secret\"\n";
        }
        if nobody_is_named {
            text += "# Mosquitto refuses clients without a user name where a listener is configured, and so does this node:\n\
                     # name its users (`users`), or set allow_anonymous = true.\n";
        }
        let remarks = [Weight::First, Weight::Differs, Weight::Note]
            .map(|weight| write_remarks(&mut text, weight, &self.remarks));
        text.push('\n');
        text += &self.node.to_string();
        let link_listener = self.link_listener();
        for listener in self.listeners {
            let _ = write!(text, "\n[[listener]]\n{listener}");
        }
        text += &link_listener;
        for bridge in self.bridges {
            let _ = write!(text, "\n[[bridge]]\n{}", bridge.settings);
            for rule in bridge.rules {
                let _ = write!(text, "\n[[bridge.rule]]\n{rule}");
            }
        }
        Finished { text, remarks }
    }

    /// Where Mosquitto has another default than a node.
    fn note_what_is_not_said(&mut self) {
        if !self.node.contains_key("maximum_packet_size") {
            let why = "max_packet_size is not set, so Mosquitto accepts packets of every size that MQTT has (256 MiB): a node accepts 1 MiB, and closes \
                       the connection of a client that sends a larger one. Set maximum_packet_size if there are such clients";
            self.remarks.push(Noted {
                weight: Weight::Differs,
                line: None,
                why: why.to_owned(),
            });
        }
    }

    /// A listener for nodes, commented out, where clients of other hosts come in and nodes cannot.
    fn link_listener(&self) -> String {
        let address = |listener: &Table| listener["address"].as_str().map(str::to_owned);
        let is_for_nodes = |listener: &&Table| {
            !listener.contains_key("transport")
                && is_open(listener["address"].as_str().unwrap_or(""))
        };
        if !self.is_open() || self.listeners.iter().any(|it| is_for_nodes(&it)) {
            return String::new();
        }
        let taken: Vec<String> = self.listeners.iter().filter_map(address).collect();
        let is_free = |port: &u16| {
            let end = format!(":{port}");
            !taken.iter().any(|address| address.ends_with(&end))
        };
        let port = (1884..=u16::MAX).find(is_free).unwrap_or(1884);
        format!(
            "\n# Nodes connect to each other at listeners of plain TCP. None here can be reached from other hosts, so this node stays alone.\n\
             # For a cluster add a listener for nodes, which needs the cluster secret:\n\
             # [[listener]]\n# address = \"link://0.0.0.0:{port}\"\n"
        )
    }

    /// `port` and `bind_address` are one listener, in whichever order they stand. `bind_address` alone is one at port 1883.
    fn place_default_listener(&mut self) {
        match (self.default_listener.take(), self.bind_address.take()) {
            (None, None) => {}
            (Some((place, line)), None) => {
                let address = self.listeners[place]["address"].as_str();
                let port = address.map_or("", |it| it.trim_start_matches("0.0.0.0:"));
                let remark = for_ipv4(port);
                self.remark_at(line, remark);
            }
            (Some((place, _)), Some((host, _))) => {
                let address = self.listeners[place]["address"].as_str();
                let port = address.map_or("", |it| it.trim_start_matches("0.0.0.0:"));
                let address = host_and_port(&host, port);
                self.listeners[place].insert("address".to_owned(), address.into());
            }
            (None, Some((host, line))) => {
                self.line = line;
                self.add_listener(host_and_port(&host, "1883"));
            }
        }
    }

    /// A node has one file of rights for all its listeners: that of most of them here. Listeners with other rights, or with none, are left out, so that
    /// no client may do more than before.
    fn take_rights(&mut self) {
        let rights_at = |listener| {
            let last = |at| self.rights.iter().rfind(|(place, ..)| *place == at);
            last(Some(listener)).or_else(|| last(None))
        };
        if self.listeners.is_empty() {
            if let Some((_, path, _)) = self.rights.last().cloned() {
                self.set("acl", path);
            }
            return;
        }
        let rights: Vec<Option<(String, Line)>> = (0..self.listeners.len())
            .map(|place| rights_at(place).map(|(_, path, line)| (path.clone(), line.clone())))
            .collect();
        let path_of = |place: usize| rights[place].as_ref().map(|(path, _)| path.clone());
        let weight = |place: &usize| {
            let path = path_of(*place);
            let same = (0..rights.len()).filter(|other| path_of(*other) == path);
            (same.count(), path.is_some(), rights.len() - place)
        };
        let chosen = (0..rights.len()).max_by_key(weight).and_then(path_of);
        let mut left_out = Vec::new();
        for (place, listener) in std::mem::take(&mut self.listeners).into_iter().enumerate() {
            if path_of(place) == chosen {
                self.listeners.push(listener);
                continue;
            }
            let (has, line) = match &rights[place] {
                Some((_, line)) => ("rights of its own", line),
                None => ("no rights", &self.listener_lines[place]),
            };
            let address = listener["address"].as_str().unwrap_or_default();
            let why = format!(
                "the listener {address} is left out: it has {has}, but a node has one file of rights for all its listeners. Put all rights into one \
                 file, name it in `acl_file` at every listener, and migrate again"
            );
            left_out.push((line.clone(), Remark::first(why)));
        }
        for (line, remark) in left_out {
            self.remark_at(line, remark);
        }
        if let Some(path) = chosen {
            self.set("acl", path);
        }
    }

    /// A bridge of Mosquitto belongs to its broker; ours is a client of its node.
    fn ask_for_users_of_bridges(&mut self) {
        let is_closed = |table: &Table| {
            table.get("allow_anonymous").and_then(Value::as_bool) == Some(false)
                || table.contains_key("users")
        };
        if !is_closed(&self.node) && !self.listeners.iter().any(is_closed) {
            return;
        }
        let nameless = self.bridges.iter();
        let nameless = nameless.filter(|it| !it.settings.contains_key("local_user"));
        let lines: Vec<Line> = nameless.map(|bridge| bridge.line.clone()).collect();
        for line in lines {
            let why = "a bridge is a client of its own node, which refuses clients without a user name: set `local_user` and `local_password_file`";
            self.remark_at(line, Remark::first(why));
        }
    }

    /// Writes down what Mosquitto 2 does where nothing is said: with a listener, clients without a user name are refused. Returns whether nothing
    /// was said.
    fn close_to_strangers(&mut self) -> bool {
        let said = self.node.get("allow_anonymous").and_then(Value::as_bool);
        if self.listeners.is_empty() || (said == Some(true) && !self.per_listener) {
            return false;
        }
        let is_per_listener = self.per_listener;
        if !is_per_listener {
            self.set("allow_anonymous", false);
        }
        let has_certificate_users = |listener: &Table| listener.contains_key("certificate_users");
        let mut is_added =
            !is_per_listener && said.is_none() && !self.listeners.iter().all(has_certificate_users);
        for listener in &mut self.listeners {
            // With required certificates we would let clients in without a name.
            let needs_it = is_per_listener || listener.contains_key("tls_client_certificate");
            let is_said =
                listener.contains_key("allow_anonymous") || listener.contains_key("users");
            if needs_it && !is_said {
                listener.insert("allow_anonymous".to_owned(), false.into());
                is_added |= is_per_listener && !has_certificate_users(listener);
            }
        }
        is_added && !self.node.contains_key("users")
    }

    /// Names in certificates are user names where clients are asked for certificates.
    fn take_certificate_users(&mut self) {
        let mut without_effect = Vec::new();
        for (place, line) in std::mem::take(&mut self.certificate_users) {
            let listener = &mut self.listeners[place];
            if listener.contains_key("tls_client_certificate") {
                listener.insert("certificate_users".to_owned(), true.into());
            } else {
                let why = "without `require_certificate true` it has no effect";
                without_effect.push((line, Remark::note(why)));
            }
        }
        for (line, remark) in without_effect {
            self.remark_at(line, remark);
        }
    }

    /// A bridge of Mosquitto is inside the broker, and its topics begin with the mount point of a listener. Ours is a client of a listener, which
    /// puts its prefix before the topics.
    fn take_prefix_from_rules(&mut self) {
        let is_plain = |listener: &&Table| {
            let address = listener["address"].as_str().unwrap_or_default();
            !listener.contains_key("transport") && !address.starts_with("unix:")
        };
        let plain: Vec<&Table> = self.listeners.iter().filter(is_plain).collect();
        let prefix_of = |listener: &&Table| {
            let prefix = listener.get("topic_prefix").and_then(Value::as_str);
            prefix.unwrap_or_default().to_owned()
        };
        let prefixes: Vec<String> = plain.iter().map(prefix_of).collect();
        let Some(prefix) = prefixes.first().cloned() else {
            return;
        };
        if prefixes.iter().any(String::is_empty) {
            return;
        }
        let lifted = |bridge: &Bridge| -> Option<Vec<Table>> {
            let rules = bridge.rules.iter();
            rules.map(|rule| without_prefix(rule, &prefix)).collect()
        };
        let all: Option<Vec<Vec<Table>>> = self.bridges.iter().map(lifted).collect();
        match all {
            Some(all) => {
                for (bridge, rules) in self.bridges.iter_mut().zip(all) {
                    bridge.rules = rules;
                }
            }
            None => {
                let why = format!(
                    "here a bridge is a client of a listener, and the listeners of plain TCP put {prefix} before its topics: add a [[listener]] \
                     without topic_prefix for it, such as address = \"127.0.0.1:1884\""
                );
                let lines: Vec<Line> = self.bridges.iter().map(|it| it.line.clone()).collect();
                for line in lines {
                    self.remark_at(line, Remark::first(why.clone()));
                }
            }
        }
    }

    /// A bridge without topics or address is no bridge, there and here.
    fn leave_out_useless_bridges(&mut self) {
        for bridge in std::mem::take(&mut self.bridges) {
            let lacks = if bridge.rules.is_empty() {
                "no `topic` follows it"
            } else if !bridge.settings.contains_key("address") {
                "no `address` follows it"
            } else {
                self.bridges.push(bridge);
                continue;
            };
            let why = format!("{lacks}: the bridge is left out");
            self.remark_at(bridge.line, Remark::differs(why));
        }
    }

    /// Whether any listener is more than this host's.
    fn is_open(&self) -> bool {
        let addresses = self
            .listeners
            .iter()
            .filter_map(|it| it["address"].as_str());
        addresses.into_iter().any(is_open)
    }
}

/// Whether other hosts reach an address.
fn is_open(address: &str) -> bool {
    let local = ["localhost:", "127.", "[::1]:", "unix:"];
    !local.iter().any(|start| address.starts_with(start))
}

/// Writes the remarks of one weight below a title; how many there are.
fn write_remarks(text: &mut String, weight: Weight, all: &[Noted]) -> usize {
    let remarks = || all.iter().filter(|remark| remark.weight == weight);
    let count = remarks().count();
    if count > 0 {
        let title = match weight {
            Weight::First => "Do this first",
            Weight::Differs => "A node does this otherwise",
            Weight::Note => "Nothing to do",
        };
        let _ = writeln!(text, "#\n# {title}:\n#");
    }
    for Noted { line, why, .. } in remarks() {
        let why = printable(why);
        match line {
            Some(Line {
                file,
                number,
                text: said,
            }) => {
                let file = file
                    .as_ref()
                    .map(|file| format!("{}, ", printable(file)))
                    .unwrap_or_default();
                let said = printable(said);
                let _ = writeln!(text, "# {file}line {number}: {said}\n#   {why}");
            }
            None => {
                let _ = writeln!(text, "# {why}");
            }
        }
    }
    count
}

/// Text for a comment of TOML, which may have no control characters but tabs.
fn printable(text: &str) -> String {
    let escaped = |it: char| match it {
        '\t' => it.to_string(),
        it if it.is_control() => it.escape_default().to_string(),
        it => it.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// HOST:PORT, with brackets around an address of IPv6.
pub fn host_and_port(host: &str, port: &str) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The remark at a listener without a host.
pub fn for_ipv4(port: &str) -> Remark {
    Remark::differs(format!(
        "taken over for IPv4; for IPv6 add a listener at [::]:{port}"
    ))
}

/// The rule with the same effect where a listener puts a prefix before the local topic; `None`: there is none.
fn without_prefix(rule: &Table, prefix: &str) -> Option<Table> {
    let text = |key| rule.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut rule = rule.clone();
    let (local, topic) = (text("local_prefix"), text("topic"));
    if let Some(rest) = local.strip_prefix(prefix) {
        match rest {
            "" => rule.remove("local_prefix"),
            rest => rule.insert("local_prefix".to_owned(), rest.into()),
        };
        return Some(rule);
    }
    let rest = topic.strip_prefix(prefix).filter(|rest| !rest.is_empty())?;
    if !local.is_empty() {
        return None;
    }
    let remote = format!("{}{prefix}", text("remote_prefix"));
    rule.insert("topic".to_owned(), rest.into());
    rule.insert("remote_prefix".to_owned(), remote.into());
    Some(rule)
}

/// A bridge with files for TLS uses it.
fn choose_bridge_transport(bridge: &mut Table) {
    let has_tls = ["tls_ca", "tls_certificate", "tls_key"]
        .iter()
        .any(|key| bridge.contains_key(*key));
    if let Some(Value::String(address)) = bridge.get_mut("address").filter(|_| has_tls) {
        *address = format!("tls://{address}");
    }
}

/// TLS is a matter of having a certificate there, and of a transport here.
fn choose_transport(listener: &mut Table) {
    let is_websocket = listener.get("transport").and_then(Value::as_str) == Some("ws");
    if listener.contains_key("tls_certificate") {
        let transport = if is_websocket { "wss" } else { "tls" };
        listener.insert("transport".to_owned(), transport.into());
    }
    // Without a demand for certificates nobody looks at the authority.
    if !listener.contains_key("tls_client_certificate") {
        listener.remove("tls_client_ca");
    }
}

#[cfg(test)]
mod tests {
    use super::super::options;
    use super::*;

    #[test]
    fn what_was_written_with_control_characters_stays_a_comment() {
        let mut draft = Draft::default();
        options::take_all(&mut draft, "strange\u{1f}option\ton\nnull\0 \u{7f}x\n");
        let text = draft.finish().text;
        assert!(text.parse::<Table>().is_ok(), "{text}");
        assert!(text.contains("strange\\u{1f}option"), "{text}");
    }
}
