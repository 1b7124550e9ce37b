//! PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT and AUTH, in their shortest form.

use super::{Encoder, check_reason_code};
use crate::property::Property;
use crate::{
    Acknowledgement, AcknowledgementKind, Auth, Disconnect, EncodeError, PLAIN_ACKNOWLEDGEMENT_LEN,
    PacketId, PacketKind, ReasonCode,
};

/// A PUBACK, PUBREC, PUBREL or PUBCOMP without reason code and properties, which means Success in all versions.
#[must_use]
#[inline]
pub const fn encode_plain_acknowledgement(
    kind: AcknowledgementKind,
    packet_id: PacketId,
) -> [u8; PLAIN_ACKNOWLEDGEMENT_LEN] {
    let [high, low] = packet_id.value().to_be_bytes();
    let kind = kind.packet();
    [(kind as u8) << 4 | kind.flags(), 2, high, low]
}

impl Encoder<'_> {
    pub(super) fn acknowledgement(
        &mut self,
        kind: AcknowledgementKind,
        acknowledgement: &Acknowledgement<'_>,
    ) -> Result<(), EncodeError> {
        let Acknowledgement {
            packet_id,
            reason_code,
            reason_string,
            user_properties,
        } = acknowledgement;
        let with_diagnostics = self.has_diagnostics(*reason_string, user_properties);
        let before_5 = !self.version.has_properties();
        if before_5 || (*reason_code == ReasonCode::Success && !with_diagnostics) {
            self.out
                .extend_from_slice(&encode_plain_acknowledgement(kind, *packet_id));
            return Ok(());
        }
        let kind = kind.packet();
        self.framed(kind, |encoder| {
            encoder.packet_id(*packet_id);
            encoder.reason_code(kind, *reason_code)?;
            if with_diagnostics {
                encoder
                    .properties(|encoder| encoder.diagnostics(*reason_string, user_properties))?;
            }
            Ok(())
        })
    }

    /// Whether anything is left to say of an answer's reason string and user properties.
    fn has_diagnostics(
        &self,
        reason_string: Option<&str>,
        user_properties: &[(&str, &str)],
    ) -> bool {
        (self.optional.reason_string && reason_string.is_some())
            || (self.optional.user_properties && !user_properties.is_empty())
    }

    pub(super) fn disconnect(&mut self, disconnect: &Disconnect<'_>) -> Result<(), EncodeError> {
        if !self.version.has_properties() {
            return Ok(());
        }
        let with_properties = disconnect.session_expiry_interval.is_some()
            || disconnect.server_reference.is_some()
            || self.has_diagnostics(disconnect.reason_string, &disconnect.user_properties);
        if disconnect.reason_code == ReasonCode::Success && !with_properties {
            return Ok(());
        }
        self.reason_code(PacketKind::Disconnect, disconnect.reason_code)?;
        if !with_properties {
            return Ok(());
        }
        self.properties(|encoder| {
            encoder.property_if(
                disconnect.session_expiry_interval,
                Property::SessionExpiryInterval,
            )?;
            encoder.text_if(disconnect.server_reference, Property::ServerReference)?;
            encoder.diagnostics(disconnect.reason_string, &disconnect.user_properties)
        })
    }

    pub(super) fn auth(&mut self, auth: &Auth<'_>) -> Result<(), EncodeError> {
        let kind = PacketKind::Auth;
        if !self.version.has_properties() {
            return Err(EncodeError::NotInVersion { kind });
        }
        check_reason_code(kind, auth.reason_code)?;
        let nothing_said = auth.reason_code == ReasonCode::Success
            && auth.authentication_data.is_none()
            && !self.has_diagnostics(auth.reason_string, &auth.user_properties);
        if auth.authentication_method.is_none() {
            // The only form without a method is the empty one (5.0, 3.15.2.1 and 3.15.2.2.2).
            return if nothing_said {
                Ok(())
            } else {
                Err(EncodeError::AuthenticationMethodMissing)
            };
        }
        self.out.push(auth.reason_code as u8);
        self.properties(|encoder| {
            encoder.authentication(auth.authentication_method, auth.authentication_data)?;
            encoder.diagnostics(auth.reason_string, &auth.user_properties)
        })
    }
}
