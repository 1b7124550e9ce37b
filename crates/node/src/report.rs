//! What `thicket ctl` shows.

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SessionReport {
    pub client_id: String,
    pub connected: bool,
    pub protocol_version: u8,
    pub peer: Option<String>,
    pub clean_start: bool,
    /// Seconds; `None`: ends with the connection.
    pub session_expiry_interval: Option<u32>,
    pub subscriptions: usize,
    pub queued_messages: usize,
    pub queued_bytes: u64,
    pub inflight: usize,
    pub dropped_messages: u64,
    pub worker: u8,
}

/// One subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SubscriptionReport {
    pub client_id: String,
    /// As the client wrote it, `$share/...` included.
    pub filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub subscription_identifier: Option<u32>,
}

/// One node as this one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NodeReport {
    pub name: String,
    /// Hexadecimal.
    pub id: String,
    pub incarnation: u64,
    pub address: String,
    pub is_self: bool,
    pub reachable: bool,
    /// Microseconds; `None` for itself or without a link.
    pub rtt_us: Option<u64>,
    pub clients: u64,
    pub subscriptions: u64,
}

/// The four traffics of the model, in messages and bytes since the start (Detti III), and what was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Traffic {
    /// From clients.
    pub external_in_messages: u64,
    pub external_in_bytes: u64,
    /// To clients.
    pub external_out_messages: u64,
    pub external_out_bytes: u64,
    /// From other nodes.
    pub internal_in_messages: u64,
    pub internal_in_bytes: u64,
    /// To other nodes.
    pub internal_out_messages: u64,
    pub internal_out_bytes: u64,
    /// Not delivered: out-buffer or queue full.
    pub dropped_messages: u64,
    /// Not delivered: expired.
    pub expired_messages: u64,
    /// Published where the publisher may not, and dropped.
    pub refused_messages: u64,
    /// Not delivered: the session may not read the topic.
    pub withheld_messages: u64,
    pub connections: u64,
    pub sessions: u64,
    pub subscriptions: u64,
    pub retained_messages: u64,
    /// Messages whose publisher is still owed an acknowledgement.
    pub unacknowledged_messages: u64,
}

impl Traffic {
    /// Counts a message to a client, or one that is larger than the client takes.
    pub(crate) const fn count_sent(&mut self, sent: bool, payload_len: usize) {
        if sent {
            self.external_out_messages += 1;
            self.external_out_bytes += payload_len as u64;
        } else {
            self.dropped_messages += 1;
        }
    }
}
