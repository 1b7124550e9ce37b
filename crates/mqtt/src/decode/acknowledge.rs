//! PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT and AUTH: a reason code and why.

use crate::property::{Properties, Property};
use crate::reader::Reader;
use crate::{
    Acknowledgement, Auth, DecodeError, Disconnect, PacketKind, ProtocolVersion, ReasonCode,
};

/// A code out of the packet's list.
pub(super) fn reason_code(kind: PacketKind, code: u8) -> Result<ReasonCode, DecodeError> {
    ReasonCode::try_from(code)
        .ok()
        .filter(|known| known.is_allowed_in(kind))
        .ok_or(DecodeError::ReasonCodeInvalid { kind, code })
}

pub(super) fn decode(
    kind: PacketKind,
    mut reader: Reader<'_>,
    version: ProtocolVersion,
) -> Result<Acknowledgement<'_>, DecodeError> {
    let packet_id = reader.packet_id(kind)?;
    let mut acknowledgement = Acknowledgement::new(packet_id, ReasonCode::Success);
    // Remaining length 2: Success; 3: no properties (5.0, 3.4.2.1 and 3.4.2.2.1).
    if version.has_properties() && !reader.is_empty() {
        acknowledgement.reason_code = reason_code(kind, reader.u8()?)?;
        if !reader.is_empty() {
            let mut properties = Properties::new(reader.property_section()?);
            while let Some(property) = properties.next()? {
                match property {
                    Property::ReasonString(text) => acknowledgement.reason_string = Some(text),
                    Property::UserProperty(name, value) => {
                        acknowledgement.user_properties.push((name, value));
                    }
                    other => return Err(other.not_allowed(kind)),
                }
            }
        }
    }
    reader.finish(kind)?;
    Ok(acknowledgement)
}

pub(super) fn disconnect(
    mut reader: Reader<'_>,
    version: ProtocolVersion,
) -> Result<Disconnect<'_>, DecodeError> {
    let kind = PacketKind::Disconnect;
    let mut disconnect = Disconnect::default();
    // Remaining length 0: Success; 1: no properties (5.0, 3.14.2.1 and 3.14.2.2.1).
    if version.has_properties() && !reader.is_empty() {
        disconnect.reason_code = reason_code(kind, reader.u8()?)?;
        if !reader.is_empty() {
            let mut properties = Properties::new(reader.property_section()?);
            while let Some(property) = properties.next()? {
                match property {
                    Property::SessionExpiryInterval(value) => {
                        disconnect.session_expiry_interval = Some(value);
                    }
                    Property::ReasonString(text) => disconnect.reason_string = Some(text),
                    Property::ServerReference(text) => disconnect.server_reference = Some(text),
                    Property::UserProperty(name, value) => {
                        disconnect.user_properties.push((name, value));
                    }
                    other => return Err(other.not_allowed(kind)),
                }
            }
        }
    }
    reader.finish(kind)?;
    Ok(disconnect)
}

pub(super) fn auth(mut reader: Reader<'_>) -> Result<Auth<'_>, DecodeError> {
    let kind = PacketKind::Auth;
    let mut auth = Auth::default();
    // Remaining length 0 is Success without properties; there is no form of length 1 (5.0, 3.15.2.1).
    if reader.is_empty() {
        return Ok(auth);
    }
    auth.reason_code = reason_code(kind, reader.u8()?)?;
    let mut properties = Properties::new(reader.property_section()?);
    while let Some(property) = properties.next()? {
        match property {
            Property::AuthenticationMethod(text) => auth.authentication_method = Some(text),
            Property::AuthenticationData(data) => auth.authentication_data = Some(data),
            Property::ReasonString(text) => auth.reason_string = Some(text),
            Property::UserProperty(name, value) => auth.user_properties.push((name, value)),
            other => return Err(other.not_allowed(kind)),
        }
    }
    reader.finish(kind)?;
    if auth.authentication_method.is_none() {
        return Err(DecodeError::AuthenticationMethodMissing);
    }
    Ok(auth)
}
