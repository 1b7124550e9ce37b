//! Packets to bytes. Whatever fails leaves the output as it was.

mod acknowledge;
mod connect;
mod publish;
mod subscribe;

pub use acknowledge::encode_plain_acknowledgement;

use crate::property::Property;
use crate::write::put_with_length;
use crate::{
    AcknowledgementKind, EncodeError, Packet, PacketId, PacketKind, ProtocolVersion, ReasonCode,
};

impl Packet<'_> {
    /// Appends the packet to `out`; a CONNECT in its own version, all others in `version`.
    ///
    /// For 3.1 and 3.1.1, properties are left out and reason codes become what those versions have: return codes of
    /// CONNACK, 0x80 for every failure in SUBACK, nothing elsewhere.
    ///
    /// # Errors
    /// See [`EncodeError`]; `out` is as it was then.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if let Packet::Publish(publish) = self {
            return publish.encode(version, out).map(|_| ());
        }
        self.encode_with(version, Optional::ALL, out)
    }

    /// Like [`encode`](Self::encode), within `maximum` bytes: where the packet would be larger, an answer goes without its
    /// reason string, then without its user properties too [MQTT-3.2.2-19] [MQTT-3.2.2-20]. Requests and messages are
    /// never shortened.
    ///
    /// # Errors
    /// [`EncodeError::TooLarge`] if that does not help, or as for `encode`; `out` is as it was then.
    pub fn encode_within(
        &self,
        version: ProtocolVersion,
        maximum: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        if let Packet::Publish(publish) = self {
            let packet_len = publish.encoded_len(version);
            if packet_len > maximum as usize {
                return Err(EncodeError::TooLarge {
                    packet_len,
                    maximum,
                });
            }
            return publish.encode(version, out).map(|_| ());
        }
        let start = out.len();
        let mut packet_len = 0;
        for optional in [Optional::ALL, Optional::WITHOUT_REASON, Optional::NONE] {
            self.encode_with(version, optional, out)?;
            packet_len = out.len() - start;
            if packet_len <= maximum as usize {
                return Ok(());
            }
            out.truncate(start);
        }
        Err(EncodeError::TooLarge {
            packet_len,
            maximum,
        })
    }

    fn encode_with(
        &self,
        version: ProtocolVersion,
        optional: Optional,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let start = out.len();
        let result = Encoder {
            out,
            version,
            optional,
        }
        .packet(self);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }
}

/// What an answer may go without.
#[derive(Clone, Copy)]
struct Optional {
    reason_string: bool,
    user_properties: bool,
}

impl Optional {
    const ALL: Self = Self {
        reason_string: true,
        user_properties: true,
    };
    const WITHOUT_REASON: Self = Self {
        reason_string: false,
        user_properties: true,
    };
    const NONE: Self = Self {
        reason_string: false,
        user_properties: false,
    };
}

/// Writes one packet.
struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    version: ProtocolVersion,
    optional: Optional,
}

impl Encoder<'_> {
    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), EncodeError> {
        let kind = packet.kind();
        match packet {
            Packet::Connect(connect) => {
                self.version = connect.version;
                self.framed(kind, |encoder| encoder.connect(connect))
            }
            Packet::Connack(connack) => self.framed(kind, |encoder| encoder.connack(connack)),
            Packet::Publish(publish) => publish.encode(self.version, self.out).map(|_| ()),
            Packet::Puback(ack) => self.acknowledgement(AcknowledgementKind::Puback, ack),
            Packet::Pubrec(ack) => self.acknowledgement(AcknowledgementKind::Pubrec, ack),
            Packet::Pubrel(ack) => self.acknowledgement(AcknowledgementKind::Pubrel, ack),
            Packet::Pubcomp(ack) => self.acknowledgement(AcknowledgementKind::Pubcomp, ack),
            Packet::Subscribe(subscribe) => {
                self.framed(kind, |encoder| encoder.subscribe(subscribe))
            }
            Packet::Suback(suback) => self.framed(kind, |encoder| encoder.suback(suback)),
            Packet::Unsubscribe(unsubscribe) => {
                self.framed(kind, |encoder| encoder.unsubscribe(unsubscribe))
            }
            Packet::Unsuback(unsuback) => self.framed(kind, |encoder| encoder.unsuback(unsuback)),
            Packet::Pingreq | Packet::Pingresp => self.framed(kind, |_| Ok(())),
            Packet::Disconnect(disconnect) => {
                self.framed(kind, |encoder| encoder.disconnect(disconnect))
            }
            Packet::Auth(auth) => self.framed(kind, |encoder| encoder.auth(auth)),
        }
    }

    /// Fixed header, then what `body` writes.
    fn framed(
        &mut self,
        kind: PacketKind,
        body: impl FnOnce(&mut Encoder<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.out.push((kind as u8) << 4 | kind.flags());
        self.with_length(body)
    }

    /// The property section, in 5.0 only.
    fn properties(
        &mut self,
        content: impl FnOnce(&mut Encoder<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        if self.version.has_properties() {
            self.with_length(content)
        } else {
            Ok(())
        }
    }

    fn with_length(
        &mut self,
        content: impl FnOnce(&mut Encoder<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let Self {
            ref mut out,
            version,
            optional,
        } = *self;
        put_with_length(out, |out| {
            content(&mut Encoder {
                out,
                version,
                optional,
            })
        })
    }

    fn property(&mut self, property: Property<'_>) -> Result<(), EncodeError> {
        property.write(self.out)
    }

    /// The property of a numeric type if its value is there.
    fn property_if<T>(
        &mut self,
        value: Option<T>,
        property: impl FnOnce(T) -> Property<'static>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.property(property(value)),
            None => Ok(()),
        }
    }

    /// The property of type string if its value is there.
    fn text_if<'t>(
        &mut self,
        value: Option<&'t str>,
        property: impl FnOnce(&'t str) -> Property<'t>,
    ) -> Result<(), EncodeError> {
        match value {
            Some(text) => self.property(property(text)),
            None => Ok(()),
        }
    }

    fn user_properties(&mut self, user_properties: &[(&str, &str)]) -> Result<(), EncodeError> {
        user_properties
            .iter()
            .try_for_each(|&(name, value)| self.property(Property::UserProperty(name, value)))
    }

    /// The reason string and user properties of an answer, as far as they may be there.
    fn diagnostics(
        &mut self,
        reason_string: Option<&str>,
        user_properties: &[(&str, &str)],
    ) -> Result<(), EncodeError> {
        if let (Some(text), true) = (reason_string, self.optional.reason_string) {
            self.property(Property::ReasonString(text))?;
        }
        if self.optional.user_properties {
            self.user_properties(user_properties)?;
        }
        Ok(())
    }

    fn packet_id(&mut self, packet_id: PacketId) {
        self.out.extend_from_slice(&packet_id.value().to_be_bytes());
    }

    /// A reason code of 5.0.
    fn reason_code(&mut self, kind: PacketKind, code: ReasonCode) -> Result<(), EncodeError> {
        check_reason_code(kind, code)?;
        self.out.push(code as u8);
        Ok(())
    }
}

fn check_reason_code(kind: PacketKind, code: ReasonCode) -> Result<(), EncodeError> {
    if code != ReasonCode::Success && !code.is_allowed_in(kind) {
        return Err(EncodeError::ReasonCodeInvalid { kind, code });
    }
    Ok(())
}
