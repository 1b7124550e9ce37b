//! The load of a node and where its clients reach it: what nodes send each other, and redirection is based on.

use std::sync::Arc;

/// What the bytes of a client travel on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientTransport {
    /// Plain TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket over TCP.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

impl ClientTransport {
    /// All, by their number on links.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Tls, Self::Ws, Self::Wss];

    /// Its name, as in the address of a listener.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }
}

/// What makes two listeners alike for a client: it may be sent from one to the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerLikeness {
    /// What its bytes travel on.
    pub transport: ClientTransport,
    /// Put before every topic of its clients; empty: none.
    pub topic_prefix: Arc<str>,
}

/// Where clients reach a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAddress {
    /// The listener there.
    pub likeness: ListenerLikeness,
    /// HOST:PORT.
    pub address: Arc<str>,
}

/// Messages and bytes a second, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Rates {
    pub in_messages: u64,
    pub in_bytes: u64,
    pub out_messages: u64,
    pub out_bytes: u64,
}

/// The load of a node, as it was measured last. What its system does not report is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeLoad {
    /// CPU of the process, a mean of 5 s, in thousandths of what it may use.
    pub cpu_permille: Option<u16>,
    /// Between clients and the node.
    pub external: Rates,
    /// Between other nodes and the node.
    pub internal: Rates,
    /// Clients connected.
    pub connections: u64,
    /// Of the process, in memory.
    pub memory_bytes: Option<u64>,
    /// From here on it accepts no clients.
    pub memory_limit_bytes: Option<u64>,
    /// It is about to leave.
    pub is_draining: bool,
    /// It accepts no clients: no memory, or as many connections as it may have.
    pub is_full: bool,
    /// It has just started, and serves no clients yet.
    pub is_starting: bool,
}

/// Everything a node sends all others about itself beside links and interests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeState {
    /// Its load.
    pub load: NodeLoad,
    /// Where clients reach it, in the order of its listeners.
    pub addresses: Vec<ClientAddress>,
    /// HOST:PORT of its HTTP API.
    pub http_address: Option<Arc<str>>,
}

impl NodeState {
    /// Whether it accepts clients.
    #[must_use]
    pub const fn serves(&self) -> bool {
        !self.load.is_draining && !self.load.is_full && !self.load.is_starting
    }
}

impl NodeLoad {
    /// Whether another node would decide otherwise with `self` instead of `reported`: small changes are not worth a message.
    #[must_use]
    pub fn differs(&self, reported: &Self) -> bool {
        self.is_draining != reported.is_draining
            || self.is_full != reported.is_full
            || self.is_starting != reported.is_starting
            || self.memory_limit_bytes != reported.memory_limit_bytes
            || self.cpu_permille.is_some() != reported.cpu_permille.is_some()
            || self.memory_bytes.is_some() != reported.memory_bytes.is_some()
            || has_moved(
                or_zero(self.cpu_permille),
                or_zero(reported.cpu_permille),
                20,
            )
            || has_moved(self.connections, reported.connections, 0)
            || has_moved(
                self.memory_bytes.unwrap_or(0),
                reported.memory_bytes.unwrap_or(0),
                4 << 20,
            )
            || self.external.differs(&reported.external)
            || self.internal.differs(&reported.internal)
    }

    /// Whether it carries another number of messages a second than was reported.
    #[must_use]
    pub fn shows_other_messages(&self, reported: &Self) -> bool {
        let shown = |rates: &Rates| (rates.in_messages, rates.out_messages);
        shown(&self.external) != shown(&reported.external)
            || shown(&self.internal) != shown(&reported.internal)
    }
}

impl Rates {
    fn differs(&self, reported: &Self) -> bool {
        has_moved(self.in_messages, reported.in_messages, 20)
            || has_moved(self.out_messages, reported.out_messages, 20)
            || has_moved(self.in_bytes, reported.in_bytes, 16 << 10)
            || has_moved(self.out_bytes, reported.out_bytes, 16 << 10)
    }

    /// Messages both ways.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.in_messages + self.out_messages
    }
}

fn or_zero(value: Option<u16>) -> u64 {
    value.map_or(0, u64::from)
}

/// By more than `noise` and by a sixteenth. What begins where there was nothing has moved, and so has what ends.
const fn has_moved(now: u64, reported: u64, noise: u64) -> bool {
    let distance = now.abs_diff(reported);
    distance > noise && distance > reported / 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_change_is_not_worth_a_message() {
        let reported = NodeLoad {
            cpu_permille: Some(300),
            connections: 160,
            external: Rates {
                in_messages: 8_000,
                ..Rates::default()
            },
            ..NodeLoad::default()
        };
        assert!(!reported.differs(&reported));
        let changed = |change: fn(&mut NodeLoad)| {
            let mut now = reported;
            change(&mut now);
            now.differs(&reported)
        };
        assert!(!changed(|load| load.cpu_permille = Some(315)));
        assert!(changed(|load| load.cpu_permille = Some(330)));
        assert!(changed(|load| load.cpu_permille = None));
        assert!(!changed(|load| load.connections = 165));
        assert!(changed(|load| load.connections = 0));
        assert!(!changed(|load| load.external.in_messages = 8_400));
        assert!(changed(|load| load.external.in_messages = 8_600));
        assert!(changed(|load| load.is_draining = true));
        let idle = NodeLoad::default();
        let first = NodeLoad {
            connections: 1,
            ..idle
        };
        assert!(first.differs(&idle), "one client is news for an idle node");
    }
}
