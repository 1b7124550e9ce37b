//! Events of the machines become lines of the log.

use thicket_node::{Event, EventLevel};

/// Fields have to be known to `tracing` beforehand: these names, and the rest goes into `more`.
const NAMES: [&str; 15] = [
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
];

macro_rules! line {
    ($level:ident, $event:expr, $thread:expr) => {{
        let field = |name: &str| {
            $event
                .fields
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.as_str())
        };
        let more = others($event);
        tracing::$level!(
            thread = $thread,
            address = field("address"),
            client_id = field("client_id"),
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
            more = (!more.is_empty()).then_some(more.as_str()),
            "{}",
            $event.message
        )
    }};
}

/// Writes an event of a machine on thread `thread`.
pub(crate) fn log(thread: u8, event: &Event) {
    match event.level {
        EventLevel::Error => line!(error, event, thread),
        EventLevel::Warn => line!(warn, event, thread),
        EventLevel::Info => line!(info, event, thread),
        // Packets are many: look whether anybody listens before building the line.
        EventLevel::Debug => {
            if tracing::enabled!(tracing::Level::DEBUG) {
                line!(debug, event, thread);
            }
        }
    }
}

/// Facts without a name of their own: `key=value`, separated by spaces.
fn others(event: &Event) -> String {
    let rest = event.fields.iter().filter(|(key, _)| !NAMES.contains(key));
    rest.map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(" ")
}
