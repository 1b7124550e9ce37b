//! Properties (5.0, 2.2.2): identifiers, types and ranges. Which packet may have which is said by that packet's reader.

use crate::reader::Reader;
use crate::write::{put_binary, put_string, put_variable_byte_integer};
use crate::{ApplicationProperty, DecodeError, EncodeError, PacketKind, Qos};

/// Any property with its value, range checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::enum_variant_names,
    reason = "User Property is the specification's name"
)]
pub(crate) enum Property<'a> {
    PayloadFormatIndicator(u8),
    MessageExpiryInterval(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    SubscriptionIdentifier(u32),
    SessionExpiryInterval(u32),
    AssignedClientIdentifier(&'a str),
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(bool),
    WillDelayInterval(u32),
    RequestResponseInformation(bool),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    ReceiveMaximum(u16),
    TopicAliasMaximum(u16),
    TopicAlias(u16),
    MaximumQos(Qos),
    RetainAvailable(bool),
    UserProperty(&'a str, &'a str),
    MaximumPacketSize(u32),
    WildcardSubscriptionAvailable(bool),
    SubscriptionIdentifiersAvailable(bool),
    SharedSubscriptionAvailable(bool),
}

/// The identifiers (5.0, table 2-4).
pub(crate) mod id {
    pub(crate) const PAYLOAD_FORMAT_INDICATOR: u8 = 0x01;
    pub(crate) const MESSAGE_EXPIRY_INTERVAL: u8 = 0x02;
    pub(crate) const CONTENT_TYPE: u8 = 0x03;
    pub(crate) const RESPONSE_TOPIC: u8 = 0x08;
    pub(crate) const CORRELATION_DATA: u8 = 0x09;
    pub(crate) const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
    pub(crate) const SESSION_EXPIRY_INTERVAL: u8 = 0x11;
    pub(crate) const ASSIGNED_CLIENT_IDENTIFIER: u8 = 0x12;
    pub(crate) const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub(crate) const AUTHENTICATION_METHOD: u8 = 0x15;
    pub(crate) const AUTHENTICATION_DATA: u8 = 0x16;
    pub(crate) const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
    pub(crate) const WILL_DELAY_INTERVAL: u8 = 0x18;
    pub(crate) const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
    pub(crate) const RESPONSE_INFORMATION: u8 = 0x1A;
    pub(crate) const SERVER_REFERENCE: u8 = 0x1C;
    pub(crate) const REASON_STRING: u8 = 0x1F;
    pub(crate) const RECEIVE_MAXIMUM: u8 = 0x21;
    pub(crate) const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    pub(crate) const TOPIC_ALIAS: u8 = 0x23;
    pub(crate) const MAXIMUM_QOS: u8 = 0x24;
    pub(crate) const RETAIN_AVAILABLE: u8 = 0x25;
    pub(crate) const USER_PROPERTY: u8 = 0x26;
    pub(crate) const MAXIMUM_PACKET_SIZE: u8 = 0x27;
    pub(crate) const WILDCARD_SUBSCRIPTION_AVAILABLE: u8 = 0x28;
    pub(crate) const SUBSCRIPTION_IDENTIFIERS_AVAILABLE: u8 = 0x29;
    pub(crate) const SHARED_SUBSCRIPTION_AVAILABLE: u8 = 0x2A;
}

impl<'a> Property<'a> {
    /// Reads the property at the front and checks its value.
    #[inline(always)]
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let number = reader.variable_byte_integer()?;
        let id = u8::try_from(number).map_err(|_| DecodeError::PropertyUnknown { id: number })?;
        Ok(match id {
            id::PAYLOAD_FORMAT_INDICATOR => {
                Self::PayloadFormatIndicator(u8::from(flag(id, reader)?))
            }
            id::MESSAGE_EXPIRY_INTERVAL => Self::MessageExpiryInterval(reader.u32()?),
            id::CONTENT_TYPE => Self::ContentType(reader.string()?),
            id::RESPONSE_TOPIC => Self::ResponseTopic(response_topic(reader)?),
            id::CORRELATION_DATA => Self::CorrelationData(reader.binary()?),
            id::SUBSCRIPTION_IDENTIFIER => {
                Self::SubscriptionIdentifier(not_zero(id, reader.variable_byte_integer()?)?)
            }
            id::SESSION_EXPIRY_INTERVAL => Self::SessionExpiryInterval(reader.u32()?),
            id::ASSIGNED_CLIENT_IDENTIFIER => Self::AssignedClientIdentifier(reader.string()?),
            id::SERVER_KEEP_ALIVE => Self::ServerKeepAlive(reader.u16()?),
            id::AUTHENTICATION_METHOD => Self::AuthenticationMethod(reader.string()?),
            id::AUTHENTICATION_DATA => Self::AuthenticationData(reader.binary()?),
            id::REQUEST_PROBLEM_INFORMATION => Self::RequestProblemInformation(flag(id, reader)?),
            id::WILL_DELAY_INTERVAL => Self::WillDelayInterval(reader.u32()?),
            id::REQUEST_RESPONSE_INFORMATION => Self::RequestResponseInformation(flag(id, reader)?),
            id::RESPONSE_INFORMATION => Self::ResponseInformation(reader.string()?),
            id::SERVER_REFERENCE => Self::ServerReference(reader.string()?),
            id::REASON_STRING => Self::ReasonString(reader.string()?),
            id::RECEIVE_MAXIMUM => Self::ReceiveMaximum(not_zero(id, reader.u16()?)?),
            id::TOPIC_ALIAS_MAXIMUM => Self::TopicAliasMaximum(reader.u16()?),
            id::TOPIC_ALIAS => Self::TopicAlias(topic_alias(reader)?),
            id::MAXIMUM_QOS => Self::MaximumQos(maximum_qos(reader)?),
            id::RETAIN_AVAILABLE => Self::RetainAvailable(flag(id, reader)?),
            id::USER_PROPERTY => Self::UserProperty(reader.string()?, reader.string()?),
            id::MAXIMUM_PACKET_SIZE => Self::MaximumPacketSize(not_zero(id, reader.u32()?)?),
            id::WILDCARD_SUBSCRIPTION_AVAILABLE => {
                Self::WildcardSubscriptionAvailable(flag(id, reader)?)
            }
            id::SUBSCRIPTION_IDENTIFIERS_AVAILABLE => {
                Self::SubscriptionIdentifiersAvailable(flag(id, reader)?)
            }
            id::SHARED_SUBSCRIPTION_AVAILABLE => {
                Self::SharedSubscriptionAvailable(flag(id, reader)?)
            }
            _ => return Err(DecodeError::PropertyUnknown { id: number }),
        })
    }

    /// Identifier of the property, below 64.
    #[inline]
    pub(crate) const fn id(&self) -> u8 {
        match self {
            Self::PayloadFormatIndicator(_) => id::PAYLOAD_FORMAT_INDICATOR,
            Self::MessageExpiryInterval(_) => id::MESSAGE_EXPIRY_INTERVAL,
            Self::ContentType(_) => id::CONTENT_TYPE,
            Self::ResponseTopic(_) => id::RESPONSE_TOPIC,
            Self::CorrelationData(_) => id::CORRELATION_DATA,
            Self::SubscriptionIdentifier(_) => id::SUBSCRIPTION_IDENTIFIER,
            Self::SessionExpiryInterval(_) => id::SESSION_EXPIRY_INTERVAL,
            Self::AssignedClientIdentifier(_) => id::ASSIGNED_CLIENT_IDENTIFIER,
            Self::ServerKeepAlive(_) => id::SERVER_KEEP_ALIVE,
            Self::AuthenticationMethod(_) => id::AUTHENTICATION_METHOD,
            Self::AuthenticationData(_) => id::AUTHENTICATION_DATA,
            Self::RequestProblemInformation(_) => id::REQUEST_PROBLEM_INFORMATION,
            Self::WillDelayInterval(_) => id::WILL_DELAY_INTERVAL,
            Self::RequestResponseInformation(_) => id::REQUEST_RESPONSE_INFORMATION,
            Self::ResponseInformation(_) => id::RESPONSE_INFORMATION,
            Self::ServerReference(_) => id::SERVER_REFERENCE,
            Self::ReasonString(_) => id::REASON_STRING,
            Self::ReceiveMaximum(_) => id::RECEIVE_MAXIMUM,
            Self::TopicAliasMaximum(_) => id::TOPIC_ALIAS_MAXIMUM,
            Self::TopicAlias(_) => id::TOPIC_ALIAS,
            Self::MaximumQos(_) => id::MAXIMUM_QOS,
            Self::RetainAvailable(_) => id::RETAIN_AVAILABLE,
            Self::UserProperty(..) => id::USER_PROPERTY,
            Self::MaximumPacketSize(_) => id::MAXIMUM_PACKET_SIZE,
            Self::WildcardSubscriptionAvailable(_) => id::WILDCARD_SUBSCRIPTION_AVAILABLE,
            Self::SubscriptionIdentifiersAvailable(_) => id::SUBSCRIPTION_IDENTIFIERS_AVAILABLE,
            Self::SharedSubscriptionAvailable(_) => id::SHARED_SUBSCRIPTION_AVAILABLE,
        }
    }

    /// Appends identifier and value.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let id = self.id();
        out.push(id);
        match *self {
            Self::PayloadFormatIndicator(value) => out.push(value),
            Self::MaximumQos(qos) => out.push(qos as u8),
            Self::RequestProblemInformation(flag)
            | Self::RequestResponseInformation(flag)
            | Self::RetainAvailable(flag)
            | Self::WildcardSubscriptionAvailable(flag)
            | Self::SubscriptionIdentifiersAvailable(flag)
            | Self::SharedSubscriptionAvailable(flag) => out.push(u8::from(flag)),
            Self::ServerKeepAlive(value) | Self::TopicAliasMaximum(value) => {
                out.extend_from_slice(&value.to_be_bytes());
            }
            Self::ReceiveMaximum(0) | Self::TopicAlias(0) | Self::MaximumPacketSize(0) => {
                return Err(EncodeError::PropertyZero { id });
            }
            Self::ReceiveMaximum(value) | Self::TopicAlias(value) => {
                out.extend_from_slice(&value.to_be_bytes());
            }
            Self::MessageExpiryInterval(value)
            | Self::SessionExpiryInterval(value)
            | Self::WillDelayInterval(value)
            | Self::MaximumPacketSize(value) => out.extend_from_slice(&value.to_be_bytes()),
            Self::SubscriptionIdentifier(value) => {
                check_subscription_identifier(value)?;
                put_variable_byte_integer(out, value);
            }
            Self::ContentType(text)
            | Self::ResponseTopic(text)
            | Self::AssignedClientIdentifier(text)
            | Self::AuthenticationMethod(text)
            | Self::ResponseInformation(text)
            | Self::ServerReference(text)
            | Self::ReasonString(text) => put_string(out, text)?,
            Self::CorrelationData(data) | Self::AuthenticationData(data) => put_binary(out, data)?,
            Self::UserProperty(name, value) => {
                put_string(out, name)?;
                put_string(out, value)?;
            }
        }
        Ok(())
    }

    /// The error for a property in a packet that cannot have it.
    #[cold]
    pub(crate) const fn not_allowed(&self, kind: PacketKind) -> DecodeError {
        DecodeError::PropertyNotAllowed {
            id: self.id(),
            kind,
        }
    }
}

impl<'a> From<ApplicationProperty<'a>> for Property<'a> {
    fn from(property: ApplicationProperty<'a>) -> Self {
        match property {
            ApplicationProperty::PayloadFormatIndicator(value) => {
                Self::PayloadFormatIndicator(value)
            }
            ApplicationProperty::ContentType(text) => Self::ContentType(text),
            ApplicationProperty::ResponseTopic(topic) => Self::ResponseTopic(topic),
            ApplicationProperty::CorrelationData(data) => Self::CorrelationData(data),
            ApplicationProperty::UserProperty(name, value) => Self::UserProperty(name, value),
        }
    }
}

pub(crate) const fn check_subscription_identifier(value: u32) -> Result<(), EncodeError> {
    if value == 0 || value > crate::reader::VARIABLE_BYTE_INTEGER_MAX {
        return Err(EncodeError::SubscriptionIdentifierInvalid { value });
    }
    Ok(())
}

fn flag(id: u8, reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(DecodeError::PropertyValueInvalid {
            id,
            value: u32::from(value),
        }),
    }
}

fn not_zero<T: PartialEq + Default>(id: u8, value: T) -> Result<T, DecodeError> {
    if value == T::default() {
        return Err(DecodeError::PropertyValueInvalid { id, value: 0 });
    }
    Ok(value)
}

fn topic_alias(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
    match reader.u16()? {
        0 => Err(DecodeError::TopicAliasZero),
        alias => Ok(alias),
    }
}

/// Maximum QoS is stated only when it is 0 or 1 (5.0, 3.2.2.3.4).
fn maximum_qos(reader: &mut Reader<'_>) -> Result<Qos, DecodeError> {
    match reader.u8()? {
        0 => Ok(Qos::AtMostOnce),
        1 => Ok(Qos::AtLeastOnce),
        value => Err(DecodeError::PropertyValueInvalid {
            id: id::MAXIMUM_QOS,
            value: u32::from(value),
        }),
    }
}

fn response_topic<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    match reader.topic_name() {
        Ok("") | Err(DecodeError::TopicNameInvalid) => Err(DecodeError::ResponseTopicInvalid),
        other => other,
    }
}

/// Reads a property section and refuses what comes twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties<'a> {
    reader: Reader<'a>,
    seen: u64,
    /// Identifiers, as bits, that may come again.
    repeatable: u64,
}

impl<'a> Properties<'a> {
    pub(crate) const fn new(section: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(section),
            seen: 0,
            repeatable: 1 << id::USER_PROPERTY,
        }
    }

    /// The properties of a PUBLISH, which may name several subscriptions (5.0, 3.3.2.3.8).
    pub(crate) const fn of_publish(section: &'a [u8]) -> Self {
        let repeatable = 1 << id::USER_PROPERTY | 1 << id::SUBSCRIPTION_IDENTIFIER;
        Self {
            reader: Reader::new(section),
            seen: 0,
            repeatable,
        }
    }

    /// The next property, `None` at the end of the section.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<Property<'a>>, DecodeError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let property = Property::read(&mut self.reader)?;
        self.note(property.id())?;
        Ok(Some(property))
    }

    /// Checks a Content Type or User Property at the front and steps over it; false if another property stands there.
    /// These are the texts that messages carry and a broker only passes on.
    #[inline]
    pub(crate) fn skip_text(&mut self) -> Result<bool, DecodeError> {
        let (id, strings) = match self.reader.rest() {
            [id @ id::CONTENT_TYPE, ..] => (*id, 1),
            [id @ id::USER_PROPERTY, ..] => (*id, 2),
            _ => return Ok(false),
        };
        self.reader.u8()?;
        for _ in 0..strings {
            self.reader.skip_string()?;
        }
        self.note(id)?;
        Ok(true)
    }

    #[inline]
    fn note(&mut self, id: u8) -> Result<(), DecodeError> {
        let bit = 1 << id;
        if self.seen & bit & !self.repeatable != 0 {
            return Err(DecodeError::PropertyRepeated { id });
        }
        self.seen |= bit;
        Ok(())
    }

    /// Bytes that were not read yet.
    #[inline]
    pub(crate) const fn left(&self) -> usize {
        self.reader.rest().len()
    }
}
