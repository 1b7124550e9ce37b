//! Identifiers used between nodes.

use std::fmt;

/// A node's identity: random, stable, not tied to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// Higher at every start of a node, never repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// The highest incarnation that a node may have; higher ones are refused. Incarnations are milliseconds of a clock, so this lasts until the year
    /// 2527, and a node that is recorded with too high a one can still rise above it.
    pub const MAXIMUM: Self = Self(1 << 44);

    /// The next one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Identifies the key by which the other end of a link proved that it belongs to the cluster: bytes of a hash, which reveal nothing of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:08x}", u32::from_be_bytes(self.0))
    }
}

/// A node as this process numbers it: small, dense, never reused for another [`NodeId`] while the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeSlot(pub u16);

impl NodeSlot {
    /// This node itself. No output names it, no message is forwarded to it.
    pub const LOCAL: Self = Self(0);

    /// The slot as an index into a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One of the ordered streams of messages a node originates: the index of the worker that numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u16);

/// A socket that leads (or may lead) to another node: an index the shell chooses, small and dense. It ends when the shell has handed in `Closed` or
/// has performed `Close`. Outputs of the same round may still name it then: the shell passes them over, and gives the index to another socket only
/// when all outputs of the round have been performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// The origin of a message. With the message's number it identifies the message in the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The node whose worker numbered the message.
    pub slot: NodeSlot,
    /// The incarnation of that node that the number belongs to.
    pub incarnation: Incarnation,
    /// The worker there.
    pub stream: StreamId,
}
