//! Packets of clients that an operator watches, as lines of text.

use std::collections::VecDeque;

use thicket_mqtt::Packet;

use crate::{Direction, TraceLine, TraceSubject, scope::client_id_of};

/// Lines of a trace that wait to be fetched; more are counted only.
const TRACE_LINES: usize = 4096;

/// What is watched, and the packets that were.
#[derive(Debug)]
pub(in crate::worker) struct PacketTrace {
    subject: TraceSubject,
    lines: VecDeque<TraceLine>,
    lost: u64,
}

impl PacketTrace {
    pub const fn new(subject: TraceSubject) -> Self {
        Self {
            subject,
            lines: VecDeque::new(),
            lost: 0,
        }
    }

    /// The lines since the last call, and how many were dropped over the limit.
    pub fn take(&mut self) -> (Vec<TraceLine>, u64) {
        let lines = std::mem::take(&mut self.lines).into();
        (lines, std::mem::take(&mut self.lost))
    }

    /// A packet from or to the client of the session with this name.
    pub fn note(&mut self, session_name: &str, direction: Direction, packet: &Packet<'_>) {
        let client_id = client_id_of(session_name);
        let is_wanted = match &self.subject {
            TraceSubject::Client(wanted) => **wanted == *client_id,
            TraceSubject::Topic(filter) => {
                matches!(packet, Packet::Publish(publish) if filter.matches(publish.topic))
            }
        };
        if !is_wanted {
            return;
        }
        if self.lines.len() >= TRACE_LINES {
            self.lost += 1;
            return;
        }
        self.lines.push_back(TraceLine {
            client_id: client_id.to_owned(),
            direction,
            packet: in_words(packet),
        });
    }
}

/// A packet without its payload.
fn in_words(packet: &Packet<'_>) -> String {
    match packet {
        Packet::Publish(publish) => {
            let id = publish.packet_id.map_or(0, |id| id.value());
            let (retain, dup) = (u8::from(publish.retain), u8::from(publish.dup));
            format!(
                "PUBLISH topic={:?} qos={} retain={retain} dup={dup} packet_id={id} payload_bytes={}",
                publish.topic,
                publish.qos as u8,
                publish.payload.len()
            )
        }
        Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
            format!(
                "{} packet_id={} reason_code=0x{:02X}",
                name(packet),
                ack.packet_id.value(),
                ack.reason_code as u8
            )
        }
        Packet::Subscribe(subscribe) => {
            let filters: Vec<_> = subscribe.filters.iter().map(|asked| asked.filter).collect();
            format!(
                "SUBSCRIBE packet_id={} filters={filters:?}",
                subscribe.packet_id.value()
            )
        }
        Packet::Unsubscribe(unsubscribe) => {
            format!(
                "UNSUBSCRIBE packet_id={} filters={:?}",
                unsubscribe.packet_id.value(),
                unsubscribe.filters
            )
        }
        Packet::Suback(suback) => format!(
            "SUBACK packet_id={} reason_codes={:?}",
            suback.packet_id.value(),
            suback.reason_codes
        ),
        Packet::Unsuback(unsuback) => format!("UNSUBACK packet_id={}", unsuback.packet_id.value()),
        Packet::Disconnect(disconnect) => format!(
            "DISCONNECT reason_code=0x{:02X}",
            disconnect.reason_code as u8
        ),
        Packet::Connect(_)
        | Packet::Connack(_)
        | Packet::Pingreq
        | Packet::Pingresp
        | Packet::Auth(_) => name(packet),
    }
}

fn name(packet: &Packet<'_>) -> String {
    format!("{:?}", packet.kind()).to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SessionScope, scope::session_name};

    #[test]
    fn a_trace_of_a_client_shows_it_whatever_its_user_and_topic_prefix_are() {
        let mut trace = PacketTrace::new(TraceSubject::Client("lamp".into()));
        let names = [
            ("", None, "lamp"),
            ("", Some("ann"), "lamp"),
            ("plant/", Some("ann"), "lamp"),
            ("", Some("lamp"), "other"),
        ];
        for (prefix, user, client_id) in names {
            let name = session_name(SessionScope::User, prefix, user, client_id).expect("short");
            trace.note(&name, Direction::In, &Packet::Pingreq);
        }
        let (lines, _) = trace.take();
        let seen: Vec<_> = lines.iter().map(|line| line.client_id.as_str()).collect();
        assert_eq!(seen, ["lamp"; 3]);
    }
}
