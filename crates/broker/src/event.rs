//! Turns events of workers and hub into lines of the log.

use std::net::SocketAddr;

use thicket_node::{CLIENT_CONNECTED, CLIENT_DISCONNECTED, CONNECT_REFUSED, Event, EventLevel};

use crate::counters::Counters;
use crate::log::{self, Subject};

/// `tracing` needs field names at compile time: these, and all others go into `more`.
const NAMES: [&str; 16] = [
    "address",
    "client_id",
    "error",
    "name",
    "node",
    "nodes",
    "packet",
    "packet_id",
    "peer",
    "qos",
    "reason",
    "reason_code",
    "rtt_ms",
    "state",
    "topic",
    "user_name",
];

/// The name of a session in the cluster: with its user, if sessions belong to users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionName<'a> {
    /// As the client sent it.
    pub(crate) client_id: &'a str,
    pub(crate) user_name: Option<&'a str>,
    /// Prefix of the listener.
    pub(crate) topic_prefix: Option<&'a str>,
}

impl<'a> SessionName<'a> {
    /// Between the parts. A user name may contain it, the others do not.
    const SEPARATOR: char = '\u{1f}';

    pub(crate) fn of(name: &'a str) -> Self {
        let (scope, client_id) = name.rsplit_once(Self::SEPARATOR).unwrap_or(("", name));
        let (prefix, user) = scope.split_once(Self::SEPARATOR).unwrap_or((scope, ""));
        let filled = |part: &'a str| Some(part).filter(|part| !part.is_empty());
        Self {
            client_id,
            user_name: filled(user),
            topic_prefix: filled(prefix),
        }
    }
}

macro_rules! line {
    ($level:ident, $event:expr, $thread:expr, $suppressed:expr) => {{
        let field = |name: &str| {
            $event
                .fields
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.as_str())
        };
        let session = field("client_id").map(SessionName::of);
        let user_name = field("user_name").filter(|name| !name.is_empty());
        let more = others($event);
        tracing::$level!(
            thread = $thread,
            address = field("address"),
            client_id = session.map(|it| it.client_id),
            user_name = user_name.or_else(|| session?.user_name),
            topic_prefix = session.and_then(|it| it.topic_prefix),
            error = field("error"),
            name = field("name"),
            node = field("node"),
            nodes = field("nodes"),
            peer = field("peer"),
            packet = field("packet"),
            packet_id = field("packet_id"),
            qos = field("qos"),
            topic = field("topic"),
            reason = field("reason"),
            reason_code = field("reason_code"),
            state = field("state"),
            rtt_ms = field("rtt_ms"),
            suppressed = $suppressed,
            more = (!more.is_empty()).then_some(more.as_str()),
            "{}",
            $event.message
        )
    }};
}

/// Counts clients that connect, disconnect and are refused.
pub(crate) fn count(counters: &Counters, event: &Event) {
    let by = |key: &str| {
        let mut fields = event.fields.iter();
        let field = fields.find(|(name, _)| *name == key);
        field.map_or("unknown", |(_, value)| value.as_str())
    };
    match event.message {
        CLIENT_CONNECTED => counters.connects.add_one(),
        CLIENT_DISCONNECTED => counters.disconnects.add_one(by("reason")),
        CONNECT_REFUSED => counters.connects_refused.add_one(by("reason_code")),
        _ => {}
    }
}

/// Logs an event of a worker or hub on thread `thread`, unless its kind is over the limit.
pub(crate) fn log(thread: u8, event: &Event) {
    // A line below the log level does not count as suppressed.
    if event.level == EventLevel::Info && !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let suppressed = match subject(event).map(log::may_say) {
        Some(Some(suppressed)) => suppressed,
        Some(None) => return,
        None => None,
    };
    match event.level {
        EventLevel::Error => line!(error, event, thread, suppressed),
        EventLevel::Warn => line!(warn, event, thread, suppressed),
        EventLevel::Info => line!(info, event, thread, suppressed),
        // There are many packets: check whether the level is on before building the line.
        EventLevel::Debug => {
            if tracing::enabled!(tracing::Level::DEBUG) {
                line!(debug, event, thread, suppressed);
            }
        }
    }
}

/// The subject by which a line is limited, if whoever reaches the node can cause it as often as it likes.
fn subject(event: &Event) -> Option<Subject> {
    let peer = event.fields.iter().find(|(key, _)| *key == "peer");
    let peer = peer.and_then(|(_, peer)| peer.parse::<SocketAddr>().ok());
    match (event.level, peer) {
        (EventLevel::Warn, Some(peer)) => Some(peer.into()),
        (EventLevel::Info, Some(peer)) => Some(Subject::Visits(peer.ip().into())),
        (EventLevel::Warn, None) => Some(Subject::Message(event.message)),
        (EventLevel::Info, None) | (EventLevel::Error | EventLevel::Debug, _) => None,
    }
}

/// Fields without a declared name: `key=value`, separated by spaces.
fn others(event: &Event) -> String {
    let rest = event.fields.iter().filter(|(key, _)| !NAMES.contains(key));
    rest.map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_session_tells_identifier_user_and_prefix() {
        for (name, client_id, user_name, topic_prefix) in [
            ("lamp", "lamp", None, None),
            ("\u{1f}ann\u{1f}lamp", "lamp", Some("ann"), None),
            ("tenant/\u{1f}\u{1f}lamp", "lamp", None, Some("tenant/")),
            (
                "t/\u{1f}ann\u{1f}x\u{1f}lamp",
                "lamp",
                Some("ann\u{1f}x"),
                Some("t/"),
            ),
            ("", "", None, None),
        ] {
            let expected = SessionName {
                client_id,
                user_name,
                topic_prefix,
            };
            assert_eq!(SessionName::of(name), expected, "{name:?}");
        }
    }
}
