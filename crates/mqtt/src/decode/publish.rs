//! PUBLISH: the hot path. No allocation; properties are walked once.

use crate::application::Collector;
use crate::property::{Properties, Property};
use crate::reader::Reader;
use crate::{DecodeError, PacketKind, ProtocolVersion, Publish, Qos, SubscriptionIdentifiers};

/// Refuses QoS 3 [MQTT-3.3.1-4] and DUP with QoS 0 [MQTT-3.3.1-2].
#[inline]
pub(super) const fn check_flags(flags: u8) -> Result<(), DecodeError> {
    match flags & 0b1110 {
        0b0110 | 0b1110 => Err(DecodeError::PublishQosInvalid),
        0b1000 => Err(DecodeError::DupWithoutQos),
        _ => Ok(()),
    }
}

/// Decodes a body whose flags were checked.
#[inline]
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
    let mut publish = Publish {
        dup: first_byte & 0b1000 != 0,
        qos,
        retain: first_byte & 0b0001 != 0,
        topic,
        packet_id,
        ..Publish::default()
    };
    if version.has_properties() {
        let section = reader.property_section()?;
        if !section.is_empty() {
            read_properties(section, &mut publish)?;
        }
    }
    if topic.is_empty() && publish.topic_alias.is_none() {
        return Err(empty_topic(version));
    }
    publish.payload = reader.rest();
    Ok(publish)
}

#[cold]
const fn empty_topic(version: ProtocolVersion) -> DecodeError {
    if version.has_properties() {
        DecodeError::TopicMissing
    } else {
        DecodeError::TopicNameInvalid
    }
}

fn read_properties<'a>(section: &'a [u8], publish: &mut Publish<'a>) -> Result<(), DecodeError> {
    let mut properties = Properties::of_publish(section);
    let mut application = Collector::new(section);
    let mut start = 0;
    while let Some(property) = properties.next()? {
        let end = section.len() - properties.left();
        match property {
            Property::PayloadFormatIndicator(_)
            | Property::ContentType(_)
            | Property::ResponseTopic(_)
            | Property::CorrelationData(_)
            | Property::UserProperty(..) => application.add(start, end),
            Property::TopicAlias(alias) => publish.topic_alias = Some(alias),
            Property::MessageExpiryInterval(seconds) => {
                publish.message_expiry_interval = Some(seconds);
            }
            Property::SubscriptionIdentifier(_) => {
                publish.subscription_identifiers = SubscriptionIdentifiers::from_section(section);
            }
            other => return Err(other.not_allowed(PacketKind::Publish)),
        }
        start = end;
    }
    publish.properties = application.finish();
    Ok(())
}
