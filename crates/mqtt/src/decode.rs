//! Bytes to packets.

use crate::{Packet, ProtocolVersion};

/// What the first bytes of a packet say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The packet's first byte.
    pub first_byte: u8,
    /// Bytes of the whole packet, fixed header included.
    pub packet_len: usize,
}

/// Why bytes are no packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed")]
pub struct DecodeError;

/// Reads the fixed header at the start of `bytes`, `None` if it is not whole yet.
pub fn frame_header(_bytes: &[u8]) -> Result<Option<FrameHeader>, DecodeError> {
    todo!()
}

/// Decodes the packet at the start of `bytes`.
pub fn decode(_bytes: &[u8], _version: ProtocolVersion, _maximum_packet_size: u32) -> Result<Option<(Packet<'_>, usize)>, DecodeError> {
    todo!()
}
