//! Lines of an export from snapshots of sessions and from messages, and back: every value of a line is checked.

use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thicket_mqtt::{
    ApplicationProperties, ApplicationProperty, PacketId, Publish, Qos, RetainHandling,
    SubscriptionOptions,
};
use thicket_session::server::{
    Delivery, InboundId, MatchedIdentifiers, Message, MessageId, Redelivery, SessionSnapshot,
    Subscribed, Subscription, WillSnapshot,
};
use thicket_session::time::Instant;
use thicket_session::topic::{SubscriptionFilter, TopicName};

use super::{
    InboundLine, Line, LineError, MessageBody, MessageLine, PubrelLine, SessionLine,
    SubscriptionLine, WillLine,
};

/// Topics of the nodes, which imports and HTTP requests may not write.
const RESERVED: &str = "$thicket/";

fn wrong(field: &'static str, problem: impl ToString) -> LineError {
    let problem = problem.to_string();
    LineError { field, problem }
}

fn qos_of(bits: u8) -> Result<Qos, LineError> {
    Qos::from_bits(bits).ok_or_else(|| wrong("qos", format!("expected 0, 1 or 2, found {bits}")))
}

fn packet_id_of(value: u16) -> Result<PacketId, LineError> {
    PacketId::new(value).ok_or_else(|| wrong("packet_id", "expected 1 to 65535, found 0"))
}

impl SessionLine {
    /// The line of a session, and those of its messages in flight. `at`: when the snapshot was decoded.
    #[must_use]
    pub fn split(snapshot: SessionSnapshot, at: Instant) -> (Self, Vec<Line>) {
        let client_id = snapshot.client_id;
        let in_flight = snapshot.in_flight.iter().map(|redelivery| {
            let client_id = client_id.clone();
            match redelivery {
                Redelivery::Pubrel(id) => Line::Pubrel(PubrelLine {
                    client_id,
                    packet_id: id.value(),
                }),
                Redelivery::Publish(id, delivery) => {
                    let line = MessageLine::new(client_id, Some(*id), delivery, at);
                    Line::Message(Box::new(line))
                }
            }
        });
        let in_flight = in_flight.collect();
        let line = Self {
            uid: format!("{:032x}", snapshot.uid),
            session_expiry_interval_s: snapshot.expiry_interval,
            away_for_ms: snapshot.away_for.map(|away| away.as_millis() as u64),
            subscriptions: snapshot.subscriptions.iter().map(Into::into).collect(),
            inbound: snapshot.inbound.iter().map(Into::into).collect(),
            inbound_generation: snapshot.inbound_generation,
            next_packet_id: snapshot.next_packet_id.value(),
            will: snapshot.will.map(WillLine::from),
            client_id,
        };
        (line, in_flight)
    }

    /// Joins the session with its messages in flight, from the lines that followed.
    ///
    /// # Errors
    /// A value is not valid. Nothing was changed.
    pub fn join(self, in_flight: &[Line], at: Instant) -> Result<SessionSnapshot, LineError> {
        if self.client_id.is_empty() || self.client_id.starts_with(RESERVED) {
            return Err(wrong("client_id", "expected that of a client"));
        }
        if self.session_expiry_interval_s == 0 {
            return Err(wrong("session_expiry_interval_s", "expected more than 0"));
        }
        let uid = u128::from_str_radix(&self.uid, 16);
        let in_flight = in_flight.iter().filter_map(|line| match line {
            Line::Pubrel(line) => Some(packet_id_of(line.packet_id).map(Redelivery::Pubrel)),
            Line::Message(line) => Some(line.redelivery(at)),
            Line::Header(_) | Line::Session(_) | Line::Retained(_) | Line::End(_) => None,
        });
        let mut subscriptions = self
            .subscriptions
            .into_iter()
            .map(TryInto::try_into)
            .collect::<Result<Vec<_>, LineError>>()?;
        subscriptions.sort_by(|a: &(SubscriptionFilter, _), b| a.0.cmp(&b.0));
        subscriptions.dedup_by(|a, b| a.0 == b.0);
        Ok(SessionSnapshot {
            client_id: self.client_id,
            uid: uid.map_err(|error| wrong("uid", error))?,
            expiry_interval: self.session_expiry_interval_s,
            away_for: self.away_for_ms.map(Duration::from_millis),
            subscriptions,
            inbound: self
                .inbound
                .into_iter()
                .map(TryInto::try_into)
                .collect::<Result<_, LineError>>()?,
            inbound_generation: self.inbound_generation,
            next_packet_id: packet_id_of(self.next_packet_id)?,
            in_flight: in_flight.collect::<Result<_, _>>()?,
            will: self.will.map(TryInto::try_into).transpose()?,
            branch: None,
        })
    }
}

impl From<&(SubscriptionFilter, Subscribed)> for SubscriptionLine {
    fn from((filter, subscribed): &(SubscriptionFilter, Subscribed)) -> Self {
        let subscription = subscribed.subscription;
        let options = subscription.options;
        Self {
            filter: filter.to_string(),
            qos: options.qos as u8,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            retain_handling: options.retain_handling as u8,
            subscription_identifier: subscription.identifier,
        }
    }
}

impl TryFrom<SubscriptionLine> for (SubscriptionFilter, Subscribed) {
    type Error = LineError;

    fn try_from(line: SubscriptionLine) -> Result<Self, LineError> {
        let filter =
            SubscriptionFilter::parse(&line.filter).map_err(|error| wrong("filter", error))?;
        if filter.filter.as_str().starts_with(RESERVED) {
            return Err(wrong("filter", "it is reserved"));
        }
        let retain_handling = match line.retain_handling {
            0 => RetainHandling::SendAtSubscribe,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            other => {
                let problem = format!("expected 0, 1 or 2, found {other}");
                return Err(wrong("retain_handling", problem));
            }
        };
        let options = SubscriptionOptions {
            qos: qos_of(line.qos)?,
            no_local: line.no_local,
            retain_as_published: line.retain_as_published,
            retain_handling,
        };
        let identifier = line
            .subscription_identifier
            .filter(|&identifier| identifier > 0);
        let subscription = Subscription {
            options,
            identifier,
        };
        Ok((filter, subscription.into()))
    }
}

impl From<&InboundId> for InboundLine {
    fn from(id: &InboundId) -> Self {
        Self {
            packet_id: id.packet_id.value(),
            generation: id.generation,
            is_held: id.is_held,
        }
    }
}

impl TryFrom<InboundLine> for InboundId {
    type Error = LineError;

    fn try_from(line: InboundLine) -> Result<Self, LineError> {
        let packet_id = packet_id_of(line.packet_id)?;
        Ok(Self::new(packet_id, line.generation, line.is_held.into()))
    }
}

impl From<WillSnapshot> for WillLine {
    fn from(will: WillSnapshot) -> Self {
        let properties = ApplicationProperties::from_encoded(&will.properties).unwrap_or_default();
        let publish = Publish {
            qos: will.qos,
            retain: will.retain,
            properties,
            ..Publish::new(&will.topic, &will.payload)
        };
        Self {
            due_in_ms: will.due_in.as_millis() as u64,
            message_expiry_interval_s: will.message_expiry_interval,
            message: MessageBody::new(&publish, None),
        }
    }
}

impl TryFrom<WillLine> for WillSnapshot {
    type Error = LineError;

    fn try_from(line: WillLine) -> Result<Self, LineError> {
        Ok(Self {
            due_in: Duration::from_millis(line.due_in_ms),
            payload: line.message.payload()?,
            properties: line.message.properties()?,
            qos: qos_of(line.message.qos)?,
            retain: line.message.retain,
            message_expiry_interval: line.message_expiry_interval_s,
            topic: line.message.checked_topic()?.to_owned(),
        })
    }
}

impl MessageLine {
    /// The line of a message of a session.
    #[must_use]
    pub fn new(
        client_id: String,
        packet_id: Option<PacketId>,
        delivery: &Delivery,
        at: Instant,
    ) -> Self {
        let message = &delivery.message;
        let publish = message.publish();
        let left = message.expires_at().map(|expires| expires.since(at));
        Self {
            client_id,
            packet_id: packet_id.map(PacketId::value),
            qos: delivery.qos as u8,
            retain: delivery.retain,
            subscription_identifiers: delivery.identifiers.as_slice().to_vec(),
            group: delivery.group.as_deref().map(str::to_owned),
            message: MessageBody::new(&publish, left),
        }
    }

    /// The message as its session is to receive it.
    ///
    /// # Errors
    /// A value is not valid.
    pub fn delivery(&self, at: Instant) -> Result<Delivery, LineError> {
        let (payload, properties) = (self.message.payload()?, self.message.properties()?);
        let left = self.message.expiry_left_ms.map(Duration::from_millis);
        let publish = Publish {
            qos: qos_of(self.message.qos)?,
            retain: self.message.retain,
            properties: ApplicationProperties::from_encoded(&properties)
                .map_err(|error| wrong("message", error))?,
            ..Publish::new(self.message.checked_topic()?, &payload)
        };
        let group = self.group.as_deref();
        if group.is_some_and(|group| !group.starts_with("$share/")) {
            return Err(wrong("group", "expected $share/NAME/FILTER"));
        }
        let mut identifiers = self.subscription_identifiers.clone();
        identifiers.sort_unstable();
        identifiers.dedup();
        Ok(Delivery {
            message: Rc::new(Message::new(
                MessageId::default(),
                &publish,
                left.map(|left| at + left),
            )),
            qos: qos_of(self.qos)?.min(publish.qos),
            retain: self.retain,
            identifiers: MatchedIdentifiers::from_slice(&identifiers),
            group: group.map(Into::into),
        })
    }

    fn redelivery(&self, at: Instant) -> Result<Redelivery, LineError> {
        let id = packet_id_of(self.packet_id.unwrap_or(0))?;
        let delivery = self.delivery(at)?;
        if delivery.qos == Qos::AtMostOnce {
            return Err(wrong("qos", "a message in flight has 1 or 2"));
        }
        Ok(Redelivery::Publish(id, delivery))
    }
}

impl MessageBody {
    /// A message with its remaining expiry.
    #[must_use]
    pub fn new(publish: &Publish<'_>, expiry_left: Option<Duration>) -> Self {
        let mut body = Self {
            topic: publish.topic.to_owned(),
            qos: publish.qos as u8,
            retain: publish.retain,
            expiry_left_ms: expiry_left.map(|left| left.as_millis() as u64),
            ..Self::default()
        };
        match std::str::from_utf8(publish.payload) {
            Ok(text) => body.payload = Some(text.to_owned()),
            Err(_) => body.payload_base64 = Some(STANDARD.encode(publish.payload)),
        }
        for property in publish.properties.iter() {
            match property {
                ApplicationProperty::PayloadFormatIndicator(value) => {
                    body.payload_format_indicator = Some(value);
                }
                ApplicationProperty::ContentType(text) => body.content_type = Some(text.to_owned()),
                ApplicationProperty::ResponseTopic(topic) => {
                    body.response_topic = Some(topic.to_owned());
                }
                ApplicationProperty::CorrelationData(data) => {
                    body.correlation_data_base64 = Some(STANDARD.encode(data));
                }
                ApplicationProperty::UserProperty(name, value) => {
                    body.user_properties
                        .push((name.to_owned(), value.to_owned()));
                }
            }
        }
        body
    }

    /// The topic, if a client may publish to it.
    ///
    /// # Errors
    /// It is no topic name, or reserved.
    pub fn checked_topic(&self) -> Result<&str, LineError> {
        TopicName::new(&self.topic).map_err(|error| wrong("topic", error))?;
        if self.topic.starts_with(RESERVED) {
            return Err(wrong("topic", "it is reserved"));
        }
        // No packet can have one: its receivers would refuse it as malformed.
        if self.topic.chars().any(char::is_control) {
            return Err(wrong("topic", "it has a control character"));
        }
        Ok(&self.topic)
    }

    /// The quality of service.
    ///
    /// # Errors
    /// It is neither 0, 1 nor 2.
    pub fn checked_qos(&self) -> Result<Qos, LineError> {
        qos_of(self.qos)
    }

    /// The payload.
    ///
    /// # Errors
    /// It is given twice, or is not base64.
    pub fn payload(&self) -> Result<Vec<u8>, LineError> {
        match (&self.payload, &self.payload_base64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(base64)) => STANDARD
                .decode(base64)
                .map_err(|error| wrong("payload_base64", error)),
            (None, None) => Ok(Vec::new()),
            (Some(_), Some(_)) => Err(wrong("payload", "payload_base64 is there too")),
        }
    }

    /// The properties, encoded.
    ///
    /// # Errors
    /// One of them is too long, or violates the specification.
    pub fn properties(&self) -> Result<Vec<u8>, LineError> {
        let correlation = self.correlation_data_base64.as_deref();
        let correlation = correlation
            .map(|base64| STANDARD.decode(base64))
            .transpose()
            .map_err(|error| wrong("correlation_data_base64", error))?;
        let single = [
            self.payload_format_indicator
                .map(ApplicationProperty::PayloadFormatIndicator),
            self.content_type
                .as_deref()
                .map(ApplicationProperty::ContentType),
            self.response_topic
                .as_deref()
                .map(ApplicationProperty::ResponseTopic),
            correlation
                .as_deref()
                .map(ApplicationProperty::CorrelationData),
        ];
        let of_user = self
            .user_properties
            .iter()
            .map(|(name, value)| ApplicationProperty::UserProperty(name, value));
        let encoded = ApplicationProperties::build(single.into_iter().flatten().chain(of_user))
            .map_err(|error| wrong("properties", error))?;
        ApplicationProperties::from_encoded(&encoded)
            .map_err(|error| wrong("properties", error))?;
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> MessageBody {
        MessageBody {
            topic: "a/b".into(),
            qos: 2,
            retain: true,
            payload_base64: Some("/wA=".into()),
            expiry_left_ms: Some(1500),
            payload_format_indicator: Some(0),
            content_type: Some("text".into()),
            response_topic: Some("r".into()),
            correlation_data_base64: Some("AQI=".into()),
            user_properties: vec![("k".into(), "v".into()), ("k".into(), "w".into())],
            ..MessageBody::default()
        }
    }

    #[test]
    fn a_topic_that_no_packet_can_have_is_refused() {
        for topic in ["", "a/#", "$thicket/a", "a\u{7f}b", "a\nb", "a\0"] {
            let topic = topic.to_owned();
            let refused = MessageBody { topic, ..body() };
            assert!(refused.checked_topic().is_err(), "{:?}", refused.topic);
        }
        assert_eq!(body().checked_topic().expect("good"), "a/b");
    }

    fn message(packet_id: Option<u16>) -> MessageLine {
        MessageLine {
            client_id: "c".into(),
            packet_id,
            qos: 1,
            retain: false,
            subscription_identifiers: vec![3, 9],
            group: Some("$share/g/a/#".into()),
            message: body(),
        }
    }

    fn session() -> SessionLine {
        SessionLine {
            client_id: "c".into(),
            uid: format!("{:032x}", 7),
            session_expiry_interval_s: 60,
            away_for_ms: Some(5),
            subscriptions: vec![SubscriptionLine {
                filter: "$share/g/a/#".into(),
                qos: 1,
                no_local: false,
                retain_as_published: true,
                retain_handling: 2,
                subscription_identifier: Some(4),
            }],
            inbound: vec![InboundLine {
                packet_id: 5,
                generation: 6,
                is_held: true,
            }],
            inbound_generation: 8,
            next_packet_id: 12,
            will: Some(WillLine {
                due_in_ms: 9,
                message_expiry_interval_s: None,
                message: MessageBody {
                    payload: Some("gone".into()),
                    payload_base64: None,
                    expiry_left_ms: None,
                    ..body()
                },
            }),
        }
    }

    #[test]
    fn sessions_and_messages_become_the_lines_they_were_made_of() {
        let at = Instant::from_millis(1000);
        let in_flight = vec![
            Line::Message(Box::new(message(Some(10)))),
            Line::Pubrel(PubrelLine {
                client_id: "c".into(),
                packet_id: 11,
            }),
        ];
        let snapshot = session().join(&in_flight, at).expect("it makes sense");
        let bytes = snapshot.encode(at);
        let again = SessionSnapshot::decode(&bytes, at).expect("just written");
        assert_eq!(SessionLine::split(again, at), (session(), in_flight));
        let queued = message(None);
        let delivery = queued.delivery(at).expect("it makes sense");
        assert_eq!(MessageLine::new("c".into(), None, &delivery, at), queued);
        let line = Line::Session(Box::new(session()));
        let text = serde_json::to_string(&line).expect("plain data");
        assert!(text.starts_with("{\"kind\":\"session\""), "{text}");
        assert_eq!(
            serde_json::from_str::<Line>(&text).expect("as written"),
            line
        );
    }

    #[test]
    fn a_payload_is_text_where_it_is_utf_8_and_base64_elsewhere() {
        for (payload, is_text) in [(&b"caf\xc3\xa9"[..], true), (b"", true), (b"\xff\0", false)] {
            let body = MessageBody::new(&Publish::new("t", payload), None);
            assert_eq!(body.payload.is_some(), is_text, "{payload:?}");
            assert_eq!(body.payload().expect("one of them"), payload);
        }
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_their_field() {
        let at = Instant::from_millis(0);
        let of_session = |change: fn(&mut SessionLine)| {
            let mut line = session();
            change(&mut line);
            line.join(&[], at).map(drop)
        };
        let of_message = |change: fn(&mut MessageLine)| {
            let mut line = message(None);
            change(&mut line);
            line.delivery(at).map(drop)
        };
        let cases = [
            (
                "client_id",
                of_session(|it| it.client_id = "$thicket/x".into()),
            ),
            ("uid", of_session(|it| it.uid = "no".into())),
            ("next_packet_id", of_session(|it| it.next_packet_id = 0)),
            (
                "filter",
                of_session(|it| it.subscriptions[0].filter = "a/#/b".into()),
            ),
            (
                "filter",
                of_session(|it| it.subscriptions[0].filter = "$thicket/#".into()),
            ),
            (
                "retain_handling",
                of_session(|it| it.subscriptions[0].retain_handling = 3),
            ),
            (
                "session_expiry",
                of_session(|it| it.session_expiry_interval_s = 0),
            ),
            ("topic", of_message(|it| it.message.topic = "a/+".into())),
            (
                "topic",
                of_message(|it| it.message.topic = "$thicket/a".into()),
            ),
            ("qos", of_message(|it| it.qos = 3)),
            (
                "payload",
                of_message(|it| it.message.payload = Some("x".into())),
            ),
            (
                "payload_base64",
                of_message(|it| it.message.payload_base64 = Some("?".into())),
            ),
            (
                "properties",
                of_message(|it| it.message.response_topic = Some("#".into())),
            ),
            ("group", of_message(|it| it.group = Some("g".into()))),
        ];
        for (number, (field, result)) in cases.into_iter().enumerate() {
            let error = result.expect_err(field);
            let is_named = field.contains(error.field) || error.field.contains(field);
            assert!(is_named, "case {number}, {field}: {error}");
        }
    }
}
