//! Wills that are held here for clients of other nodes.

use std::collections::BTreeMap;

use thicket_session::server::StoredWill;

/// Bytes of wills that a worker holds for clients of other nodes; further ones are not held.
pub(in super::super) const WILL_BYTES: usize = 256 * 1024 * 1024;
/// What a will costs beside its strings: its place in a map, and the allocations.
const WILL_OVERHEAD: usize = 160;

/// Wills that are held for the clients of one worker of another node, by number.
pub(in super::super) type HeldWills = BTreeMap<u64, StoredWill>;

/// How many wills are held here for others.
#[derive(Debug, Default)]
pub(in super::super) struct HeldWillCount {
    wills: u64,
    bytes: usize,
    /// A will was not held, and none has been forgotten with its node since.
    is_full: bool,
}

impl HeldWillCount {
    /// Counts one more. False: it would exceed the bound.
    pub fn add(&mut self, will: &StoredWill) -> bool {
        let bytes = bytes_of(will);
        let has_capacity = self.bytes + bytes <= WILL_BYTES;
        if has_capacity {
            self.wills += 1;
            self.bytes += bytes;
        }
        has_capacity
    }

    pub const fn remove(&mut self, will: &StoredWill) {
        self.wills -= 1;
        self.bytes -= bytes_of(will);
    }

    /// A will is not held. Whether it is the first one.
    pub const fn note_full(&mut self) -> bool {
        !std::mem::replace(&mut self.is_full, true)
    }

    /// All wills of a node are forgotten.
    pub fn remove_all(&mut self, wills: &HeldWills) {
        for will in wills.values() {
            self.remove(will);
        }
        self.is_full = false;
    }

    /// Number and bytes.
    pub const fn total(&self) -> (u64, u64) {
        (self.wills, self.bytes as u64)
    }
}

const fn bytes_of(will: &StoredWill) -> usize {
    WILL_OVERHEAD + will.topic.len() + will.payload.len() + will.properties.len()
}
