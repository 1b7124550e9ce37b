//! A configuration in the making: what the node, its listeners and its bridges are told, and what could not be.

use std::fmt::Write as _;

use toml::{Table, Value};

/// What has been read so far.
#[derive(Debug, Default)]
pub struct Draft {
    node: Table,
    listeners: Vec<Table>,
    bridges: Vec<Bridge>,
    remarks: Vec<String>,
    /// What follows belongs to the bridge that was named last, no more to a listener.
    in_bridge: bool,
    /// Users and rights after a listener are those of that listener.
    pub per_listener: bool,
}

#[derive(Debug, Default)]
struct Bridge {
    settings: Table,
    rules: Vec<Table>,
}

/// A whole configuration.
#[derive(Debug)]
pub struct Finished {
    /// As TOML.
    pub text: String,
    /// How many lines have a remark.
    pub remarks: usize,
}

impl Draft {
    /// Says why a line is not taken over, or not as it was.
    pub fn remark(&mut self, number: usize, line: &str, why: &str) {
        self.remarks
            .push(format!("line {number}: {line}\n#   {why}"));
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
        let table = self.listeners.last_mut().unwrap_or(&mut self.node);
        table.insert(key.to_owned(), value.into());
    }

    /// What follows belongs to a listener at this address.
    pub fn listener(&mut self, address: String) {
        self.in_bridge = false;
        let mut table = Table::new();
        table.insert("address".to_owned(), address.into());
        self.listeners.push(table);
    }

    /// The listener that was named last; one for port 1883 if none was.
    pub fn current_listener(&mut self) -> &mut Table {
        if self.listeners.is_empty() {
            self.listener("localhost:1883".to_owned());
        }
        self.listeners.last_mut().expect("one was added above")
    }

    /// What follows belongs to a bridge of this name.
    pub fn bridge(&mut self, name: &str) {
        self.in_bridge = true;
        let mut bridge = Bridge::default();
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

    /// Remarks first, then the node, then tables, as TOML wants them.
    pub fn finish(mut self) -> Finished {
        for listener in &mut self.listeners {
            choose_transport(listener);
        }
        let mut text = String::from("# Written by `thicket migrate`.\n");
        if self.is_open() {
            text += "# Other machines can reach this node, so say which nodes may join it: the same secret on every node\n\
                     # (head -c 32 /dev/urandom | base64 > FILE).\n# cluster_secret_file = \"/etc/thicket/cluster-secret\"\n";
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "# {remark}");
        }
        text.push('\n');
        text += &self.node.to_string();
        for listener in self.listeners {
            let _ = write!(text, "\n[[listener]]\n{listener}");
        }
        for bridge in self.bridges {
            let _ = write!(text, "\n[[bridge]]\n{}", bridge.settings);
            for rule in bridge.rules {
                let _ = write!(text, "\n[[bridge.rule]]\n{rule}");
            }
        }
        Finished {
            text,
            remarks: self.remarks.len(),
        }
    }

    /// Whether any listener is more than this host's.
    fn is_open(&self) -> bool {
        let addresses = self
            .listeners
            .iter()
            .filter_map(|it| it["address"].as_str());
        let local = ["localhost:", "127.", "[::1]:", "unix:"];
        addresses
            .into_iter()
            .any(|address| !local.iter().any(|start| address.starts_with(start)))
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
