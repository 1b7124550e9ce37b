//! CONNECT and CONNACK.

use crate::application::Collector;
use crate::property::{Properties, Property};
use crate::reader::Reader;
use crate::{
    Connack, Connect, DecodeError, PacketKind, ProtocolVersion, Qos, ReasonCode, Will, frame_header,
};

/// Bit 7 of the protocol level, set by bridges of other brokers.
pub(crate) const BRIDGE_BIT: u8 = 0x80;

/// The connect flags (5.0, 3.1.2.3).
pub(crate) mod flag {
    pub(crate) const RESERVED: u8 = 0x01;
    pub(crate) const CLEAN_START: u8 = 0x02;
    pub(crate) const WILL: u8 = 0x04;
    pub(crate) const WILL_QOS: u8 = 0x18;
    pub(crate) const WILL_QOS_SHIFT: u8 = 3;
    pub(crate) const WILL_RETAIN: u8 = 0x20;
    pub(crate) const PASSWORD: u8 = 0x40;
    pub(crate) const USER_NAME: u8 = 0x80;
}

/// The version that a CONNECT at the start of `bytes` speaks, as soon as its first bytes are there: lets a server answer in
/// the right version a CONNECT that [`decode`](crate::decode) refuses. `None` for anything else, unknown versions too.
#[must_use]
pub fn connect_version(bytes: &[u8]) -> Option<ProtocolVersion> {
    let header = frame_header(bytes).ok()??;
    if PacketKind::from_first_byte(header.first_byte) != Some(PacketKind::Connect) {
        return None;
    }
    // The fixed header ends with the first byte, after the very first, that has no continuation bit.
    let length_bytes = bytes.get(1..)?.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let mut reader = Reader::new(bytes.get(1 + length_bytes..)?);
    protocol(&mut reader).ok().map(|(version, _)| version)
}

/// Protocol name and level: the version and whether the bridge bit was set.
fn protocol(reader: &mut Reader<'_>) -> Result<(ProtocolVersion, bool), DecodeError> {
    let name = reader.string()?;
    let level = reader.u8()?;
    match (name, level) {
        ("MQTT", 4) => Ok((ProtocolVersion::V311, false)),
        ("MQTT", 5) => Ok((ProtocolVersion::V5, false)),
        ("MQIsdp", 3) => Ok((ProtocolVersion::V31, false)),
        ("MQTT", level) if level == BRIDGE_BIT | 4 => Ok((ProtocolVersion::V311, true)),
        ("MQIsdp", level) if level == BRIDGE_BIT | 3 => Ok((ProtocolVersion::V31, true)),
        ("MQTT" | "MQIsdp", _) => Err(DecodeError::UnsupportedProtocolLevel { level }),
        _ => Err(DecodeError::UnsupportedProtocolName { level }),
    }
}

pub(super) fn connect(mut reader: Reader<'_>) -> Result<Connect<'_>, DecodeError> {
    let (version, bridge) = protocol(&mut reader)?;
    let flags = reader.u8()?;
    check_flags(flags, version)?;
    let mut connect = Connect::new(version, "");
    connect.bridge = bridge;
    connect.clean_start = flags & flag::CLEAN_START != 0;
    connect.keep_alive = reader.u16()?;
    if version.has_properties() {
        connect_properties(reader.property_section()?, &mut connect)?;
    }
    connect.client_id = reader.name()?;
    if flags & flag::WILL != 0 {
        connect.will = Some(will(&mut reader, flags, version)?);
    }
    // 3.1: where the remaining length leaves no room for them, the flags do not count (3.1, section 3.1).
    let missing = |reader: &Reader<'_>| version == ProtocolVersion::V31 && reader.is_empty();
    if flags & flag::USER_NAME != 0 && !missing(&reader) {
        connect.login.user_name = Some(reader.name()?);
    }
    if flags & flag::PASSWORD != 0 && !missing(&reader) {
        connect.login.password = Some(reader.binary()?);
    }
    reader.finish(PacketKind::Connect)?;
    Ok(connect)
}

fn check_flags(flags: u8, version: ProtocolVersion) -> Result<(), DecodeError> {
    // 3.1 does not use the bit and asks nobody to check it.
    if flags & flag::RESERVED != 0 && version != ProtocolVersion::V31 {
        return Err(DecodeError::ConnectFlagReserved { flags });
    }
    if flags & flag::WILL == 0 && flags & (flag::WILL_QOS | flag::WILL_RETAIN) != 0 {
        return Err(DecodeError::WillFlagsWithoutWill { flags });
    }
    let password_alone = flags & (flag::PASSWORD | flag::USER_NAME) == flag::PASSWORD;
    if password_alone && !version.has_properties() {
        return Err(DecodeError::PasswordWithoutUserName { flags });
    }
    Ok(())
}

fn connect_properties<'a>(section: &'a [u8], connect: &mut Connect<'a>) -> Result<(), DecodeError> {
    let mut properties = Properties::new(section);
    while let Some(property) = properties.next()? {
        match property {
            Property::SessionExpiryInterval(value) => connect.session_expiry_interval = Some(value),
            Property::ReceiveMaximum(value) => connect.receive_maximum = Some(value),
            Property::MaximumPacketSize(value) => connect.maximum_packet_size = Some(value),
            Property::TopicAliasMaximum(value) => connect.topic_alias_maximum = value,
            Property::RequestResponseInformation(value) => {
                connect.request_response_information = value;
            }
            Property::RequestProblemInformation(value) => {
                connect.request_problem_information = value;
            }
            Property::AuthenticationMethod(value) => connect.authentication_method = Some(value),
            Property::AuthenticationData(value) => connect.authentication_data = Some(value),
            Property::UserProperty(name, value) => connect.user_properties.push((name, value)),
            other => return Err(other.not_allowed(PacketKind::Connect)),
        }
    }
    if connect.authentication_data.is_some() && connect.authentication_method.is_none() {
        return Err(DecodeError::AuthenticationDataWithoutMethod);
    }
    Ok(())
}

fn will<'a>(
    reader: &mut Reader<'a>,
    flags: u8,
    version: ProtocolVersion,
) -> Result<Will<'a>, DecodeError> {
    let qos = Qos::from_bits((flags & flag::WILL_QOS) >> flag::WILL_QOS_SHIFT)
        .ok_or(DecodeError::WillQosInvalid)?;
    let mut will = Will {
        qos,
        retain: flags & flag::WILL_RETAIN != 0,
        ..Will::default()
    };
    if version.has_properties() {
        will_properties(reader.property_section()?, &mut will)?;
    }
    will.topic = reader.topic_name()?;
    if will.topic.is_empty() {
        return Err(DecodeError::TopicNameInvalid);
    }
    will.payload = reader.binary()?;
    Ok(will)
}

fn will_properties<'a>(section: &'a [u8], will: &mut Will<'a>) -> Result<(), DecodeError> {
    let mut properties = Properties::new(section);
    let mut application = Collector::new(section);
    let mut start = 0;
    while let Some(property) = properties.next()? {
        let end = section.len() - properties.left();
        match property {
            Property::WillDelayInterval(seconds) => will.delay_interval = seconds,
            Property::MessageExpiryInterval(seconds) => {
                will.message_expiry_interval = Some(seconds)
            }
            Property::PayloadFormatIndicator(_)
            | Property::ContentType(_)
            | Property::ResponseTopic(_)
            | Property::CorrelationData(_)
            | Property::UserProperty(..) => application.add(start, end),
            other => return Err(other.not_allowed(PacketKind::Connect)),
        }
        start = end;
    }
    will.properties = application.finish();
    Ok(())
}

pub(super) fn connack(
    mut reader: Reader<'_>,
    version: ProtocolVersion,
) -> Result<Connack<'_>, DecodeError> {
    let flags = reader.u8()?;
    let code = reader.u8()?;
    let mut connack = Connack::default();
    if version.has_properties() {
        connack.reason_code = super::acknowledge::reason_code(PacketKind::Connack, code)?;
        connack_properties(reader.property_section()?, &mut connack)?;
        reader.finish(PacketKind::Connack)?;
    } else {
        connack.reason_code =
            ReasonCode::from_connect_return_code(code).ok_or(DecodeError::ReasonCodeInvalid {
                kind: PacketKind::Connack,
                code,
            })?;
    }
    if version == ProtocolVersion::V31 {
        // The byte is not used there.
        return Ok(connack);
    }
    if flags > 1 {
        return Err(DecodeError::AcknowledgeFlagsInvalid { flags });
    }
    connack.session_present = flags == 1;
    if connack.session_present && code != 0 {
        return Err(DecodeError::SessionPresentWithError { code });
    }
    Ok(connack)
}

fn connack_properties<'a>(section: &'a [u8], connack: &mut Connack<'a>) -> Result<(), DecodeError> {
    let mut properties = Properties::new(section);
    while let Some(property) = properties.next()? {
        match property {
            Property::SessionExpiryInterval(value) => connack.session_expiry_interval = Some(value),
            Property::ReceiveMaximum(value) => connack.receive_maximum = Some(value),
            Property::MaximumQos(value) => connack.maximum_qos = Some(value),
            Property::RetainAvailable(value) => connack.retain_available = Some(value),
            Property::MaximumPacketSize(value) => connack.maximum_packet_size = Some(value),
            Property::AssignedClientIdentifier(value) => {
                connack.assigned_client_identifier = Some(value);
            }
            Property::TopicAliasMaximum(value) => connack.topic_alias_maximum = Some(value),
            Property::ReasonString(value) => connack.reason_string = Some(value),
            Property::UserProperty(name, value) => connack.user_properties.push((name, value)),
            Property::WildcardSubscriptionAvailable(value) => {
                connack.wildcard_subscription_available = Some(value);
            }
            Property::SubscriptionIdentifiersAvailable(value) => {
                connack.subscription_identifiers_available = Some(value);
            }
            Property::SharedSubscriptionAvailable(value) => {
                connack.shared_subscription_available = Some(value);
            }
            Property::ServerKeepAlive(value) => connack.server_keep_alive = Some(value),
            Property::ResponseInformation(value) => connack.response_information = Some(value),
            Property::ServerReference(value) => connack.server_reference = Some(value),
            Property::AuthenticationMethod(value) => connack.authentication_method = Some(value),
            Property::AuthenticationData(value) => connack.authentication_data = Some(value),
            other => return Err(other.not_allowed(PacketKind::Connack)),
        }
    }
    if connack.authentication_data.is_some() && connack.authentication_method.is_none() {
        return Err(DecodeError::AuthenticationDataWithoutMethod);
    }
    Ok(())
}
