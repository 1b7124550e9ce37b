//! Packets to bytes.

use crate::{Packet, ProtocolVersion, Publish};

/// Why a packet cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not encodable")]
pub struct EncodeError;

impl Packet<'_> {
    /// Appends the packet to `out`.
    pub fn encode(&self, _version: ProtocolVersion, _out: &mut Vec<u8>) -> Result<(), EncodeError> {
        todo!()
    }

    /// Like `encode`, within `maximum` bytes.
    pub fn encode_within(&self, _version: ProtocolVersion, _maximum: u32, _out: &mut Vec<u8>) -> Result<(), EncodeError> {
        todo!()
    }
}

impl Publish<'_> {
    /// Bytes of the packet when encoded.
    #[must_use]
    pub fn encoded_len(&self, _version: ProtocolVersion) -> usize {
        todo!()
    }

    /// Appends the packet to `out`; answers where in `out` the two bytes of the packet identifier stand.
    pub fn encode(&self, _version: ProtocolVersion, _out: &mut Vec<u8>) -> Result<Option<usize>, EncodeError> {
        todo!()
    }
}
