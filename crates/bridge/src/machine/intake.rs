//! Events of one side: messages are queued, everything that needs an answer is noted.

use std::collections::BTreeMap;
use std::time::Duration;

use thicket_mqtt::{
    ApplicationProperties, ApplicationProperty, PacketId, Publish, Qos, ReasonCode,
};
use thicket_session::Instant;
use thicket_session::client::{DisconnectReason, Event};

use super::half::Epochs;
use super::lane::{History, Lane, Message, Offer, Origin, Sent};
use super::memory::{Digester, Memory};
use super::statistics::LaneStatistics;
use super::{BLIND, MARK};
use crate::{Retain, Rule, Side};

/// What must be done once all bytes are processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    /// For a message that is not forwarded; to this side.
    Acknowledge(PacketId),
    /// For a message over the queue's limit; on this side.
    GiveBack(PacketId),
    /// For a message from the other side.
    Settle(Origin),
    Connected {
        session_present: bool,
    },
    Subscribed(Vec<ReasonCode>),
    Disconnected(String),
}

/// The state that events of a side may change, except its client.
pub(super) struct Intake<'a> {
    pub(super) now: Instant,
    pub(super) side: Side,
    pub(super) id: &'a str,
    pub(super) rules: &'a [Rule],
    pub(super) digester: &'a Digester,
    /// Whether this side can show where a message has been.
    pub(super) has_properties: bool,
    /// Messages that were sent to this side.
    pub(super) memory: &'a mut Memory,
    pub(super) epochs: &'a mut Epochs,
    pub(super) answered: &'a mut BTreeMap<PacketId, super::memory::Digest>,
    /// From this side to the other.
    pub(super) from: &'a mut Lane,
    pub(super) from_count: &'a mut LaneStatistics,
    /// From the other side to this.
    pub(super) to: &'a mut Lane,
    pub(super) to_count: &'a mut LaneStatistics,
    pub(super) notes: Vec<Note>,
    /// Messages sent to this side whose delivery was interrupted.
    pub(super) again: Vec<Message>,
}

impl Intake<'_> {
    pub(super) fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Connected {
                session_present, ..
            } => self.on_connected(*session_present),
            Event::Message(publish) => self.on_message(publish),
            Event::Acknowledged {
                packet_id,
                reason_code,
            } => self.on_acknowledged(*packet_id, *reason_code),
            Event::Discarded { packet_id, publish } => {
                if let Some(sent) = self.to.take_sent(*packet_id) {
                    self.on_discarded(sent, publish.as_ref());
                }
            }
            Event::Subscribed { reason_codes, .. } => {
                self.notes.push(Note::Subscribed(reason_codes.to_vec()));
            }
            Event::Disconnected(reason) => {
                self.notes.push(Note::Disconnected(in_words(reason)));
            }
            Event::Unsubscribed { .. } | Event::Authentication(_) | Event::Pong => {}
        }
    }

    fn on_connected(&mut self, session_present: bool) {
        self.epochs.connection += 1;
        self.from.on_source_connected();
        if !session_present {
            self.epochs.session += 1;
            self.answered.clear();
        }
        if session_present {
            self.memory.refresh(self.now);
            // Messages that are sent again may be published, and come back, a second time.
            for (digest, expects_echo) in self.to.echoes() {
                self.memory.remember(self.now, digest, expects_echo);
            }
        } else {
            self.memory.clear();
        }
        self.notes.push(Note::Connected { session_present });
    }

    fn on_message(&mut self, publish: &Publish<'_>) {
        self.from_count.received += 1;
        let digest = self.digester.digest(publish.topic, publish.payload);
        let origin = publish.packet_id.map(|packet_id| Origin {
            packet_id,
            qos: publish.qos,
            session: self.epochs.session,
            connection: self.epochs.connection,
            digest,
        });
        if origin.is_some_and(|origin| self.has_crossed(publish.dup, &origin)) {
            return;
        }
        let history = history(self.id, &publish.properties);
        // A retained message that was sent there lately comes back once more with each subscription.
        let is_kept_there =
            publish.retain && !self.has_properties && self.memory.count(self.now, digest) > 0;
        let is_echo = self.memory.take_echo(self.now, digest) || is_kept_there;
        let Some(history) = history.filter(|_| !is_echo) else {
            self.from_count.looped += 1;
            return self.consume(publish.packet_id);
        };
        let message = self.rules.iter().find_map(|rule| {
            let topic = rule.map(self.side, publish.topic)?;
            Some(Message {
                origin,
                history,
                ..self.message(rule, topic, publish)
            })
        });
        let Some(message) = message else {
            self.from_count.unmatched += 1;
            return self.consume(publish.packet_id);
        };
        match (self.from.offer(message), publish.packet_id) {
            (Offer::Refused, Some(packet_id)) => self.notes.push(Note::GiveBack(packet_id)),
            (Offer::Dropped | Offer::Refused, _) => self.from_count.dropped += 1,
            (Offer::Taken, _) => {}
        }
    }

    /// The message to forward under `topic`, without an origin.
    fn message(&self, rule: &Rule, topic: String, publish: &Publish<'_>) -> Message {
        let mark = ApplicationProperty::UserProperty(MARK, self.id);
        let blind = ApplicationProperty::UserProperty(BLIND, self.id);
        let blind = Some(blind).filter(|_| !self.has_properties);
        let properties = publish.properties.iter().chain([mark]).chain(blind);
        let expiry = publish.message_expiry_interval;
        Message {
            topic,
            payload: publish.payload.to_owned(),
            // Received properties fit, and the identifier was checked with the configuration.
            properties: ApplicationProperties::build(properties).unwrap_or_default(),
            qos: publish.qos.min(rule.qos()),
            retain: publish.retain && rule.retain() == Retain::Keep,
            expires_at: expiry.map(|seconds| self.now + Duration::from_secs(seconds.into())),
            origin: None,
            history: History::Fresh,
        }
    }

    /// Whether a repeated message of QoS 1 is known; the client recognises those of QoS 2.
    fn has_crossed(&mut self, is_dup: bool, origin: &Origin) -> bool {
        if origin.qos != Qos::AtLeastOnce {
            return false;
        }
        let answered = self.answered.remove(&origin.packet_id);
        if !is_dup {
            return false;
        }
        if answered == Some(origin.digest) {
            self.notes.push(Note::Acknowledge(origin.packet_id));
            return true;
        }
        self.from.adopt(origin)
    }

    /// Acknowledges a message that is not forwarded.
    fn consume(&mut self, packet_id: Option<PacketId>) {
        self.notes.extend(packet_id.map(Note::Acknowledge));
    }

    fn on_acknowledged(&mut self, packet_id: PacketId, reason_code: ReasonCode) {
        let Some(sent) = self.to.take_sent(packet_id) else {
            return;
        };
        if reason_code.is_error() {
            self.to_count.refused += 1;
        } else {
            self.to_count.forwarded += 1;
        }
        self.notes.extend(sent.origin.map(Note::Settle));
    }

    /// This side has lost the session: messages open there are sent again.
    fn on_discarded(&mut self, sent: Sent, publish: Option<&Publish<'_>>) {
        let Some(publish) = publish else {
            self.to_count.dropped += 1;
            self.notes.extend(sent.origin.map(Note::Settle));
            return;
        };
        let mut properties = Vec::new();
        publish.properties.write_to(&mut properties);
        self.again.push(Message {
            topic: publish.topic.to_owned(),
            payload: publish.payload.to_owned(),
            properties,
            qos: publish.qos,
            retain: publish.retain,
            expires_at: sent.expires_at,
            origin: sent.origin,
            history: History::SentBefore,
        });
    }
}

/// The history of a message; `None`: it has crossed this bridge.
fn history(id: &str, properties: &ApplicationProperties<'_>) -> Option<History> {
    let mut history = History::Fresh;
    for property in properties.iter() {
        match property {
            ApplicationProperty::UserProperty(MARK, by) if by == id => return None,
            ApplicationProperty::UserProperty(MARK, _) if history == History::Fresh => {
                history = History::Bridged;
            }
            ApplicationProperty::UserProperty(BLIND, _) => history = History::Blind,
            _ => {}
        }
    }
    Some(history)
}

/// The reason why a connection ended.
fn in_words(reason: &DisconnectReason<'_>) -> String {
    match reason {
        DisconnectReason::Refused(connack) => with_reason(
            format!("the broker refuses it: {:?}", connack.reason_code),
            connack.reason_string,
        ),
        DisconnectReason::ByServer(disconnect) => with_reason(
            format!("the broker ended it: {:?}", disconnect.reason_code),
            disconnect.reason_string,
        ),
        DisconnectReason::PeerError(error) => format!("the broker broke the protocol: {error}"),
        DisconnectReason::ConnectTimeout => "the broker did not answer the CONNECT".to_owned(),
        DisconnectReason::PingTimeout => "the broker did not answer a PINGREQ".to_owned(),
    }
}

fn with_reason(words: String, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{words} ({reason})"),
        None => words,
    }
}
