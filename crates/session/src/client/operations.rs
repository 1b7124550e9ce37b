//! The caller's operations of a client.

use thicket_mqtt::{
    Acknowledgement, Auth, Disconnect, EncodeError, Packet, PacketId, PacketKind, ProtocolVersion,
    Publish, Qos, ReasonCode, Subscribe, SubscribeFilter, Unsubscribe,
};

use super::aliases::AliasUse;
use super::config::CleanStart;
use super::packets::append_acknowledgement;
use super::{Client, ClientError, Connection, State, append};
use crate::Instant;
use crate::topic::{SubscriptionFilter, TopicName};

/// Bytes an alias adds to a PUBLISH with its topic at most: the property, and lengths that grow by it.
const ALIAS_BYTES: usize = 3 + 2;

impl Client {
    /// Begins a connection: call it when the transport is connected.
    ///
    /// # Errors
    /// [`ClientError::WrongState`] unless disconnected; [`ClientError::TopicName`], [`ClientError::WillProperties`] and
    /// [`ClientError::Encode`] if the configuration does not fit into a CONNECT.
    pub fn connect(&mut self, now: Instant, clean_start: CleanStart) -> Result<(), ClientError> {
        let State::Disconnected = self.state else {
            return Err(self.wrong_state());
        };
        let connect = Packet::Connect(Box::new(self.config.connect_packet(clean_start)?));
        self.output.clear();
        connect.encode(self.config.version, self.output.appender())?;
        self.state = State::Connecting {
            clean_start,
            last_sent: now,
            deadline: now + self.config.connect_timeout,
        };
        Ok(())
    }

    /// Sends a message. For QoS 1 and 2 returns the identifier that [`super::Event::Acknowledged`] will contain.
    ///
    /// Topic aliases are put in as configured. `dup`, `packet_id`, `topic_alias` and `subscription_identifiers` must be left
    /// as [`Publish::new`] makes them.
    ///
    /// # Errors
    /// Those that [`ClientError::is_would_block`] names pass; the others are for good on this connection.
    pub fn publish(
        &mut self,
        now: Instant,
        publish: &Publish<'_>,
    ) -> Result<Option<PacketId>, ClientError> {
        let version = self.config.version;
        let waiting = self.output.len();
        let State::Connected(connection) = &mut self.state else {
            return Err(self.wrong_state());
        };
        check_fields(publish)?;
        if waiting >= self.config.maximum_output_bytes {
            return Err(ClientError::OutputFull { bytes: waiting });
        }
        let packet_id = match publish.qos {
            Qos::AtMostOnce => None,
            Qos::AtLeastOnce | Qos::ExactlyOnce => {
                let maximum = connection
                    .limits
                    .receive_maximum
                    .min(self.config.maximum_inflight);
                // Older messages go first [MQTT-4.6.0-1].
                if self.outbound.has_unsent() || self.outbound.window() >= usize::from(maximum) {
                    return Err(ClientError::InflightFull { maximum });
                }
                Some(
                    self.outbound
                        .next_packet_id()
                        .ok_or(ClientError::PacketIdsExhausted)?,
                )
            }
        };
        let whole = Publish {
            packet_id,
            ..*publish
        };
        let bytes = whole.encoded_len(version);
        connection
            .limits
            .check_publish(whole.qos, whole.retain, bytes)?;
        let out = self.output.appender();
        let start = out.len();
        let alias = connection.encode(version, &whole, bytes, out)?;
        connection.keep_alive.on_sent(now);
        if let Some(packet_id) = packet_id {
            let sent = &out[start..];
            self.outbound
                .on_publish(packet_id, whole.qos, |kept| match alias {
                    AliasUse::TopicOnly => kept.extend_from_slice(sent),
                    // Aliases end with the connection, so what is kept has the topic itself [MQTT-3.3.2-7].
                    AliasUse::Define(_) | AliasUse::AliasOnly(_) => {
                        let encoded = whole.encode(version, kept);
                        debug_assert!(encoded.is_ok(), "it was encoded with an alias before");
                    }
                });
        }
        Ok(packet_id)
    }

    /// Subscribes to `filters`, with a Subscription Identifier if the version is 5.0. Returns the identifier that [`super::Event::Subscribed`] will
    /// contain.
    ///
    /// # Errors
    /// [`ClientError::Filter`], [`ClientError::NoLocalOnShared`], [`ClientError::NotSupported`] for what the server does not
    /// accept; [`ClientError::PacketTooLarge`]; [`ClientError::Encode`] without any filter.
    pub fn subscribe(
        &mut self,
        now: Instant,
        filters: &[SubscribeFilter<'_>],
        subscription_identifier: Option<u32>,
    ) -> Result<PacketId, ClientError> {
        let State::Connected(connection) = &self.state else {
            return Err(self.wrong_state());
        };
        if subscription_identifier.is_some()
            && !connection.limits.subscription_identifiers_available
        {
            return Err(not_supported(
                ReasonCode::SubscriptionIdentifiersNotSupported,
            ));
        }
        for filter in filters {
            check_filter(connection, filter)?;
        }
        let packet_id = self
            .outbound
            .next_packet_id()
            .ok_or(ClientError::PacketIdsExhausted)?;
        let packet = Packet::Subscribe(Subscribe {
            packet_id,
            subscription_identifier,
            user_properties: Vec::new(),
            filters: filters.to_vec(),
        });
        self.send_request(now, &packet)?;
        self.outbound.on_subscribe(packet_id, filters.len());
        Ok(packet_id)
    }

    /// Ends the subscriptions to `filters`. Returns the identifier that [`super::Event::Unsubscribed`] will contain.
    ///
    /// # Errors
    /// [`ClientError::Filter`], [`ClientError::PacketTooLarge`]; [`ClientError::Encode`] without any filter.
    pub fn unsubscribe(&mut self, now: Instant, filters: &[&str]) -> Result<PacketId, ClientError> {
        for filter in filters {
            SubscriptionFilter::parse_with_maximum_levels(filter, usize::MAX)?;
        }
        let packet_id = self
            .outbound
            .next_packet_id()
            .ok_or(ClientError::PacketIdsExhausted)?;
        self.send_request(
            now,
            &Packet::Unsubscribe(Unsubscribe::new(packet_id, filters.to_vec())),
        )?;
        self.outbound.on_unsubscribe(packet_id, filters.len());
        Ok(packet_id)
    }

    /// Acknowledges a received message with [`super::AcknowledgementMode::Manual`]: `reason_code` 0x80 and above refuses
    /// it (5.0).
    ///
    /// It is sent when all earlier messages of its QoS are acknowledged. Without a connection, a message of QoS 2 is noted as accepted; one of QoS 1
    /// is sent again.
    ///
    /// # Errors
    /// [`ClientError::NotAwaitingAcknowledgement`]; [`ClientError::Encode`] for a code that is none of PUBACK and PUBREC.
    pub fn acknowledge(
        &mut self,
        now: Instant,
        packet_id: PacketId,
        reason_code: ReasonCode,
    ) -> Result<(), ClientError> {
        let kind = PacketKind::Puback;
        if !reason_code.is_allowed_in(kind) {
            return Err(EncodeError::ReasonCodeInvalid {
                kind,
                code: reason_code,
            }
            .into());
        }
        let version = self.config.version;
        // A 3.x acknowledgement cannot refuse.
        let reason_code = if version.has_properties() {
            reason_code
        } else {
            ReasonCode::Success
        };
        let is_connected = matches!(self.state, State::Connected(_));
        let output = &mut self.output;
        let was_owed =
            self.inbound
                .acknowledge(packet_id, reason_code, |kind, packet_id, reason_code| {
                    if is_connected {
                        append_acknowledgement(
                            output,
                            version,
                            kind,
                            Acknowledgement::new(packet_id, reason_code),
                        );
                    }
                });
        if !was_owed {
            return Err(ClientError::NotAwaitingAcknowledgement { packet_id });
        }
        if let State::Connected(connection) = &mut self.state {
            connection.keep_alive.on_sent(now);
        }
        Ok(())
    }

    /// Gives a received message back with [`super::AcknowledgementMode::Manual`], for a caller without capacity for it: it is not acknowledged, and
    /// is sent again when the session resumes on another connection. Later messages of its QoS should be given back as well, or they overtake it.
    ///
    /// # Errors
    /// [`ClientError::NotAwaitingAcknowledgement`].
    pub fn give_back(&mut self, packet_id: PacketId) -> Result<(), ClientError> {
        if self.inbound.give_back(packet_id) {
            Ok(())
        } else {
            Err(ClientError::NotAwaitingAcknowledgement { packet_id })
        }
    }

    /// Sends a PINGREQ, keep alive or not; [`super::Event::Pong`] or a timeout follows.
    ///
    /// # Errors
    /// [`ClientError::WrongState`] unless connected.
    pub fn ping(&mut self, now: Instant) -> Result<(), ClientError> {
        let State::Connected(connection) = &mut self.state else {
            return Err(self.wrong_state());
        };
        connection.keep_alive.on_ping_sent(now);
        append(&mut self.output, self.config.version, &Packet::Pingreq);
        Ok(())
    }

    /// Sends an AUTH: the next step of an authentication, or the first of another one while connected (5.0, 4.12).
    ///
    /// # Errors
    /// [`ClientError::NoAuthenticationMethod`] if none is configured; [`ClientError::WrongState`],
    /// [`ClientError::PacketTooLarge`], [`ClientError::Encode`].
    pub fn authenticate(&mut self, now: Instant, auth: &Auth<'_>) -> Result<(), ClientError> {
        if self.config.authentication.is_none() {
            return Err(ClientError::NoAuthenticationMethod);
        }
        let packet = Packet::Auth(auth.clone());
        match &mut self.state {
            State::Connecting { last_sent, .. } => {
                *last_sent = now;
                Ok(packet.encode(self.config.version, self.output.appender())?)
            }
            State::Connected(_) => self.send_request(now, &packet),
            State::Disconnected | State::Closing => Err(self.wrong_state()),
        }
    }

    /// Sends a DISCONNECT, after which nothing is sent or read [MQTT-3.14.4-1]: write the output, then close. Before 5.0
    /// the packet says nothing else, so any reason but success, which would have the will published, just closes.
    ///
    /// # Errors
    /// [`ClientError::WrongState`] unless connecting or connected; [`ClientError::SessionExpiryInterval`];
    /// [`ClientError::Encode`].
    pub fn disconnect(&mut self, disconnect: &Disconnect<'_>) -> Result<(), ClientError> {
        if !self.is_open() {
            return Err(self.wrong_state());
        }
        let asks_for_expiry = disconnect
            .session_expiry_interval
            .is_some_and(|seconds| seconds > 0);
        if asks_for_expiry && self.config.session_expiry_interval == 0 {
            return Err(ClientError::SessionExpiryInterval);
        }
        if self.config.version.has_properties() || disconnect.reason_code == ReasonCode::Success {
            let maximum = self
                .server_limits()
                .map_or(u32::MAX, |limits| limits.maximum_packet_size);
            let packet = Packet::Disconnect(disconnect.clone());
            packet.encode_within(self.config.version, maximum, self.output.appender())?;
        }
        self.close();
        Ok(())
    }

    /// Appends a packet that must fit as it is.
    fn send_request(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), ClientError> {
        let State::Connected(connection) = &mut self.state else {
            return Err(self.wrong_state());
        };
        let maximum = connection.limits.maximum_packet_size;
        match packet.encode_within(self.config.version, maximum, self.output.appender()) {
            Ok(()) => {
                connection.keep_alive.on_sent(now);
                Ok(())
            }
            Err(EncodeError::TooLarge {
                packet_len,
                maximum,
            }) => Err(ClientError::PacketTooLarge {
                bytes: packet_len,
                maximum,
            }),
            Err(error) => Err(error.into()),
        }
    }

    const fn wrong_state(&self) -> ClientError {
        ClientError::WrongState {
            state: self.state(),
        }
    }
}

impl Connection {
    /// Appends `publish`, which has `bytes` bytes without an alias. Returns how it gives its topic.
    #[inline]
    fn encode(
        &mut self,
        version: ProtocolVersion,
        publish: &Publish<'_>,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<AliasUse, ClientError> {
        let alias = if bytes + ALIAS_BYTES > self.limits.maximum_packet_size as usize {
            AliasUse::TopicOnly
        } else {
            self.outbound_aliases.choose(publish.topic)
        };
        let encoded = match alias {
            AliasUse::TopicOnly => publish.encode(version, out),
            AliasUse::Define(alias) => Publish {
                topic_alias: Some(alias),
                ..*publish
            }
            .encode(version, out),
            AliasUse::AliasOnly(alias) => Publish {
                topic: "",
                topic_alias: Some(alias),
                ..*publish
            }
            .encode(version, out),
        };
        if let Err(error) = encoded {
            // The server never sees the definition.
            self.outbound_aliases.forget(publish.topic);
            return Err(error.into());
        }
        Ok(alias)
    }
}

/// Checks what does not depend on the server.
#[inline]
fn check_fields(publish: &Publish<'_>) -> Result<(), ClientError> {
    let has_reserved_field = publish.dup
        || publish.packet_id.is_some()
        || publish.topic_alias.is_some()
        || !publish.subscription_identifiers.is_empty();
    if has_reserved_field {
        return Err(ClientError::ReservedField);
    }
    Ok(TopicName::check(publish.topic)?)
}

fn check_filter(
    connection: &Connection,
    subscribe: &SubscribeFilter<'_>,
) -> Result<(), ClientError> {
    let parsed = SubscriptionFilter::parse_with_maximum_levels(subscribe.filter, usize::MAX)?;
    if parsed.is_shared() && subscribe.options.no_local {
        return Err(ClientError::NoLocalOnShared);
    }
    if parsed.is_shared() && !connection.limits.shared_subscription_available {
        return Err(not_supported(ReasonCode::SharedSubscriptionsNotSupported));
    }
    if parsed.filter.has_wildcards() && !connection.limits.wildcard_subscription_available {
        return Err(not_supported(ReasonCode::WildcardSubscriptionsNotSupported));
    }
    Ok(())
}

const fn not_supported(reason_code: ReasonCode) -> ClientError {
    ClientError::NotSupported { reason_code }
}
