//! A message, sent or received.

use std::time::Duration;

use thicket_mqtt::{ApplicationProperties, ApplicationProperty, EncodeError, Publish, Qos};

/// A user property that identifies a message that arrives over two sessions. Thicket publishers add it at QoS 2.
pub(crate) const MESSAGE_ID: &str = "thicket-id";

/// A message that was received, or is to be published.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Topic name.
    pub topic: String,
    /// Payload.
    pub payload: Vec<u8>,
    /// The QoS with which it was, or will be, sent.
    pub qos: Qos,
    /// RETAIN: the broker must keep it; of a received one, it was retained.
    pub retain: bool,
    /// Its other properties (5.0).
    pub properties: MessageProperties,
}

/// Properties of a message (5.0).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageProperties {
    /// Message Expiry Interval, in whole seconds.
    pub expiry: Option<Duration>,
    /// Payload Format Indicator: the payload is UTF-8.
    pub is_text: bool,
    /// Content Type.
    pub content_type: Option<String>,
    /// Response Topic.
    pub response_topic: Option<String>,
    /// Correlation Data.
    pub correlation_data: Option<Vec<u8>>,
    /// User Properties, in order.
    pub user: Vec<(String, String)>,
    /// Of a received message: the identifiers of the subscriptions that it matches, of those that
    /// have one. They are not sent.
    pub subscription_identifiers: Vec<u32>,
}

impl Message {
    /// A message of QoS 0 without flags and properties.
    #[must_use]
    pub fn new(topic: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            topic: topic.into(),
            payload: payload.into(),
            ..Self::default()
        }
    }

    /// Sets the QoS.
    #[must_use]
    pub const fn qos(mut self, qos: Qos) -> Self {
        self.qos = qos;
        self
    }

    /// Sets RETAIN: the broker keeps it for later subscribers.
    #[must_use]
    pub const fn retained(mut self) -> Self {
        self.retain = true;
        self
    }

    /// The payload as text, `None` if it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.payload).ok()
    }

    /// The received message, and the identity that its publisher gave it.
    pub(crate) fn received(publish: &Publish<'_>) -> (Self, Option<String>) {
        let mut message_id = None;
        let mut properties = MessageProperties {
            expiry: publish
                .message_expiry_interval
                .map(|seconds| Duration::from_secs(seconds.into())),
            subscription_identifiers: publish.subscription_identifiers.iter().collect(),
            ..MessageProperties::default()
        };
        for property in publish.properties.iter() {
            match property {
                ApplicationProperty::PayloadFormatIndicator(value) => {
                    properties.is_text = value == 1;
                }
                ApplicationProperty::ContentType(text) => {
                    properties.content_type = Some(text.to_owned());
                }
                ApplicationProperty::ResponseTopic(topic) => {
                    properties.response_topic = Some(topic.to_owned());
                }
                ApplicationProperty::CorrelationData(data) => {
                    properties.correlation_data = Some(data.to_vec());
                }
                ApplicationProperty::UserProperty(MESSAGE_ID, value) => {
                    message_id = Some(value.to_owned());
                }
                ApplicationProperty::UserProperty(name, value) => {
                    properties.user.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        let message = Self {
            topic: publish.topic.to_owned(),
            payload: publish.payload.to_vec(),
            qos: publish.qos,
            retain: publish.retain,
            properties,
        };
        (message, message_id)
    }

    /// The PUBLISH for it, with properties that [`Message::encode_properties`] made.
    pub(crate) fn to_publish<'a>(&'a self, properties: &'a [u8]) -> Publish<'a> {
        Publish {
            qos: self.qos,
            retain: self.retain,
            message_expiry_interval: self
                .properties
                .expiry
                .map(|expiry| u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX)),
            // Made by `build` from values of the right kind; the broker reports what is wrong with them.
            properties: ApplicationProperties::from_encoded(properties).unwrap_or_default(),
            ..Publish::new(&self.topic, &self.payload)
        }
    }

    pub(crate) fn encode_properties(&self) -> Result<Vec<u8>, EncodeError> {
        use ApplicationProperty as P;
        let of = &self.properties;
        let text = of.is_text.then_some(P::PayloadFormatIndicator(1));
        ApplicationProperties::build(
            text.into_iter()
                .chain(of.content_type.as_deref().map(P::ContentType))
                .chain(of.response_topic.as_deref().map(P::ResponseTopic))
                .chain(of.correlation_data.as_deref().map(P::CorrelationData))
                .chain(
                    of.user
                        .iter()
                        .map(|(name, value)| P::UserProperty(name, value)),
                ),
        )
    }
}
