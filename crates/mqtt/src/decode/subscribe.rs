//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK.

use super::acknowledge::reason_code;
use crate::property::{Properties, Property};
use crate::reader::Reader;
use crate::{
    DecodeError, PacketKind, ProtocolVersion, Qos, ReasonCode, RetainHandling, Suback, Subscribe,
    SubscribeFilter, SubscriptionOptions, Unsuback, Unsubscribe, UserProperties,
};

pub(super) fn subscribe(
    mut reader: Reader<'_>,
    version: ProtocolVersion,
) -> Result<Subscribe<'_>, DecodeError> {
    let kind = PacketKind::Subscribe;
    let mut subscribe = Subscribe {
        packet_id: reader.packet_id(kind)?,
        subscription_identifier: None,
        user_properties: Vec::new(),
        filters: Vec::new(),
    };
    if version.has_properties() {
        let mut properties = Properties::new(reader.property_section()?);
        while let Some(property) = properties.next()? {
            match property {
                Property::SubscriptionIdentifier(value) => {
                    subscribe.subscription_identifier = Some(value);
                }
                Property::UserProperty(name, value) => {
                    subscribe.user_properties.push((name, value));
                }
                other => return Err(other.not_allowed(kind)),
            }
        }
    }
    while !reader.is_empty() {
        let filter = filter(&mut reader, kind)?;
        let options = options(reader.u8()?, version)?;
        subscribe.filters.push(SubscribeFilter { filter, options });
    }
    if subscribe.filters.is_empty() {
        return Err(DecodeError::FiltersMissing { kind });
    }
    Ok(subscribe)
}

fn filter<'a>(reader: &mut Reader<'a>, kind: PacketKind) -> Result<&'a str, DecodeError> {
    match reader.name()? {
        "" => Err(DecodeError::FilterEmpty { kind }),
        filter => Ok(filter),
    }
}

fn options(options: u8, version: ProtocolVersion) -> Result<SubscriptionOptions, DecodeError> {
    let reserved = if version.has_properties() {
        0b1100_0000
    } else {
        0b1111_1100
    };
    if options & reserved != 0 {
        return Err(DecodeError::SubscriptionOptionsReserved { options });
    }
    Ok(SubscriptionOptions {
        qos: Qos::from_bits(options & 0b11).ok_or(DecodeError::SubscriptionQosInvalid)?,
        no_local: options & 0b0100 != 0,
        retain_as_published: options & 0b1000 != 0,
        retain_handling: match options >> 4 & 0b11 {
            0 => RetainHandling::SendAtSubscribe,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(DecodeError::RetainHandlingInvalid),
        },
    })
}

pub(super) fn unsubscribe(
    mut reader: Reader<'_>,
    version: ProtocolVersion,
) -> Result<Unsubscribe<'_>, DecodeError> {
    let kind = PacketKind::Unsubscribe;
    let mut unsubscribe = Unsubscribe::new(reader.packet_id(kind)?, Vec::new());
    if version.has_properties() {
        let mut properties = Properties::new(reader.property_section()?);
        while let Some(property) = properties.next()? {
            match property {
                Property::UserProperty(name, value) => {
                    unsubscribe.user_properties.push((name, value));
                }
                other => return Err(other.not_allowed(kind)),
            }
        }
    }
    while !reader.is_empty() {
        unsubscribe.filters.push(filter(&mut reader, kind)?);
    }
    if unsubscribe.filters.is_empty() {
        return Err(DecodeError::FiltersMissing { kind });
    }
    Ok(unsubscribe)
}

pub(super) fn suback(
    mut reader: Reader<'_>,
    version: ProtocolVersion,
) -> Result<Suback<'_>, DecodeError> {
    let kind = PacketKind::Suback;
    let mut suback = Suback::new(reader.packet_id(kind)?, Vec::new());
    if version.has_properties() {
        (suback.reason_string, suback.user_properties) = answer_properties(kind, &mut reader)?;
    }
    suback.reason_codes = codes(kind, reader.rest(), version)?;
    Ok(suback)
}

pub(super) fn unsuback(
    mut reader: Reader<'_>,
    version: ProtocolVersion,
) -> Result<Unsuback<'_>, DecodeError> {
    let kind = PacketKind::Unsuback;
    let mut unsuback = Unsuback::new(reader.packet_id(kind)?, Vec::new());
    if version.has_properties() {
        (unsuback.reason_string, unsuback.user_properties) = answer_properties(kind, &mut reader)?;
        unsuback.reason_codes = codes(kind, reader.rest(), version)?;
    }
    Ok(unsuback)
}

fn answer_properties<'a>(
    kind: PacketKind,
    reader: &mut Reader<'a>,
) -> Result<(Option<&'a str>, UserProperties<'a>), DecodeError> {
    let mut reason_string = None;
    let mut user_properties = Vec::new();
    let mut properties = Properties::new(reader.property_section()?);
    while let Some(property) = properties.next()? {
        match property {
            Property::ReasonString(text) => reason_string = Some(text),
            Property::UserProperty(name, value) => user_properties.push((name, value)),
            other => return Err(other.not_allowed(kind)),
        }
    }
    Ok((reason_string, user_properties))
}

fn codes(
    kind: PacketKind,
    codes: &[u8],
    version: ProtocolVersion,
) -> Result<Vec<ReasonCode>, DecodeError> {
    if codes.is_empty() {
        return Err(DecodeError::ReasonCodesMissing { kind });
    }
    let read = |&code: &u8| match code {
        // Before 5.0 there is one failure [MQTT-3.9.3-2 v3.1.1].
        3.. if !version.has_properties() && code != ReasonCode::UnspecifiedError as u8 => {
            Err(DecodeError::ReasonCodeInvalid { kind, code })
        }
        _ => reason_code(kind, code),
    };
    codes.iter().map(read).collect()
}
