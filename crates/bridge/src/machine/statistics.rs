//! The counts of a bridge.

/// What a bridge has counted since it was created, and its current state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The connection to the node.
    pub local: SideStatistics,
    /// The connection to the other broker.
    pub remote: SideStatistics,
    /// From the node to the other broker.
    pub outward: LaneStatistics,
    /// From the other broker to the node.
    pub inward: LaneStatistics,
}

/// One connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SideStatistics {
    /// Whether the broker has accepted it and answered its subscriptions.
    pub is_connected: bool,
    /// How often it was accepted.
    pub connects: u64,
}

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneStatistics {
    /// Messages received, including repetitions.
    pub received: u64,
    /// Messages the other broker has: acknowledged, or sent at QoS 0.
    pub forwarded: u64,
    /// Messages of QoS 0 that exceeded the queue.
    pub dropped: u64,
    /// Messages that the other broker did not accept.
    pub refused: u64,
    /// Messages that expired before they could be sent.
    pub expired: u64,
    /// Messages that had crossed before: echoes, and those that came round a ring.
    pub looped: u64,
    /// Messages that no rule matches: the session has subscriptions of an earlier configuration.
    pub unmatched: u64,
    /// Messages in the queue, including sent and unacknowledged ones.
    pub queue_messages: usize,
    /// Their bytes.
    pub queue_bytes: usize,
}
