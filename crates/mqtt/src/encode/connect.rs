//! CONNECT and CONNACK.

use super::{Encoder, check_reason_code};
use crate::decode::{BRIDGE_BIT, flag};
use crate::property::Property;
use crate::write::{put_binary, put_string};
use crate::{Connack, Connect, EncodeError, PacketKind, ProtocolVersion, Qos, ReasonCode, Will};

impl Encoder<'_> {
    pub(super) fn connect(&mut self, connect: &Connect<'_>) -> Result<(), EncodeError> {
        let login = connect.login;
        if !self.version.has_properties() && login.password.is_some() && login.user_name.is_none() {
            return Err(EncodeError::PasswordWithoutUserName);
        }
        let name = if self.version == ProtocolVersion::V31 {
            "MQIsdp"
        } else {
            "MQTT"
        };
        put_string(self.out, name)?;
        // There is no bridge bit in 5.0.
        let bridge = connect.bridge && !self.version.has_properties();
        self.out
            .push(self.version as u8 | if bridge { BRIDGE_BIT } else { 0 });
        self.out.push(connect_flags(connect));
        self.out
            .extend_from_slice(&connect.keep_alive.to_be_bytes());
        self.properties(|encoder| encoder.connect_properties(connect))?;
        put_string(self.out, connect.client_id)?;
        if let Some(will) = &connect.will {
            self.properties(|encoder| encoder.will_properties(will))?;
            put_string(self.out, will.topic)?;
            put_binary(self.out, will.payload)?;
        }
        if let Some(user_name) = login.user_name {
            put_string(self.out, user_name)?;
        }
        if let Some(password) = login.password {
            put_binary(self.out, password)?;
        }
        Ok(())
    }

    fn connect_properties(&mut self, connect: &Connect<'_>) -> Result<(), EncodeError> {
        self.property_if(
            connect.session_expiry_interval,
            Property::SessionExpiryInterval,
        )?;
        self.property_if(connect.receive_maximum, Property::ReceiveMaximum)?;
        self.property_if(connect.maximum_packet_size, Property::MaximumPacketSize)?;
        if connect.topic_alias_maximum != 0 {
            self.property(Property::TopicAliasMaximum(connect.topic_alias_maximum))?;
        }
        if connect.request_response_information {
            self.property(Property::RequestResponseInformation(true))?;
        }
        if !connect.request_problem_information {
            self.property(Property::RequestProblemInformation(false))?;
        }
        self.authentication(connect.authentication_method, connect.authentication_data)?;
        self.user_properties(&connect.user_properties)
    }

    /// Method and data; data without a method is a protocol error.
    pub(super) fn authentication(
        &mut self,
        method: Option<&str>,
        data: Option<&[u8]>,
    ) -> Result<(), EncodeError> {
        if data.is_some() && method.is_none() {
            return Err(EncodeError::AuthenticationMethodMissing);
        }
        self.text_if(method, Property::AuthenticationMethod)?;
        match data {
            Some(data) => self.property(Property::AuthenticationData(data)),
            None => Ok(()),
        }
    }

    fn will_properties(&mut self, will: &Will<'_>) -> Result<(), EncodeError> {
        if will.delay_interval != 0 {
            self.property(Property::WillDelayInterval(will.delay_interval))?;
        }
        self.property_if(
            will.message_expiry_interval,
            Property::MessageExpiryInterval,
        )?;
        will.properties.write_to(self.out);
        Ok(())
    }

    pub(super) fn connack(&mut self, connack: &Connack<'_>) -> Result<(), EncodeError> {
        let accepted = connack.reason_code == ReasonCode::Success;
        // 3.1 does not use the byte; a refusal never claims a session [MQTT-3.2.2-6].
        let session_present =
            connack.session_present && accepted && self.version != ProtocolVersion::V31;
        self.out.push(u8::from(session_present));
        if !self.version.has_properties() {
            self.out.push(connack.reason_code.connect_return_code());
            return Ok(());
        }
        check_reason_code(PacketKind::Connack, connack.reason_code)?;
        self.out.push(connack.reason_code as u8);
        self.properties(|encoder| {
            encoder.connack_limits(connack)?;
            encoder.text_if(connack.response_information, Property::ResponseInformation)?;
            encoder.text_if(connack.server_reference, Property::ServerReference)?;
            encoder.authentication(connack.authentication_method, connack.authentication_data)?;
            encoder.diagnostics(connack.reason_string, &connack.user_properties)
        })
    }

    fn connack_limits(&mut self, connack: &Connack<'_>) -> Result<(), EncodeError> {
        self.property_if(
            connack.session_expiry_interval,
            Property::SessionExpiryInterval,
        )?;
        self.property_if(connack.receive_maximum, Property::ReceiveMaximum)?;
        // 2 is said by absence (5.0, 3.2.2.3.4).
        let maximum_qos = connack.maximum_qos.filter(|&qos| qos != Qos::ExactlyOnce);
        self.property_if(maximum_qos, Property::MaximumQos)?;
        self.property_if(connack.retain_available, Property::RetainAvailable)?;
        self.property_if(connack.maximum_packet_size, Property::MaximumPacketSize)?;
        self.text_if(
            connack.assigned_client_identifier,
            Property::AssignedClientIdentifier,
        )?;
        self.property_if(connack.topic_alias_maximum, Property::TopicAliasMaximum)?;
        self.property_if(
            connack.wildcard_subscription_available,
            Property::WildcardSubscriptionAvailable,
        )?;
        self.property_if(
            connack.subscription_identifiers_available,
            Property::SubscriptionIdentifiersAvailable,
        )?;
        self.property_if(
            connack.shared_subscription_available,
            Property::SharedSubscriptionAvailable,
        )?;
        self.property_if(connack.server_keep_alive, Property::ServerKeepAlive)
    }
}

fn connect_flags(connect: &Connect<'_>) -> u8 {
    let mut flags = 0;
    if connect.clean_start {
        flags |= flag::CLEAN_START;
    }
    if let Some(will) = &connect.will {
        flags |= flag::WILL | (will.qos as u8) << flag::WILL_QOS_SHIFT;
        if will.retain {
            flags |= flag::WILL_RETAIN;
        }
    }
    if connect.login.user_name.is_some() {
        flags |= flag::USER_NAME;
    }
    if connect.login.password.is_some() {
        flags |= flag::PASSWORD;
    }
    flags
}
