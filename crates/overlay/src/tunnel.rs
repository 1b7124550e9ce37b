//! Links between two nodes that have no direct one: the bytes of a link, cut into frames that other nodes pass on along the shortest path of their
//! view (rule 1: messages are routed round a missing link).
//!
//! ```text
//! frame  from u64 | to u64 | tunnel u64 | hops u8 | kind u8 (0 bytes, 1 open, 2 close) | sequence varint | bytes to the end
//! ```
//!
//! Frames may be lost where a path changes. A missing number ends the tunnel; the next one continues where it ended, like any link after another.

use crate::identity::NodeId;
use crate::wire::{Reader, WireError, put_varint};

/// A frame passes at most this many nodes: while views differ, nodes may send it back and forth.
pub(crate) const MAXIMUM_HOPS: u8 = 32;

/// Bytes of a link in one frame at most.
pub(crate) const FRAME_BYTES: usize = 64 * 1024;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Bytes,
    Open,
    Close,
}

/// A part of a tunnel's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// Random; chosen by the node that opened the tunnel.
    pub(crate) tunnel: u64,
    pub(crate) hops: u8,
    pub(crate) kind: FrameKind,
    pub(crate) sequence: u64,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.from.0, self.to.0, self.tunnel] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&[self.hops, self.kind as u8]);
        put_varint(out, self.sequence);
        out.extend_from_slice(self.bytes);
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let (from, to, tunnel) = (NodeId(reader.u64()?), NodeId(reader.u64()?), reader.u64()?);
        let hops = reader.u8()?;
        let kind = match reader.u8()? {
            0 => FrameKind::Bytes,
            1 => FrameKind::Open,
            2 => FrameKind::Close,
            other => {
                return Err(WireError::Value {
                    field: "frame kind",
                    value: other.into(),
                });
            }
        };
        Ok(Self {
            from,
            to,
            tunnel,
            hops,
            kind,
            sequence: reader.varint()?,
            bytes: reader.take_rest(),
        })
    }
}

/// This node's end of a tunnel.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// The node at the other end.
    pub(crate) node: NodeId,
    pub(crate) id: u64,
    /// Frames sent and received.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// The first hop when it was opened: if it changes, frames may be lost.
    pub(crate) hop: Option<NodeId>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_are_read_as_written_and_any_bytes_are_refused_or_read(
            numbers in any::<[u64; 4]>(), hops in any::<u8>(), kind in 0_usize..3, bytes in any::<Vec<u8>>(),
        ) {
            let written = Frame {
                from: NodeId(numbers[0]),
                to: NodeId(numbers[1]),
                tunnel: numbers[2],
                hops,
                kind: [FrameKind::Bytes, FrameKind::Open, FrameKind::Close][kind],
                sequence: numbers[3],
                bytes: &bytes,
            };
            let mut out = Vec::new();
            written.encode(&mut out);
            prop_assert_eq!(Frame::decode(&out), Ok(written));
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert!(frame.bytes.len() < bytes.len());
            }
        }
    }
}
