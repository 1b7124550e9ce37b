//! What `thicket ctl` shows.

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SessionReport {
    pub client_id: String,
    /// Its user; `None`: none in particular.
    pub user_name: Option<String>,
    pub connected: bool,
    /// 3, 4 (3.1.1) or 5; `None`: its client has not connected to it since it came here.
    pub protocol_version: Option<u8>,
    pub peer: Option<String>,
    pub clean_start: bool,
    /// Seconds; `None`: ends with the connection.
    pub session_expiry_interval: Option<u32>,
    pub subscriptions: usize,
    pub queued_messages: usize,
    pub queued_bytes: u64,
    pub inflight: usize,
    pub dropped_messages: u64,
    /// Other nodes that have all of it.
    pub backups: u8,
    pub worker: u8,
}

/// Which sessions are selected, and in which order. What is `None` does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientQuery {
    /// The whole client identifier.
    pub client_id: Option<String>,
    /// The whole user name.
    pub user_name: Option<String>,
    /// The address of the client, without its port.
    pub address: Option<std::net::IpAddr>,
    /// A part of client identifier, user name or address.
    pub search: Option<String>,
    /// Whether its client is connected now.
    pub connected: Option<bool>,
    /// What comes first.
    pub order: ClientOrder,
    /// Only those after this name; ordered by name.
    pub after: Option<String>,
    /// How many at most.
    pub limit: usize,
}

/// Which sessions come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientOrder {
    /// By the names of sessions, ascending: so they come in pages.
    #[default]
    Name,
    /// With the most bytes that the client has not received.
    Waiting,
    /// With the message that has waited longest.
    Oldest,
    /// With the most messages a second.
    Rate,
}

/// One session, with what its client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientReport {
    /// The name of the session in the cluster.
    pub name: String,
    /// The report of the session.
    pub session: SessionReport,
    /// Bytes that its connection has not accepted yet.
    pub unsent_bytes: u64,
    /// How long the first message of its queue has waited here; `None`: none waits. What was queued before this node had the session, or before
    /// it started, has waited longer.
    pub oldest_queued_ms: Option<u64>,
    /// Thousandths of a message a second, from the client and to it: a mean of half a minute and more.
    pub millis_per_s: u64,
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

/// Which subscriptions are selected. What is `None` does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriberQuery {
    /// The whole client identifier.
    pub client_id: Option<String>,
    /// As the client wrote it, `$share/...` included.
    pub filter: Option<String>,
    /// A topic that the filter matches.
    pub topic: Option<String>,
    /// Only those of sessions after this name.
    pub after: Option<String>,
    /// How many at most, and the rest of those of the last session.
    pub limit: usize,
}

/// One session, for a recording of who receives what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its name in the cluster: records are ordered by it.
    pub name: String,
    /// As in the CONNECT of its client.
    pub client_id: String,
    /// Its user; `None`: none in particular.
    pub user_name: Option<String>,
    /// As the client wrote them, `$share/...` included; ascending.
    pub filters: Vec<String>,
}

/// A session that a placement asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedName {
    /// Client identifier of the client that was placed.
    pub client_id: String,
    /// 1 for the client's own session.
    pub number: u16,
    /// Sessions that the client asked for at most; `None`: not known.
    pub max_sessions: Option<u8>,
    /// What the client publishes there.
    pub publish: Vec<String>,
    /// All sessions of the client, by number: with which client identifier, and the identity of the node.
    pub sessions: Vec<(String, String)>,
}

/// One node as seen by this one.
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
    /// Unix time in milliseconds; `None`: it is not down, or was down already when this process started.
    pub out_since_ms: Option<u64>,
    /// Of the links with it; `None` while it is down.
    pub wire_version: Option<u16>,
    /// Microseconds; `None` for itself or without a link.
    pub rtt_us: Option<u64>,
    /// Milliseconds that its clock is ahead of that of the node that answers; `None` for itself, without a link, or with one of an older version.
    pub clock_ahead_ms: Option<i64>,
    /// Identifies the key by which it proved itself on the link.
    pub key: Option<String>,
    pub clients: u64,
    pub subscriptions: u64,
    /// Its own report; `None`: nothing yet, or it is down.
    pub state: Option<crate::NodeState>,
    /// What is kept here for its sessions while it is down.
    pub hinted_messages: u64,
    pub hinted_bytes: u64,
    /// The site that it is configured with.
    pub site: Option<String>,
    /// What is set otherwise there than at the node that answers, though it must be the same on all.
    pub disagreements: Vec<Disagreement>,
}

/// A setting that must be the same on all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SharedSetting {
    pub key: String,
    pub value: String,
}

/// Two nodes have set it differently.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Disagreement {
    pub key: String,
    /// At the node that answers.
    pub own: String,
    /// At the other one.
    pub theirs: String,
}

/// Messages kept for sessions of nodes that are down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct HintsReport {
    pub messages: u64,
    /// Of their records, including overhead.
    pub bytes: u64,
    /// Dropped or refused over the limit, for all nodes since the start.
    pub dropped_messages: u64,
}

/// Who belongs to the cluster, and whether this side has quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MembershipReport {
    /// False: this side has no quorum, and [`Partition::Majority`](crate::Partition) is configured.
    pub serves: bool,
    /// Nodes that ever joined and were not removed.
    pub members: u64,
    /// Of them, those that are up, this one included.
    pub reachable: u64,
}

impl MembershipReport {
    /// Why a side without quorum does not serve, and what to do about it; for the log, reason strings and people.
    #[must_use]
    pub fn without_quorum(&self) -> String {
        let Self {
            members, reachable, ..
        } = self;
        let rest = if reachable * 2 > *members {
            "but some of them have no path to each other"
        } else {
            "`thicket ctl forget NODE` removes one that is gone for good"
        };
        format!(
            "this side of the cluster has no majority: {reachable} of {members} members are reachable, {rest}"
        )
    }
}

/// Why a node cannot be removed from the cluster. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// Misuse: give the name or the identity as in the list of nodes.
    #[error("no member of the cluster has the name or the identity {node:?}")]
    Unknown {
        /// What was asked for.
        node: String,
    },
    /// Misuse: give one of the identities.
    #[error("several members have the name {node:?}: {}", ids.join(", "))]
    Ambiguous {
        /// What was asked for.
        node: String,
        /// Of those it may mean.
        ids: Vec<String>,
    },
    /// Refused: stop it first; a node that is up would join again at once.
    #[error("node {node:?} is up: stop it first")]
    Up {
        /// What was asked for.
        node: String,
    },
}

/// The four traffics of the model, in messages and bytes since the start (Detti III), and what was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Traffic {
    /// Sessions that two nodes served, in a partition, and that were merged here; what was new in the other branch.
    pub merged_sessions: u64,
    pub merged_messages: u64,
    /// Ranges of finished messages that were given up over the limit: their messages may come once more.
    pub forgotten_finishes: u64,
    /// For sessions of nodes that are down: dropped or refused over the limit.
    pub hinted_dropped_messages: u64,
    /// Connections handed to the worker that has the recipients of what they publish.
    pub relocated_connections: u64,
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
    /// Of them, those over the limit of a session's queue, one for each such session.
    pub queue_dropped_messages: u64,
    /// Refused over the limit of a session's queue.
    pub queue_refused_messages: u64,
    /// Not delivered: expired.
    pub expired_messages: u64,
    /// Published here as the nodes of their clients were down.
    pub wills_of_lost_nodes: u64,
    /// Published where the publisher may not, and dropped.
    pub refused_messages: u64,
    /// Not delivered: the session may not read the topic.
    pub withheld_messages: u64,
    pub connections: u64,
    pub sessions: u64,
    pub subscriptions: u64,
    /// Of them, shared ones.
    pub shared_subscriptions: u64,
    /// Messages that wait for sessions here, once for each.
    pub queued_messages: u64,
    pub queued_bytes: u64,
    /// Sessions of other nodes that have a backup here.
    pub backups: u64,
    /// Sessions of which no other node has everything, though there are other nodes: all of a persistent one, the will of another. Also sessions whose
    /// primary is down, as long as a backup here waits for another one to be promoted.
    pub under_replicated_sessions: u64,
    pub retained_messages: u64,
    pub retained_bytes: u64,
    /// Messages whose publisher is still owed an acknowledgement.
    pub unacknowledged_messages: u64,
    /// Connections ended because those without a session held too much.
    pub half_open_refused: u64,
    /// Clients refused because a session of theirs would be over a limit: the node's, or their own.
    pub sessions_refused: u64,
    /// Sessions that ended because their clients stayed away for longer than their expiry intervals.
    pub expired_sessions: u64,
}

impl Traffic {
    /// Counts a message to a client, or one that is larger than the client accepts.
    pub(crate) const fn count_sent(&mut self, sent: bool, payload_len: usize) {
        if sent {
            self.external_out_messages += 1;
            self.external_out_bytes += payload_len as u64;
        } else {
            self.dropped_messages += 1;
        }
    }
}

/// What a node that is drained still has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Clients connected.
    pub connections: u64,
    /// Sessions that outlive their connections.
    pub sessions: u64,
}

/// Where the memory of a worker is. Bytes are what was requested; the allocator uses some more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct MemoryReport {
    pub connections: u64,
    /// Capacity of the buffers of what is on its way to clients.
    pub out_buffer_bytes: u64,
    /// Capacity of the buffers of packets that are not whole yet.
    pub in_buffer_bytes: u64,
    /// Of them, held by connections without a session.
    pub half_open_bytes: u64,
    pub sessions: u64,
    pub queued_messages: u64,
    pub queued_bytes: u64,
    /// Since the start: what was dropped over the limits of queues, and what was refused.
    pub queue_dropped_messages: u64,
    pub queue_refused_messages: u64,
    pub inflight_messages: u64,
    pub inflight_bytes: u64,
    pub subscriptions: u64,
    /// Text of the filters of sessions.
    pub filter_bytes: u64,
    /// Wills of sessions; bytes include the overhead.
    pub wills: u64,
    pub will_bytes: u64,
    /// Sessions of other nodes that have a backup here: none of the above but `subscriptions` counts them.
    pub backups: u64,
    /// Held for them: queued, in flight, or not yet named by the primary.
    pub backup_messages: u64,
    pub backup_bytes: u64,
    /// Wills of clients of other nodes whose sessions end with their connections; bytes include the overhead.
    pub held_wills: u64,
    pub held_will_bytes: u64,
    /// Sent to the nodes that hold backups of the sessions here, and not acknowledged.
    pub backup_stream_bytes: u64,
    /// Messages that other threads were handed, and have not taken.
    pub handed_bytes: u64,
}

/// A cache, or a memory that recognises duplicates. Each such table has a bound: it grows up to that and no further, however many clients and topics
/// there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Of what.
    pub what: &'static str,
    /// How many there are.
    pub entries: u64,
    /// The bound: beyond it the older ones are evicted.
    pub at_most: u64,
    /// What was requested from the allocator, where that is counted.
    pub bytes: Option<u64>,
}

impl Remembered {
    /// So many entries of so many at most; their bytes are not counted.
    #[must_use]
    pub const fn new(what: &'static str, entries: usize, at_most: usize) -> Self {
        Self {
            what,
            entries: entries as u64,
            at_most: at_most as u64,
            bytes: None,
        }
    }

    pub(crate) const fn with_bytes(mut self, bytes: usize) -> Self {
        self.bytes = Some(bytes as u64);
        self
    }
}

/// Where the memory of the hub is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct HubMemoryReport {
    pub retained_messages: u64,
    /// Of their topics and records.
    pub retained_bytes: u64,
    /// Sent to other nodes and not acknowledged.
    pub link_bytes: u64,
    /// Messages of other nodes that workers were handed, and have not taken.
    pub handed_bytes: u64,
    /// For sessions of nodes that are down.
    pub hinted_messages: u64,
    pub hinted_bytes: u64,
    pub hinted_dropped_messages: u64,
}

/// What a trace is to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceSubject {
    /// All packets of a client.
    Client(Box<str>),
    /// PUBLISH packets of all clients whose topic matches.
    Topic(thicket_session::topic::TopicFilter),
}

/// Which way a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client.
    In,
    /// To the client.
    Out,
}

/// One packet of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceLine {
    /// Whose.
    pub client_id: String,
    /// Which way.
    pub direction: Direction,
    /// Kind and facts, no payload.
    pub packet: String,
}

/// Of which clients, where several have an identifier. A part that is `None` is not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Whose<'a> {
    /// Of this user; empty: of none.
    pub user_name: Option<&'a str>,
    /// Of listeners with this topic prefix; empty: of those without one.
    pub topic_prefix: Option<&'a str>,
}

/// What became of a session that an operator wants to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// It has ended.
    Ended,
    /// There is none of this client in this worker.
    Unknown,
    /// It is on its way to another node, or being merged with a branch there, or this side of the cluster has no quorum. Nothing was done; ask again
    /// later.
    Busy,
}

/// Why a client was redirected, or was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedirectionReason {
    /// Redirected when it connected: the load of another node is lower.
    Load,
    /// Redirected: its topics are at another node.
    Topics,
    /// Redirected: this node is about to leave.
    Drained,
    /// Redirected while it was connected: the load of another node is lower.
    Moved,
    /// Served: no node has a lower load by the margin.
    Balanced,
    /// Served: its topics are here.
    Placed,
    /// Served: it was redirected already.
    CameRedirected,
    /// Served: it came back to where it was redirected from.
    DoesNotFollow,
    /// Served: before 5.0 there is no Server Reference.
    Version,
    /// Served: no node has a listener like its own.
    NoAddress,
    /// Served: the limit of redirections in this second is reached.
    Budget,
    /// Served: the node does not have the state of the others.
    Unsure,
    /// Redirected while connected: to a better node, by order of the rebalancer.
    Rebalanced,
    /// Refused: its topics are at another node, and it cannot be redirected.
    Refused,
    /// Served, though its topics are at another node: it was refused as often, or for as long, as is allowed.
    RefusedEnough,
}

impl RedirectionReason {
    /// All of them, by their number on links.
    pub const ALL: [Self; 15] = [
        Self::Load,
        Self::Topics,
        Self::Drained,
        Self::Moved,
        Self::Balanced,
        Self::Placed,
        Self::CameRedirected,
        Self::DoesNotFollow,
        Self::Version,
        Self::NoAddress,
        Self::Budget,
        Self::Unsure,
        Self::Rebalanced,
        Self::Refused,
        Self::RefusedEnough,
    ];

    /// Whether the client was sent away: redirected, or refused so that it connects elsewhere.
    #[must_use]
    pub const fn is_redirected(self) -> bool {
        matches!(
            self,
            Self::Load
                | Self::Topics
                | Self::Drained
                | Self::Moved
                | Self::Rebalanced
                | Self::Refused
        )
    }

    /// A word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Topics => "topics",
            Self::Drained => "drained",
            Self::Moved => "moved",
            Self::Balanced => "balanced",
            Self::Placed => "placed",
            Self::CameRedirected => "came_redirected",
            Self::DoesNotFollow => "does_not_follow",
            Self::Version => "version",
            Self::NoAddress => "no_address",
            Self::Budget => "budget",
            Self::Unsure => "unsure",
            Self::Rebalanced => "rebalanced",
            Self::Refused => "refused",
            Self::RefusedEnough => "refused_enough",
        }
    }
}

/// A decision about a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectionDecision {
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// What was decided, and why.
    pub reason: RedirectionReason,
    /// Where it was sent: the identity of a node.
    pub to: Option<String>,
}

/// How many decisions a node made since its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedirectionReport {
    /// Each reason once.
    pub decisions: Vec<(RedirectionReason, u64)>,
}

/// What a node has about a client, to explain why it is where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientExplanation {
    /// Whose.
    pub client_id: String,
    /// Its session is on this node.
    pub is_here: bool,
    /// It was placed: this is a session of that client.
    pub placed_as: Option<PlacedName>,
    /// It did not ask, but its topics are known.
    pub learned: Option<LearnedReport>,
    /// What redirection is based on; `None`: clients are served where they connect.
    pub policy: Option<&'static str>,
    /// The last one of this node.
    pub decision: Option<RedirectionDecision>,
    /// When it was last sent from one node to another, by any of them.
    pub moved: Option<crate::ClientMove>,
    /// Nodes that accept clients, that with the lowest load first.
    pub nodes: Vec<RankedNode>,
}

/// What was learned of a client that did not ask where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedReport {
    /// The identity of the node where it is, or where it should connect again.
    pub node: String,
    /// What it publishes.
    pub publish: Vec<String>,
    /// What it receives.
    pub subscribe: Vec<String>,
    /// CONNECTs that were refused since it was served last.
    pub refused: u8,
}

/// The load of a node as seen by another one.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedNode {
    /// Its identity.
    pub id: String,
    /// Its load as a multiple of the mean, with what was decided and cannot show in it yet.
    pub score: f64,
    /// The site that it is configured with.
    pub site: Option<String>,
    /// From the node that answers, as the two have measured it; `None`: they have no link.
    pub round_trip: Option<std::time::Duration>,
    /// Of a GB from the node that answers; 0: none.
    pub price_per_gb: f64,
    /// What a message from the node that answers to it counts as, in messages between nodes of one site; 0 for that node.
    pub message_cost: f64,
}

/// How often clients of a node publish to a topic.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicReport {
    /// With the prefix of the listener.
    pub topic: String,
    /// The identity of the node.
    pub node: String,
    /// As it was sent last: within a factor of 1.5.
    pub messages_per_s: f64,
}

/// Where a client would like its sessions to be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlacementRequest {
    /// Who asks: as in its CONNECT.
    pub client_id: String,
    /// Topics that it publishes to.
    pub publish: Vec<String>,
    /// Topics and filters that it subscribes to.
    pub subscribe: Vec<String>,
    /// Sessions that it may have (Nses), at least 1.
    pub max_sessions: u8,
    /// Messages a second of topics and filters above, as far as the client specifies them.
    pub rates: std::collections::BTreeMap<String, f64>,
    /// Who is charged for it: a user, or an address; none: nobody, as an operator asks.
    pub payer: Option<std::sync::Arc<str>>,
}

/// Where a client's sessions should be.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementReport {
    /// Of the client's session: the client identifier, with the user if sessions belong to users.
    pub name: String,
    /// Whose.
    pub client_id: String,
    /// The user that owns it; none: nobody.
    pub user_name: Option<String>,
    /// At least one; the first is the client's own.
    pub sessions: Vec<PlacementSession>,
    /// How long this holds unless it is asked for again.
    pub expires_in: std::time::Duration,
}

/// One session of a placed client.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementSession {
    /// Identity of the node.
    pub node: String,
    /// Where clients reach it; empty: it is gone.
    pub addresses: Vec<crate::ClientAddress>,
    /// Client identifier to connect with.
    pub client_id: String,
    /// What the client publishes there.
    pub publish: Vec<String>,
    /// What it subscribes to there.
    pub subscribe: Vec<String>,
}

/// Why a client is not placed. What it had stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Refused: too many requests or placements; ask again later.
    #[error("too many placements: ask again later")]
    Busy,
    /// Refused: those of its user, or of its address, take all that one may have.
    #[error("too many placements of this user or address: ask again later")]
    Share,
    /// Refused: the node does not have the state of the others, or none answered; ask again, or another node.
    #[error("the nodes that place clients cannot be asked now: ask again later")]
    Unsure,
    /// Refused: every node is full or drained.
    #[error("no node takes clients")]
    NoNodes,
    /// Misuse: the client is not placed.
    #[error("this client is not placed")]
    Unknown,
    /// Misuse: a field of the request is invalid.
    #[error("{field}: {problem}")]
    BadField {
        /// Its name, with the place in a list: `subscribe[3]`.
        field: String,
        /// What is wrong.
        problem: String,
    },
}

impl PlacementError {
    /// The error with this text, as another node has sent it.
    pub(crate) fn from_text(text: &str) -> Self {
        let plain = [
            Self::Busy,
            Self::Share,
            Self::Unsure,
            Self::NoNodes,
            Self::Unknown,
        ];
        if let Some(error) = plain.into_iter().find(|error| error.to_string() == text) {
            return error;
        }
        // Nodes of before name no field here.
        let (field, problem) = text.split_once(": ").unwrap_or(("client_id", text));
        Self::BadField {
            field: field.to_owned(),
            problem: problem.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_client_is_not_placed_is_the_same_at_the_node_that_asked() {
        let field = PlacementError::BadField {
            field: "client_id".into(),
            problem: "must not be: that".into(),
        };
        for error in [
            PlacementError::Busy,
            PlacementError::Share,
            PlacementError::Unsure,
            PlacementError::NoNodes,
            PlacementError::Unknown,
            field,
        ] {
            assert_eq!(PlacementError::from_text(&error.to_string()), error);
        }
    }
}
