//! PUBLISH: the hot path. No allocation; properties are walked once.

use crate::application::Collector;
use crate::property::{Properties, Property};
use crate::reader::Reader;
use crate::{
    ApplicationProperties, DecodeError, PacketKind, ProtocolVersion, Publish, Qos,
    SubscriptionIdentifiers,
};

/// Refuses QoS 3 [MQTT-3.3.1-4] and DUP with QoS 0 [MQTT-3.3.1-2].
#[inline]
pub(super) const fn check_flags(flags: u8) -> Result<(), DecodeError> {
    match flags & 0b1110 {
        0b0110 | 0b1110 => Err(DecodeError::PublishQosInvalid),
        0b1000 => Err(DecodeError::DupWithoutQos),
        _ => Ok(()),
    }
}

/// Decodes a body whose flags were checked. Always inlined: a message that is handed on field by field costs less than one that is copied.
#[inline(always)]
pub(super) fn decode(
    first_byte: u8,
    body: &[u8],
    version: ProtocolVersion,
) -> Result<Publish<'_>, DecodeError> {
    let qos = Qos::from_bits(first_byte >> 1 & 0b11).ok_or(DecodeError::PublishQosInvalid)?;
    let mut reader = Reader::new(body);
    let topic = reader.topic_name()?;
    let packet_id = match qos {
        Qos::AtMostOnce => None,
        Qos::AtLeastOnce | Qos::ExactlyOnce => Some(reader.packet_id(PacketKind::Publish)?),
    };
    let mut properties = PublishProperties::default();
    if version.has_properties() {
        let section = reader.property_section()?;
        if !section.is_empty() {
            properties = read_properties(section)?;
        }
    }
    if topic.is_empty() && properties.topic_alias.is_none() {
        return Err(empty_topic(version));
    }
    Ok(Publish {
        dup: first_byte & 0b1000 != 0,
        qos,
        retain: first_byte & 0b0001 != 0,
        topic,
        packet_id,
        topic_alias: properties.topic_alias,
        message_expiry_interval: properties.message_expiry_interval,
        subscription_identifiers: properties.subscription_identifiers,
        properties: properties.application,
        payload: reader.rest(),
    })
}

#[cold]
const fn empty_topic(version: ProtocolVersion) -> DecodeError {
    if version.has_properties() {
        DecodeError::TopicMissing
    } else {
        DecodeError::TopicNameInvalid
    }
}

/// What one walk over the properties finds.
#[derive(Default)]
struct PublishProperties<'a> {
    topic_alias: Option<u16>,
    message_expiry_interval: Option<u32>,
    subscription_identifiers: SubscriptionIdentifiers<'a>,
    application: ApplicationProperties<'a>,
}

impl<'a> PublishProperties<'a> {
    /// Takes a property of the hop.
    fn add(&mut self, property: Property<'a>, section: &'a [u8]) -> Result<(), DecodeError> {
        match property {
            Property::TopicAlias(alias) => self.topic_alias = Some(alias),
            Property::MessageExpiryInterval(seconds) => {
                self.message_expiry_interval = Some(seconds);
            }
            Property::SubscriptionIdentifier(_) => {
                self.subscription_identifiers = SubscriptionIdentifiers::from_section(section);
            }
            other => return Err(other.not_allowed(PacketKind::Publish)),
        }
        Ok(())
    }
}

fn read_properties(section: &[u8]) -> Result<PublishProperties<'_>, DecodeError> {
    let mut found = PublishProperties::default();
    let mut properties = Properties::of_publish(section);
    let mut application = Collector::new(section);
    let mut start = 0;
    loop {
        let is_application = properties.skip_text()? || {
            let Some(property) = properties.next()? else {
                break;
            };
            match property {
                Property::PayloadFormatIndicator(_)
                | Property::ContentType(_)
                | Property::ResponseTopic(_)
                | Property::CorrelationData(_)
                | Property::UserProperty(..) => true,
                other => {
                    found.add(other, section)?;
                    false
                }
            }
        };
        let end = section.len() - properties.left();
        if is_application {
            application.add(start, end);
        }
        start = end;
    }
    found.application = application.finish();
    Ok(found)
}
