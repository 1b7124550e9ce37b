//! The cluster as shown to an operator.

use crate::identity::{Incarnation, KeyId, NodeId, NodeSlot};

/// One node as known to this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Our slot for it.
    pub slot: NodeSlot,
    /// Its identity.
    pub node: NodeId,
    /// Of its current start.
    pub incarnation: Incarnation,
    /// For display.
    pub name: String,
    /// HOST:PORT for links.
    pub address: String,
    /// Up: control and data reach it. True for this node itself.
    pub is_up: bool,
    /// Smoothed RTT of the link in microseconds, as exact as the shell's clock; `None` without a link.
    pub rtt_us: Option<u64>,
    /// The key by which it was authenticated on the link; `None` without a direct link, or where links are not proved.
    pub key: Option<KeyId>,
    /// Clients connected to it.
    pub clients: u64,
    /// Subscriptions of its sessions.
    pub subscriptions: u64,
    /// Bytes of messages for it that it has not acknowledged.
    pub unacknowledged_bytes: u64,
    /// Traffic on its links since the process started; zero for this node itself.
    pub counters: LinkCounters,
}

/// Traffic on the links to one node, over all links since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Records sent, resends included.
    pub data_out_messages: u64,
    /// Batches they were sent in.
    pub data_out_batches: u64,
    /// Bytes of them, batch headers included.
    pub data_out_bytes: u64,
    /// Records received, duplicates included.
    pub data_in_messages: u64,
    /// Bytes of them, batch headers included.
    pub data_in_bytes: u64,
    /// Control packets sent.
    pub control_out_messages: u64,
    /// Bytes of them.
    pub control_out_bytes: u64,
    /// Control packets received.
    pub control_in_messages: u64,
    /// Bytes of them.
    pub control_in_bytes: u64,
    /// Records received again and discarded.
    pub duplicates: u64,
    /// Records resent over a later link.
    pub resends: u64,
    /// QoS 0 records not sent: no credit, or the node was between two links.
    pub dropped: u64,
    /// Links closed because bytes were malformed or violated a rule.
    pub refused: u64,
}

/// Round trips of all links together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundTrips {
    /// How many took at most the milliseconds in the same place of [`Self::BOUNDS_MS`], and more than those in the place before.
    pub within: [u64; Self::BOUNDS_MS.len()],
    /// All of them, including longer ones.
    pub count: u64,
    /// The sum of their times, in microseconds.
    pub sum_us: u64,
}

impl RoundTrips {
    /// The upper bounds.
    pub const BOUNDS_MS: [u64; 8] = [1, 3, 10, 30, 100, 300, 1000, 10_000];

    pub(crate) fn add(&mut self, sample_us: u64) {
        let bounds = Self::BOUNDS_MS.iter();
        let mut buckets = bounds.zip(&mut self.within);
        if let Some((_, count)) = buckets.find(|(bound, _)| sample_us <= **bound * 1000) {
            *count += 1;
        }
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(sample_us);
    }
}

/// Counters that concern no single node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OverlayCounters {
    /// Handshakes refused: strangers, other clusters or versions, links without proof, identities in use.
    pub refused_links: u64,
    /// Messages refused because the resend buffer was full.
    pub refused_messages: u64,
    /// Records of other nodes that cannot be read: dropped, and refused to their publishers.
    pub unreadable_messages: u64,
    /// Addresses not kept because the table was full.
    pub refused_addresses: u64,
    /// Messages of other nodes passed on along trees, once for each branch.
    pub relayed_messages: u64,
    /// Their bytes, and those of tunnels over this node.
    pub relayed_bytes: u64,
    /// QoS 0 messages of other nodes not passed on: the next link was over its limit.
    pub relay_drops: u64,
    /// Messages and frames without a known path, or received by the wrong node; their origins resend them.
    pub relay_misses: u64,
    /// Records of nodes received again, or after a later one: ignored.
    pub repeated_records: u64,
    /// Records of this node that it never wrote: replaced by a later one.
    pub altered_records: u64,
    /// Tunnels opened.
    pub tunnels: u64,
    /// Elections of a different root for the tree of all nodes.
    pub elections: u64,
    /// From the start to the first agreed tree with every reachable node, in milliseconds; 0 before that.
    pub convergence_ms: u64,
    /// Nodes lost and then repaired: the trees were computed without them.
    pub repairs: u64,
    /// For the last repair, the time from the last receipt from the node until the trees were computed without it, in milliseconds.
    pub last_repair_ms: u64,
    /// The sum of those times, in milliseconds.
    pub repair_ms: u64,
    /// Replies to hellos, by how long they took; at the end of a link that sends none, the means that its hellos name.
    pub round_trips: RoundTrips,
    /// Sets of nodes that got no tree of their own: the number of trees is at its limit.
    pub refused_trees: u64,
    /// Bytes of unacknowledged messages kept at present.
    pub unacknowledged_bytes: u64,
    /// Unacknowledged messages kept at present.
    pub unacknowledged_messages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_count_in_the_bucket_of_their_length() {
        let mut found = RoundTrips::default();
        for sample_us in [0, 1000, 1001, 30_000_000] {
            found.add(sample_us);
        }
        assert_eq!(found.within, [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!((found.count, found.sum_us), (4, 30_002_001));
    }
}
