//! Clients that connect, disconnect and are refused, as events: the shell recognises them by their message, writes a line and counts by reason.

use thicket_mqtt::ReasonCode;

/// A client is served: fields `client_id`, `user_name`, `peer`, `version`, `session_present`.
pub const CLIENT_CONNECTED: &str = "client connected";
/// A client is served no more: fields `client_id`, `user_name`, `peer`, `reason`.
pub const CLIENT_DISCONNECTED: &str = "client disconnected";
/// A client was refused: fields `client_id`, `user_name`, `peer`, `reason_code`, `reason`.
pub const CONNECT_REFUSED: &str = "CONNECT refused";
/// What came first was no CONNECT that can be read: fields `peer`, `reason_code`, `protocol` (of a peer at the wrong port: `tls` or `http`), `reason`.
pub const CONNECT_MALFORMED: &str = "malformed CONNECT";
/// Another packet came first: fields `peer`, `reason_code`, `reason`.
pub const CONNECT_MISSING: &str = "the first packet is not CONNECT";

/// This node accepts clients.
pub const READY: &str = "ready";
/// A node is reachable: fields `node`, `name`.
pub const NODE_UP: &str = "node up";
/// A node is not reachable any more: field `node`.
pub const NODE_DOWN: &str = "node down";
/// A node was removed from the cluster: fields `node`, `name`.
pub const NODE_REMOVED: &str = "a node was removed from the cluster";
/// This node does not serve: its side has no quorum. Fields `members`, `reachable`.
pub const NO_QUORUM: &str = "this side has no majority and does not serve";
/// This node does not serve: others reach a node that it does not. Fields `members`, `reachable`.
pub const PARTITIONED: &str = "others reach a node that this one does not, which does not serve";
/// This node serves again: fields `members`, `reachable`.
pub const QUORUM: &str = "this side has a majority and serves again";
/// Backups here were promoted: field `sessions`, and of which `node`.
pub const SESSIONS_FAILED_OVER: &str =
    "sessions of a node that is down have failed over to this one";

/// Why the connection of a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisconnectCause {
    /// The client sent DISCONNECT.
    Client,
    /// The node did, or would have before MQTT 5.0.
    Node(ReasonCode),
}

/// Why it ended, in a word that metrics use too; `None`: the connection was lost.
pub(crate) fn reason_of(disconnect_cause: Option<DisconnectCause>) -> String {
    match disconnect_cause {
        None => "connection_lost".to_owned(),
        Some(DisconnectCause::Client) => "client".to_owned(),
        Some(DisconnectCause::Node(code)) => code.words(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_words() {
        let node = |code| Some(DisconnectCause::Node(code));
        for (disconnect_cause, expected) in [
            (None, "connection_lost"),
            (Some(DisconnectCause::Client), "client"),
            (node(ReasonCode::SessionTakenOver), "session_taken_over"),
            (node(ReasonCode::KeepAliveTimeout), "keep_alive_timeout"),
        ] {
            assert_eq!(reason_of(disconnect_cause), expected);
        }
    }
}
