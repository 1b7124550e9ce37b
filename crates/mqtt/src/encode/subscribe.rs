//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK.

use super::Encoder;
use crate::property::Property;
use crate::write::put_string;
use crate::{
    EncodeError, PacketKind, ReasonCode, Suback, Subscribe, SubscriptionOptions, Unsuback,
    Unsubscribe,
};

impl Encoder<'_> {
    pub(super) fn subscribe(&mut self, subscribe: &Subscribe<'_>) -> Result<(), EncodeError> {
        check_list(PacketKind::Subscribe, &subscribe.filters)?;
        self.packet_id(subscribe.packet_id);
        self.properties(|encoder| {
            encoder.property_if(
                subscribe.subscription_identifier,
                Property::SubscriptionIdentifier,
            )?;
            encoder.user_properties(&subscribe.user_properties)
        })?;
        for filter in &subscribe.filters {
            put_string(self.out, filter.filter)?;
            let options = options(filter.options);
            // Before 5.0 there is only the QoS.
            let known = if self.version.has_properties() {
                0xFF
            } else {
                0b11
            };
            self.out.push(options & known);
        }
        Ok(())
    }

    pub(super) fn unsubscribe(&mut self, unsubscribe: &Unsubscribe<'_>) -> Result<(), EncodeError> {
        check_list(PacketKind::Unsubscribe, &unsubscribe.filters)?;
        self.packet_id(unsubscribe.packet_id);
        self.properties(|encoder| encoder.user_properties(&unsubscribe.user_properties))?;
        unsubscribe
            .filters
            .iter()
            .try_for_each(|filter| put_string(self.out, filter))
    }

    pub(super) fn suback(&mut self, suback: &Suback<'_>) -> Result<(), EncodeError> {
        check_list(PacketKind::Suback, &suback.reason_codes)?;
        self.packet_id(suback.packet_id);
        if !self.version.has_properties() {
            let code = |&code: &ReasonCode| match code {
                ReasonCode::Success | ReasonCode::GrantedQos1 | ReasonCode::GrantedQos2 => {
                    code as u8
                }
                // The one failure code there [MQTT-3.9.3-2 v3.1.1].
                _ => ReasonCode::UnspecifiedError as u8,
            };
            self.out.extend(suback.reason_codes.iter().map(code));
            return Ok(());
        }
        self.properties(|encoder| {
            encoder.diagnostics(suback.reason_string, &suback.user_properties)
        })?;
        self.reason_codes(PacketKind::Suback, &suback.reason_codes)
    }

    pub(super) fn unsuback(&mut self, unsuback: &Unsuback<'_>) -> Result<(), EncodeError> {
        self.packet_id(unsuback.packet_id);
        if !self.version.has_properties() {
            return Ok(());
        }
        check_list(PacketKind::Unsuback, &unsuback.reason_codes)?;
        self.properties(|encoder| {
            encoder.diagnostics(unsuback.reason_string, &unsuback.user_properties)
        })?;
        self.reason_codes(PacketKind::Unsuback, &unsuback.reason_codes)
    }

    fn reason_codes(&mut self, kind: PacketKind, codes: &[ReasonCode]) -> Result<(), EncodeError> {
        codes
            .iter()
            .try_for_each(|&code| self.reason_code(kind, code))
    }
}

fn check_list<T>(kind: PacketKind, list: &[T]) -> Result<(), EncodeError> {
    if list.is_empty() {
        Err(EncodeError::ListEmpty { kind })
    } else {
        Ok(())
    }
}

const fn options(options: SubscriptionOptions) -> u8 {
    (options.retain_handling as u8) << 4
        | (options.retain_as_published as u8) << 3
        | (options.no_local as u8) << 2
        | options.qos as u8
}
