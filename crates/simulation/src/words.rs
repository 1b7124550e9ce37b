//! Packets in words, for tables of what is expected.

use std::fmt::Write;

use thicket_mqtt::{Acknowledgement, Connack, Packet, Publish, ReasonCode};

/// A packet from a server, in words: fields that are absent or 0 are omitted.
pub fn words(packet: &Packet<'_>) -> String {
    match packet {
        Packet::Connack(connack) => connack_words(connack),
        Packet::Publish(publish) => publish_words(publish),
        Packet::Puback(ack) => acknowledgement_words("PUBACK", ack),
        Packet::Pubrec(ack) => acknowledgement_words("PUBREC", ack),
        Packet::Pubrel(ack) => acknowledgement_words("PUBREL", ack),
        Packet::Pubcomp(ack) => acknowledgement_words("PUBCOMP", ack),
        Packet::Suback(suback) => {
            let codes = codes(&suback.reason_codes);
            format!("SUBACK {} [{codes}]", suback.packet_id.value())
        }
        Packet::Unsuback(unsuback) => {
            let codes = codes(&unsuback.reason_codes);
            format!("UNSUBACK {} [{codes}]", unsuback.packet_id.value())
        }
        Packet::Disconnect(disconnect) => {
            let mut words = format!("DISCONNECT 0x{:02X}", disconnect.reason_code as u8);
            if let Some(reference) = disconnect.server_reference {
                let _ = write!(words, " to {reference}");
            }
            words
        }
        Packet::Auth(auth) => format!("AUTH 0x{:02X}", auth.reason_code as u8),
        Packet::Pingresp => "PINGRESP".into(),
        other => format!("{other:?}"),
    }
}

fn connack_words(connack: &Connack<'_>) -> String {
    if connack.reason_code != ReasonCode::Success {
        let mut words = format!("CONNACK 0x{:02X}", connack.reason_code as u8);
        if let Some(reference) = connack.server_reference {
            let _ = write!(words, " to {reference}");
        }
        return words;
    }
    let mut words = String::from("CONNACK");
    if connack.session_present {
        words.push_str(" present");
    }
    if let Some(seconds) = connack.session_expiry_interval {
        let _ = write!(words, " expiry={seconds}");
    }
    if let Some(seconds) = connack.server_keep_alive {
        let _ = write!(words, " keep_alive={seconds}");
    }
    if connack.assigned_client_identifier.is_some() {
        words.push_str(" assigned");
    }
    words
}

fn publish_words(publish: &Publish<'_>) -> String {
    let mut words = format!("PUBLISH {}", publish.topic);
    if let Some(alias) = publish.topic_alias {
        let _ = write!(words, "@{alias}");
    }
    let _ = write!(words, " '{}'", String::from_utf8_lossy(publish.payload));
    if publish.qos as u8 > 0 {
        let _ = write!(words, " q{}", publish.qos as u8);
    }
    if let Some(packet_id) = publish.packet_id {
        let _ = write!(words, " #{}", packet_id.value());
    }
    if publish.dup {
        words.push_str(" dup");
    }
    if publish.retain {
        words.push_str(" retain");
    }
    if let Some(seconds) = publish.message_expiry_interval {
        let _ = write!(words, " expiry={seconds}");
    }
    let identifiers: Vec<u32> = publish.subscription_identifiers.iter().collect();
    if !identifiers.is_empty() {
        let _ = write!(words, " sub={identifiers:?}");
    }
    words
}

fn acknowledgement_words(kind: &str, ack: &Acknowledgement<'_>) -> String {
    let mut words = format!("{kind} {}", ack.packet_id.value());
    if ack.reason_code != ReasonCode::Success {
        let _ = write!(words, " 0x{:02X}", ack.reason_code as u8);
    }
    words
}

fn codes(reason_codes: &[ReasonCode]) -> String {
    let codes: Vec<String> = reason_codes
        .iter()
        .map(|code| format!("{:02X}", *code as u8))
        .collect();
    codes.join(" ")
}
