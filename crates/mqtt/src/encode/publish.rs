//! PUBLISH: the hot path. Its size is known before a byte is written.

use crate::property::{check_subscription_identifier, id};
use crate::reader::VARIABLE_BYTE_INTEGER_MAX;
use crate::write::{
    put_variable_byte_integer, variable_byte_integer_bytes, variable_byte_integer_len,
};
use crate::{EncodeError, PacketKind, ProtocolVersion, Publish, Qos};

/// Sizes of a PUBLISH in bytes.
struct Sizes {
    properties: usize,
    remaining: usize,
}

impl Publish<'_> {
    /// Bytes of the packet when encoded; exact for what [`encode`](Self::encode) accepts.
    #[must_use]
    #[inline]
    pub fn encoded_len(&self, version: ProtocolVersion) -> usize {
        let remaining = self.sizes(version).remaining;
        1 + variable_byte_integer_len(remaining) + remaining
    }

    /// Appends the packet to `out`; answers at which index of `out` the two bytes of the packet identifier stand, so that a
    /// copy of the bytes can be given another one. `None` for QoS 0. Properties are left out before 5.0.
    ///
    /// # Errors
    /// See [`EncodeError`]; `out` is as it was then.
    #[inline]
    pub fn encode(
        &self,
        version: ProtocolVersion,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, EncodeError> {
        self.check(version)?;
        let sizes = self.sizes(version);
        let remaining = match u32::try_from(sizes.remaining) {
            Ok(remaining) if remaining <= VARIABLE_BYTE_INTEGER_MAX => remaining,
            _ => {
                return Err(EncodeError::PacketTooLong {
                    len: sizes.remaining,
                });
            }
        };
        // One reservation, then as few and as fixed pieces as possible: each piece checks the room again.
        out.reserve(5 + sizes.remaining);
        self.write_header(remaining, out);
        out.extend_from_slice(self.topic.as_bytes());
        let packet_id_at = self.write_packet_id(out);
        if version.has_properties() {
            if sizes.properties == 0 {
                out.push(0);
            } else {
                self.write_properties(sizes.properties as u32, out);
            }
        }
        out.extend_from_slice(self.payload);
        Ok(packet_id_at)
    }

    /// Fixed header and length of the topic.
    #[inline]
    fn write_header(&self, remaining: u32, out: &mut Vec<u8>) {
        let first_byte = (PacketKind::Publish as u8) << 4
            | u8::from(self.dup) << 3
            | (self.qos as u8) << 1
            | u8::from(self.retain);
        let [high, low] = (self.topic.len() as u16).to_be_bytes();
        match variable_byte_integer_bytes(remaining) {
            ([first, ..], 1) => out.extend_from_slice(&[first_byte, first, high, low]),
            ([first, second, ..], 2) => {
                out.extend_from_slice(&[first_byte, first, second, high, low]);
            }
            (bytes, len) => {
                out.push(first_byte);
                out.extend_from_slice(&bytes[..len]);
                out.extend_from_slice(&[high, low]);
            }
        }
    }

    #[inline]
    fn write_packet_id(&self, out: &mut Vec<u8>) -> Option<usize> {
        let packet_id = self.packet_id?;
        let at = out.len();
        out.extend_from_slice(&packet_id.value().to_be_bytes());
        Some(at)
    }

    #[inline]
    fn check(&self, version: ProtocolVersion) -> Result<(), EncodeError> {
        if self.topic.len() > usize::from(u16::MAX) {
            return Err(EncodeError::StringTooLong {
                len: self.topic.len(),
            });
        }
        if self.topic.is_empty() && (self.topic_alias.is_none() || !version.has_properties()) {
            return Err(EncodeError::TopicMissing);
        }
        if self.packet_id.is_some() != (self.qos != Qos::AtMostOnce) {
            return Err(EncodeError::PacketIdMismatch);
        }
        if version.has_properties() {
            if self.topic_alias == Some(0) {
                return Err(EncodeError::PropertyZero {
                    id: id::TOPIC_ALIAS,
                });
            }
            if !self.subscription_identifiers.is_empty() {
                self.subscription_identifiers
                    .iter()
                    .try_for_each(check_subscription_identifier)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn sizes(&self, version: ProtocolVersion) -> Sizes {
        let packet_id = if self.packet_id.is_some() { 2 } else { 0 };
        let fields = 2 + self.topic.len() + packet_id + self.payload.len();
        if !version.has_properties() {
            return Sizes {
                properties: 0,
                remaining: fields,
            };
        }
        let mut properties = self.properties.encoded_len();
        if self.topic_alias.is_some() {
            properties += 3;
        }
        if self.message_expiry_interval.is_some() {
            properties += 5;
        }
        if !self.subscription_identifiers.is_empty() {
            let len = |value| 1 + variable_byte_integer_len(value as usize);
            properties += self.subscription_identifiers.iter().map(len).sum::<usize>();
        }
        Sizes {
            properties,
            remaining: fields + variable_byte_integer_len(properties) + properties,
        }
    }

    fn write_properties(&self, len: u32, out: &mut Vec<u8>) {
        put_variable_byte_integer(out, len);
        if let Some(seconds) = self.message_expiry_interval {
            out.push(id::MESSAGE_EXPIRY_INTERVAL);
            out.extend_from_slice(&seconds.to_be_bytes());
        }
        if let Some(alias) = self.topic_alias {
            out.push(id::TOPIC_ALIAS);
            out.extend_from_slice(&alias.to_be_bytes());
        }
        if !self.subscription_identifiers.is_empty() {
            for identifier in self.subscription_identifiers.iter() {
                out.push(id::SUBSCRIPTION_IDENTIFIER);
                put_variable_byte_integer(out, identifier);
            }
        }
        self.properties.write_to(out);
    }
}
