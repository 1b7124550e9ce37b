//! Clients that come, go and are refused, as events: the shell knows them by their message, writes a line and counts by reason.

use thicket_mqtt::ReasonCode;

/// A client is served: fields `client_id`, `user_name`, `peer`, `version`, `session_present`.
pub const CLIENT_CONNECTED: &str = "client connected";
/// A client is served no more: fields `client_id`, `peer`, `reason`.
pub const CLIENT_DISCONNECTED: &str = "client disconnected";
/// A client was not let in: fields `client_id`, `user_name`, `peer`, `reason_code`, `reason`.
pub const CONNECT_REFUSED: &str = "CONNECT refused";

/// Why the connection of a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// The client said DISCONNECT.
    Client,
    /// The node did, or would have before MQTT 5.0.
    Node(ReasonCode),
}

/// Why it ended, in a word that metrics use too; `None`: the connection was lost.
pub(crate) fn reason_of(goodbye: Option<Goodbye>) -> String {
    match goodbye {
        None => "connection_lost".to_owned(),
        Some(Goodbye::Client) => "client".to_owned(),
        Some(Goodbye::Node(code)) => words_of(code),
    }
}

/// `SessionTakenOver` as `session_taken_over`.
pub(crate) fn words_of(code: ReasonCode) -> String {
    let mut words = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_words() {
        let node = |code| Some(Goodbye::Node(code));
        for (goodbye, expected) in [
            (None, "connection_lost"),
            (Some(Goodbye::Client), "client"),
            (node(ReasonCode::SessionTakenOver), "session_taken_over"),
            (node(ReasonCode::KeepAliveTimeout), "keep_alive_timeout"),
        ] {
            assert_eq!(reason_of(goodbye), expected);
        }
    }
}
