//! Turns events of workers and hub into lines of the log.

use std::net::SocketAddr;

use thicket_node::{
    CLIENT_CONNECTED, CLIENT_DISCONNECTED, CONNECT_MALFORMED, CONNECT_MISSING, CONNECT_REFUSED,
    Event, EventLevel,
};
use tracing::Level;
use tracing::field::Value;

use crate::counters::Counters;
use crate::log::{self, Subject, Suppressed, line};

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

/// Counts clients that connect, disconnect and are refused.
pub(crate) fn count(counters: &Counters, event: &Event) {
    let field = |key: &str| {
        let mut fields = event.fields.iter();
        let found = fields.find(|(name, _)| *name == key);
        found.map(|(_, value)| value.as_str())
    };
    let by = |key: &str| field(key).unwrap_or("unknown");
    match event.message {
        CLIENT_CONNECTED => counters.connects.add_one(),
        CLIENT_DISCONNECTED => counters.disconnects.add_one(by("reason")),
        CONNECT_REFUSED | CONNECT_MALFORMED | CONNECT_MISSING => {
            let protocol = field("protocol");
            counters
                .connects_refused
                .add_one(protocol.unwrap_or_else(|| by("reason_code")));
        }
        _ => {}
    }
}

/// Logs an event of a worker or hub on thread `thread`, unless its kind is over the limit.
pub(crate) fn log(thread: u8, event: &Event) {
    // A line below the log level does not count as suppressed, and is not built: there are many packets.
    let is_on = match event.level {
        EventLevel::Error | EventLevel::Warn => true,
        EventLevel::Info => tracing::enabled!(Level::INFO),
        EventLevel::Debug => tracing::enabled!(Level::DEBUG),
    };
    if !is_on {
        return;
    }
    let suppressed = match subject(event).map(log::may_say) {
        Some(Some(suppressed)) => suppressed,
        Some(None) => return,
        None => None,
    };
    write(thread, event, suppressed);
}

/// Each field of the event is a field of the line.
fn write(thread: u8, event: &Event, suppressed: Suppressed) {
    let level = match event.level {
        EventLevel::Error => Level::ERROR,
        EventLevel::Warn => Level::WARN,
        EventLevel::Info => Level::INFO,
        EventLevel::Debug => Level::DEBUG,
    };
    let field = |name: &str| {
        let mut fields = event.fields.iter();
        let found = fields.find(|(key, _)| *key == name);
        found.map(|(_, value)| value.as_str())
    };
    let session = field("client_id").map(SessionName::of);
    let user_name = field("user_name").filter(|name| !name.is_empty());
    let user_name = user_name.or_else(|| session?.user_name);
    let topic_prefix = session.and_then(|it| it.topic_prefix);
    let values: Vec<(&'static str, Box<dyn Value + '_>)> = event
        .fields
        .iter()
        .filter_map(|(key, value)| match *key {
            "client_id" => Some(("client_id", Box::new(session?.client_id) as Box<dyn Value>)),
            "user_name" => None,
            key => Some((key, typed(key, value))),
        })
        .collect();
    let mut fields: Vec<(&'static str, &dyn Value)> = vec![("thread", &thread)];
    fields.extend(values.iter().map(|(key, value)| (*key, &**value)));
    // Beside the identifier, which they complete.
    let after = fields.iter().position(|(key, _)| *key == "client_id");
    let mut at = after.map_or(fields.len(), |at| at + 1);
    for (key, value) in [("user_name", &user_name), ("topic_prefix", &topic_prefix)] {
        if let Some(value) = value {
            fields.insert(at, (key, value));
            at += 1;
        }
    }
    if let Some(suppressed) = &suppressed {
        fields.push(("suppressed", suppressed));
    }
    line::write(level, event.message, &fields);
}

/// Fields that are numbers. The other nodes and clients choose the texts of others, which stay texts whatever they look like.
const NUMBERS: [&str; 17] = [
    "bytes",
    "clients",
    "incarnation",
    "internal_after",
    "internal_before",
    "jain_after",
    "jain_before",
    "members",
    "messages",
    "messages_per_s",
    "nodes",
    "paused_ms",
    "qos",
    "reachable",
    "sessions",
    "wills",
    "wire",
];

/// A value with its type, so that it can be compared in a log of JSON.
fn typed<'a>(key: &str, value: &'a str) -> Box<dyn Value + 'a> {
    let is_number = NUMBERS.contains(&key);
    if let (true, Ok(number)) = (is_number, value.parse::<u64>()) {
        return Box::new(number);
    }
    if let (true, Ok(number)) = (is_number, value.parse::<f64>()) {
        return Box::new(number);
    }
    match (key, value) {
        ("session_present", "true") => Box::new(true),
        ("session_present", "false") => Box::new(false),
        _ => Box::new(shown(key, value)),
    }
}

/// A value as people write it: versions of MQTT as the specification numbers them.
pub(crate) fn shown<'a>(key: &str, value: &'a str) -> &'a str {
    match (key, value) {
        ("version", "V5") => "5",
        ("version", "V311") => "3.1.1",
        ("version", "V31") => "3.1",
        _ => value,
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

    #[test]
    fn numbers_and_booleans_are_no_texts_in_a_log_of_json() {
        let event = Event {
            level: EventLevel::Info,
            message: "client connected",
            fields: [
                ("client_id", "7"),
                ("node", "7"),
                ("members", "2"),
                ("jain_after", "0.5"),
                ("session_present", "false"),
            ]
            .map(|(key, value)| (key, value.to_owned()))
            .to_vec(),
        };
        let text = line::tests::json_of(|| write(3, &event, None));
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for (key, expected) in [
            ("client_id", "7".into()),
            ("node", "7".into()),
            ("members", 2.into()),
            ("jain_after", 0.5.into()),
            ("session_present", false.into()),
            ("thread", serde_json::Value::from(3)),
        ] {
            assert_eq!(line[key], expected, "{key}");
        }
    }

    #[test]
    fn versions_of_mqtt_are_shown_as_the_specification_numbers_them() {
        for (version, expected) in [
            (thicket_mqtt::ProtocolVersion::V31, "3.1"),
            (thicket_mqtt::ProtocolVersion::V311, "3.1.1"),
            (thicket_mqtt::ProtocolVersion::V5, "5"),
        ] {
            assert_eq!(shown("version", &format!("{version:?}")), expected);
        }
        assert_eq!(shown("topic", "V5"), "V5");
    }
}
