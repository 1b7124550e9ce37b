//! What a client asks for, and what the server answered to it.

use std::time::Duration;

use thicket_mqtt::{
    ApplicationProperties, Connack, Connect, Login, ProtocolVersion, Qos, ReasonCode, Will,
};

use super::ClientError;

/// The content of a client's CONNECT, and its own bounds. [`ClientConfig::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Protocol version.
    pub version: ProtocolVersion,
    /// Client identifier; if empty, one assigned by the server takes its place (5.0).
    pub client_id: String,
    /// Keep Alive in seconds, 0: off. A PINGREQ is sent after three quarters of it without another packet.
    pub keep_alive: u16,
    /// Will message.
    pub will: Option<WillConfig>,
    /// User name.
    pub user_name: Option<String>,
    /// Password.
    pub password: Option<Vec<u8>>,
    /// Session Expiry Interval in seconds (5.0), 0: the session ends with the connection.
    pub session_expiry_interval: u32,
    /// Receive Maximum (5.0), at least 1: messages of QoS 1 and 2 the server may send ahead of our acknowledgements.
    pub receive_maximum: u16,
    /// Largest packet accepted, in bytes; sent to 5.0 servers.
    pub maximum_packet_size: u32,
    /// Topic Alias Maximum (5.0): aliases the server may use towards us. Each costs a topic of memory.
    pub topic_alias_maximum: u16,
    /// Topic aliases we use towards the server at most (5.0), within what it allows. 0: none.
    pub outbound_topic_aliases: u16,
    /// Request Response Information (5.0).
    pub request_response_information: bool,
    /// Request Problem Information (5.0).
    pub request_problem_information: bool,
    /// Enhanced authentication (5.0).
    pub authentication: Option<AuthenticationConfig>,
    /// User properties of the CONNECT (5.0).
    pub user_properties: Vec<(String, String)>,
    /// Name of a user property of SUBACK and PUBACK (5.0) whose values [`super::Client::poll_acknowledgement_property`] hands out.
    pub acknowledgement_property: Option<String>,
    /// Who acknowledges received messages.
    pub acknowledgement: AcknowledgementMode,
    /// What is kept of sent messages of QoS 1 and 2.
    pub inflight: InflightMode,
    /// Unacknowledged messages sent at most; the server's Receive Maximum may set fewer.
    pub maximum_inflight: u16,
    /// Bytes waiting to be written from which on `publish` refuses. Acknowledgements and other packets still go.
    pub maximum_output_bytes: usize,
    /// How long to wait for the CONNACK, each step of an authentication included.
    pub connect_timeout: Duration,
    /// How long nothing may arrive after a PINGREQ.
    pub ping_timeout: Duration,
}

/// The will of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WillConfig {
    /// Topic name.
    pub topic: String,
    /// Payload.
    pub payload: Vec<u8>,
    /// QoS.
    pub qos: Qos,
    /// Retain.
    pub retain: bool,
    /// Will Delay Interval in seconds (5.0).
    pub delay_interval: u32,
    /// Message Expiry Interval in seconds (5.0).
    pub message_expiry_interval: Option<u32>,
    /// Application properties (5.0) as [`ApplicationProperties::build`] encodes them.
    pub properties: Vec<u8>,
}

/// How a client proves its identity, if not by a password (5.0, 4.12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// Authentication Method.
    pub method: String,
    /// Authentication Data of the CONNECT.
    pub data: Option<Vec<u8>>,
}

/// Who acknowledges received messages of QoS 1 and 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcknowledgementMode {
    /// The client, as soon as the event was handled.
    #[default]
    Automatic,
    /// The caller, by [`super::Client::acknowledge`]; until then the message counts against the Receive Maximum.
    Manual,
}

/// What is kept of sent messages of QoS 1 and 2 until they are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InflightMode {
    /// The packet, to send it again when the session resumes.
    #[default]
    KeepMessages,
    /// The identifier: what a lost connection leaves open is reported as discarded. For load generators.
    KeepIdsOnly,
}

/// Whether a connection starts a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanStart {
    /// The server discards what it has of this client.
    Yes,
    /// The server resumes the session if it has one.
    No,
}

impl ClientConfig {
    /// Keep alive of 60 seconds, no will, no login, no aliases, packets up to 16 MiB, a session that ends with the
    /// connection.
    #[must_use]
    pub fn new(version: ProtocolVersion, client_id: impl Into<String>) -> Self {
        Self {
            version,
            client_id: client_id.into(),
            keep_alive: 60,
            will: None,
            user_name: None,
            password: None,
            session_expiry_interval: 0,
            receive_maximum: u16::MAX,
            maximum_packet_size: 16 << 20,
            topic_alias_maximum: 0,
            outbound_topic_aliases: 0,
            request_response_information: false,
            request_problem_information: true,
            authentication: None,
            user_properties: Vec::new(),
            acknowledgement_property: None,
            acknowledgement: AcknowledgementMode::default(),
            inflight: InflightMode::default(),
            maximum_inflight: u16::MAX,
            maximum_output_bytes: 1 << 20,
            connect_timeout: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(10),
        }
    }

    /// The CONNECT with these settings.
    pub(super) fn connect_packet(
        &self,
        clean_start: CleanStart,
    ) -> Result<Connect<'_>, ClientError> {
        let login = Login {
            user_name: self.user_name.as_deref(),
            password: self.password.as_deref(),
        };
        let authentication = self.authentication.as_ref();
        Ok(Connect {
            clean_start: clean_start == CleanStart::Yes,
            keep_alive: self.keep_alive,
            will: self.will.as_ref().map(WillConfig::to_will).transpose()?,
            login,
            session_expiry_interval: Some(self.session_expiry_interval)
                .filter(|seconds| *seconds > 0),
            receive_maximum: Some(self.receive_maximum.max(1))
                .filter(|maximum| *maximum < u16::MAX),
            maximum_packet_size: Some(self.maximum_packet_size.max(1)),
            topic_alias_maximum: self.topic_alias_maximum,
            request_response_information: self.request_response_information,
            request_problem_information: self.request_problem_information,
            authentication_method: authentication.map(|config| &*config.method),
            authentication_data: authentication.and_then(|config| config.data.as_deref()),
            user_properties: self
                .user_properties
                .iter()
                .map(|(name, value)| (&**name, &**value))
                .collect(),
            ..Connect::new(self.version, &self.client_id)
        })
    }
}

impl WillConfig {
    fn to_will(&self) -> Result<Will<'_>, ClientError> {
        crate::topic::TopicName::check(&self.topic)?;
        Ok(Will {
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            delay_interval: self.delay_interval,
            message_expiry_interval: self.message_expiry_interval,
            properties: ApplicationProperties::from_encoded(&self.properties)
                .map_err(ClientError::WillProperties)?,
        })
    }
}

/// What the server accepts on this connection, from its CONNACK. 3.1 and 3.1.1 servers accept everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Unacknowledged messages of QoS 1 and 2 it accepts [MQTT-3.3.4-7].
    pub receive_maximum: u16,
    /// The highest QoS it accepts [MQTT-3.2.2-11].
    pub maximum_qos: Qos,
    /// Whether it keeps retained messages [MQTT-3.2.2-14].
    pub retain_available: bool,
    /// The largest packet it accepts, in bytes [MQTT-3.2.2-15].
    pub maximum_packet_size: u32,
    /// Topic aliases it accepts [MQTT-3.2.2-17].
    pub topic_alias_maximum: u16,
    /// Whether filters may hold wildcards.
    pub wildcard_subscription_available: bool,
    /// Whether subscriptions may have identifiers.
    pub subscription_identifiers_available: bool,
    /// Whether subscriptions may be shared.
    pub shared_subscription_available: bool,
}

impl ServerLimits {
    pub(super) fn from_connack(connack: &Connack<'_>) -> Self {
        Self {
            receive_maximum: connack.receive_maximum.unwrap_or(u16::MAX),
            maximum_qos: connack.maximum_qos.unwrap_or(Qos::ExactlyOnce),
            retain_available: connack.retain_available.unwrap_or(true),
            maximum_packet_size: connack.maximum_packet_size.unwrap_or(u32::MAX),
            topic_alias_maximum: connack.topic_alias_maximum.unwrap_or(0),
            wildcard_subscription_available: connack
                .wildcard_subscription_available
                .unwrap_or(true),
            subscription_identifiers_available: connack
                .subscription_identifiers_available
                .unwrap_or(true),
            shared_subscription_available: connack.shared_subscription_available.unwrap_or(true),
        }
    }

    /// Whether the server accepts a PUBLISH like this one.
    pub(super) fn check_publish(
        &self,
        qos: Qos,
        retain: bool,
        bytes: usize,
    ) -> Result<(), ClientError> {
        if qos > self.maximum_qos {
            return Err(ClientError::NotSupported {
                reason_code: ReasonCode::QosNotSupported,
            });
        }
        if retain && !self.retain_available {
            return Err(ClientError::NotSupported {
                reason_code: ReasonCode::RetainNotSupported,
            });
        }
        if bytes > self.maximum_packet_size as usize {
            return Err(ClientError::PacketTooLarge {
                bytes,
                maximum: self.maximum_packet_size,
            });
        }
        Ok(())
    }
}
