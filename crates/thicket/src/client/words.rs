//! What the broker answered, in words.

use thicket_mqtt::{Connack, Disconnect, ReasonCode};
use thicket_session::client::DisconnectReason;

/// `not authorized (0x87)`.
pub fn reason(code: ReasonCode) -> String {
    let mut words = String::new();
    for (index, letter) in format!("{code:?}").char_indices() {
        if letter.is_uppercase() && index > 0 {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    format!("{words} ({:#04x})", code as u8)
}

/// Why a connection ended.
pub fn disconnect(why: &DisconnectReason<'_>) -> anyhow::Error {
    match why {
        DisconnectReason::Refused(connack) => refused(connack),
        DisconnectReason::ByServer(disconnect) => by_server(disconnect),
        DisconnectReason::PeerError(error) => {
            anyhow::anyhow!("the broker broke the protocol: {error}")
        }
        DisconnectReason::ConnectTimeout => anyhow::anyhow!("the broker did not answer in time"),
        DisconnectReason::PingTimeout => anyhow::anyhow!("the broker fell silent"),
    }
}

/// What is wrong if these are the first bytes of the broker and are no MQTT.
pub fn foreign(first: &[u8]) -> Option<&'static str> {
    match first {
        // A record of TLS: an alert, or a handshake (RFC 8446 5.1).
        [0x15 | 0x16, 0x03, ..] => Some(
            "the broker speaks TLS at this port: name the authority of its certificate with --cafile, or use --url mqtts://HOST:PORT for one that the system trusts",
        ),
        [b'H', b'T', b'T', b'P', ..] => Some(
            "this port speaks HTTP, not MQTT: use the port of an MQTT listener, or --url ws://HOST:PORT/mqtt if it is a listener for WebSocket",
        ),
        _ => None,
    }
}

fn refused(connack: &Connack<'_>) -> anyhow::Error {
    let more = more(connack.reason_string, connack.server_reference);
    anyhow::anyhow!(
        "the broker refused the connection: {}{more}",
        reason(connack.reason_code)
    )
}

fn by_server(disconnect: &Disconnect<'_>) -> anyhow::Error {
    let more = more(disconnect.reason_string, disconnect.server_reference);
    anyhow::anyhow!(
        "the broker ended the connection: {}{more}",
        reason(disconnect.reason_code)
    )
}

fn more(reason_string: Option<&str>, server_reference: Option<&str>) -> String {
    let said = reason_string
        .map(|text| format!("; it says: {text}"))
        .unwrap_or_default();
    let other = server_reference
        .map(|server| format!("; it names another server: {server}"))
        .unwrap_or_default();
    said + &other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_code_is_told_by_name_and_number() {
        assert_eq!(
            reason(ReasonCode::BadUserNameOrPassword),
            "bad user name or password (0x86)"
        );
        assert_eq!(reason(ReasonCode::Success), "success (0x00)");
    }

    #[test]
    fn a_refusal_tells_all_that_the_broker_said() {
        let connack = Connack {
            reason_code: ReasonCode::UseAnotherServer,
            reason_string: Some("full"),
            server_reference: Some("b:1883"),
            ..Connack::default()
        };
        let words = disconnect(&DisconnectReason::Refused(&connack)).to_string();
        assert_eq!(
            words,
            "the broker refused the connection: use another server (0x9c); it says: full; it names another server: b:1883"
        );
    }
}
